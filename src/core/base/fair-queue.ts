const MOST_ZEROS = 1024;

/**
 * Sums by name, such as what each user holds. Names whose sum is zero are kept up to a number. To
 * delete and add one in each request would make V8 rebuild the map's table again and again, and old
 * tables keep each other alive until the whole heap is collected.
 */
export class Sums {
  readonly #byName = new Map<string, number>();

  of(name: string): number {
    return this.#byName.get(name) ?? 0;
  }

  add(name: string, amount: number): void {
    const sum = this.of(name) + amount;
    if (sum !== 0 || this.#byName.size < MOST_ZEROS) this.#byName.set(name, sum);
    else this.#byName.delete(name);
  }
}

export interface Entrant {
  /** Slots are shared fairly between keys, such as users. */
  readonly key: string;
  /** Ranks take turns, and each has its own places to wait. */
  readonly rank?: number;
  readonly weight?: number;
}

/** For those who are all alike. */
export const anyone: Entrant = { key: "" };

/** How a wait ends. `dismissed` by `dismissAll`; `cancelled` also if it takes too long. */
export type WaitEnd = "slot" | "dismissed" | "cancelled";

interface Waiter {
  readonly entrant: Entrant;
  readonly since: number;
  readonly timer: NodeJS.Timeout | undefined;
  readonly onEnd: (end: WaitEnd) => void;
}

interface FairQueueOptions {
  readonly slots: number;
  /** Of all that hold a slot. One that weighs more gets a slot while no other is taken. */
  readonly maxWeight?: number;
  /** Slots that one key may hold. The others stay free for other keys. */
  readonly maxPerKey?: number;
  /** Of each rank. */
  readonly maxWaiting?: number;
  readonly timeoutMs?: number;
  readonly waits?: { add(seconds: number): void };
}

/**
 * Concurrency limiter that is fair between keys.
 *
 * While slots are free, everyone gets one. When some have to wait, the next free slot goes to the
 * key that holds the fewest. Ties go to the key served least recently. A key that floods the queue
 * therefore delays only itself, and others wait at most one turn.
 */
export class FairQueue {
  readonly #options: FairQueueOptions;
  readonly #slots = new Sums();
  /** Waiters by key. The key served least recently comes first. */
  readonly #queues = new Map<string, Waiter[]>();
  #busy = 0;
  #weight = 0;
  #waiting = 0;
  #lastRank = 0;
  #isAssigning = false;

  constructor(options: FairQueueOptions) {
    this.#options = options;
  }

