/** Aggregates over rows. */
import type { Shop } from "./shop.ts";

export type Reference = (shop: Shop) => unknown;

export function count<Row>(rows: Iterable<Row>, isMeant: (row: Row) => boolean): number {
  let found = 0;
  for (const row of rows) if (isMeant(row)) found++;
  return found;
}

export function sum<Row>(rows: Iterable<Row>, amountOf: (row: Row) => number): number {
  let total = 0;
  for (const row of rows) total += amountOf(row);
  return total;
}

export function* columnsOf<Row, Value>(
  rows: Iterable<Row>,
  amountOf: (row: Row) => Value,
): Generator<Value> {
  for (const row of rows) yield amountOf(row);
}

/** Aggregates rows by key; counts them by default. */
export function tally<Row, Key>(
  rows: Iterable<Row>,
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

/** Sorts pairs by key. */
export function byText(pairs: Iterable<[string, number]>): [string, number][] {
  return [...pairs].sort(([one], [other]) => (one < other ? -1 : 1));
}
