import { sql } from "kysely";
import type { Select } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import { refused } from "../remote/refused.ts";
import type { Spool } from "../spool.ts";
import type { TableKeys } from "../sql/after.ts";
import type { AggregateDialect } from "../sql/aggregates.ts";
import { createRowEncoder } from "../sql/encode.ts";
import { planSelect, type SelectDialect, type SelectedTable, tablesOf } from "../sql/select.ts";
import { encodeStored, kindOf, type SqliteKind } from "./kinds.ts";
import { type DatabaseHandle, rows } from "./statements.ts";
import { readTable } from "./tables.ts";

const integer = requireKind("int");
const double = requireKind("double");

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
    if (measure === "double") return { expression: sql`sum(${column})`, kind: double };
    if (measure !== "integer") {
      return { expression: sql`sum(${column})`, kind: { ...double, encode: encodeStored } };
    }
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
 * Carries out a Select and writes its rows to the spool as one JSON array.
 *
 * Throws `EngineRefusal` for unknown tables and columns and for unfit values.
 */
export function select(handle: DatabaseHandle, query: Select, spool: Spool): void {
  const tables = tablesOf(query).map((name): SelectedTable<SqliteKind> => {
    const table = readTable(handle, name);
    return query.after === undefined ? table : withKeys(handle, table);
  });
  const { columns, statement } = planSelect(handle.schema, tables, query, dialect);
  const encode = createRowEncoder(columns);
  let separator = "[";
  for (const row of rows(handle.connection, statement)) {
    spool.write(separator + encode(row));
    separator = ",";
  }
  spool.write(separator === "[" ? "[]" : "]");
}

/** What tells the rows of a table apart, and which of its columns hold no null. */
function withKeys(
  { connection, schema }: DatabaseHandle,
  { name, columns }: SelectedTable<SqliteKind>,
): SelectedTable<SqliteKind> {
  const found = rows(
    connection,
    sql`select info."name", info."pk" > 0, info."notnull" or (info."pk" and info."type" = 'INTEGER'),
      exists (select 1 from pragma_index_list(${name}, ${schema}) as list
        where list."unique" and not list."partial"
          and (select group_concat(part."name", char(0))
            from pragma_index_info(list."name", ${schema}) as part) = info."name")
      from pragma_table_info(${name}, ${schema}) as info`,
  );
  const traits = Array.from(found, (row) => ({
    column: String(row[0]),
    isKey: Number(row[1]) === 1,
    isRequired: Number(row[2]) === 1,
    isUnique: Number(row[3]) === 1,
  }));
  const required = new Set(
    traits.filter(({ isRequired }) => isRequired).map(({ column }) => column),
  );
  const keys: TableKeys = {
    primary: traits
      .filter(({ isKey }) => isKey)
      .map(({ column }) => column)
      .filter((_, __, all) => all.every((column) => required.has(column))),
    unique: new Set(
      traits
        .filter(({ isRequired, isUnique }) => isRequired && isUnique)
        .map(({ column }) => column),
    ),
  };
  const known = Array.from(
    columns,
    ([column, found]) => [column, { ...found, isNullable: !required.has(column) }] as const,
  );
  return { name, columns: new Map(known), keys };
}
