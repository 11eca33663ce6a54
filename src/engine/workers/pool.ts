import type { SpooledAnswer } from "../spool.ts";
import type { Task } from "./protocol.ts";
import { WorkerProcess } from "./worker-process.ts";

/** How long an idle worker may take to close its files, in milliseconds. */
const closeTime = 5000;

/** How many workers there are at most; more of them than one database is read by at a time. */
const workerLimit = 6;

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

  /** Carries out a task as soon as a worker is free. Throws what `WorkerProcess.run` throws. */
  async run(task: Task, signal: AbortSignal): Promise<SpooledAnswer> {
    const worker = await this.#take();
    try {
      signal.throwIfAborted();
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
    await Promise.all(Array.from(this.#workers, (worker) => worker.close(closeTime)));
  }

  /** The worker that was used last is taken first: its files are open and its memory is warm. */
  async #take(): Promise<WorkerProcess> {
    const idle = this.#idle.pop();
    if (idle !== undefined) return idle;
    if (this.#workers.size < workerLimit) return this.#start();
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
