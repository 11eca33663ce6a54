import { Refusal } from "../refusal.ts";

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

/**
 * A short queue in which every address has a line of its own and the lines take turns. When it is
 * full, the longest line gives its last place to an address with a shorter one, so that no storm
 * from one address keeps the others out.
 */
export class HashQueue {
  readonly #bounds: HashBounds;
  /** In the order of their turns. */
  readonly #lines = new Map<string, Waiter[]>();
  #waiting = 0;
  #running = 0;
  #memory = 0;

  constructor(bounds: HashBounds) {
    this.#bounds = bounds;
  }

  /** Tasks that run. */
  get running(): number {
    return this.#running;
  }

  /** Tasks that wait for their turn. */
  get waiting(): number {
    return this.#waiting;
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
    this.#join(client.address, waiter);
    const leave = () => this.#leave(client.address, waiter);
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

  #join(address: string, waiter: Waiter): void {
    const line = this.#lines.get(address);
    // What runs at once takes no place: a queue without places for waiting serves nevertheless.
    const isFull = this.#waiting >= this.#bounds.waiting && !this.#hasRoom(waiter);
    if (isFull) this.#makeRoom((line?.length ?? 0) + 1);
    if (line === undefined || line.length === 0) this.#lines.set(address, [waiter]);
    else line.push(waiter);
    this.#waiting++;
  }

  /** Sends the last of the longest line away. @throws Refusal if no line is longer than `length` */
  #makeRoom(length: number): void {
    const [address, longest] = [...this.#lines].reduce(
      (longest, entry) => (entry[1].length > longest[1].length ? entry : longest),
      ["", [] as Waiter[]],
    );
    const last = longest.at(-1);
    if (last === undefined || longest.length <= length) throw busy();
    this.#leave(address, last);
  }

  #leave(address: string, waiter: Waiter): void {
    const line = this.#lines.get(address);
    const at = line?.indexOf(waiter) ?? -1;
    if (line === undefined || at === -1) return;
    line.splice(at, 1);
    if (line.length === 0) this.#lines.delete(address);
    this.#waiting--;
    waiter.turn.reject(busy());
    this.#admit();
  }

  #hasRoom({ memory }: Waiter): boolean {
    if (this.#running === 0) return true;
    return this.#running < this.#bounds.atOnce && this.#memory + memory <= this.#bounds.memory;
  }

  /** Lets those in whose turn it is; the first that does not fit is waited for, or it never would. */
  #admit(): void {
    for (const [address, line] of this.#lines) {
      const [first, ...rest] = line;
      if (first === undefined || !this.#hasRoom(first)) return;
      this.#lines.delete(address);
      if (rest.length > 0) this.#lines.set(address, rest);
      this.#waiting--;
      this.#running++;
      this.#memory += first.memory;
      first.turn.resolve();
    }
  }
}
