import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { EngineRefusal, tooSlow } from "../refusal.ts";
import type { SpooledAnswer } from "../spool.ts";
import { siblingModule } from "./modules.ts";
import type { Order, Outcome, Task } from "./protocol.ts";

/** How long a task whose client is gone may go on before its worker is killed, in milliseconds. */
const abandonedTime = 500;

/** How long an idle worker may take to close its files, in milliseconds. */
const closeTime = 5000;

const program = fileURLToPath(siblingModule(import.meta.url, "program"));

/**
 * A process that carries out tasks, one at a time.
 *
 * It is a process and not a thread because SQLite's statements are synchronous and cannot be
 * interrupted from JavaScript: a thread that is terminated goes on until its statement ends,
 * while a process is killed at once, and its journal undoes what it had not committed.
 */
export class WorkerProcess {
  /** Resolves when the process is gone. */
  readonly ended: Promise<void>;
  readonly #child: ChildProcess;
  #task: PromiseWithResolvers<Outcome> | undefined;
  #reason: unknown;
  #isKilled = false;
  #isGone = false;

  /** Starts the process over the databases in `directory`. */
  constructor(directory: string) {
    this.#child = startProgram(directory);
    this.#child.on("message", (outcome: Outcome) => this.#task?.resolve(outcome));
    this.ended = new Promise((resolve) => {
      const end = (error: Error): void => {
        this.#isGone = true;
        this.#task?.reject(this.#reason ?? error);
        resolve();
      };
      this.#child.once("exit", (code, signal) =>
        end(new Error(`A worker ended: ${signal ?? code}`)),
      );
      this.#child.on("error", (error) => {
        if (this.#child.pid === undefined) end(error);
        else this.#kill(error);
      });
    });
  }

  /** True while the process takes another task. */
  get isUsable(): boolean {
    return !this.#isKilled && !this.#isGone;
  }

  /**
   * Carries out one task within `timeLimit` milliseconds. When it rejects, the worker is idle
   * again or gone.
   *
   * Throws `EngineRefusal`, `query_timeout` among them, the reason of `signal` once that is
   * aborted, or the error that the task failed with.
   */
  async run(task: Task, timeLimit: number, signal: AbortSignal): Promise<SpooledAnswer> {
    const running = Promise.withResolvers<Outcome>();
    const limit = setTimeout(() => this.#kill(tooSlow(timeLimit)), timeLimit);
    let abandoned: NodeJS.Timeout | undefined;
    const abandon = (): void => {
      abandoned = setTimeout(() => this.#kill(signal.reason), abandonedTime);
    };
    signal.addEventListener("abort", abandon);
    this.#task = running;
    this.tell(task);
    try {
      return answerOf(await running.promise);
    } finally {
      this.#task = undefined;
      signal.removeEventListener("abort", abandon);
      clearTimeout(limit);
      clearTimeout(abandoned);
    }
  }

  /** Sends an order, which is heard after those sent before. */
  tell(order: Order): void {
    if (this.#child.connected) this.#child.send(order);
    else this.#kill(new Error("A worker closed its channel"));
  }

  /** Ends an idle process. */
  async close(): Promise<void> {
    if (this.#child.connected) this.#child.disconnect();
    const timer = setTimeout(() => this.#kill(undefined), closeTime);
    await this.ended;
    clearTimeout(timer);
  }

  /** Ends the process at once; the task under way is rejected for `reason` when it is gone. */
  #kill(reason: unknown): void {
    this.#isKilled = true;
    this.#reason ??= reason;
    if (this.#isGone) this.#task?.reject(this.#reason);
    else this.#child.kill("SIGKILL");
  }
}

function startProgram(directory: string): ChildProcess {
  const { GATEHOUSE_ENGINE_AUTHORIZATION: _, GATEHOUSE_ENGINE_URL: __, ...env } = process.env;
  return fork(program, [directory], {
    // Out of reach of a terminal's Ctrl-C, which is for the engine alone.
    detached: true,
    env,
    execArgv: ["--disable-warning=ExperimentalWarning"],
    serialization: "advanced",
    stdio: ["pipe", "ignore", "inherit", "ipc"],
  });
}

function answerOf(outcome: Outcome): SpooledAnswer {
  switch (outcome.kind) {
    case "done":
      return outcome.answer;
    case "refused":
      throw new EngineRefusal(outcome.code, outcome.message);
    case "failed":
      throw outcome.error;
  }
}
