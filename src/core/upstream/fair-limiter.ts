import { Sums } from "../base/sums.ts";

/** How a wait ends. `dismissed` by `dismissAll`; `cancelled` also if it takes too long. */
type WaitEnd = "slot" | "dismissed" | "cancelled";

interface Waiter {
  readonly user: string;
  readonly since: number;
  readonly timer: NodeJS.Timeout;
  readonly onEnd: (end: WaitEnd) => void;
}

interface FairLimiterOptions {
  readonly slots: number;
  readonly maxWaiting: number;
  readonly timeoutMs: number;
}

/**
 * Concurrency limiter that is fair between users.
 *
 * While slots are free, every request gets one. When requests have to wait, the next free slot goes
 * to the waiting user who holds the fewest slots. Ties go to the user served least recently. A user
 * who floods the queue therefore delays only their own requests, and others wait at most one turn.
 */
export class FairLimiter {
  readonly #options: FairLimiterOptions;
  readonly #waits: { add(seconds: number): void };
  readonly #slots = new Sums();
  /** Waiters by user. The user served least recently comes first. */
  readonly #queues = new Map<string, Waiter[]>();
  #busy = 0;
  #waiting = 0;
  #isAssigning = false;

  /** @param waits records waiting times in seconds */
  constructor(options: FairLimiterOptions, waits: { add(seconds: number): void }) {
    this.#options = options;
    this.#waits = waits;
  }

  get busy(): number {
    return this.#busy;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /** Takes a free slot. While there is one, no one is waiting. */
  tryTake(user: string): boolean {
    if (this.#busy >= this.#options.slots) return false;
    this.#busy++;
    this.#slots.add(user, 1);
    return true;
  }

  /**
   * Starts waiting. Call it only if no slot is free. If too many wait already, the last waiter of
   * the user with the longest queue is removed.
   *
   * @param onEnd called once, when the wait ends
   * @returns a function that cancels the wait; undefined if too many wait and the user's own queue
   * is among the longest
   */
  wait(user: string, onEnd: (end: WaitEnd) => void): (() => void) | undefined {
    if (this.#waiting >= this.#options.maxWaiting && !this.#makeRoom(user)) return undefined;
    const cancel = () => this.#remove(waiter, "cancelled");
    const timer = setTimeout(cancel, this.#options.timeoutMs).unref();
    const waiter: Waiter = { user, since: performance.now(), timer, onEnd };
    const queue = this.#queues.get(user);
    if (queue === undefined) this.#queues.set(user, [waiter]);
    else queue.push(waiter);
    this.#waiting++;
    return cancel;
  }

  release(user: string): void {
    this.#slots.add(user, -1);
    this.#busy--;
    // A waiter may release its slot at once, and the loop prevents recursion.
    if (this.#isAssigning) return;
    this.#isAssigning = true;
    try {
      for (let next = this.#next(); next !== undefined; next = this.#next()) {
        this.tryTake(next.user);
        this.#remove(next, "slot");
      }
    } finally {
      this.#isAssigning = false;
    }
  }

  /** The waiter for the next free slot, whose user then counts as served most recently. */
  #next(): Waiter | undefined {
    if (this.#busy >= this.#options.slots) return undefined;
    let fewest = Number.POSITIVE_INFINITY;
    let next: Waiter[] | undefined;
    for (const [user, queue] of this.#queues) {
      const slots = this.#slots.of(user);
      if (slots >= fewest) continue;
      fewest = slots;
      next = queue;
      if (slots === 0) break;
    }
    const [first] = next ?? [];
    if (first === undefined || next === undefined) return undefined;
    this.#queues.delete(first.user);
    this.#queues.set(first.user, next);
    return first;
  }

  /** Removes the last waiter of the longest queue if it exceeds the user's own. */
  #makeRoom(user: string): boolean {
    let longest: Waiter[] = [];
    for (const queue of this.#queues.values()) if (queue.length > longest.length) longest = queue;
    const last = longest.at(-1);
    const own = this.#queues.get(user)?.length ?? 0;
    if (last === undefined || longest.length <= own + 1) return false;
    this.#remove(last, "cancelled");
    return true;
  }

  dismissAll(): void {
    for (const waiter of [...this.#queues.values()].flat()) this.#remove(waiter, "dismissed");
  }

  #remove(waiter: Waiter, end: WaitEnd): void {
    const queue = this.#queues.get(waiter.user) ?? [];
    const at = queue.indexOf(waiter);
    if (at === -1) return;
    queue.splice(at, 1);
    if (queue.length === 0) this.#queues.delete(waiter.user);
    this.#waiting--;
    clearTimeout(waiter.timer);
    this.#waits.add((performance.now() - waiter.since) / 1000);
    waiter.onEnd(end);
  }
}
