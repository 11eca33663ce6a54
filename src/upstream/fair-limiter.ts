/** A slot that is held, by its number. */
export type Slot = number;

/** Those of one user who wait, the one who has waited longest first. */
interface Line {
  readonly user: string;
  first: Place | undefined;
  last: Place | undefined;
  length: number;
  /** Slots that the user holds. */
  held: number;
}

/**
 * Told once of a place: the slot that is held from now on, or undefined if the place was lost or
 * given up.
 */
export type OnTurn = (slot: Slot | undefined, place: Place) => void;

/**
 * A place among those who wait for a slot. It is linked to its neighbours, and to nothing once it is left: a `Set` leaves
 * old tables behind, which keep all who were in them from the collector until it goes through the whole heap.
 */
export class Place {
  readonly onTurn: OnTurn;
  /** `performance.now()` when it was taken. */
  readonly since = performance.now();
  /** Undefined once it is left. */
  line: Line | undefined;
  before: Place | undefined;
  behind: Place | undefined = undefined;
  /** True if all who waited were sent away. */
  isDismissed = false;
  readonly #limiter: FairLimiter;

  constructor(limiter: FairLimiter, line: Line, onTurn: OnTurn) {
    this.onTurn = onTurn;
    this.line = line;
    this.before = line.last;
    this.#limiter = limiter;
  }

  /** Gives the place up; of no effect once the slot is held. */
  leave(): void {
    this.#limiter.remove(this, undefined);
  }
}

/** How many may hold a slot, and wait for one. */
export interface FairLimits {
  readonly slots: number;
  readonly waiting: number;
  /** Milliseconds after which a place is lost. */
  readonly patience: number;
}

/**
 * A fair concurrency limiter: a number of slots that are taken and given back. While slots are free,
 * anybody takes as many as there are. Once users wait, a slot goes to the one among them who
 * holds the fewest, and among equals to the one whose last turn is longest ago; so whoever floods
 * the line waits for itself, and anybody else for one turn.
 */
export class FairLimiter {
  readonly #limits: FairLimits;
  readonly #waits: { add(seconds: number): void };
  /** Who holds each slot; what stands at a free one means nothing. */
  readonly #holders: string[];
  readonly #free: Slot[];
  /** Slots that were released and go to the next waiter. */
  readonly #released: Slot[] = [];
  #isHandingOn = false;
  /** The lines of the users who wait, those whose turn is longest ago first. */
  readonly #lines = new Map<string, Line>();
  #waiting = 0;
  /** One for all who wait: each of its own would be one more thing to keep for each. */
  #timer: NodeJS.Timeout | undefined;

  /** @param waits where the times that were waited are counted, in seconds */
  constructor(limits: FairLimits, waits: { add(seconds: number): void }) {
    const { slots } = limits;
    this.#free = Array.from({ length: slots }, (_, slot) => slot);
    this.#holders = Array.from({ length: slots }, () => "");
    this.#limits = limits;
    this.#waits = waits;
  }

  /** Slots that are held. */
  get busy(): number {
    return this.#holders.length - this.#free.length;
  }

  /** How many wait for a slot. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Takes a slot if there is a free one; then nobody waits. */
  tryTake(user: string): Slot | undefined {
    const slot = this.#free.pop();
    if (slot !== undefined) this.#holders[slot] = user;
    return slot;
  }

  /**
   * Joins those who wait; to be called only if no slot is free. If too many wait already, the user
   * with the longest line loses its last place.
   *
   * @returns undefined if too many wait and the user's own line is as long as any
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

  /** Has those leave who have waited for too long, and looks again when the next one may have. */
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

  /** Releases a slot. A waiter may release its own at once; the loop keeps that from recursing. */
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
    // Whoever has had a turn goes behind the others.
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
      // Nobody holds fewer; where many users wait, the first ones hold none.
      if (line.held === 0) return line;
      if (next === undefined || line.held < next.held) next = line;
    }
    return next;
  }

  /** Takes the last place of the longest line away, if that is longer than the user's would be. */
  #makeRoom(user: string): boolean {
    const own = this.#lines.get(user)?.length ?? 0;
    let longest: Line | undefined;
    for (const line of this.#lines.values()) {
      if (line.length > (longest?.length ?? own + 1)) longest = line;
    }
    longest?.last?.leave();
    return longest !== undefined;
  }

  /** Sends all away who wait. */
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

  /** Takes a place away, if it is still waited at, with a slot or without. */
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
