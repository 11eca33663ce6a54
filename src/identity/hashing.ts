import { availableParallelism } from "node:os";
import { LRUCache } from "lru-cache";
import type { HashCosts } from "../access/password-hash.ts";
import { type Call, ChannelClosedError, messageCodec, type NoCalls } from "../ipc/channel.ts";
import { ChildProgram, howEnded, siblingModule } from "../ipc/child-program.ts";
import type { Durations, HashMetrics } from "../observe/metrics.ts";
import { Refusal } from "../refusal.ts";
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
  lineOf({ username, address, isShared }: HashClient): Pick<Line, "name" | "rank"> {
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
  /** Removes a waiting task from the queue. */
  readonly signal?: AbortSignal | undefined;
}

interface Waiter {
  readonly memory: number;
  readonly turn: PromiseWithResolvers<void>;
}

export function busy(detail?: string): Refusal {
  return new Refusal("login_busy", { retryAfter: 1, ...(detail !== undefined && { detail }) });
}

interface Line {
  readonly name: string;
  /** 2 for a known address, 1 for a known user, 0 for a stranger. */
  readonly rank: number;
  readonly waiters: Waiter[];
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
  readonly #lines = new Map<string, Line>();
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
    return this.#lines.values().reduce((sum, { waiters }) => sum + waiters.length, 0);
  }

  /** @throws Refusal `login_busy` if the queue is full, or the client disconnects while it waits */
  async run<T>(memory: number, client: HashClient, task: () => Promise<T>): Promise<T> {
    if (client.signal?.aborted) throw busy();
    const waiter = { memory, turn: Promise.withResolvers<void>() };
    const line = this.#join(this.#recent.lineOf(client), waiter);
    const leave = () => this.#drop(line, waiter);
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

  #join({ name, rank }: Pick<Line, "name" | "rank">, waiter: Waiter): Line {
    const line = this.#lines.get(name) ?? { name, rank, waiters: [] };
    const ofRank = this.#lines.values().filter((other) => other.rank === rank);
    const waiting = ofRank.reduce((sum, { waiters }) => sum + waiters.length, 0);
    // A task that can start at once needs no place.
    if (waiting >= this.#bounds.waiting && !this.#hasRoom(waiter)) this.#makeRoom(line);
    this.#lines.set(name, line);
    line.waiters.push(waiter);
    return line;
  }

  /** @throws Refusal `login_busy` if no other line of this rank is longer */
  #makeRoom({ rank, waiters }: Line): void {
    const [longest] = [...this.#lines.values()]
      .filter((line) => line.rank === rank && line.waiters.length > waiters.length + 1)
      .sort((a, b) => b.waiters.length - a.waiters.length);
    const last = longest?.waiters.at(-1);
    if (longest === undefined || last === undefined) throw busy();
    this.#drop(longest, last);
  }

  #drop(line: Line, waiter: Waiter): void {
    const at = line.waiters.indexOf(waiter);
    if (at === -1) return;
    line.waiters.splice(at, 1);
    if (line.waiters.length === 0) this.#lines.delete(line.name);
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
      const lines = [...this.#lines.values()];
      const line = lines.find(({ rank }) => rank !== this.#lastRank) ?? lines[0];
      const [first] = line?.waiters ?? [];
      if (line === undefined || first === undefined || !this.#hasRoom(first)) return;
      this.#lines.delete(line.name);
      if (line.waiters.length > 1) this.#lines.set(line.name, line);
      line.waiters.shift();
      this.#lastRank = line.rank;
      this.#running++;
      this.#memory += first.memory;
      first.turn.resolve();
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

export interface LocalHashing extends Hashing {
  readonly metrics: HashMetrics;
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
): LocalHashing {
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
      const memory = Math.max(...costs.map((cost) => cost.memory));
      return queue.run(memory, client, () => work(derive));
    },
    async close() {
      isClosed = true;
      await running?.kill();
    },
  };
}
