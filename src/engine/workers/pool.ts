import type { Logger } from "pino";
import { ChannelClosedError } from "../../ipc/channel.ts";
import { ChildProgram, howEnded, siblingModule } from "../../ipc/child-program.ts";
import { EngineRefusal, tooSlow, UnknownOutcome } from "../refusal.ts";
import type { SpooledAnswer } from "../spool.ts";
import {
  type EngineCalls,
  type Task,
  type TaskFailure,
  taskErrors,
  type WorkerCalls,
} from "./protocol.ts";

/** How long an idle worker may take to close its files, in milliseconds. */
const CLOSE_TIME_MS = 5000;

/** Milliseconds after which an idle worker is ended, with the memory that its queries have taken. */
const IDLE_MS = 60_000;

/** How many workers there are at most; more of them than one database is read by at a time. */
const WORKER_LIMIT = 6;

/**
 * The workers over one directory. They are started as they are needed, kept, and replaced when
 * one had to be killed.
 */
export class WorkerPool {
  readonly #directory: string;
  readonly #timeLimit: number;
  readonly #log: Logger;
  readonly #workers = new Set<WorkerProcess>();
  readonly #idle: WorkerProcess[] = [];
  readonly #waiting: ((worker: WorkerProcess) => void)[] = [];

  /** `timeLimit` is how long one task may take, in milliseconds. The first worker is started. */
  constructor(directory: string, timeLimit: number, log: Logger) {
    this.#directory = directory;
    this.#timeLimit = timeLimit;
    this.#log = log;
    this.#idle.push(this.#start());
  }

