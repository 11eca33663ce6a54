import { sql } from "kysely";
import type { Select } from "../../query/shape.ts";
import type { Spool } from "../spool.ts";
import { createRowEncoder } from "../sql/encode.ts";
import type { Fragment } from "../sql/fragment.ts";
import { columnSql } from "../sql/scope.ts";
import { type SelectDialect, selectedColumns, selectSql, tablesOf } from "../sql/select.ts";
import type { PostgresPlace } from "./place.ts";
import { type PostgresColumn, type PostgresTable, readTable } from "./tables.ts";

/** Characters of an answer that are asked for at a time. */
const chunkLength = 256 * 1024;

/** Rows that are asked for first, before it is known how long they are; and at the most. */
const firstRows = 16;
const mostRows = 2000;

/** Where there can be no nulls, nothing is said of them, so that any index serves the order. */
function dialectOf({ join }: Select): SelectDialect<PostgresColumn> {
  const addsNulls = join !== undefined && join.join_type !== "INNER";
  return {
    order(reference, direction) {
      const column = columnSql(reference);
      const hasNulls = addsNulls || reference.column.isNullable;
      if (direction === "DESC") return sql`${column} desc${hasNulls ? sql` nulls last` : sql``}`;
      return sql`${column} asc${hasNulls ? sql` nulls first` : sql``}`;
    },
    limit: (limit, offset) => sql` limit ${limitSql(limit)} offset ${bigintSql(offset ?? 0)}`,
  };
}

/**
 * Carries out a Select and writes its rows to the spool as one JSON array. Rows are fetched as
 * they are written, so that few of them are held at a time.
 *
 * Throws `EngineRefusal` for unknown tables and columns and for unfit values.
 */
export async function select(place: PostgresPlace, query: Select, spool: Spool): Promise<void> {
  const scope: PostgresTable[] = [];
  for (const name of tablesOf(query)) scope.push(await readTable(place, name));
  const columns = selectedColumns(scope, query.columns);
  const encode = createRowEncoder(columns);
  const statement = selectSql(place.schema, scope, columns, query, dialectOf(query));
  const cursor = place.session.open(statement);
  let separator = "[";
  let count = firstRows;
  for (;;) {
    const rows = await cursor.read(count);
    let length = 0;
    for (const row of rows) {
      const text = separator + encode(row);
      spool.write(text);
      length += text.length;
      separator = ",";
    }
    if (rows.length < count) break;
    count = Math.min(mostRows, Math.max(1, Math.floor((chunkLength * count) / length)));
  }
  spool.write(separator === "[" ? "[]" : "]");
}

function limitSql(limit: number | undefined): Fragment {
  return limit === undefined ? sql`all` : bigintSql(limit);
}

function bigintSql(value: number): Fragment {
  return sql`cast(${value} as bigint)`;
}
