interface Waiter {
  readonly user: string;
  readonly since: number;
  readonly timer: NodeJS.Timeout;
  readonly onTurn: (turn: Turn) => void;
}

export type Turn = "slot" | "dismissed" | "gone";

export interface FairLimiterOptions {
  readonly slots: number;
  readonly waiting: number;
  /** The maximum wait in milliseconds. */
  readonly patience: number;
}

/**
 * Concurrency limiter that is fair between users.
 *
 * While slots are free, every request gets one. When requests have to wait, the next free slot goes
 * to the waiting user who holds the fewest slots. Ties go to the user served least recently. A user
 * who floods the queue therefore delays only their own requests, and others wait at most one turn.
 */
export class FairLimiter {
  readonly #limits: FairLimiterOptions;
  readonly #waits: { add(seconds: number): void };
  readonly #held = new Map<string, number>();
  /** Waiters by user. The user served least recently comes first. */
  readonly #lines = new Map<string, Waiter[]>();
  #busy = 0;
  #waiting = 0;
  #isHandingOn = false;

  /** @param waits records waiting times in seconds */
  constructor(limits: FairLimiterOptions, waits: { add(seconds: number): void }) {
    this.#limits = limits;
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
    if (this.#busy >= this.#limits.slots) return false;
    this.#busy++;
    this.#held.set(user, this.#heldBy(user) + 1);
    return true;
  }

  #heldBy(user: string): number {
    return this.#held.get(user) ?? 0;
  }

  /**
   * Starts waiting. Call it only if no slot is free. If the queue is full, the last waiter of the
   * user with the longest line is removed.
   *
   * @param onTurn called once, when the wait ends
   * @returns a function that gives up waiting; undefined if the queue is full and the user's own
   * line is among the longest
   */
  wait(user: string, onTurn: (turn: Turn) => void): (() => void) | undefined {
    if (this.#waiting >= this.#limits.waiting && !this.#makeRoom(user)) return undefined;
    const leave = () => this.#remove(waiter, "gone");
    const timer = setTimeout(leave, this.#limits.patience).unref();
    const waiter: Waiter = { user, since: performance.now(), timer, onTurn };
    const line = this.#lines.get(user);
    if (line === undefined) this.#lines.set(user, [waiter]);
    else line.push(waiter);
    this.#waiting++;
    return leave;
  }

  release(user: string): void {
    const held = this.#heldBy(user) - 1;
    if (held > 0) this.#held.set(user, held);
    else this.#held.delete(user);
    this.#busy--;
    // A waiter may release its slot at once, and the loop prevents recursion.
    if (this.#isHandingOn) return;
    this.#isHandingOn = true;
    try {
      for (let next = this.#next(); next !== undefined; next = this.#next()) {
        this.tryTake(next.user);
        this.#remove(next, "slot");
      }
    } finally {
      this.#isHandingOn = false;
    }
  }

  /** The waiter for the next free slot, whose user then counts as served most recently. */
  #next(): Waiter | undefined {
    if (this.#busy >= this.#limits.slots) return undefined;
    let fewest = Number.POSITIVE_INFINITY;
    let next: Waiter[] | undefined;
    for (const [user, line] of this.#lines) {
      const held = this.#heldBy(user);
      if (held >= fewest) continue;
      fewest = held;
      next = line;
      if (held === 0) break;
    }
    const [first] = next ?? [];
    if (first === undefined || next === undefined) return undefined;
    this.#lines.delete(first.user);
    this.#lines.set(first.user, next);
    return first;
  }

  /** Removes the last waiter of the longest line if it exceeds the user's own. */
  #makeRoom(user: string): boolean {
    let longest: Waiter[] = [];
    for (const line of this.#lines.values()) if (line.length > longest.length) longest = line;
    const last = longest.at(-1);
    if (last === undefined || longest.length <= (this.#lines.get(user)?.length ?? 0) + 1) {
      return false;
    }
    this.#remove(last, "gone");
    return true;
  }

  dismissAll(): void {
    for (const line of [...this.#lines.values()]) {
      for (const waiter of [...line]) this.#remove(waiter, "dismissed");
    }
  }

  #remove(waiter: Waiter, turn: Turn): void {
    const line = this.#lines.get(waiter.user) ?? [];
    const at = line.indexOf(waiter);
    if (at === -1) return;
    line.splice(at, 1);
    if (line.length === 0) this.#lines.delete(waiter.user);
    this.#waiting--;
    clearTimeout(waiter.timer);
    this.#waits.add((performance.now() - waiter.since) / 1000);
    waiter.onTurn(turn);
  }
}
