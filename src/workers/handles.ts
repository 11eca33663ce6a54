/** What is held for a worker under numbers, until it is given back or the worker is gone. */
export class Held<Thing> {
  readonly #things = new Map<number, Thing>();
  readonly #drop: (thing: Thing) => void;
  #lastNumber = 0;
  #isOver = false;

  /** @param drop gives back what the worker no longer can */
  constructor(drop: (thing: Thing) => void) {
    this.#drop = drop;
  }

  /** Holds a thing; what comes when the worker is gone is dropped at once. */
  put(thing: Thing): number {
    const number = ++this.#lastNumber;
    if (this.#isOver) this.#drop(thing);
    else this.#things.set(number, thing);
    return number;
  }

  get(number: number): Thing | undefined {
    return this.#things.get(number);
  }

  /** Holds it no more. */
  take(number: number): Thing | undefined {
    const thing = this.#things.get(number);
    this.#things.delete(number);
    return thing;
  }

  /** Drops everything: the worker is gone. */
  end(): void {
    this.#isOver = true;
    for (const thing of this.#things.values()) this.#drop(thing);
    this.#things.clear();
  }
}
