import type { Counter } from "prom-client";

type Names<Name> = readonly [Name, Name, Name];

interface Count {
  readonly first: string;
  readonly second: string | number;
  readonly third: string;
  count: number;
}

/** Counts by the values of three labels, few each; a counter learns of them when it is read. */
export class CountsByLabels<Name extends string> {
  readonly #names: Names<Name>;
  readonly #counts = new Map<string, Count>();
  /** What was counted last: most of what comes is the same again. */
  #last: Count | undefined;

  constructor(...names: Names<Name>) {
    this.#names = names;
  }

  add(first: string, second: string | number, third: string): void {
    const last = this.#last;
    const isSame = last?.first === first && last.second === second && last.third === third;
    this.#last = isSame ? last : this.#find(first, second, third);
    this.#last.count++;
  }

  #find(first: string, second: string | number, third: string): Count {
    const key = `${first}\n${second}\n${third}`;
    let found = this.#counts.get(key);
    if (found === undefined) {
      found = { first, second, third, count: 0 };
      this.#counts.set(key, found);
    }
    return found;
  }

  /** Adds what was counted to `counter`, and begins anew. */
  moveTo(counter: Counter<Name>): void {
    for (const { first, second, third, count } of this.#counts.values()) {
      counter.labels(first, String(second), third).inc(count);
    }
    this.#counts.clear();
    this.#last = undefined;
  }

  /** The names of the labels, in the order of their values. */
  get names(): Name[] {
    return [...this.#names];
  }
}
