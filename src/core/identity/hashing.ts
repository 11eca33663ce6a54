import { availableParallelism } from "node:os";
import { LRUCache } from "lru-cache";
import type { HashCosts } from "../access/password-hash.ts";
import {
  type Call,
  ChannelClosedError,
  ChildProgram,
  howEnded,
  messageCodec,
  type NoCalls,
  siblingModule,
} from "../base/ipc.ts";
import { type Entrant, FairQueue } from "../base/queues.ts";
import { Refusal } from "../base/refusal.ts";
import type { Durations, HashMetrics } from "../observe/metrics.ts";
import type { Derive, HashOrder } from "./hash.ts";

const ONE_DAY = { max: 10_000, ttl: 86_400_000 };

export class RecentLogins {
  readonly #addresses = new LRUCache<string, true>(ONE_DAY);
  readonly #users = new LRUCache<string, true>(ONE_DAY);

  note({ username, address, isShared }: Omit<HashClient, "signal">): void {
    if (!isShared) this.#addresses.set(address, true);
    if (username !== undefined) this.#users.set(username, true);
  }

  /**
   * The line of a known address (rank 2), a known user (1) or a stranger (0). Addresses cannot be
   * claimed by others. A claimed username harms only this user.
   */
  findLine({ username, address, isShared }: HashClient): Entrant {
    if (!isShared && this.#addresses.has(address)) return { rank: 2, key: `2 ${address}` };
    if (username !== undefined && this.#users.has(username)) {
      return { rank: 1, key: `1 ${username}` };
    }
    return { rank: 0, key: `0 ${address}` };
  }
}

export interface HashBounds {
  readonly atOnce: number;
  /** KiB for all running tasks. A task that needs more runs by itself. */
  readonly memory: number;
  /** Of each rank. */
  readonly waiting: number;
}

export interface HashClient {
  readonly address: string;
  readonly username?: string | undefined;
  /** True for the address of a reverse proxy, which does not identify a client. */
  readonly isShared?: boolean | undefined;
  readonly signal?: AbortSignal | undefined;
}

export function busy(detail?: string): Refusal {
  return new Refusal("login_busy", { retryAfter: 1, ...(detail !== undefined && { detail }) });
}

/** A flood from one address blocks no one else, and one from many addresses only strangers. */
export class HashQueue implements HashMetrics {
  readonly times: Durations = { add() {} };
  readonly #queue: FairQueue;
  readonly #recent: RecentLogins;

  constructor({ atOnce, memory, waiting }: HashBounds, recent: RecentLogins) {
    this.#queue = new FairQueue({ slots: atOnce, maxWeight: memory, maxWaiting: waiting });
    this.#recent = recent;
  }

  get running(): number {
    return this.#queue.busy;
  }

  get waiting(): number {
    return this.#queue.waiting;
  }

  /** @throws Refusal `login_busy` if the queue is full, or the client disconnects while it waits */
  run<T>(memory: number, client: HashClient, task: () => Promise<T>): Promise<T> {
    const entrant = { ...this.#recent.findLine(client), weight: memory };
    return this.#queue.hold(entrant, client.signal, task, busy);
  }
}

export type HashCalls = { readonly derive: Call<HashOrder, Uint8Array> };

type HashProgram = ChildProgram<NoCalls, HashCalls, string>;

const HEARTBEAT = { maxMissed: 5, maxMissedAtStart: 20 };
const ATTEMPTS = 2;

/**
 * Inside the gateway, hash threads would compete with the event loop for cores, and with files and
 * signatures for the thread pool. The process is not detached: some systems divide cores between
 * sessions first, whatever the priority.
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

/** At 64 MiB each, they need 256 MiB. */
const MAX_AT_ONCE = 4;
/** At 0.1 s each, the last one waits for seconds. */
const MAX_WAITING = 64;

export interface Hashing {
  /**
   * @param costs of the hashes that `work` derives, one after the other
   * @throws Refusal `login_busy` if the queue is full, or the client disconnects while it waits
   */
  run<T>(
    costs: readonly HashCosts[],
    client: HashClient,
    work: (derive: Derive) => Promise<T>,
  ): Promise<T>;
  close(): Promise<void>;
}

/** Keeps the threads of hashes, one per Argon2 lane, below the cores. One hash may always run. */
export function hashBounds(costs: HashCosts, cores = availableParallelism()): HashBounds {
  const atOnce = Math.min(MAX_AT_ONCE, Math.max(1, Math.floor(cores / costs.parallelism)));
  return { atOnce, memory: atOnce * costs.memory, waiting: MAX_WAITING };
}

/**
 * Opens the one queue and process for all hashes of a gateway. The first hash starts the process. If
 * it dies or hangs, another one repeats its hashes.
 *
 * @param onLost called with the reason when the process ended unexpectedly
 */
export function openHashing(
  configured: HashCosts,
  onLost: (reason: string) => void = () => {},
  recent = new RecentLogins(),
): Hashing & { readonly metrics: HashMetrics } {
  const bounds = hashBounds(configured);
  const queue = new HashQueue(bounds, recent);
  let running: HashProgram | undefined;
  let isClosed = false;

  function usableProgram(): HashProgram {
    if (running?.isUsable) return running;
    running = startProgram(bounds.atOnce);
    void running.ended.then((ending) => {
      if (!isClosed) onLost(howEnded(ending));
    });
    return running;
  }

  /** @throws Refusal `login_busy` if the process fails */
  async function derive(order: HashOrder): Promise<Uint8Array> {
    const startedAt = performance.now();
    for (let attempt = 1; ; attempt++) {
      // A login that outlasts its connection must not restart the process.
      if (isClosed) throw busy("the gateway is closing");
      try {
        const hash = await usableProgram().ask("derive", order);
        queue.times.add((performance.now() - startedAt) / 1000);
        return hash;
      } catch (error) {
        if (!(error instanceof ChannelClosedError)) throw busy("a hash failed");
        if (attempt === ATTEMPTS) throw busy(`the hashing process: ${error.how}`);
      }
    }
  }

  return {
    metrics: queue,
    run(costs, client, work) {
      const memory = costs.reduce((most, cost) => Math.max(most, cost.memory), 0);
      return queue.run(memory, client, () => work(derive));
    },
    async close() {
      isClosed = true;
      await running?.kill();
    },
  };
}
