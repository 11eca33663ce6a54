import type { Column } from "./scope.ts";

/** A column whose values come out of the database as `Raw`. */
interface Encoding<Raw> {
  readonly table: { readonly name: string };
  readonly column: Column & {
    /** JSON text of a value other than null. */
    readonly kind: { encode(value: Raw): string };
  };
}

/**
 * Makes the function that turns a row of these columns into a JSON object. The keys are column
 * names; where two of the columns share one, both are `table.column` instead.
 */
export function createRowEncoder<Raw>(
  columns: readonly Encoding<Raw>[],
): (row: Readonly<Record<number, Raw | null>>) => string {
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
