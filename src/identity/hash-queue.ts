import { Refusal } from "../refusal.ts";

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
export interface Place {
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
