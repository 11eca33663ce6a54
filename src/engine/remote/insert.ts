import { sql } from "kysely";
import type { CellValue } from "../../query/shape.ts";
import type { Fragment } from "../sql/fragment.ts";
import {
  type Column,
  inRow,
  requireDistinct,
  resolveColumn,
  storedValue,
  type Table,
} from "../sql/scope.ts";
import type { Place } from "./place.ts";

type Row = Record<string, CellValue>;

/** A column that rows are put into. */
export interface InsertColumn extends Column {
  /** True for a column that numbers itself and may be given a number. */
  readonly isIdentity: boolean;
}

/** How rows are put into one statement after another. */
export interface InsertOptions<Found extends InsertColumn> {
  /** How many values one statement has at the most, but for a single row. */
  readonly valuesPerStatement: number;
  /** How many characters of strings one statement has at the most, but for a single row. */
  readonly lengthPerStatement?: number;
  /** What stands for the next number in a column that numbers itself; `default` if left out. */
  readonly nextNumber?: Fragment;
  /** Called with the numbers that rows have just given to the column that numbers itself. */
  onNumbers?(identity: Found, numbers: readonly (CellValue | undefined)[]): Promise<void>;
}

const ofDefault = sql`default`;

/**
 * Inserts rows in their order; a column that a row leaves out is null or takes its default.
 * Returns the number of rows.
 *
 * Throws `EngineRefusal` for an unknown column and for unfit values.
 */
export async function insertRows<Found extends InsertColumn>(
  place: Place,
  table: Table<Found>,
  rows: readonly Row[],
  options: InsertOptions<Found>,
): Promise<number> {
  requireColumns(table, rows);
  const identity = [...table.columns.values()].find((column) => column.isIdentity);
  for (const run of runsOf(rows, identity)) {
    await insertRun(place, table, { run, all: rows }, options);
    if (identity === undefined) continue;
    const numbers = run.map((row) => valueIn(row, identity.name));
    await options.onNumbers?.(identity, numbers);
  }
  return rows.length;
}

/** Judges the names before the first row is stored, each row's own. */
function requireColumns(table: Table, rows: readonly Row[]): void {
  const known = new Set<string>();
  for (const [index, row] of rows.entries()) {
    const keys = Object.keys(row);
    const shape = JSON.stringify(keys);
    if (known.has(shape)) continue;
    inRow(
      () => index,
      () => requireDistinct(keys.map((key) => resolveColumn([table], key).column)),
    );
    known.add(shape);
  }
}

/** Rows that give their number and rows that get one alternate, since the next follows the last. */
function runsOf(rows: readonly Row[], identity: InsertColumn | undefined): Row[][] {
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

async function insertRun<Found extends InsertColumn>(
  place: Place,
  table: Table<Found>,
  { run, all }: { readonly run: readonly Row[]; readonly all: readonly Row[] },
  options: InsertOptions<Found>,
): Promise<void> {
  const columns = columnsOf(table, run);
  const target = sql.id(place.schema, table.name);
  const names = sql.join(columns.map((column) => sql.id(column.name)));
  for (const some of partsOf(run, columns.length, options)) {
    const tuples = some.map((row) =>
      inRow(
        () => all.indexOf(row),
        () => tupleOf(columns, row, options.nextNumber ?? ofDefault),
      ),
    );
    await place.session.run(sql`insert into ${target} (${names}) values ${sql.join(tuples)}`);
  }
}

function* partsOf(
  rows: readonly Row[],
  columnCount: number,
  { valuesPerStatement, lengthPerStatement = Number.POSITIVE_INFINITY }: InsertOptions<never>,
): Generator<Row[]> {
  const mostRows = Math.max(1, Math.floor(valuesPerStatement / columnCount));
  let part: Row[] = [];
  let length = 0;
  for (const row of rows) {
    const own = lengthOf(row);
    if (part.length === mostRows || (part.length > 0 && length + own > lengthPerStatement)) {
      yield part;
      part = [];
      length = 0;
    }
    part.push(row);
    length += own;
  }
  yield part;
}

function lengthOf(row: Row): number {
  let length = 0;
  for (const value of Object.values(row)) length += typeof value === "string" ? value.length : 0;
  return length;
}

/** The columns that one row at least names; if none does, any column, so that there is one. */
function columnsOf<Found extends Column>(table: Table<Found>, rows: readonly Row[]): Found[] {
  const all = [...table.columns.values()];
  const named = new Set(rows.flatMap((row) => Object.keys(row)));
  const columns = all.filter((column) => named.has(column.name));
  return columns.length > 0 ? columns : all.slice(0, 1);
}

/** Undefined for a column that the row leaves out, also for one called as what all objects have. */
function valueIn(row: Row, name: string): CellValue | undefined {
  return Object.hasOwn(row, name) ? row[name] : undefined;
}

function tupleOf(columns: readonly InsertColumn[], row: Row, nextNumber: Fragment): Fragment {
  return sql`(${sql.join(columns.map((column) => cellOf(column, row, nextNumber)))})`;
}

function cellOf(column: InsertColumn, row: Row, nextNumber: Fragment): unknown {
  const value = valueIn(row, column.name);
  if (column.isIdentity && (value ?? null) === null) return nextNumber;
  return value === undefined ? ofDefault : (storedValue(column, value) ?? sql`null`);
}
