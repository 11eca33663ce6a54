import { availableParallelism } from "node:os";
import type { HashCosts } from "../access/password-hash.ts";
import { type Call, ChannelClosedError, messageCodec, type NoCalls } from "../ipc/channel.ts";
import { ChildProgram, howEnded, siblingModule } from "../ipc/child-program.ts";
import type { HashMetrics } from "../observe/component-metrics.ts";
import { Times } from "../observe/times.ts";
import { Refusal } from "../refusal.ts";
import type { Derive, HashOrder } from "./hash.ts";

/** Addresses, and users, that are remembered; past it, those that logged in longest ago go. */
const CAPACITY = 10_000;
/** Milliseconds for which a good login is remembered. */
const LATELY_MS = 86_400_000;

/** Names, each with the moment at which it was noted last. */
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

/** Where a client of the queue of hashes stands. */
interface Place {
  readonly lane: "address" | "user" | "stranger";
  /** Whom it shares a line with. */
  readonly line: string;
}

/**
 * Who has logged in well lately. In a storm of logins from many addresses they have places of their
 * own: by an address, which nobody else can come from, or else by the user's name, which others can
 * claim to the harm of that user alone.
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

/** What runs and waits at most. */
export interface HashBounds {
  readonly atOnce: number;
  /** KiB of memory of all that runs; a task that alone needs more runs alone. */
  readonly memory: number;
  readonly waiting: number;
}

/** For whom a task runs. */
export interface HashClient {
  /** Clients of one address share one line. */
  readonly address: string;
  /** Who is said to log in. */
  readonly username?: string | undefined;
  /** True for a reverse proxy with everyone behind it, whose address says nothing of a client. */
  readonly isShared?: boolean | undefined;
  /** Aborted when the client has gone; what still waits for it leaves the queue. */
  readonly signal?: AbortSignal | undefined;
}

interface Waiter {
  /** KiB. */
  readonly memory: number;
  readonly turn: PromiseWithResolvers<void>;
}

function busy(): Refusal {
  return new Refusal("login_busy", { retryAfter: 1 });
}

/** Those who wait in one lane: a line for each address or user, in the order of their turns. */
class Lane {
  readonly lines = new Map<string, Waiter[]>();
  waiting = 0;
}

/**
 * A short queue in which every address has a line of its own and the lines take turns. When it is
 * full, the longest line gives its last place to an address with a shorter one, so that no storm
 * from one address keeps the others out. Addresses and users that have logged in well lately have
 * lanes of their own, with as many places, which take turns with that of strangers: so that no storm
 * from many addresses keeps them out.
 */
export class HashQueue {
  readonly #bounds: HashBounds;
  readonly #recent: RecentLogins;
  /** In the order of their turns. */
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

  /** Tasks that run. */
  get running(): number {
    return this.#running;
  }

  /** Tasks that wait for their turn. */
  get waiting(): number {
    return this.#lanes.values().reduce((sum, { waiting }) => sum + waiting, 0);
  }

  /**
   * Runs a task when it is its turn.
   *
   * @param memory KiB that the task needs
   * @throws Refusal `login_busy` if there is no place, or the client goes while it waits
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
    // What runs at once takes no place: a queue without places for waiting serves nevertheless.
    const isFull = lane.waiting >= this.#bounds.waiting && !this.#hasRoom(waiter);
    if (isFull) this.#makeRoom(lane, (line?.length ?? 0) + 1);
    if (line === undefined || line.length === 0) lane.lines.set(name, [waiter]);
    else line.push(waiter);
    lane.waiting++;
  }

  /** Sends the last of the longest line away. @throws Refusal if no line is longer than `length` */
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

  /** Lets those in whose turn it is; the first that does not fit is waited for, or it never would. */
  #admit(): void {
    for (;;) {
      const next = this.#lanes.entries().find(([, { waiting }]) => waiting > 0);
      if (next === undefined || !this.#admitFrom(next[1])) return;
      const [name, lane] = next;
      this.#lanes.delete(name);
      this.#lanes.set(name, lane);
    }
  }

  /** Lets the first of a lane in. @returns false if there is no room */
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
