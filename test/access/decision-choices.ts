/** Choices that a generator of test cases makes. */

/** Takes one of some options. */
export type Choose = <Option>(options: readonly Option[]) => Option;

/** A choice by a seed, the same each time (mulberry32). */
export function seeded(seed: number): Choose {
  let state = seed | 0;
  return (options) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    const fraction = ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
    const option = options[Math.floor(fraction * options.length)];
    if (option === undefined) throw new Error("nothing to choose from");
    return option;
  };
}

/** From `least` to `most` of some items, each as often as it comes. */
export function some<Item>(
  choose: Choose,
  items: readonly Item[],
  most: number,
  least = 1,
): Item[] {
  const count = choose(Array.from({ length: most - least + 1 }, (_, at) => at + least));
  return Array.from({ length: count }, () => choose(items));
}

/** What `value` makes, one time in `odds`; else nothing. */
export function maybe<Value extends object>(
  choose: Choose,
  value: () => Value,
  odds = 3,
): Value | object {
  return choose(Array.from({ length: odds }, (_, at) => at)) === 0 ? value() : {};
}
