import type { DatabaseSync, SQLInputValue, SQLOutputValue, StatementSync } from "node:sqlite";
import { SqliteQueryCompiler, sql } from "kysely";
import { EngineRefusal } from "../refusal.ts";
import type { QueryContext, Session } from "../remote/dialect.ts";
import { compile, type Fragment } from "../sql/fragment.ts";

/** Values in the order of the columns. Integers are BigInt. */
export type ResultRow = Record<number, SQLOutputValue>;

const compiler = new SqliteQueryCompiler();

interface Prepared {
  readonly sql: string;
  readonly statement: StatementSync;
  readonly values: readonly SQLInputValue[];
}

/** Kept statements per connection, and characters of a text that is kept or bound to one. */
const KEPT_LIMIT = 50;
const LONGEST_KEPT = 4096;

/** By their texts. SQLite prepares a statement again when the schema has changed. */
const keptStatements = new WeakMap<DatabaseSync, Map<string, StatementSync>>();

/** @param isKept false if long values will be bound, which a statement would hold */
export function prepare(connection: DatabaseSync, fragment: Fragment, isKept = true): Prepared {
  const { sql, parameters } = compile(compiler, fragment);
  const values = parameters.map(bindable);
  const make = () => connection.prepare(sql, { returnArrays: true, readBigInts: true });
  if (!isKept || sql.length > LONGEST_KEPT || !values.every(isShort)) {
    return { sql, statement: make(), values };
  }
  const kept = keptStatements.get(connection) ?? new Map<string, StatementSync>();
  keptStatements.set(connection, kept);
  const statement = kept.get(sql) ?? make();
  const [oldest = ""] = kept.size === KEPT_LIMIT && !kept.has(sql) ? kept.keys() : [];
  kept.delete(oldest);
  kept.set(sql, statement);
  return { sql, statement, values };
}

export function isShort(value: unknown): boolean {
  if (typeof value === "string") return value.length <= LONGEST_KEPT;
  return (
    typeof value !== "object" ||
    value === null ||
    (value instanceof Uint8Array && value.length <= LONGEST_KEPT)
  );
}

export function run(connection: DatabaseSync, fragment: Fragment): number {
  const { statement, values } = prepare(connection, fragment);
  return Number(statement.run(...values).changes);
}

/** @throws EngineRefusal for a text that the driver would change, since it is not UTF-8 */
export function* rows(connection: DatabaseSync, fragment: Fragment): Generator<ResultRow> {
  const { sql, statement, values } = prepare(connection, fragment);
  let isChecked = !sql.startsWith("select");
  for (const row of statement.iterate(...values)) {
    if (!isChecked && Object.values(row).some(isSuspect)) {
      requireTexts(connection, statement, sql, values);
      isChecked = true;
    }
    yield row;
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
