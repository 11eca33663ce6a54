import { sql } from "kysely";
import type { Select } from "../../query/shape.ts";
import type { Spool } from "../spool.ts";
import { createRowEncoder } from "../sql/encode.ts";
import { columnSql } from "../sql/scope.ts";
import { type SelectDialect, selectedColumns, selectSql, tablesOf } from "../sql/select.ts";
import type { MysqlPlace } from "./place.ts";
import { type MysqlColumn, type MysqlTable, readTable } from "./tables.ts";
import { unsigned } from "./typed.ts";

/** MySQL has no offset without a limit; this is its word for none. */
const everyRow = 2n ** 64n - 1n;

/** MySQL puts nulls first by itself. */
const dialect: SelectDialect<MysqlColumn> = {
  order: (reference, direction) =>
    sql`${columnSql(reference)} ${direction === "DESC" ? sql`desc` : sql`asc`}`,
  limit: (limit, offset) =>
    sql` limit ${countOf(limit ?? everyRow)} offset ${countOf(offset ?? 0)}`,
};

/**
 * Carries out a Select and writes its rows to the spool as one JSON array. Rows are written as they
 * come, so that few of them are held at a time.
 *
 * Throws `EngineRefusal` for unknown tables and columns and for unfit values.
 */
export async function select(place: MysqlPlace, query: Select, spool: Spool): Promise<void> {
  const scope: MysqlTable[] = [];
  for (const name of tablesOf(query)) scope.push(await readTable(place, name));
  const columns = selectedColumns(scope, query.columns);
  const encode = createRowEncoder(columns);
  const statement = selectSql(place.schema, scope, columns, query, dialect);
  let separator = "[";
  for await (const row of place.session.stream(statement)) {
    spool.write(separator + encode(row));
    separator = ",";
  }
  spool.write(separator === "[" ? "[]" : "]");
}

function countOf(count: number | bigint): unknown {
  return unsigned(BigInt(count));
}
