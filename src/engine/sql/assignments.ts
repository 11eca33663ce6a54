import { sql } from "kysely";
import type { CellValue, Update } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import type { Fragment } from "./fragment.ts";
import { type Column, requireDistinct, resolveColumn, type Table } from "./scope.ts";
import { storedValue } from "./stored-values.ts";

/** A column, and what becomes of it. */
interface Assignment {
  readonly column: Column;
  readonly value: unknown;
}

/**
 * What an Update makes of columns.
 *
 * @throws EngineRefusal for an unknown column, for one that is given twice, and for unfit values
 */
export function assignmentsOf(
  table: Table,
  { set, add }: Pick<Update, "set" | "add">,
): Assignment[] {
  const changes = entriesOf(table, set);
  const additions = entriesOf(table, add);
  const both = additions.find(({ column }) => changes.some((change) => change.column === column));
  if (both !== undefined) {
    throw new EngineRefusal(
      "duplicate_column",
      `Column "${both.column.name}" stands in set and in add; allowed: in one of them`,
    );
  }
  return [
    ...changes.map(({ column, value }) => ({ column, value: storedValue(column, value) })),
    ...additions.map(({ column, value }) => ({ column, value: sumSql(column, value) })),
  ];
}

/** The same as it stands behind `set`. */
export function assignmentsSql(assignments: readonly Assignment[]): Fragment {
  return sql.join(assignments.map(({ column, value }) => sql`${sql.id(column.name)} = ${value}`));
}

function entriesOf(
  table: Table,
  cells: Readonly<Record<string, CellValue>> = {},
): { column: Column; value: CellValue }[] {
  const entries = Object.entries(cells).map(([name, value]) => ({
    column: resolveColumn([table], name).column,
    value,
  }));
  requireDistinct(entries.map(({ column }) => column));
  return entries;
}

/** A column plus a number; null stays null. */
function sumSql(column: Column, amount: CellValue): Fragment {
  const { name, type, kind } = column;
  if (kind.sum !== undefined) return kind.sum(sql.id(name), storedValue(column, amount));
  throw new EngineRefusal(
    "invalid_value",
    `Column "${name}" (${type}) holds no numbers, and add takes columns that do`,
  );
}
