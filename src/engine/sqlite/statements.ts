import type { DatabaseSync, SQLInputValue, SQLOutputValue, StatementSync } from "node:sqlite";
import type { Fragment, Notation } from "../sql/fragment.ts";

/** A row of a result, its values in the order of the columns; integers are BigInt. */
export type ResultRow = Record<number, SQLOutputValue>;

const notation: Notation = { quote: '"', numbersValues: false };

/**
 * Prepares a fragment whose values are given at each run, in place of those in it; its rows are
 * `ResultRow`s.
 */
export function prepare(connection: DatabaseSync, fragment: Fragment): StatementSync {
  return connection.prepare(fragment.compile(notation).text, {
    returnArrays: true,
    readBigInts: true,
  });
}

/** Runs a fragment and returns how many rows it changed. */
export function run(connection: DatabaseSync, fragment: Fragment): number {
  const { text, values } = fragment.compile(notation);
  return Number(connection.prepare(text).run(...values.map(bindable)).changes);
}

/** Runs a fragment and yields its rows as the database finds them. */
export function rows(connection: DatabaseSync, fragment: Fragment): Iterable<ResultRow> {
  const { text, values } = fragment.compile(notation);
  const statement = connection.prepare(text, { returnArrays: true, readBigInts: true });
  return { [Symbol.iterator]: () => statement.iterate(...values.map(bindable)) };
}

/** Only values that can be bound are given to a fragment. */
function bindable(value: unknown): SQLInputValue {
  switch (typeof value) {
    case "string":
    case "number":
    case "bigint":
      return value;
    default:
      if (value === null || value instanceof Uint8Array) return value;
      throw new TypeError(`A ${typeof value} cannot be bound to an SQL parameter`);
  }
}

/** A database as statements reach it: a connection, and the schema name that it has there. */
export interface DatabaseHandle {
  readonly connection: DatabaseSync;
  readonly schema: string;
  readonly name: string;
}
