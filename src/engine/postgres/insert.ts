import { sql } from "kysely";
import type { CellValue, Insert } from "../../query/shape.ts";
import type { Fragment } from "../sql/fragment.ts";
import { requireDistinct, resolveColumn, storedValue } from "../sql/scope.ts";
import type { Place } from "./place.ts";
import { moveSequence } from "./sequence.ts";
import { type PostgresColumn, type PostgresTable, readTable } from "./tables.ts";

type Row = Record<string, CellValue>;

/** Values in one statement, well below what the protocol allows. */
const valuesPerStatement = 20_000;

const ofDefault = sql`default`;

/**
 * Inserts rows in their order; a column that a row leaves out is null or takes its default.
 * Returns the number of rows.
 *
 * Throws `EngineRefusal` for an unknown table or column and for unfit values.
 */
export async function insert(place: Place, query: Insert): Promise<number> {
  const table = await readTable(place, query.table);
  requireColumns(table, query.values);
  const identity = [...table.columns.values()].find((column) => column.isIdentity);
  for (const rows of runsOf(query.values, identity)) {
    await insertRun(place, table, rows);
    if (identity === undefined) continue;
    const numbers = rows.map((row) => valueIn(row, identity.name));
    await moveSequence(place, table.name, identity.name, numbers);
  }
  return query.values.length;
}

/** Judges the names before the first row is stored, each row's own. */
function requireColumns(table: PostgresTable, rows: readonly Row[]): void {
  const known = new Set<string>();
  for (const row of rows) {
    const keys = Object.keys(row);
    const shape = JSON.stringify(keys);
    if (known.has(shape)) continue;
    requireDistinct(keys.map((key) => resolveColumn([table], key).column));
    known.add(shape);
  }
}

/** Rows that give their number and rows that get one alternate, since the next follows the last. */
function runsOf(rows: readonly Row[], identity: PostgresColumn | undefined): Row[][] {
  const runs: Row[][] = [];
  let isNumbered: boolean | undefined;
  for (const row of rows) {
    const givesNumber = identity !== undefined && (valueIn(row, identity.name) ?? null) !== null;
    if (givesNumber !== isNumbered) runs.push([]);
    runs.at(-1)?.push(row);
    isNumbered = givesNumber;
  }
  return runs;
}

async function insertRun(place: Place, table: PostgresTable, rows: readonly Row[]): Promise<void> {
  const columns = columnsOf(table, rows);
  const size = Math.max(1, Math.floor(valuesPerStatement / columns.length));
  for (let start = 0; start < rows.length; start += size) {
    const tuples = rows.slice(start, start + size).map((row) => tupleOf(columns, row));
    const target = sql.id(place.schema, table.name);
    const names = sql.join(columns.map((column) => sql.id(column.name)));
    await place.session.run(sql`insert into ${target} (${names}) values ${sql.join(tuples)}`);
  }
}

/** The columns that one row at least names; if none does, any column, so that there is one. */
function columnsOf(table: PostgresTable, rows: readonly Row[]): PostgresColumn[] {
  const all = [...table.columns.values()];
  const named = new Set(rows.flatMap((row) => Object.keys(row)));
  const columns = all.filter((column) => named.has(column.name));
  return columns.length > 0 ? columns : all.slice(0, 1);
}

/** Undefined for a column that the row leaves out, also for one called as what all objects have. */
function valueIn(row: Row, name: string): CellValue | undefined {
  return Object.hasOwn(row, name) ? row[name] : undefined;
}

function tupleOf(columns: readonly PostgresColumn[], row: Row): Fragment {
  return sql`(${sql.join(columns.map((column) => cellOf(column, row)))})`;
}

function cellOf(column: PostgresColumn, row: Row): Fragment {
  const value = valueIn(row, column.name);
  if (value === undefined || (value === null && column.isIdentity)) return ofDefault;
  return storedValue(column, value) ?? sql`null`;
}
