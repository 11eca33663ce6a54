import type { DatabaseSync, SQLInputValue, SQLOutputValue, StatementSync } from "node:sqlite";
import { SqliteQueryCompiler, sql } from "kysely";
import { EngineRefusal } from "../refusal.ts";
import type { QueryContext, Session } from "../remote/dialect.ts";
import { compile, type Fragment } from "../sql/fragment.ts";

/** Values in the order of the columns. Integers are BigInt. */
export type ResultRow = Record<number, SQLOutputValue>;

export const compiler = new SqliteQueryCompiler();

export interface Prepared {
  readonly sql: string;
  readonly statement: StatementSync;
  readonly values: readonly SQLInputValue[];
}

/** Kept statements per connection, and characters of a text that is kept or bound to one. */
const KEPT_LIMIT = 50;
const LONGEST_KEPT = 4096;

/** By their texts, while they are not in use. */
const keptStatements = new WeakMap<DatabaseSync, Map<string, StatementSync>>();

export function prepare(connection: DatabaseSync, fragment: Fragment): Prepared {
  const { sql, parameters } = compile(compiler, fragment);
  const values = parameters.map(bindable);
  const kept = keptStatements.get(connection);
  const known = kept?.get(sql);
  kept?.delete(sql);
  const statement = known ?? connection.prepare(sql, { returnArrays: true, readBigInts: true });
  return { sql, statement, values };
}

/** Keeps a statement that did not fail, for the next time. It holds the values bound to it. */
export function keep(connection: DatabaseSync, { sql, statement, values }: Prepared): void {
  if (sql.length > LONGEST_KEPT || !values.every(isShort)) return;
  const kept = keptStatements.get(connection) ?? new Map<string, StatementSync>();
  const [oldest = ""] = kept.size < KEPT_LIMIT ? [] : kept.keys();
  kept.delete(oldest);
  keptStatements.set(connection, kept.set(sql, statement));
}

function isShort(value: SQLInputValue): boolean {
  const isLong = typeof value === "string" || value instanceof Uint8Array;
  return !isLong || value.length <= LONGEST_KEPT;
}

export function run(connection: DatabaseSync, fragment: Fragment): number {
  const prepared = prepare(connection, fragment);
  const { changes } = prepared.statement.run(...prepared.values);
  keep(connection, prepared);
  return Number(changes);
}

/** @throws EngineRefusal for a text that the driver would change, since it is not UTF-8 */
export function* rows(connection: DatabaseSync, fragment: Fragment): Generator<ResultRow> {
  const prepared = prepare(connection, fragment);
  const { sql, statement, values } = prepared;
  let isChecked = !sql.startsWith("select");
  let hasFailed = false;
  try {
    for (const row of statement.iterate(...values)) {
      if (!isChecked && Array.isArray(row) && row.some(isSuspect)) {
        requireTexts(connection, statement, sql, values);
        isChecked = true;
      }
      yield row;
    }
  } catch (error) {
    hasFailed = true;
    throw error;
  } finally {
    if (!hasFailed) keep(connection, prepared);
  }
}

function isSuspect(value: SQLOutputValue): boolean {
  return typeof value === "string" && value.includes("\ufffd");
}

/** The place, from 1, of the first column whose text is not what the driver reads, or null. */
export function invalidTextSql(columns: readonly Fragment[]): Fragment {
  const cases = columns.map(
    (column, at) => sql`when ${column} is not gatehouse_same(${column}) then ${sql.lit(at + 1)}`,
  );
  return sql`case ${sql.join(cases, sql` `)} end`;
}

export function invalidText(column: string | null = null, table: string | null = null) {
  const place = column === null ? "A computed name" : `Column "${column}" of table ${table}`;
  const problem = `${place} holds text that is not valid UTF-8`;
  const remedy = "leave it out, or store the text again";
  const plain = "A stored text is not valid UTF-8";
  return new EngineRefusal("invalid_value", `${problem}; ${remedy}`, { plain });
}

function requireTexts(
  connection: DatabaseSync,
  statement: StatementSync,
  text: string,
  values: readonly SQLInputValue[],
): void {
  const columns = statement.columns();
  const names = columns.map((_, at) => sql.id(`c${at + 1}`));
  const place = compile(compiler, invalidTextSql(names)).sql;
  const list = columns.map((_, at) => `c${at + 1}`).join();
  const found = connection
    .prepare(`with read (${list}) as (${text}) select ${place} as place from read where place > 0`)
    .get(...values);
  if (found === undefined) return;
  const { column, table } = columns[Number(found.place) - 1] ?? {};
  throw invalidText(column, table);
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

/** One task on a connection, with the schema name of each database that the connection has open. */
export class SqliteSession implements Session {
  readonly isUntouched = false;
  readonly connection: DatabaseSync;
  readonly schemas: ReadonlyMap<string, string>;
  /** True if tables are known beyond the session. */
  readonly keepsTables: boolean;

  constructor(connection: DatabaseSync, schemas: ReadonlyMap<string, string>, keepsTables = false) {
    this.connection = connection;
    this.schemas = schemas;
    this.keepsTables = keepsTables;
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
