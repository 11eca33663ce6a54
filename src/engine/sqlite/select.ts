import { sql } from "kysely";
import type { Select } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import { refused } from "../remote/failures.ts";
import type { RowOutput } from "../spool.ts";
import { tableKeysOf } from "../sql/after.ts";
import type { AggregateDialect } from "../sql/aggregates.ts";
import { RowWriter } from "../sql/encode.ts";
import { tablesOf } from "../sql/joins.ts";
import {
  planSelect,
  type SelectDialect,
  type SelectedTable,
  type SelectPlan,
} from "../sql/select.ts";
import { readKeys } from "../sql/target.ts";
import { take } from "./change.ts";
import { encodeStored, kindOf, type SqliteKind } from "./kinds.ts";
import { type DatabaseHandle, rows } from "./statements.ts";
import { keysSql, readTable } from "./tables.ts";

const integer = requireKind("int");
/** A sum or average of doubles, which SQLite lets run over to an infinity. */
const double: SqliteKind = {
  ...requireKind("double"),
  encode(value) {
    if (typeof value !== "number" || Number.isFinite(value)) return encodeStored(value);
    throw new EngineRefusal(...refused.outOfRange);
  },
};

/** A sum of whole numbers; one past 64 bits comes as a double, which tells it. */
const total: SqliteKind = {
  ...integer,
  encode(value) {
    if (typeof value === "bigint") return String(value);
    throw new EngineRefusal(...refused.outOfRange);
  },
};

function requireKind(word: string): SqliteKind {
  const kind = kindOf(word);
  if (kind === undefined) throw new Error(`There is no column type ${word}`);
  return kind;
}

/**
 * SQLite gives a sum of whole numbers up once it passes 64 bits on the way. Added up in two halves
 * it does not: the lower ones carry to the upper ones.
 */
const aggregates: AggregateDialect<SqliteKind> = {
  count: integer,
  double,
  sum(column, measure) {
    if (measure !== "integer") return { expression: sql`sum(${column})`, kind: double };
    const lower = sql`sum(${column} & 4294967295)`;
    const upper = sql`(sum(${column} >> 32) + (${lower} >> 32))`;
    const whole = sql`(${upper} << 32) | (${lower} & 4294967295)`;
    const rounded = sql`${upper} * 4294967296.0 + (${lower} & 4294967295)`;
    const fits = sql`${upper} between -2147483648 and 2147483647`;
    const expression = sql`(case when count(${column}) = 0 then null when ${fits} then ${whole} else ${rounded} end)`;
    return { expression, kind: total };
  },
  average: (sum, count) => sql`(cast(${sum} as real) / ${count})`,
  extreme: (fn, column, measure) =>
    measure === "text"
      ? sql`${sql.raw(fn)}(${column} collate binary)`
      : sql`${sql.raw(fn)}(${column})`,
};

/** SQLite puts nulls first by itself, and has no offset without a limit; -1 is its word for none. */
const dialect: SelectDialect<SqliteKind> = {
  aggregates,
  comparesRows: true,
  order: (column, direction) => sql`${column} ${direction === "DESC" ? sql`desc` : sql`asc`}`,
  limit: (limit, offset) => sql`limit ${limit ?? -1} offset ${offset ?? 0}`,
};

/**
 * Carries out a Select and writes its rows to an output.
 *
 * @throws EngineRefusal for unknown tables and columns and for unfit values
 */
export function select(handle: DatabaseHandle, query: Select, output: RowOutput): void {
  const { columns, statements } = planOf(handle, query);
  const writer = new RowWriter(columns, output);
  for (const statement of statements(() => writer.count)) {
    for (const row of rows(handle.connection, statement)) writer.write(row);
  }
  writer.end();
}

/**
 * How a Select is carried out.
 *
 * @throws EngineRefusal for unknown tables and columns and for unfit values
 */
export function planOf(handle: DatabaseHandle, query: Select): SelectPlan<SqliteKind> {
  const tables = tablesOf(query).map((name): SelectedTable<SqliteKind> => {
    const { bytewise } = handle.counter?.bytewiseIn(handle.name, name) ?? {};
    const table = { ...readTable(handle, name), ...(bytewise && { bytewise }) };
    return query.after === undefined ? table : withKeys(handle, table);
  });
  return planSelect(handle.schema, tables, query, dialect);
}

/** What tells the rows of a table apart, and which of its columns hold no null. */
function withKeys(
  handle: DatabaseHandle,
  { name, columns, ...table }: SelectedTable<SqliteKind>,
): SelectedTable<SqliteKind> {
  const found = rows(
    handle.connection,
    sql`select "name", "pk" > 0, "notnull" or ("pk" and "type" = 'INTEGER')
      from pragma_table_info(${name}, ${handle.schema})`,
  );
  const marks = new Map(Array.from(found, (row) => [String(row[0]), row]));
  const known = Array.from(columns.values(), (column) => {
    const { 1: isKey, 2: isRequired } = marks.get(column.name) ?? {};
    return { ...column, isKey: Number(isKey) === 1, isNullable: Number(isRequired) !== 1 };
  });
  return {
    ...table,
    name,
    columns: new Map(known.map((column) => [column.name, column])),
    keys: tableKeysOf(known, take(handle, readKeys(keysSql(handle, name)))),
  };
}
