/** A place in the line of those who wait for a slot. */
export interface Place {
  /** Resolves to true when the slot is held, and to false when the place was given up. */
  readonly turn: Promise<boolean>;
  /** Gives the place up; of no effect once the slot is held. */
  leave(): void;
}

/** A number of slots that are taken and given back, and a bounded line, first come first served. */
export class Slots {
  readonly #maxWaiting: number;
  readonly #line = new Set<(hasTurn: boolean) => void>();
  #free: number;

  constructor(count: number, maxWaiting: number) {
    this.#free = count;
    this.#maxWaiting = maxWaiting;
  }

  /** True if the line is as long as it may get. */
  get isFull(): boolean {
    return this.#free === 0 && this.#line.size >= this.#maxWaiting;
  }

  /** Takes a slot if there is a free one. */
  tryTake(): boolean {
    if (this.#free === 0) return false;
    this.#free--;
    return true;
  }

  /** Joins the line. */
  wait(): Place {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.#line.add(resolve);
    const leave = () => {
      if (this.#line.delete(resolve)) resolve(false);
    };
    return { turn: promise, leave };
  }

  /** Gives a slot back, to whoever has waited longest. */
  release(): void {
    const [next] = this.#line;
    if (next === undefined) {
      this.#free++;
      return;
    }
    this.#line.delete(next);
    next(true);
  }
}
