import { availableParallelism } from "node:os";
import type { HashCosts } from "../access/password-hash.ts";
import { type Call, ChannelClosedError, messageCodec, type NoCalls } from "../ipc/channel.ts";
import { ChildProgram, howEnded, siblingModule } from "../ipc/child-program.ts";
import type { Durations, HashMetrics } from "../observe/metrics.ts";
import { Refusal } from "../refusal.ts";
import type { Derive, HashOrder } from "./hash.ts";

/** Addresses and users that are remembered. When full, the one with the oldest login is dropped. */
const CAPACITY = 10_000;
/** Milliseconds for which a successful login is remembered. */
const LATELY_MS = 86_400_000;

class Recent {
  readonly #seen = new Map<string, number>();

  note(name: string): void {
    this.#seen.delete(name);
    this.#seen.set(name, performance.now());
    const [oldest] = this.#seen.keys();
    if (this.#seen.size > CAPACITY && oldest !== undefined) this.#seen.delete(oldest);
  }

  has(name: string): boolean {
    const seen = this.#seen.get(name);
    return seen !== undefined && performance.now() - seen < LATELY_MS;
  }
}

interface Place {
  readonly lane: "address" | "user" | "stranger";
  /** Address or user whose clients share one line. */
  readonly line: string;
}

/**
 * Addresses and users with a recent successful login. They keep queue places of their own during a
 * flood of logins from many addresses. An address cannot be claimed by others. A username can, but
 * that harms only this user.
 */
export class RecentLogins {
  readonly #addresses = new Recent();
  readonly #users = new Recent();

  note({ username, address, isShared }: Omit<HashClient, "signal">): void {
    if (!isShared) this.#addresses.note(address);
    if (username !== undefined) this.#users.note(username);
  }

  placeOf({ username, address, isShared }: HashClient): Place {
    if (!isShared && this.#addresses.has(address)) return { lane: "address", line: address };
    if (username !== undefined && this.#users.has(username))
      return { lane: "user", line: username };
    return { lane: "stranger", line: address };
  }
}

export interface HashBounds {
  readonly atOnce: number;
  /** KiB for all running tasks. A task that needs more runs when no other does. */
  readonly memory: number;
  readonly waiting: number;
}

export interface HashClient {
  /** Clients of one address share a line. */
  readonly address: string;
  readonly username?: string | undefined;
  /** True for a reverse proxy that all clients share, whose address does not identify a client. */
  readonly isShared?: boolean | undefined;
  /** Aborts when the client disconnects. A waiting task then leaves the queue. */
  readonly signal?: AbortSignal | undefined;
}

interface Waiter {
  readonly memory: number;
  readonly turn: PromiseWithResolvers<void>;
}

function busy(): Refusal {
  return new Refusal("login_busy", { retryAfter: 1 });
}

/** The waiting tasks of one lane: a line per address or user, in the order of their turns. */
class Lane {
  readonly lines = new Map<string, Waiter[]>();
  waiting = 0;
}

/**
 * A short queue in which each address has its own line and lines take turns. When it is full, the
 * longest line loses its last task to an address with a shorter line. A flood from one address
 * therefore cannot keep others out. Addresses and users with a recent login have separate lanes of
 * the same size, which alternate with the lane of strangers. A flood from many addresses therefore
 * cannot keep them out.
 */
export class HashQueue {
  readonly #bounds: HashBounds;
  readonly #recent: RecentLogins;
  readonly #lanes = new Map<Place["lane"], Lane>([
    ["address", new Lane()],
    ["user", new Lane()],
    ["stranger", new Lane()],
  ]);
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
    return this.#lanes.values().reduce((sum, { waiting }) => sum + waiting, 0);
  }

  /**
   * Runs a task in its turn.
   *
   * @param memory in KiB
   * @throws Refusal `login_busy` if the queue is full, or the client disconnects while it waits
   */
  async run<T>(memory: number, client: HashClient, task: () => Promise<T>): Promise<T> {
    if (client.signal?.aborted) throw busy();
    const waiter = { memory, turn: Promise.withResolvers<void>() };
    const { lane: name, line } = this.#recent.placeOf(client);
    const lane = this.#lanes.get(name) ?? new Lane();
    this.#join(lane, line, waiter);
    const leave = () => this.#leave(lane, line, waiter);
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

  #join(lane: Lane, name: string, waiter: Waiter): void {
    const line = lane.lines.get(name);
    // A task that can start at once needs no place, so a queue without places still works.
    const isFull = lane.waiting >= this.#bounds.waiting && !this.#hasRoom(waiter);
    if (isFull) this.#makeRoom(lane, (line?.length ?? 0) + 1);
    if (line === undefined || line.length === 0) lane.lines.set(name, [waiter]);
    else line.push(waiter);
    lane.waiting++;
  }

