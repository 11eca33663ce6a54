import type { SQLInputValue, StatementSync } from "node:sqlite";
import { sql } from "kysely";
import type { CellValue, Insert } from "../../query/shape.ts";
import { inRow, requireDistinct, resolveColumn, storedValue } from "../sql/scope.ts";
import type { DatabaseHandle } from "./handle.ts";
import { prepare } from "./statements.ts";
import { readTable, type SqliteColumn, type SqliteTable } from "./tables.ts";

/** A prepared statement for all rows that name the same columns in the same order. */
interface RowInsert {
  readonly columns: readonly SqliteColumn[];
  readonly statement: StatementSync;
}

/**
 * Inserts rows one by one, which keeps clear of SQLite's limit on parameters; a column that a
 * row leaves out is null or takes its default. Returns the number of rows.
 *
 * Throws `EngineRefusal` for an unknown table or column and for unfit values.
 */
export function insert(handle: DatabaseHandle, query: Insert): number {
  const table = readTable(handle, query.table);
  const prepared = new Map<string, RowInsert>();
  for (const [index, row] of query.values.entries()) {
    const keys = Object.keys(row);
    const shape = JSON.stringify(keys);
    inRow(
      () => index,
      () => {
        const rowInsert = prepared.get(shape) ?? prepareRow(handle, table, keys);
        prepared.set(shape, rowInsert);
        rowInsert.statement.run(...boundValues(rowInsert.columns, Object.values(row)));
      },
    );
  }
  return query.values.length;
}

function prepareRow(
  handle: DatabaseHandle,
  table: SqliteTable,
  keys: readonly string[],
): RowInsert {
  const columns = keys.map((key) => resolveColumn([table], key).column);
  requireDistinct(columns);
  const target = sql.id(handle.schema, table.name);
  const names = sql.join(columns.map((column) => sql.id(column.name)));
  const values = sql.join(columns.map(() => null));
  const fragment =
    columns.length === 0
      ? sql`insert into ${target} default values`
      : sql`insert into ${target} (${names}) values (${values})`;
  return { columns, statement: prepare(handle.connection, fragment) };
}

function boundValues(
  columns: readonly SqliteColumn[],
  values: readonly CellValue[],
): SQLInputValue[] {
  return columns.map((column, index) => storedValue(column, values[index] ?? null));
}
