import { availableParallelism } from "node:os";
import type { HashCosts } from "../access/password-hash.ts";
import { type Call, ChannelClosedError, messageCodec, type NoCalls } from "../ipc/channel.ts";
import { ChildProgram, howEnded, siblingModule } from "../ipc/child-program.ts";
import type { HashMetrics } from "../observe/component-metrics.ts";
import { Times } from "../observe/times.ts";
import { Refusal } from "../refusal.ts";
import type { Derive, HashOrder } from "./hash.ts";
import { type HashBounds, type HashClient, HashQueue, RecentLogins } from "./hash-queue.ts";

/** What the gateway asks of the process. */
export type HashCalls = { readonly derive: Call<HashOrder, Uint8Array> };

type HashProgram = ChildProgram<NoCalls, HashCalls, string>;

/** Questions in a row whether it is there that may go unanswered; more while it starts. */
const HEARTBEAT = { missable: 5, missableAtStart: 20 };
/** Processes that an order is given to before it fails. */
const ATTEMPTS = 2;

/**
 * Not detached: where the system shares the cores out by session first, a process in a session of
 * its own would get as much as the gateway, however low its priority.
 */
function startProgram(threads: number): HashProgram {
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith("GATEHOUSE_"));
  return new ChildProgram(siblingModule(import.meta.url, "hash-program"), {
    fork: {
      env: { ...Object.fromEntries(kept), UV_THREADPOOL_SIZE: String(threads) },
      execArgv: [],
      stdio: ["ignore", "ignore", "inherit", "ipc"],
    },
    handlers: {},
    errors: messageCodec,
    heartbeat: HEARTBEAT,
  });
}

function failure(detail: string): Refusal {
  return new Refusal("login_busy", { detail, retryAfter: 1 });
}

/**
 * Hashes in a process of its own, of lower priority: in the gateway's own process the hashes' threads
 * compete with the event loop for the cores, their memory's coming and going stalls it, and their
 * places in the pool are missed by files and signatures. The process is started by the first order.
 * When it dies or does not answer any more, another one is given what it had to do.
 */
class HashProcess {
  readonly #threads: number;
  readonly #onLost: (reason: string) => void;
  #running: HashProgram | undefined;
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
    for (let attempt = 1; ; attempt++) {
      // A login that outlasts its connection must not start the process again.
      if (this.#isClosed) throw failure("the gateway is closing");
      try {
        return await this.#usable().ask("derive", order);
      } catch (error) {
        if (!(error instanceof ChannelClosedError)) throw failure("a hash failed");
        if (attempt === ATTEMPTS) throw failure(`the hashing process: ${error.how}`);
      }
    }
  }

  /** Ends the process. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#running?.kill();
  }

  #usable(): HashProgram {
    if (this.#running?.isUsable) return this.#running;
    const program = startProgram(this.#threads);
    void program.ended.then((ending) => {
      if (!this.#isClosed) this.#onLost(howEnded(ending));
    });
    this.#running = program;
    return program;
  }
}

/** Hashes at one time on a machine of any size: with 64 MiB each, 256 MiB. */
const MOST_AT_ONCE = 4;
/** Tasks that may wait; at a tenth of a second each, the last one waits for seconds. */
const WAITING = 64;

/** All hashing of a gateway, whoever asks for it: one queue, one process, while it lives. */
export interface Hashing {
  /**
   * Runs work that derives one hash after the other, when it is its turn.
   *
   * @param costs of all that is derived
   * @throws Refusal `login_busy` if there is no place, or the client goes while it waits
   */
  run<T>(
    costs: readonly HashCosts[],
    client: HashClient,
    work: (derive: Derive) => Promise<T>,
  ): Promise<T>;
  close(): Promise<void>;
}

/** Hashing in a process of this one's own. */
export interface HashingHere extends Hashing {
  readonly metrics: HashMetrics;
}

/**
 * How much is hashed at one time: a hash has a thread for each of its lanes, so as many hashes as
 * make no more threads than there are cores, and one at least.
 */
export function hashBounds(costs: HashCosts, cores = availableParallelism()): HashBounds {
  const atOnce = Math.min(MOST_AT_ONCE, Math.max(1, Math.floor(cores / costs.parallelism)));
  return { atOnce, memory: atOnce * costs.memory, waiting: WAITING };
}

/**
 * Opens the hashing of a gateway with these configured costs.
 *
 * @param onLost told why a process that hashed is replaced
 * @param recent who has places of its own
 */
export function openHashing(
  configured: HashCosts,
  onLost: (reason: string) => void = () => {},
  recent = new RecentLogins(),
): HashingHere {
  const bounds = hashBounds(configured);
  const queue = new HashQueue(bounds, recent);
  const hashes = new HashProcess(bounds.atOnce, onLost);
  const times = new Times();
  async function derive(order: HashOrder): Promise<Uint8Array> {
    const startedAt = performance.now();
    const hash = await hashes.derive(order);
    times.add((performance.now() - startedAt) / 1000);
    return hash;
  }
  return {
    metrics: {
      times,
      get running() {
        return queue.running;
      },
      get waiting() {
        return queue.waiting;
      },
    },
    run(costs, client, work) {
      const memory = Math.max(...costs.map((cost) => cost.memory));
      return queue.run(memory, client, () => work(derive));
    },
    close: () => hashes.close(),
  };
}
