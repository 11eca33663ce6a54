import type { SQLInputValue, SQLOutputValue, StatementSync } from "node:sqlite";
import { sql } from "kysely";
import type { CellValue, Row } from "../../query/operation-types.ts";
import type { Fragment } from "../sql/fragment.ts";
import { inRow, requireDistinct, resolveColumn, storedValue } from "../sql/scope.ts";
import { type Changed, conflictSql, encodeRows, type Insertion, namesSql } from "../sql/target.ts";
import type { DatabaseHandle } from "./handle.ts";
import { prepare, type ResultRow } from "./statements.ts";
import type { SqliteColumn, SqliteTable } from "./tables.ts";

/** A prepared statement for all rows that name the same columns in the same order. */
interface RowInsert {
  readonly columns: readonly SqliteColumn[];
  readonly statement: StatementSync;
}

/** Where rows go, and the words that follow their values. */
interface Destination {
  readonly handle: DatabaseHandle;
  readonly table: SqliteTable;
  readonly tail: Fragment;
}

/**
 * Inserts rows one by one, which keeps clear of SQLite's limit on parameters; a column that a
 * row leaves out is null or takes its default.
 *
 * Throws `EngineRefusal` for an unknown table or column and for unfit values.
 */
export function insertRows(
  handle: DatabaseHandle,
  table: SqliteTable,
  values: readonly Row[],
  { conflict, returning }: Insertion<SQLOutputValue>,
): Changed {
  const answered = returning === undefined ? sql`` : sql` returning ${namesSql(returning)}`;
  const destination = { handle, table, tail: sql`${conflictSql(conflict)}${answered}` };
  const prepared = new Map<string, RowInsert>();
  const found: ResultRow[] = [];
  let affected = 0;
  for (const [index, row] of values.entries()) {
    const keys = Object.keys(row);
    const shape = JSON.stringify(keys);
    inRow(
      () => index,
      () => {
        const rowInsert = prepared.get(shape) ?? prepareRow(destination, keys);
        prepared.set(shape, rowInsert);
        const bound = boundValues(rowInsert.columns, Object.values(row));
        if (returning === undefined) affected += Number(rowInsert.statement.run(...bound).changes);
        else found.push(...rowInsert.statement.iterate(...bound));
      },
    );
  }
  if (returning === undefined) return { affected };
  return { affected: found.length, data: encodeRows({ table }, returning, found) };
}

function prepareRow({ handle, table, tail }: Destination, keys: readonly string[]): RowInsert {
  const columns = keys.map((key) => resolveColumn([table], key).column);
  requireDistinct(columns);
  const target = sql.id(handle.schema, table.name);
  const values = sql.join(columns.map(() => null));
  const fragment =
    columns.length === 0
      ? sql`insert into ${target} default values${tail}`
      : sql`insert into ${target} (${namesSql(columns)}) values (${values})${tail}`;
  return { columns, statement: prepare(handle.connection, fragment) };
}

function boundValues(
  columns: readonly SqliteColumn[],
  values: readonly CellValue[],
): SQLInputValue[] {
  return columns.map((column, index) => storedValue(column, values[index] ?? null));
}
