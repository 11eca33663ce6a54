/** Small sums over rows. */
import type { Shop } from "./shop.ts";

/** Finds an answer in the rows of a shop. */
export type Reference = (shop: Shop) => unknown;

/** How many rows are meant. */
export function count<Row>(rows: Iterable<Row>, isMeant: (row: Row) => boolean): number {
  let found = 0;
  for (const row of rows) if (isMeant(row)) found++;
  return found;
}

/** What the rows come to. */
export function sum<Row>(rows: Iterable<Row>, amountOf: (row: Row) => number): number {
  let total = 0;
  for (const row of rows) total += amountOf(row);
  return total;
}

/** One value of each row. */
export function* columnsOf<Row, Value>(
  rows: Iterable<Row>,
  amountOf: (row: Row) => Value,
): Generator<Value> {
  for (const row of rows) yield amountOf(row);
}

/** What the rows of each key come to; how many they are, unless something else is summed up. */
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

/** Pairs in the order of their keys' characters. */
export function byText(pairs: Iterable<[string, number]>): [string, number][] {
  return [...pairs].sort(([one], [other]) => (one < other ? -1 : 1));
}
