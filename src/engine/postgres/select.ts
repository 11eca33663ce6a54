import { sql } from "kysely";
import type { Select } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import { withKeys } from "../remote/change.ts";
import { refused } from "../remote/failures.ts";
import type { RowOutput } from "../spool.ts";
import type { AggregateDialect } from "../sql/aggregates.ts";
import { ByShape } from "../sql/by-shape.ts";
import { has64Bits } from "../sql/cell-text.ts";
import type { Fragment } from "../sql/fragment.ts";
import { tablesOf } from "../sql/joins.ts";
import {
  planSelect,
  type SelectDialect,
  type SelectedTable,
  type SelectPlan,
} from "../sql/select.ts";
import { flatten } from "./compile.ts";
import { kindOf, type PostgresKind } from "./kinds.ts";
import { RowBytes } from "./row-bytes.ts";
import type { PostgresPlace } from "./session.ts";
import { keysSql, knownTable } from "./tables.ts";

const bigint = kindOf({ id: 20, elementId: 0, sqlName: "bigint", scale: undefined });
const double = kindOf({ id: 701, elementId: 0, sqlName: "double precision", scale: undefined });
const numeric = kindOf({ id: 1700, elementId: 0, sqlName: "numeric", scale: undefined });

/** A sum of whole numbers, which PostgreSQL adds up without bounds. */
const total: PostgresKind = {
  ...numeric,
  bytes: undefined,
  encode(text) {
    if (has64Bits(BigInt(text))) return text;
    throw new EngineRefusal(...refused.outOfRange);
  },
};

const aggregates: AggregateDialect<PostgresKind> = {
  count: bigint,
  double,
  sum(column, measure, kind) {
    if (measure === "double") {
      return { expression: sql`sum(cast(${column} as double precision))`, kind: double };
    }
    if (measure === "decimal") return { expression: sql`sum(${column})`, kind };
    return { expression: sql`sum(cast(${column} as numeric))`, kind: total };
  },
  average: (sum, count) => sql`(cast(${sum} as double precision) / nullif(${count}, 0))`,
  extreme: (fn, column, measure) =>
    measure === "text"
      ? sql`${sql.raw(fn)}(cast(${column} as text) collate "C")`
      : sql`${sql.raw(fn)}(${column})`,
};

/** Where there can be no nulls, nothing is said of them, so that any index serves the order. */
const dialect: SelectDialect<PostgresKind> = {
  aggregates,
  comparesRows: true,
  // After `=` the primary key would have the order too, and be read on for rows that have the value.
  equalFirst: (column, value) => sql`${column} = any(array[${value}])`,
  order(column, direction, hasNulls) {
    if (direction === "DESC") return sql`${column} desc${hasNulls ? sql` nulls last` : sql``}`;
    return sql`${column} asc${hasNulls ? sql` nulls first` : sql``}`;
  },
  limit: (limit, offset) => sql`limit ${limitSql(limit)} offset ${bigintSql(offset ?? 0)}`,
  frames: new ByShape(),
  flatten,
};

/**
 * Carries out a Select and writes its rows to an output as they come, so that few of them are held at
 * a time.
 *
 * @throws EngineRefusal for unknown tables and columns and for unfit values
 */
export async function select(
  place: PostgresPlace,
  query: Select,
  output: RowOutput,
): Promise<void> {
  const { columns, statements } = await planOf(place, query);
  const rows = new RowBytes(columns, output);
  for (const statement of statements(() => rows.count)) {
    await place.session.stream(statement, rows, output);
  }
  rows.end();
}

/**
 * How a Select is carried out.
 *
 * @throws EngineRefusal for unknown tables and columns and for unfit values
 */
export async function planOf(
  place: PostgresPlace,
  query: Select,
): Promise<SelectPlan<PostgresKind>> {
  const tables: SelectedTable<PostgresKind>[] = [];
  for (const name of tablesOf(query)) {
    const found = knownTable(place, name);
    const known = found instanceof Promise ? await found : found;
    const { bytewise } = place.counter?.bytewiseIn(place.database, name) ?? {};
    const table = bytewise === undefined ? known : { ...known, bytewise };
    if (query.after === undefined) tables.push(table);
    else tables.push(await withKeys(place.session, table, query, keysSql(place.schema, name)));
  }
  return planSelect(place.schema, tables, query, dialect);
}

function limitSql(limit: number | undefined): Fragment {
  return limit === undefined ? sql`all` : bigintSql(limit);
}

function bigintSql(value: number): Fragment {
  return sql`cast(${value} as bigint)`;
}
