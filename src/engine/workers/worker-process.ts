import type { NoCalls } from "../../ipc/channel.ts";
import { ChildProgram, siblingModule } from "../../ipc/child-program.ts";
import { tooSlow } from "../refusal.ts";
import type { SpooledAnswer } from "../spool.ts";
import { type EngineCalls, type Task, type TaskFailure, taskErrors } from "./protocol.ts";

/** How long a task whose client is gone may go on before its worker is killed, in milliseconds. */
const abandonedTime = 500;

/**
 * A process that carries out tasks, one at a time.
 *
 * It is a process and not a thread because SQLite's statements are synchronous and cannot be
 * interrupted from JavaScript: a thread that is terminated goes on until its statement ends,
 * while a process is killed at once, and its journal undoes what it had not committed.
 */
export class WorkerProcess extends ChildProgram<NoCalls, EngineCalls, TaskFailure> {
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
      handlers: {},
      errors: taskErrors,
    });
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
      abandoned = setTimeout(() => void this.kill(signal.reason), abandonedTime);
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
