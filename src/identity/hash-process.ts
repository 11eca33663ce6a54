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

/**
 * Hashes in a process of its own, of lower priority: in the gateway's own process the hashes' threads
 * compete with the event loop for the cores, their memory's coming and going stalls it, and their
 * places in the pool are missed by files and signatures. The process is started by the first order,
 * and again by the next one after it has died.
 */
export class HashProcess {
  readonly #threads: number;
  readonly #orders = new Map<number, PromiseWithResolvers<Uint8Array>>();
  #child: ChildProcess | undefined;
  #lastId = 0;
  #isClosed = false;

  /** @param threads hashes that it works on at one time */
  constructor(threads: number) {
    this.#threads = threads;
  }

  /** @throws Refusal `login_busy` if the process cannot do it */
  async derive(order: HashOrder): Promise<Uint8Array> {
    // A login that outlasts its connection must not start the process again.
    if (this.#isClosed) throw failure("the gateway is closing");
    this.#child ??= this.#start();
    const id = ++this.#lastId;
    const answer = Promise.withResolvers<Uint8Array>();
    this.#orders.set(id, answer);
    const numbered: NumberedOrder = { id, order };
    // A process that is gone says so by its end, which rejects what it was asked.
    if (this.#child.connected) this.#child.send(numbered, () => {});
    return answer.promise;
  }

  /** Ends the process. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const child = this.#child;
    if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, "exit");
    child.kill("SIGKILL");
    await exit;
  }

  #start(): ChildProcess {
    const child = start(this.#threads);
    const end = (detail: string): void => {
      if (this.#child !== child) return;
      this.#child = undefined;
      for (const answer of this.#orders.values()) answer.reject(failure(detail));
      this.#orders.clear();
    };
    child.on("message", ({ id, hash }: HashAnswer) => {
      const answer = this.#orders.get(id);
      this.#orders.delete(id);
      if (hash === undefined) answer?.reject(failure("a hash failed"));
      else answer?.resolve(hash);
    });
    child.once("exit", (code, signal) => end(`the hashing process ended: ${signal ?? code}`));
    child.on("error", ({ message }) => {
      if (child.pid === undefined) end(`the hashing process did not start: ${message}`);
    });
    return child;
  }
}