  get busy(): number {
    return this.#busy;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /** Takes a free slot, unless others wait for it. */
  tryTake(entrant: Entrant): boolean {
    if (this.#waiting > 0 || !this.#hasRoom(entrant)) return false;
    this.#take(entrant);
    return true;
  }

  /**
   * Starts waiting. Call it only after `tryTake`. If too many wait already, the last waiter of the
   * longest queue is removed.
   *
   * @param onEnd called once, when the wait ends
   * @returns a function that cancels the wait; undefined if too many wait and the key's own queue
   * is among the longest
   */
  wait(entrant: Entrant, onEnd: (end: WaitEnd) => void): (() => void) | undefined {
    const { timeoutMs } = this.#options;
    if (!this.#hasPlace(entrant)) return undefined;
    const cancel = () => this.#remove(waiter, "cancelled");
    const timer = timeoutMs === undefined ? undefined : setTimeout(cancel, timeoutMs).unref();
    const waiter: Waiter = { entrant, since: performance.now(), timer, onEnd };
    const queue = this.#queues.get(entrant.key);
    if (queue === undefined) this.#queues.set(entrant.key, [waiter]);
    else queue.push(waiter);
    this.#waiting++;
    // A slot may be free although others wait, if their keys are at the limit.
    this.#assign();
    return cancel;
  }

  release({ key, weight = 0 }: Entrant): void {
    this.#slots.add(key, -1);
    this.#busy--;
    this.#weight -= weight;
    this.#assign();
  }

  /**
   * Does the work while it holds a slot.
   *
   * @param refusal makes the error for a wait without success; by default the reason of `signal`
   */
  async hold<Result>(
    entrant: Entrant,
    signal: AbortSignal | undefined,
    work: () => Promise<Result>,
    refusal: (end: WaitEnd) => unknown = () => signal?.reason,
  ): Promise<Result> {
    if (signal?.aborted) throw refusal("cancelled");
    if (!this.tryTake(entrant)) {
      const { promise, resolve } = Promise.withResolvers<WaitEnd>();
      const cancel = this.wait(entrant, resolve);
      if (cancel === undefined) throw refusal("cancelled");
      signal?.addEventListener("abort", cancel);
      const end = await promise;
      signal?.removeEventListener("abort", cancel);
      if (end !== "slot") throw refusal(end);
    }
    try {
      return await work();
    } finally {
      this.release(entrant);
    }
  }

  dismissAll(): void {
    for (const waiter of [...this.#queues.values()].flat()) this.#remove(waiter, "dismissed");
  }

  #hasRoom({ key, weight = 0 }: Entrant): boolean {
    const { slots, maxWeight = Number.POSITIVE_INFINITY } = this.#options;
    if (this.#isAtLimit(key)) return false;
    return this.#busy === 0 || (this.#busy < slots && this.#weight + weight <= maxWeight);
  }

  #isAtLimit(key: string): boolean {
    const { maxPerKey } = this.#options;
    return maxPerKey !== undefined && this.#slots.of(key) >= maxPerKey;
  }

  #take({ key, rank = 0, weight = 0 }: Entrant): void {
    this.#busy++;
    this.#weight += weight;
    this.#slots.add(key, 1);
    this.#lastRank = rank;
  }

  /** Gives free slots to waiters until the next one does not fit, so that none waits forever. */
  #assign(): void {
    // A waiter may release its slot at once, and the loop prevents recursion.
    if (this.#isAssigning) return;
    this.#isAssigning = true;
    try {
      for (let next = this.#next(); next !== undefined; next = this.#next()) {
        if (!this.#hasRoom(next.entrant)) return;
        const { key } = next.entrant;
        const queue = this.#queues.get(key) ?? [];
        // The key then counts as served most recently.
        this.#queues.delete(key);
        this.#queues.set(key, queue);
        this.#take(next.entrant);
        this.#remove(next, "slot");
      }
    } finally {
      this.#isAssigning = false;
    }
  }

  /** The waiter for the next free slot: of another rank than the last one, if there is one. */
  #next(): Waiter | undefined {
    if (this.#busy >= this.#options.slots) return undefined;
    let next: Waiter | undefined;
    let fewest = Number.POSITIVE_INFINITY;
    let isOther = false;
    for (const [key, [first]] of this.#queues) {
      if (this.#isAtLimit(key)) continue;
      const isOfOther = (first?.entrant.rank ?? 0) !== this.#lastRank;
      const slots = this.#slots.of(key);
      if (isOther === isOfOther ? slots >= fewest : isOther) continue;
      next = first;
      fewest = slots;
      isOther = isOfOther;
    }
    return next;
  }

  /** False if too many of the rank wait, and none of another key can be removed. */
  #hasPlace({ key, rank = 0 }: Entrant): boolean {
    const { maxWaiting = Number.POSITIVE_INFINITY } = this.#options;
    if (this.#waiting < maxWaiting) return true;
    let waiting = 0;
    let longest: Waiter[] = [];
    for (const queue of this.#queues.values()) {
      if ((queue[0]?.entrant.rank ?? 0) !== rank) continue;
      waiting += queue.length;
      if (queue.length > longest.length) longest = queue;
    }
    if (waiting < maxWaiting) return true;
    const last = longest.at(-1);
    const own = this.#queues.get(key)?.length ?? 0;
    if (last === undefined || longest.length <= own + 1) return false;
    this.#remove(last, "cancelled");
    return true;
  }

  #remove(waiter: Waiter, end: WaitEnd): void {
    const { key } = waiter.entrant;
    const queue = this.#queues.get(key) ?? [];
    const at = queue.indexOf(waiter);
    if (at === -1) return;
    queue.splice(at, 1);
    if (queue.length === 0) this.#queues.delete(key);
    this.#waiting--;
    clearTimeout(waiter.timer);
    this.#options.waits?.add((performance.now() - waiter.since) / 1000);
    waiter.onEnd(end);
    // Those behind a waiter that did not fit may fit.
    if (end === "cancelled") this.#assign();
  }
}
