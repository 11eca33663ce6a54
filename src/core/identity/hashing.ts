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

  /** Addresses cannot be claimed by others. A claimed username harms only this user. */
  lineOf({ username, address, isShared }: HashClient): Line {
    if (!isShared && this.#addresses.has(address)) return { rank: 2, name: `2 ${address}` };
    if (username !== undefined && this.#users.has(username)) {
      return { rank: 1, name: `1 ${username}` };
    }
    return { rank: 0, name: `0 ${address}` };
  }
}

export interface HashBounds {
  readonly atOnce: number;
  /** KiB for all running tasks. A task that needs more runs by itself. */
  readonly memory: number;
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

interface Line {
  readonly name: string;
  /** 2 for a known address, 1 for a known user, 0 for a stranger. */
  readonly rank: number;
}

interface Waiter extends Line {
  readonly memory: number;
  readonly turn: PromiseWithResolvers<void>;
}

/**
 * A short queue in which each address or known user has its own line, and lines take turns. Each
 * rank has its own places. When these are full, the longest line loses its last task. Turns alternate
 * between ranks. A flood from one address therefore blocks no one else, and a flood from many
 * addresses blocks only strangers.
 */
export class HashQueue implements HashMetrics {
  readonly times: Durations = { add() {} };
  readonly #bounds: HashBounds;
  readonly #recent: RecentLogins;
  /** The line whose first waiter comes first was served least recently. */
  #waiters: Waiter[] = [];
  #lastRank = 0;
  #running = 0;
  #memory = 0;

  constructor(bounds: HashBounds, recent = new RecentLogins()) {
    this.#bounds = bounds;
    this.#recent = recent;
  }

  get running(): number {
    return this.#running;
  }

  get waiting(): number {
    return this.#waiters.length;
  }

  /** @throws Refusal `login_busy` if the queue is full, or the client disconnects while it waits */
  async run<T>(memory: number, client: HashClient, task: () => Promise<T>): Promise<T> {
    if (client.signal?.aborted) throw busy();
    const line = this.#recent.lineOf(client);
    const waiter = { ...line, memory, turn: Promise.withResolvers<void>() };
    // A task that can start at once needs no place.
    if (!this.#hasRoom(waiter)) this.#requirePlace(line);
    this.#waiters.push(waiter);
    const leave = () => this.#drop(waiter);
    client.signal?.addEventListener("abort", leave);
    this.#admit();
    try {
      await waiter.turn.promise;
    } finally {
      client.signal?.removeEventListener("abort", leave);
    }
    try {
      return await task();
    } finally {
      this.#running--;
      this.#memory -= memory;
      this.#admit();
    }
  }

  /** @throws Refusal `login_busy` if no place of this rank is free, and no other line is longer */
  #requirePlace({ name, rank }: Line): void {
    const ofRank = this.#waiters.filter((one) => one.rank === rank);
    if (ofRank.length < this.#bounds.waiting) return;
    const lines = Map.groupBy(ofRank, (one) => one.name);
    const longest = [...lines.values()].reduce((a, b) => (b.length > a.length ? b : a), []);
    const last = longest.at(-1);
    if (last === undefined || longest.length <= (lines.get(name)?.length ?? 0) + 1) throw busy();
    this.#drop(last);
  }

  #drop(waiter: Waiter): void {
    this.#waiters = this.#waiters.filter((one) => one !== waiter);
    // Without effect on a task that has started.
    waiter.turn.reject(busy());
    this.#admit();
  }

  #hasRoom({ memory }: Waiter): boolean {
    if (this.#running === 0) return true;
    return this.#running < this.#bounds.atOnce && this.#memory + memory <= this.#bounds.memory;
  }

  /** Starts tasks until the next one does not fit. Smaller ones must not overtake it forever. */
  #admit(): void {
    for (;;) {
      const next = this.#waiters.find(({ rank }) => rank !== this.#lastRank) ?? this.#waiters[0];
      if (next === undefined || !this.#hasRoom(next)) return;
      const others = this.#waiters.filter(({ name }) => name !== next.name);
      const ofLine = this.#waiters.filter((one) => one.name === next.name && one !== next);
      this.#waiters = [...others, ...ofLine];
      this.#lastRank = next.rank;
      this.#running++;
      this.#memory += next.memory;
      next.turn.resolve();
    }
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
