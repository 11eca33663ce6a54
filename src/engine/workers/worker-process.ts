import type { NoCalls } from "../../ipc/channel.ts";
import { ChildProgram, siblingModule } from "../../ipc/child-program.ts";
import { tooSlow } from "../refusal.ts";
import type { SpooledAnswer } from "../spool.ts";
import { type EngineCalls, type Task, type TaskFailure, taskErrors } from "./protocol.ts";

/** How long a task whose client is gone may go on before its worker is killed, in milliseconds. */
const abandonedTime = 500;

/** How long an idle worker may take to close its files, in milliseconds. */
const closeTime = 5000;

/**
 * A process that carries out tasks, one at a time.
 *
 * It is a process and not a thread because SQLite's statements are synchronous and cannot be
 * interrupted from JavaScript: a thread that is terminated goes on until its statement ends,
 * while a process is killed at once, and its journal undoes what it had not committed.
 */
export class WorkerProcess {
  readonly #program: ChildProgram<NoCalls, EngineCalls, TaskFailure>;

  /** Starts the process over the databases in `directory`. */
  constructor(directory: string) {
    const { GATEHOUSE_ENGINE_AUTHORIZATION: _, GATEHOUSE_ENGINE_URL: __, ...env } = process.env;
    this.#program = new ChildProgram(siblingModule(import.meta.url, "program"), {
      args: [directory],
      fork: {
        // Out of reach of a terminal's Ctrl-C, which is for the engine alone.
        detached: true,
        env,
        execArgv: ["--disable-warning=ExperimentalWarning"],
        stdio: ["pipe", "ignore", "inherit", "ipc"],
      },
      handlers: {},
      errors: taskErrors,
    });
  }

  /** Resolves when the process is gone. */
  get ended(): Promise<unknown> {
    return this.#program.ended;
  }

  /** True while the process takes another task. */
  get isUsable(): boolean {
    return this.#program.isUsable;
  }

  /**
   * Carries out one task within `timeLimit` milliseconds. When it rejects, the worker is idle
   * again or gone.
   *
   * Throws `EngineRefusal`, `query_timeout` among them, the reason of `signal` once that is
   * aborted, or the error that the task failed with.
   */
  async run(task: Task, timeLimit: number, signal: AbortSignal): Promise<SpooledAnswer> {
    let abandoned: NodeJS.Timeout | undefined;
    const abandon = (): void => {
      abandoned = setTimeout(() => void this.#program.kill(signal.reason), abandonedTime);
    };
    signal.addEventListener("abort", abandon);
    try {
      const onMissed = () => tooSlow(timeLimit);
      return await this.#program.ask("run", task, { ms: timeLimit, onMissed });
    } finally {
      signal.removeEventListener("abort", abandon);
      clearTimeout(abandoned);
    }
  }

  /** Has the process close a database's file before its next task. */
  forget(database: string): void {
    // One that is gone has closed it.
    this.#program.ask("forget", database).catch(() => {});
  }

  /** Ends an idle process. */
  close(): Promise<void> {
    return this.#program.close(closeTime);
  }
}
