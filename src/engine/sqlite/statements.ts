import type { DatabaseSync, SQLInputValue, SQLOutputValue, StatementSync } from "node:sqlite";
import {
  DummyDriver,
  Kysely,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from "kysely";
import type { LimitCounter } from "../limits.ts";
import type { Fragment } from "../sql/fragment.ts";

/** A row of a result, its values in the order of the columns; integers are BigInt. */
export type ResultRow = Record<number, SQLOutputValue>;

/** Turns fragments into SQL; it runs nothing, for that is `node:sqlite`'s part. */
const builder = new Kysely<Record<string, never>>({
  dialect: {
    createAdapter: () => new SqliteAdapter(),
    createDriver: () => new DummyDriver(),
    createIntrospector: (database) => new SqliteIntrospector(database),
    createQueryCompiler: () => new SqliteQueryCompiler(),
  },
});

/** A statement whose rows are `ResultRow`s, and the values in it. */
export function prepare(
  connection: DatabaseSync,
  fragment: Fragment,
): { readonly statement: StatementSync; readonly values: readonly SQLInputValue[] } {
  const { sql, parameters } = fragment.compile(builder);
  const statement = connection.prepare(sql, { returnArrays: true, readBigInts: true });
  return { statement, values: parameters.map(bindable) };
}

/** Runs a fragment and returns how many rows it changed. */
export function run(connection: DatabaseSync, fragment: Fragment): number {
  const { sql, parameters } = fragment.compile(builder);
  return Number(connection.prepare(sql).run(...parameters.map(bindable)).changes);
}

/** Runs a fragment and yields its rows as the database finds them. */
export function rows(connection: DatabaseSync, fragment: Fragment): Iterable<ResultRow> {
  const { statement, values } = prepare(connection, fragment);
  return { [Symbol.iterator]: () => statement.iterate(...values) };
}

/** The builder hands values on as it got them, and only bindable ones are given to it. */
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
  /** What the query in hand may do; absent where it has no limits. */
  readonly counter?: LimitCounter;
}
