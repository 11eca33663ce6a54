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

export function prepare(connection: DatabaseSync, fragment: Fragment, last?: Prepared): Prepared {
  const { sql, parameters } = compile(compiler, fragment);
  const statement =
    last?.sql === sql
      ? last.statement
      : connection.prepare(sql, { returnArrays: true, readBigInts: true });
  return { sql, statement, values: parameters.map(bindable) };
}

export function run(connection: DatabaseSync, fragment: Fragment): number {
  return changesOf(prepare(connection, fragment));
}

function changesOf({ statement, values }: Prepared): number {
  return Number(statement.run(...values).changes);
}

/** @throws EngineRefusal for a text that the driver would change, since it is not UTF-8 */
export function* rows(connection: DatabaseSync, fragment: Fragment): Generator<ResultRow> {
  yield* rowsOf(connection, prepare(connection, fragment));
}

function* rowsOf(
  connection: DatabaseSync,
  { sql, statement, values }: Prepared,
): Generator<ResultRow> {
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
  /** Elements of a Batch often differ only in their values. */
  #last: Prepared | undefined;

  constructor(connection: DatabaseSync, schemas: ReadonlyMap<string, string>) {
    this.connection = connection;
    this.schemas = schemas;
  }

  async rows(fragment: Fragment): Promise<ResultRow[]> {
    return [...rowsOf(this.connection, this.#prepare(fragment))];
  }

  async run(fragment: Fragment): Promise<number> {
    return changesOf(this.#prepare(fragment));
  }

  /** Does not prepare the same statement twice in a row. */
  #prepare(fragment: Fragment): Prepared {
    this.#last = prepare(this.connection, fragment, this.#last);
    return this.#last;
  }

  async end(words: "commit" | "rollback"): Promise<void> {
    this.connection.exec(words);
  }
}

export type SqliteContext = QueryContext<SqliteSession>;