  /**
   * Carries out a task as soon as a worker is free. `onSpilled` is told how much of streamed rows is
   * in the file. @throws what `WorkerProcess.run` throws
   */
  async run(
    task: Task,
    signal: AbortSignal,
    onSpilled: (byteLength: number) => void = () => {},
  ): Promise<SpooledAnswer> {
    const worker = await this.#take();
    try {
      signal.throwIfAborted();
      worker.onSpilled = onSpilled;
      return await worker.run(task, this.#timeLimit, signal);
    } finally {
      this.#giveBack(worker);
    }
  }

  /** True while a worker gives no sign of life. */
  get isStuck(): boolean {
    return [...this.#workers].some(({ missedBeats }) => missedBeats > NOTICED_BEATS);
  }

  /** Makes every worker close a database's file before its next task. */
  forget(database: string): void {
    for (const worker of this.#workers) worker.forget(database);
  }

  /** Ends all workers, which must be idle. */
  async close(): Promise<void> {
    const closing = Array.from(this.#workers, (worker) => {
      clearTimeout(worker.idling);
      return worker.close(CLOSE_TIME_MS);
    });
    await Promise.all(closing);
  }

  /** The worker that was used last is taken first: its files are open and its memory is warm. */
  async #take(): Promise<WorkerProcess> {
    const idle = this.#idle.pop();
    clearTimeout(idle?.idling);
    if (idle !== undefined) return idle;
    if (this.#workers.size < WORKER_LIMIT) return this.#start();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #giveBack(worker: WorkerProcess): void {
    const next = this.#waiting.shift();
    if (next !== undefined) next(worker.isUsable ? worker : this.#start());
    else if (worker.isUsable) {
      this.#idle.push(worker);
      worker.idling = setTimeout(() => this.#endIdle(worker), IDLE_MS).unref();
    }
  }

  #endIdle(worker: WorkerProcess): void {
    this.#remove(worker);
    void worker.close(CLOSE_TIME_MS);
    // An unused one waits for the next query.
    if (this.#workers.size === 0) this.#idle.push(this.#start());
  }

  #start(): WorkerProcess {
    const worker = new WorkerProcess(this.#directory);
    this.#workers.add(worker);
    void worker.ended.then((ending) => {
      this.#remove(worker);
      if (worker.isLost && ending.code !== 0) {
        this.#log.error({ reason: howEnded(ending) }, "a SQLite process died and is replaced");
      }
    });
    return worker;
  }

  #remove(worker: WorkerProcess): void {
    this.#workers.delete(worker);
    const index = this.#idle.indexOf(worker);
    if (index >= 0) this.#idle.splice(index, 1);
  }
}

/** Pings, one a second, that may go unanswered in a row before the health check fails. */
const NOTICED_BEATS = 3;

/** The same before a worker is killed, and while it starts. */
const MISSABLE_BEATS = 6;
const MISSABLE_AT_START = 30;

/** How long a task whose client is gone may go on before its worker is killed, in milliseconds. */
const ABANDONED_TIME_MS = 500;

/** What is said of a task whose worker ended before the commit. */
const died = [
  "upstream_broken",
  "The SQLite process ended before it answered; nothing was carried out",
] as const;

/**
 * A process that carries out tasks, one at a time.
 *
 * It is a process and not a thread because SQLite's statements are synchronous and cannot be
 * interrupted from JavaScript: a thread that is terminated goes on until its statement ends,
 * while a process is killed at once, and its journal undoes what it had not committed.
 */
class WorkerProcess extends ChildProgram<WorkerCalls, EngineCalls, TaskFailure> {
  /** Told how much of the answer is in the file of the task that it carries out. */
  onSpilled: (byteLength: number) => void = () => {};
  /** Ends it unless it is used before. */
  idling: NodeJS.Timeout | undefined;
  /** False once this process has ended it. */
  isLost = true;
  /** True once it commits the change of the task that it carries out. */
  #isCommitting = false;

  /** Starts the process over the databases in `directory`. */
  constructor(directory: string) {
    const { GATEHOUSE_ENGINE_AUTHORIZATION: _, GATEHOUSE_ENGINE_URL: __, ...env } = process.env;
    super(siblingModule(import.meta.url, "program"), {
      args: [directory],
      fork: {
        // Out of reach of a terminal's Ctrl-C, which is for the engine alone.
        detached: true,
        env,
        execArgv: ["--disable-warning=ExperimentalWarning"],
        stdio: ["pipe", "pipe", "inherit", "ipc"],
      },
      handlers: {
        spilled: (byteLength) => void this.onSpilled(byteLength),
        committing: () => {
          this.#isCommitting = true;
          return undefined;
        },
      },
      heartbeat: {
        missable: MISSABLE_BEATS,
        missableAtStart: MISSABLE_AT_START,
        whileIdle: true,
        overStdio: true,
      },
      errors: taskErrors,
    });
  }

  /**
   * Carries out one task within `timeLimit` milliseconds. When it rejects, the worker is idle
   * again or gone.
   *
   * @throws EngineRefusal, among them `query_timeout`, `outcome_unknown` and `upstream_broken`, the reason
   * of `signal` once that is aborted, or the error that the task failed with
   */
  async run(task: Task, timeLimit: number, signal: AbortSignal): Promise<SpooledAnswer> {
    let abandoned: NodeJS.Timeout | undefined;
    const abandon = (): void => {
      abandoned = setTimeout(() => void this.kill(signal.reason), ABANDONED_TIME_MS);
    };
    signal.addEventListener("abort", abandon);
    this.#isCommitting = false;
    const overTime = tooSlow(timeLimit);
    try {
      return await this.ask("run", task, { ms: timeLimit, onMissed: () => overTime });
    } catch (error) {
      const isLost = error instanceof ChannelClosedError;
      if (this.#isCommitting && (isLost || error === overTime)) {
        const limit = `The time limit of ${timeLimit / 1000} seconds was reached`;
        throw new UnknownOutcome(error, isLost ? "The SQLite process ended" : limit);
      }
      throw isLost ? new EngineRefusal(...died, { cause: error }) : error;
    } finally {
      signal.removeEventListener("abort", abandon);
      clearTimeout(abandoned);
    }
  }

  override kill(reason?: Error): Promise<void> {
    this.isLost = reason instanceof ChannelClosedError;
    return super.kill(reason);
  }

  /** Has the process close a database's file before its next task. */
  forget(database: string): void {
    // One that is gone has closed it.
    this.ask("forget", database).catch(() => {});
  }
}
