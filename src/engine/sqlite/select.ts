import { sql } from "kysely";
import type { Select } from "../../query/shape.ts";
import type { Spool } from "../spool.ts";
import { createRowEncoder } from "../sql/encode.ts";
import { columnSql } from "../sql/scope.ts";
import { type SelectDialect, selectedColumns, selectSql, tablesOf } from "../sql/select.ts";
import type { DatabaseHandle } from "./handle.ts";
import { rows } from "./statements.ts";
import { readTable, type SqliteColumn } from "./tables.ts";

/** SQLite puts nulls first by itself, and has no offset without a limit; -1 is its word for none. */
const dialect: SelectDialect<SqliteColumn> = {
  order: (reference, direction) =>
    sql`${columnSql(reference)} ${direction === "DESC" ? sql`desc` : sql`asc`}`,
  limit: (limit, offset) => sql` limit ${limit ?? -1} offset ${offset ?? 0}`,
};

/**
 * Carries out a Select and writes its rows to the spool as one JSON array.
 *
 * Throws `EngineRefusal` for unknown tables and columns and for unfit values.
 */
export function select(handle: DatabaseHandle, query: Select, spool: Spool): void {
  const scope = tablesOf(query).map((name) => readTable(handle, name));
  const columns = selectedColumns(scope, query.columns);
  const encode = createRowEncoder(columns);
  let separator = "[";
  for (const row of rows(
    handle.connection,
    selectSql(handle.schema, scope, columns, query, dialect),
  )) {
    spool.write(separator + encode(row));
    separator = ",";
  }
  spool.write(separator === "[" ? "[]" : "]");
}
