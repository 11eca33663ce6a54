import { ChildProgram, siblingModule } from "../../ipc/child-program.ts";
import { tooSlow } from "../refusal.ts";
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

/** How many workers there are at most; more of them than one database is read by at a time. */
const WORKER_LIMIT = 6;

/**
 * The workers over one directory. They are started as they are needed, kept, and replaced when
 * one had to be killed.
 */
export class WorkerPool {
  readonly #directory: string;
  readonly #timeLimit: number;
  readonly #workers = new Set<WorkerProcess>();
  readonly #idle: WorkerProcess[] = [];
  readonly #waiting: ((worker: WorkerProcess) => void)[] = [];

  /** `timeLimit` is how long one task may take, in milliseconds. The first worker is started. */
  constructor(directory: string, timeLimit: number) {
    this.#directory = directory;
    this.#timeLimit = timeLimit;
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

  /** Makes every worker close a database's file before its next task. */
  forget(database: string): void {
    for (const worker of this.#workers) worker.forget(database);
  }

  /** Ends all workers, which must be idle. */
  async close(): Promise<void> {
    await Promise.all(Array.from(this.#workers, (worker) => worker.close(CLOSE_TIME_MS)));
  }

  /** The worker that was used last is taken first: its files are open and its memory is warm. */
  async #take(): Promise<WorkerProcess> {
    const idle = this.#idle.pop();
    if (idle !== undefined) return idle;
    if (this.#workers.size < WORKER_LIMIT) return this.#start();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #giveBack(worker: WorkerProcess): void {
    const next = this.#waiting.shift();
    if (next !== undefined) next(worker.isUsable ? worker : this.#start());
    else if (worker.isUsable) this.#idle.push(worker);
  }

  #start(): WorkerProcess {
    const worker = new WorkerProcess(this.#directory);
    this.#workers.add(worker);
    void worker.ended.then(() => this.#remove(worker));
    return worker;
  }

  #remove(worker: WorkerProcess): void {
    this.#workers.delete(worker);
    const index = this.#idle.indexOf(worker);
    if (index >= 0) this.#idle.splice(index, 1);
  }
}

/** How long a task whose client is gone may go on before its worker is killed, in milliseconds. */
const ABANDONED_TIME_MS = 500;

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
        stdio: ["pipe", "ignore", "inherit", "ipc"],
      },
      handlers: { spilled: (byteLength) => void this.onSpilled(byteLength) },
      errors: taskErrors,
    });
  }

  /**
   * Carries out one task within `timeLimit` milliseconds. When it rejects, the worker is idle
   * again or gone.
   *
   * @throws EngineRefusal, `query_timeout` among them, the reason of `signal` once that is
   * aborted, or the error that the task failed with
   */
  async run(task: Task, timeLimit: number, signal: AbortSignal): Promise<SpooledAnswer> {
    let abandoned: NodeJS.Timeout | undefined;
    const abandon = (): void => {
      abandoned = setTimeout(() => void this.kill(signal.reason), ABANDONED_TIME_MS);
    };
    signal.addEventListener("abort", abandon);
    try {
      const onMissed = () => tooSlow(timeLimit);
      return await this.ask("run", task, { ms: timeLimit, onMissed });
    } finally {
      signal.removeEventListener("abort", abandon);
      clearTimeout(abandoned);
    }
  }

  /** Has the process close a database's file before its next task. */
  forget(database: string): void {
    // One that is gone has closed it.
    this.ask("forget", database).catch(() => {});
  }
}
