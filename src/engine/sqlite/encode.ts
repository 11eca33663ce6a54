import type { ColumnReference } from "./scope.ts";
import type { ResultRow } from "./statements.ts";

/**
 * Makes the function that turns a row of these columns into a JSON object. The keys are column
 * names; where two of the columns share one, both are `table.column` instead.
 */
export function createRowEncoder(columns: readonly ColumnReference[]): (row: ResultRow) => string {
  const counts = new Map<string, number>();
  for (const { column } of columns) counts.set(column.name, (counts.get(column.name) ?? 0) + 1);
  const members = columns.map(({ table, column }, index) => {
    const shared = (counts.get(column.name) ?? 0) > 1;
    const key = shared ? `${table.name}.${column.name}` : column.name;
    return { index, prefix: `${index === 0 ? "{" : ","}${JSON.stringify(key)}:`, column };
  });
  return (row) => {
    let text = "";
    for (const { index, prefix, column } of members) {
      const value = row[index] ?? null;
      text += prefix + (value === null ? "null" : column.kind.encode(value));
    }
    return `${text}}`;
  };
}
