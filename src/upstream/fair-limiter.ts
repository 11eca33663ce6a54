/** A slot that is held, by its number. */
export type Slot = number;

/** A place among those who wait for a slot. */
export interface Place {
  /** Resolves to the slot when it is held, and to undefined when the place was lost or given up. */
  readonly turn: Promise<Slot | undefined>;
  /** Gives the place up; of no effect once the slot is held. */
  leave(): void;
}

type Wake = (slot: Slot | undefined) => void;

/** Those of one user who wait, the one who has waited longest first. */
interface Line {
  readonly user: string;
  readonly waiting: Set<Wake>;
  /** Slots that the user holds. */
  held: number;
}

/**
 * A fair concurrency limiter: a number of slots that are taken and given back. While slots are free,
 * anybody takes as many as there are. Once users wait, a slot goes to the one among them who
 * holds the fewest, and among equals to the one whose last turn is longest ago; so whoever floods
 * the line waits for itself, and anybody else for one turn.
 */
export class FairLimiter {
  readonly #maxWaiting: number;
  /** Who holds each slot; what stands at a free one means nothing. */
  readonly #holders: string[];
  readonly #free: Slot[];
  /** The lines of the users who wait, those whose turn is longest ago first. */
  readonly #lines = new Map<string, Line>();
  #waiting = 0;

  constructor(count: number, maxWaiting: number) {
    this.#free = Array.from({ length: count }, (_, slot) => slot);
    this.#holders = Array.from({ length: count }, () => "");
    this.#maxWaiting = maxWaiting;
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
  wait(user: string): Place | undefined {
    if (this.#waiting >= this.#maxWaiting && !this.#makeRoom(user)) return undefined;
    const line = this.#lines.get(user) ?? this.#openLine(user);
    const { promise, resolve } = Promise.withResolvers<Slot | undefined>();
    line.waiting.add(resolve);
    this.#waiting++;
    return { turn: promise, leave: () => this.#dismiss(line, resolve) };
  }

  /** Gives a slot back. */
  release(slot: Slot): void {
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
    const [first] = line.waiting;
    if (first !== undefined) this.#remove(line, first, slot);
  }

  #openLine(user: string): Line {
    const held = this.#holders.reduce((count, holder) => count + Number(holder === user), 0);
    const line = { user, waiting: new Set<Wake>(), held };
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
    const own = this.#lines.get(user)?.waiting.size ?? 0;
    let longest: Line | undefined;
    for (const line of this.#lines.values()) {
      if (line.waiting.size > (longest?.waiting.size ?? own + 1)) longest = line;
    }
    const last = longest === undefined ? undefined : [...longest.waiting].at(-1);
    if (longest === undefined || last === undefined) return false;
    this.#dismiss(longest, last);
    return true;
  }

  #dismiss(line: Line, wake: Wake): void {
    if (line.waiting.has(wake)) this.#remove(line, wake, undefined);
  }

  #remove(line: Line, wake: Wake, slot: Slot | undefined): void {
    line.waiting.delete(wake);
    this.#waiting--;
    if (line.waiting.size === 0) this.#lines.delete(line.user);
    wake(slot);
  }
}

/** Has `leave` called when something ends the waiting; returns what undoes that. */
export type Cancellation = (leave: () => void) => () => void;

/** When one or the other ends it. */
export function whenEither(one: Cancellation, other: Cancellation): Cancellation {
  return (leave) => {
    const forgetOne = one(leave);
    const forgetOther = other(leave);
    return () => {
      forgetOne();
      forgetOther();
    };
  };
}
