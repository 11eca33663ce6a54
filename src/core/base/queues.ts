/** Turns one after another, and slots that are shared fairly. */

/** Runs tasks one at a time, in order. A task that fails does not stop those after it. */
export class Turns {
  #last: Promise<unknown> = Promise.resolve();

  run<Result>(task: () => Promise<Result>): Promise<Result> {
    const turn = this.#last.then(task);
    this.#last = turn.catch(() => {});
    return turn;
  }

  /** Resolves when the tasks so far have ended. */
  async end(): Promise<void> {
    await this.#last;
  }
}

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

/** Waiters of one rank by key, by the number of slots that the key holds. */
type Lane = Map<string, Waiter[]>[];

function addTo(lane: Lane, held: number, key: string, queue: Waiter[]): void {
  for (let level = lane.length; level <= held; level++) lane.push(new Map());
  lane[held]?.set(key, queue);
}

/**
 * Concurrency limiter that is fair between keys.
 *
 * While slots are free, everyone gets one. When some have to wait, the next free slot goes to the
 * key that holds the fewest. Ties go to the key that has held that few for longest. A key that
 * floods the queue therefore delays only itself, and others wait at most one turn. To find the next
 * one takes no longer if many keys wait.
 */
export class FairQueue {
  readonly #options: FairQueueOptions;
  readonly #slots = new Sums();
  /** By rank. */
  readonly #lanes = new Map<number, Lane>();
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

  /** Takes a free slot, unless others wait for it. Those whose key is at its limit do not. */
  tryTake(entrant: Entrant): boolean {
    if (this.#next() !== undefined || !this.#hasRoom(entrant)) return false;
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
    this.#enqueue(waiter);
    // A slot may be free although others wait, if they weigh more.
    this.#assign();
    return cancel;
  }

  release({ key, weight = 0 }: Entrant): void {
    this.#addSlots(key, -1);
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
    const lanes = [...this.#lanes.values()];
    const waiters = lanes.flatMap((lane) => lane.flatMap((level) => [...level.values()].flat()));
    for (const waiter of waiters) this.#remove(waiter, "dismissed");
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
    this.#addSlots(key, 1);
    this.#lastRank = rank;
  }

  #queueOf({ key, rank = 0 }: Entrant): Waiter[] | undefined {
    return this.#lanes.get(rank)?.[this.#slots.of(key)]?.get(key);
  }

  #enqueue(waiter: Waiter): void {
    this.#waiting++;
    const queue = this.#queueOf(waiter.entrant);
    if (queue !== undefined) {
      queue.push(waiter);
      return;
    }
    const { key, rank = 0 } = waiter.entrant;
    const lane = this.#lanes.get(rank) ?? [];
    this.#lanes.set(rank, lane);
    addTo(lane, this.#slots.of(key), key, [waiter]);
  }

  #addSlots(key: string, amount: 1 | -1): void {
    const held = this.#slots.of(key);
    this.#slots.add(key, amount);
    if (this.#waiting === 0) return;
    for (const lane of this.#lanes.values()) {
      const queue = lane[held]?.get(key);
      if (queue === undefined) continue;
      lane[held]?.delete(key);
      addTo(lane, held + amount, key, queue);
    }
  }

  /** Gives free slots to waiters until the next one does not fit, so that none waits forever. */
  #assign(): void {
    // A waiter may release its slot at once, and the loop prevents recursion.
    if (this.#isAssigning) return;
    this.#isAssigning = true;
    try {
      for (let next = this.#next(); next !== undefined; next = this.#next()) {
        if (!this.#hasRoom(next.entrant)) return;
        this.#take(next.entrant);
        this.#remove(next, "slot");
      }
    } finally {
      this.#isAssigning = false;
    }
  }

  /** The waiter for the next free slot: of another rank than the last one, if there is one. */
  #next(): Waiter | undefined {
    const { slots, maxPerKey = slots } = this.#options;
    if (this.#busy >= slots || this.#waiting === 0) return undefined;
    let next: Waiter | undefined;
    let fewest = maxPerKey;
    let isOther = false;
    for (const [rank, lane] of this.#lanes) {
      const isOfOther = rank !== this.#lastRank;
      const most = isOfOther && !isOther ? maxPerKey : fewest;
      const held = lane.findIndex(({ size }) => size > 0);
      if (held === -1 || held >= most || (isOther && !isOfOther)) continue;
      const [[first] = []] = lane[held]?.values() ?? [];
      next = first;
      fewest = held;
      isOther = isOfOther;
    }
    return next;
  }

  /** False if too many of the rank wait, and none of another key can be removed. */
  #hasPlace(entrant: Entrant): boolean {
    const { rank = 0 } = entrant;
    const { maxWaiting = Number.POSITIVE_INFINITY } = this.#options;
    if (this.#waiting < maxWaiting) return true;
    let waiting = 0;
    let longest: Waiter[] = [];
    for (const level of this.#lanes.get(rank) ?? []) {
      for (const queue of level.values()) {
        waiting += queue.length;
        if (queue.length > longest.length) longest = queue;
      }
    }
    if (waiting < maxWaiting) return true;
    const last = longest.at(-1);
    const own = this.#queueOf(entrant)?.length ?? 0;
    if (last === undefined || longest.length <= own + 1) return false;
    this.#remove(last, "cancelled");
    return true;
  }

  #remove(waiter: Waiter, end: WaitEnd): void {
    const queue = this.#queueOf(waiter.entrant) ?? [];
    const at = queue.indexOf(waiter);
    if (at === -1) return;
    queue.splice(at, 1);
    const { key, rank = 0 } = waiter.entrant;
    if (queue.length === 0) this.#lanes.get(rank)?.[this.#slots.of(key)]?.delete(key);
    this.#waiting--;
    clearTimeout(waiter.timer);
    this.#options.waits?.add((performance.now() - waiter.since) / 1000);
    waiter.onEnd(end);
    // Those behind a waiter that did not fit may fit.
    if (end === "cancelled") this.#assign();
  }
}
