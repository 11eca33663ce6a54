import { sql } from "kysely";
import type { Select } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import { withKeys } from "../remote/change.ts";
import { refused } from "../remote/failures.ts";
import type { RowOutput } from "../spool.ts";
import type { AggregateDialect } from "../sql/aggregates.ts";
import { has64Bits } from "../sql/cell-text.ts";
import { RowWriter } from "../sql/encode.ts";
import type { Fragment } from "../sql/fragment.ts";
import { tablesOf } from "../sql/joins.ts";
import {
  planSelect,
  type SelectDialect,
  type SelectedTable,
  type SelectPlan,
} from "../sql/select.ts";
import { unsigned } from "./codecs.ts";
import { kindOf, type MysqlKind } from "./kinds.ts";
import type { MysqlPlace } from "./session.ts";
import { keysSql, readTable } from "./tables.ts";

/** MySQL has no offset without a limit; this is its word for none. */
const EVERY_ROW = 2n ** 64n - 1n;

const plain = { mark: undefined, length: 0, scale: 0, precision: 0 };
const bigint = kindOf({ ...plain, dataType: "bigint", columnType: "bigint" });
const anyDouble = kindOf({ ...plain, dataType: "double", columnType: "double" });
const decimal = kindOf({ ...plain, dataType: "decimal", columnType: "decimal(65)" });

/** A sum or average of doubles, which MariaDB lets run over to an infinity. */
const double: MysqlKind = {
  ...anyDouble,
  encode(raw) {
    if (Number.isFinite(Number(raw))) return anyDouble.encode(raw);
    throw new EngineRefusal(...refused.outOfRange);
  },
};

/** A sum of whole numbers, which MySQL adds up as decimals. */
const total: MysqlKind = {
  ...decimal,
  encode(raw) {
    const text = String(raw);
    if (has64Bits(BigInt(text))) return text;
    throw new EngineRefusal(...refused.outOfRange);
  },
};

const aggregates: Omit<AggregateDialect<MysqlKind>, "extreme"> = {
  count: bigint,
  double,
  sum(column, measure, kind) {
    if (measure === "double") {
      return { expression: sql`sum(cast(${column} as double))`, kind: double };
    }
    if (measure === "decimal") return { expression: sql`sum(${column})`, kind };
    return { expression: sql`sum(${column})`, kind: total };
  },
  // A cast would make the largest double of an infinity.
  average: (sum, count) => sql`((0e0 + ${sum}) / ${count})`,
};

/** MySQL puts nulls first by itself, and reads all of a table for `(a, b) > (1, 2)`. */
function dialectOf(collation: string): SelectDialect<MysqlKind> {
  const ofText = (fn: string, column: Fragment): Fragment => {
    const bytes = sql`cast(convert(${column} using utf8mb4) as binary)`;
    return sql`(convert(${sql.raw(fn)}(${bytes}) using utf8mb4) collate ${sql.raw(collation)})`;
  };
  return {
    aggregates: {
      ...aggregates,
      extreme: (fn, column, measure) =>
        measure === "text" ? ofText(fn, column) : sql`${sql.raw(fn)}(${column})`,
    },
    comparesRows: false,
    order: (column, direction) => sql`${column} ${direction === "DESC" ? sql`desc` : sql`asc`}`,
    limit: (limit, offset) =>
      sql`limit ${countOf(limit ?? EVERY_ROW)} offset ${countOf(offset ?? 0)}`,
  };
}

/**
 * Carries out a Select and writes its rows to an output as they come, so that few of them are held at
 * a time.
 *
 * @throws EngineRefusal for unknown tables and columns and for unfit values
 */
export async function select(place: MysqlPlace, query: Select, output: RowOutput): Promise<void> {
  const { columns, statements } = await planOf(place, query);
  const rows = new RowWriter(columns, output);
  for (const statement of statements(() => rows.count)) {
    for await (const row of place.session.stream(statement)) {
      rows.write(row);
      if (output.backlog !== undefined) await output.backlog;
    }
  }
  rows.end();
}

/**
 * How a Select is carried out.
 *
 * @throws EngineRefusal for unknown tables and columns and for unfit values
 */
export async function planOf(place: MysqlPlace, query: Select): Promise<SelectPlan<MysqlKind>> {
  const tables: SelectedTable<MysqlKind>[] = [];
  for (const name of tablesOf(query)) {
    const { bytewise } = place.counter?.bytewiseIn(place.database, name) ?? {};
    const table = { ...(await readTable(place, name)), ...(bytewise && { bytewise }) };
    tables.push(await withKeys(place.session, table, query, keysSql(place.schema, name)));
  }
  return planSelect(place.schema, tables, query, dialectOf(place.session.server.collation));
}

function countOf(count: number | bigint): unknown {
  return unsigned(BigInt(count));
}
