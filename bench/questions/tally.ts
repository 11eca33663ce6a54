/** Aggregates over rows. */

export function sum<Row>(rows: readonly Row[], amountOf: (row: Row) => number): number {
  return rows.reduce((total, row) => total + amountOf(row), 0);
}

/** Aggregates rows by key; counts them by default. */
export function tally<Row, Key>(
  rows: readonly Row[],
  keyOf: (row: Row) => Key,
  amountOf: (row: Row) => number = () => 1,
): Map<Key, number> {
  const found = new Map<Key, number>();
  for (const row of rows) {
    const key = keyOf(row);
    found.set(key, (found.get(key) ?? 0) + amountOf(row));
  }
  return found;
}

/** Sorts pairs by key, as text or as a number. */
export function byKey<Key extends string | number>(
  pairs: Iterable<[Key, number]>,
): [Key, number][] {
  return [...pairs].sort(([one], [other]) => (one < other ? -1 : 1));
}

/** Sorts pairs by number, the largest first, equal ones by key. */
export function largestFirst<Key extends string | number>(
  pairs: Iterable<[Key, number]>,
): [Key, number][] {
  return byKey(pairs).sort(([, one], [, other]) => other - one);
}
