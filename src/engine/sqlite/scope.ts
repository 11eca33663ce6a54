import type { SQLInputValue } from "node:sqlite";
import { sql } from "kysely";
import type { CellValue } from "../../query/shape.ts";
import { EngineRefusal } from "../refusal.ts";
import type { PresentValue } from "./kinds.ts";
import type { Fragment } from "./statements.ts";
import type { Column, Table } from "./tables.ts";

/** The tables that the column names of one operation may mean: one, or the two of a join. */
export type Scope = readonly Table[];

/** A column that a name was found to mean. */
export interface ColumnReference {
  readonly table: Table;
  readonly column: Column;
}

/**
 * Finds the column that `column` or `table.column` means. Nothing that is not a declared column
 * gets into a statement, not even what SQLite would understand by itself, such as `rowid`.
 *
 * Throws `unknown_column` or `ambiguous_column`.
 */
export function resolveColumn(scope: Scope, name: string): ColumnReference {
  const dot = name.indexOf(".");
  const columnName = name.slice(dot + 1);
  const tables = dot < 0 ? scope : scope.filter((table) => table.name === name.slice(0, dot));
  const [found, another] = tables.flatMap((table) => {
    const column = table.columns.get(columnName);
    return column === undefined ? [] : [{ table, column }];
  });
  if (found === undefined) {
    const places = scope.map((table) => table.name).join(" and ");
    throw new EngineRefusal("unknown_column", `There is no column "${name}" in ${places}`);
  }
  if (another === undefined) return found;
  throw new EngineRefusal("ambiguous_column", `Both tables have a column "${name}"`);
}

/** A column in SQL, named in full. */
export function columnSql({ table, column }: ColumnReference): Fragment {
  return sql`${sql.id(table.name, column.name)}`;
}

/** Refuses a column that is named twice, once alone and once with its table. Throws `duplicate_column`. */
export function requireDistinct(columns: readonly Column[]): void {
  const twice = columns.find((column, index) => columns.indexOf(column) !== index);
  if (twice === undefined) return;
  throw new EngineRefusal("duplicate_column", `Column "${twice.name}" is given twice`);
}

/** A cell's value as the column stores it. Throws `invalid_value` if it does not. */
export function storedValue(column: Column, value: CellValue): SQLInputValue {
  if (value === null) return null;
  const stored = column.kind.store(value);
  if (stored !== undefined) return stored;
  throw new EngineRefusal(
    "invalid_value",
    `Column "${column.name}" (${column.type}) does not take ${describe(value)}`,
  );
}

/** A value as the column compares with it. Throws `invalid_value` if it does not. */
export function comparedValue(column: Column, value: CellValue): SQLInputValue {
  const compared = value === null ? undefined : column.kind.compare(value);
  if (compared !== undefined) return compared;
  throw new EngineRefusal(
    "invalid_value",
    `Column "${column.name}" (${column.type}) cannot be compared in this way with ${describe(value)}`,
  );
}

function describe(value: PresentValue | null): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  switch (typeof value) {
    case "object":
      return "an object";
    case "bigint":
    case "number":
      return "this number";
    default:
      return `this ${typeof value}`;
  }
}
