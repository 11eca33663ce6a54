import type { DatabaseSync, SQLInputValue, SQLOutputValue, StatementSync } from "node:sqlite";
import { SqliteQueryCompiler } from "kysely";
import type { QueryContext, Session } from "../remote/dialect.ts";
import { compile, type Fragment } from "../sql/fragment.ts";

/** Values in the order of the columns. Integers are BigInt. */
export type ResultRow = Record<number, SQLOutputValue>;

const compiler = new SqliteQueryCompiler();

export function prepare(
  connection: DatabaseSync,
  fragment: Fragment,
): { readonly statement: StatementSync; readonly values: readonly SQLInputValue[] } {
  const { sql, parameters } = compile(compiler, fragment);
  const statement = connection.prepare(sql, { returnArrays: true, readBigInts: true });
  return { statement, values: parameters.map(bindable) };
}

export function run(connection: DatabaseSync, fragment: Fragment): number {
  const { statement, values } = prepare(connection, fragment);
  return Number(statement.run(...values).changes);
}

export function rows(connection: DatabaseSync, fragment: Fragment): Iterable<ResultRow> {
  const { statement, values } = prepare(connection, fragment);
  return { [Symbol.iterator]: () => statement.iterate(...values) };
}

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

/** A connection and its schema name for each database that it has open. */
export class SqliteSession implements Session {
  readonly isUntouched = false;
  readonly connection: DatabaseSync;
  readonly schemas: ReadonlyMap<string, string>;

  constructor(connection: DatabaseSync, schemas: ReadonlyMap<string, string>) {
    this.connection = connection;
    this.schemas = schemas;
  }

  async rows(fragment: Fragment): Promise<ResultRow[]> {
    return [...rows(this.connection, fragment)];
  }

  async run(fragment: Fragment): Promise<number> {
    return run(this.connection, fragment);
  }

  async end(words: "commit" | "rollback"): Promise<void> {
    this.connection.exec(words);
  }
}

export type SqliteContext = QueryContext<SqliteSession>;
