export type Slot = number;

interface Line {
  readonly user: string;
  first: Place | undefined;
  last: Place | undefined;
  length: number;
  held: number;
}

/**
 * Called once with the acquired slot, or with undefined if the waiter timed out, was removed or
 * gave up.
 */
export type OnTurn = (slot: Slot | undefined, place: Place) => void;

/**
 * A waiter. Waiters form a linked list, and a waiter that leaves links to nothing. A `Set` would
 * keep deleted entries reachable until the next full garbage collection.
 */
export class Place {
  readonly onTurn: OnTurn;
  readonly since = performance.now();
  line: Line | undefined;
  before: Place | undefined;
  behind: Place | undefined = undefined;
  isDismissed = false;
  readonly #limiter: FairLimiter;

  constructor(limiter: FairLimiter, line: Line, onTurn: OnTurn) {
    this.onTurn = onTurn;
    this.line = line;
    this.before = line.last;
    this.#limiter = limiter;
  }

  /** Gives up waiting. Has no effect once the slot is held. */
  leave(): void {
    this.#limiter.remove(this, undefined);
  }
}

export interface FairLimits {
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
  readonly #limits: FairLimits;
  readonly #waits: { add(seconds: number): void };
  /** The holder of each slot. Entries of free slots are meaningless. */
  readonly #holders: string[];
  readonly #free: Slot[];
  readonly #released: Slot[] = [];
  #isHandingOn = false;
  readonly #lines = new Map<string, Line>();
  #waiting = 0;
  /** One timer for all waiters, which is cheaper than one each. */
  #timer: NodeJS.Timeout | undefined;

  /** @param waits records waiting times in seconds */
  constructor(limits: FairLimits, waits: { add(seconds: number): void }) {
    const { slots } = limits;
    this.#free = Array.from({ length: slots }, (_, slot) => slot);
    this.#holders = Array.from({ length: slots }, () => "");
    this.#limits = limits;
    this.#waits = waits;
  }

  get busy(): number {
    return this.#holders.length - this.#free.length;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /** Takes a free slot. While there is one, no one is waiting. */
  tryTake(user: string): Slot | undefined {
    const slot = this.#free.pop();
    if (slot !== undefined) this.#holders[slot] = user;
    return slot;
  }

  /**
   * Starts waiting. Call it only if no slot is free. If the queue is full, the last waiter of the
   * user with the longest line is removed.
   *
   * @returns undefined if the queue is full and the user's own line is among the longest
   */
  wait(user: string, onTurn: OnTurn): Place | undefined {
    if (this.#waiting >= this.#limits.waiting && !this.#makeRoom(user)) return undefined;
    const line = this.#lines.get(user) ?? this.#openLine(user);
    const place = new Place(this, line, onTurn);
    if (line.last === undefined) line.first = place;
    else line.last.behind = place;
    line.last = place;
    line.length++;
    this.#waiting++;
    this.#timer ??= setTimeout(this.#expire, this.#limits.patience).unref();
    return place;
  }

  readonly #expire = (): void => {
    this.#timer = undefined;
    const { patience } = this.#limits;
    const now = performance.now();
    let oldest = now;
    for (const { first } of [...this.#lines.values()]) {
      let place = first;
      while (place !== undefined && now - place.since >= patience) {
        const { behind } = place;
        place.leave();
        place = behind;
      }
      if (place !== undefined && place.since < oldest) oldest = place.since;
    }
    if (this.#waiting === 0) return;
    this.#timer ??= setTimeout(this.#expire, Math.ceil(oldest + patience - now)).unref();
  };

  /** Releases a slot. A waiter may release its slot at once, and the loop prevents recursion. */
  release(slot: Slot): void {
    this.#released.push(slot);
    if (this.#isHandingOn) return;
    this.#isHandingOn = true;
    try {
      for (let next = this.#released.pop(); next !== undefined; next = this.#released.pop()) {
        this.#handOn(next);
      }
    } finally {
      this.#isHandingOn = false;
    }
  }

  #handOn(slot: Slot): void {
    const before = this.#lines.get(this.#holders[slot] ?? "");
    if (before !== undefined) before.held--;
    const next = this.#nextLine();
    if (next === undefined) this.#free.push(slot);
    else this.#give(slot, next);
  }

  #give(slot: Slot, line: Line): void {
    // A user who was just served moves to the end.
    this.#lines.delete(line.user);
    this.#lines.set(line.user, line);
    this.#holders[slot] = line.user;
    line.held++;
    if (line.first !== undefined) this.remove(line.first, slot);
  }

  #openLine(user: string): Line {
    const held = this.#holders.reduce((count, holder) => count + Number(holder === user), 0);
    const line = { user, first: undefined, last: undefined, length: 0, held };
    this.#lines.set(user, line);
    return line;
  }

  #nextLine(): Line | undefined {
    let next: Line | undefined;
    for (const line of this.#lines.values()) {
      // No user holds fewer. With many waiting users, the first ones hold none.
      if (line.held === 0) return line;
      if (next === undefined || line.held < next.held) next = line;
    }
    return next;
  }

  /**
   * Removes the last waiter of the longest line, if that is longer than the user's line would be.
   */
  #makeRoom(user: string): boolean {
    const own = this.#lines.get(user)?.length ?? 0;
    let longest: Line | undefined;
    for (const line of this.#lines.values()) {
      if (line.length > (longest?.length ?? own + 1)) longest = line;
    }
    longest?.last?.leave();
    return longest !== undefined;
  }

  dismissAll(): void {
    for (const { first } of [...this.#lines.values()]) {
      for (let place = first; place !== undefined; ) {
        const { behind } = place;
        place.isDismissed = true;
        place.leave();
        place = behind;
      }
    }
  }

  /** Removes a waiter that is still waiting, with or without a slot. */
  remove(place: Place, slot: Slot | undefined): void {
    const { line, before, behind } = place;
    if (line === undefined) return;
    if (before === undefined) line.first = behind;
    else before.behind = behind;
    if (behind === undefined) line.last = before;
    else behind.before = before;
    place.line = place.before = place.behind = undefined;
    line.length--;
    this.#waiting--;
    if (line.length === 0) this.#lines.delete(line.user);
    this.#waits.add((performance.now() - place.since) / 1000);
    place.onTurn(slot, place);
  }
}
