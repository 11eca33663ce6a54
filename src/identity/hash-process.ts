import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { Refusal } from "../refusal.ts";
import type { HashOrder } from "./hash.ts";

/** An order as it goes to the process. */
export interface NumberedOrder {
  readonly id: number;
  readonly order: HashOrder;
}

/** What comes back for it; without a hash if it failed. */
export interface HashAnswer {
  readonly id: number;
  readonly hash: Uint8Array | undefined;
}

/** Asks whether the process is there, and says that it is. */
export const BEAT = "beat";

/** Beside this module, and compiled if it is. */
const program = fileURLToPath(
  new URL(`./hash-program${path.extname(import.meta.url)}`, import.meta.url),
);

/**
 * Not detached: where the system shares the cores out by session first, a process in a session of
 * its own would get as much as the gateway, however low its priority.
 */
function start(threads: number): ChildProcess {
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith("GATEHOUSE_"));
  return fork(program, [], {
    env: { ...Object.fromEntries(kept), UV_THREADPOOL_SIZE: String(threads) },
    execArgv: [],
    serialization: "advanced",
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
}

function failure(detail: string): Refusal {
  return new Refusal("login_busy", { detail, retryAfter: 1 });
}

/** Milliseconds between two questions whether the process is there, while it has work. */
const BEAT_MS = 1000;
/** Questions in a row that may go unanswered; more while it starts. */
const UNANSWERED = 5;
const UNANSWERED_AT_START = 20;
/** Processes that an order is given to before it fails. */
const ATTEMPTS = 2;

/** An order that waits for its answer. */
interface Pending {
  readonly order: HashOrder;
  readonly answer: PromiseWithResolvers<Uint8Array>;
  attempts: number;
}

/** A process, and how many questions it has left unanswered. */
interface Running {
  readonly child: ChildProcess;
  /** Below 0 while it starts. */
  unanswered: number;
}

/**
 * Hashes in a process of its own, of lower priority: in the gateway's own process the hashes' threads
 * compete with the event loop for the cores, their memory's coming and going stalls it, and their
 * places in the pool are missed by files and signatures. The process is started by the first order.
 * When it dies or does not answer any more, another one is given what it had to do.
 */
export class HashProcess {
  readonly #threads: number;
  readonly #onLost: (reason: string) => void;
  readonly #pending = new Map<number, Pending>();
  #running: Running | undefined;
  #beat: NodeJS.Timeout | undefined;
  #lastId = 0;
  #isClosed = false;

  /**
   * @param threads hashes that it works on at one time
   * @param onLost told why a process that was not to end is replaced
   */
  constructor(threads: number, onLost: (reason: string) => void) {
    this.#threads = threads;
    this.#onLost = onLost;
  }

  /** @throws Refusal `login_busy` if the process cannot do it */
  async derive(order: HashOrder): Promise<Uint8Array> {
    // A login that outlasts its connection must not start the process again.
    if (this.#isClosed) throw failure("the gateway is closing");
    const id = ++this.#lastId;
    const pending = { order, answer: Promise.withResolvers<Uint8Array>(), attempts: 0 };
    this.#pending.set(id, pending);
    this.#beat ??= setInterval(() => this.#ask(), BEAT_MS);
    this.#send(id, pending);
    return pending.answer.promise;
  }

  /** Ends the process. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const { child } = this.#running ?? {};
    if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, "exit");
    child.kill("SIGKILL");
    await exit;
  }

  #send(id: number, pending: Pending): void {
    this.#running ??= this.#start();
    pending.attempts++;
    const numbered: NumberedOrder = { id, order: pending.order };
    // A process that is gone says so by its end.
    if (this.#running.child.connected) this.#running.child.send(numbered, () => {});
  }

  /** Asks whether the process is there, and ends one that was asked too often. */
  #ask(): void {
    if (this.#running === undefined) return;
    const { child } = this.#running;
    // By count, not by time: this process may have stood still itself.
    if (++this.#running.unanswered > UNANSWERED) child.kill("SIGKILL");
    else if (child.connected) child.send(BEAT, () => {});
  }

  #start(): Running {
    const child = start(this.#threads);
    const running: Running = { child, unanswered: UNANSWERED - UNANSWERED_AT_START };
    child.on("message", (message: HashAnswer | typeof BEAT) => {
      running.unanswered = 0;
      if (message !== BEAT) this.#take(message);
    });
    child.once("exit", (code, signal) => this.#lose(running, `it ended: ${signal ?? code}`));
    child.on("error", ({ message }) => {
      if (child.pid === undefined) this.#lose(running, `it did not start: ${message}`);
    });
    return running;
  }

  #take({ id, hash }: HashAnswer): void {
    const pending = this.#pending.get(id);
    this.#forget(id);
    if (hash === undefined) pending?.answer.reject(failure("a hash failed"));
    else pending?.answer.resolve(hash);
  }

  #forget(id: number): void {
    this.#pending.delete(id);
    if (this.#pending.size > 0) return;
    clearInterval(this.#beat);
    this.#beat = undefined;
  }

  #lose(running: Running, how: string): void {
    if (this.#running !== running) return;
    this.#running = undefined;
    const reason = running.unanswered > UNANSWERED ? "it did not answer" : how;
    if (!this.#isClosed) this.#onLost(reason);
    for (const [id, pending] of [...this.#pending]) {
      if (!this.#isClosed && pending.attempts < ATTEMPTS) {
        this.#send(id, pending);
      } else {
        this.#forget(id);
        pending.answer.reject(failure(`the hashing process: ${reason}`));
      }
    }
  }
}
