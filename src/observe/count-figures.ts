import type { Counter } from "prom-client";

type Names<Name> = readonly [Name, Name, Name];

/** Counts by the values of three labels, few each; a counter learns of them when it is read. */
export class CountsByLabels<Name extends string> {
  readonly #names: Names<Name>;
  readonly #counts = new Map<string, Map<string | number, Map<string, number>>>();

  constructor(...names: Names<Name>) {
    this.#names = names;
  }

  add(first: string, second: string | number, third: string): void {
    const bySecond = this.#counts.get(first) ?? this.#open(first);
    let byThird = bySecond.get(second);
    if (byThird === undefined) {
      byThird = new Map();
      bySecond.set(second, byThird);
    }
    byThird.set(third, (byThird.get(third) ?? 0) + 1);
  }

  #open(first: string): Map<string | number, Map<string, number>> {
    const bySecond = new Map<string | number, Map<string, number>>();
    this.#counts.set(first, bySecond);
    return bySecond;
  }

  /** Adds what was counted to `counter`, and begins anew. */
  moveTo(counter: Counter<Name>): void {
    for (const [values, count] of this.#entries()) counter.labels(...values).inc(count);
    this.#counts.clear();
  }

  *#entries(): Generator<[values: [string, string, string], count: number]> {
    for (const [first, bySecond] of this.#counts) {
      for (const [second, byThird] of bySecond) {
        for (const [third, count] of byThird) yield [[first, String(second), third], count];
      }
    }
  }

  /** The names of the labels, in the order of their values. */
  get names(): Name[] {
    return [...this.#names];
  }
}