  /** Drops the last task of the longest line. @throws Refusal if no line is longer than `length` */
  #makeRoom(lane: Lane, length: number): void {
    const [name, longest] = [...lane.lines].reduce(
      (longest, entry) => (entry[1].length > longest[1].length ? entry : longest),
      ["", [] as Waiter[]],
    );
    const last = longest.at(-1);
    if (last === undefined || longest.length <= length) throw busy();
    this.#leave(lane, name, last);
  }

  #leave(lane: Lane, name: string, waiter: Waiter): void {
    const line = lane.lines.get(name);
    const at = line?.indexOf(waiter) ?? -1;
    if (line === undefined || at === -1) return;
    line.splice(at, 1);
    if (line.length === 0) lane.lines.delete(name);
    lane.waiting--;
    waiter.turn.reject(busy());
    this.#admit();
  }

  #hasRoom({ memory }: Waiter): boolean {
    if (this.#running === 0) return true;
    return this.#running < this.#bounds.atOnce && this.#memory + memory <= this.#bounds.memory;
  }

  /**
   * Starts waiting tasks in order. The queue waits for a large task that does not fit, which would
   * otherwise never run.
   */
  #admit(): void {
    for (;;) {
      const next = this.#lanes.entries().find(([, { waiting }]) => waiting > 0);
      if (next === undefined || !this.#admitFrom(next[1])) return;
      const [name, lane] = next;
      this.#lanes.delete(name);
      this.#lanes.set(name, lane);
    }
  }

  /** @returns false if the first task does not fit */
  #admitFrom(lane: Lane): boolean {
    for (const [name, [first, ...rest]] of lane.lines) {
      if (first === undefined || !this.#hasRoom(first)) return false;
      lane.lines.delete(name);
      if (rest.length > 0) lane.lines.set(name, rest);
      lane.waiting--;
      this.#running++;
      this.#memory += first.memory;
      first.turn.resolve();
      return true;
    }
    return false;
  }
}

export type HashCalls = { readonly derive: Call<HashOrder, Uint8Array> };

type HashProgram = ChildProgram<NoCalls, HashCalls, string>;

/** Heartbeats in a row that may go unanswered, with more allowed during the start. */
const HEARTBEAT = { missable: 5, missableAtStart: 20 };
/** Processes that try an order before it fails. */
const ATTEMPTS = 2;

/**
 * Not detached: some systems divide cores between sessions first. A process in its own session
 * would then get as much as the gateway, however low its priority.
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
 * Hashes in a separate process with lower priority. Inside the gateway, hash threads would compete
 * with the event loop for cores, and their allocations would stall it. They would also occupy the
 * thread pool that files and signatures need. The first order starts the process. A process that
 * dies or hangs is replaced, and its orders are repeated.
 */
class HashProcess {
  readonly #threads: number;
  readonly #onLost: (reason: string) => void;
  #running: HashProgram | undefined;
  #isClosed = false;

  /**
   * @param threads hashes at one time
   * @param onLost called with the reason when a process ended unexpectedly
   */
  constructor(threads: number, onLost: (reason: string) => void) {
    this.#threads = threads;
    this.#onLost = onLost;
  }

  /** @throws Refusal `login_busy` if the process fails */
  async derive(order: HashOrder): Promise<Uint8Array> {
    for (let attempt = 1; ; attempt++) {
      // A login that outlasts its connection must not restart the process.
      if (this.#isClosed) throw failure("the gateway is closing");
      try {
        return await this.#usable().ask("derive", order);
      } catch (error) {
        if (!(error instanceof ChannelClosedError)) throw failure("a hash failed");
        if (attempt === ATTEMPTS) throw failure(`the hashing process: ${error.how}`);
      }
    }
  }

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

/** Concurrent hashes on a machine of any size. At 64 MiB each they need 256 MiB. */
const MOST_AT_ONCE = 4;
/** Tasks that may wait. At 0.1 s each, the last one waits for seconds. */
const WAITING = 64;

/** All hashing of a gateway goes through one queue and one process. */
export interface Hashing {
  /**
   * Runs work in its turn. The work derives its hashes one after the other.
   *
   * @param costs of all hashes that it derives
   * @throws Refusal `login_busy` if the queue is full, or the client disconnects while it waits
   */
  run<T>(
    costs: readonly HashCosts[],
    client: HashClient,
    work: (derive: Derive) => Promise<T>,
  ): Promise<T>;
  close(): Promise<void>;
}

export interface HashingHere extends Hashing {
  readonly metrics: HashMetrics;
}

/**
 * Limits concurrent hashes so that their threads do not exceed the cores. A hash uses one thread
 * per Argon2 lane. At least one hash may run.
 */
export function hashBounds(costs: HashCosts, cores = availableParallelism()): HashBounds {
  const atOnce = Math.min(MOST_AT_ONCE, Math.max(1, Math.floor(cores / costs.parallelism)));
  return { atOnce, memory: atOnce * costs.memory, waiting: WAITING };
}

/**
 * @param onLost called with the reason when the process ended unexpectedly
 * @param recent clients with queue places of their own
 */
export function openHashing(
  configured: HashCosts,
  onLost: (reason: string) => void = () => {},
  recent = new RecentLogins(),
): HashingHere {
  const bounds = hashBounds(configured);
  const queue = new HashQueue(bounds, recent);
  const hashes = new HashProcess(bounds.atOnce, onLost);
  const times: Durations = { add() {} };
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
