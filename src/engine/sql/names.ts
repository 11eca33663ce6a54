import type { ColumnDefinition } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";

/** A name with the case of its ASCII letters folded, and of no others. */
export function foldCase(name: string): string {
  return name.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

/**
 * Refuses columns of a new table that differ only by case, and what can name a column in a query
 * but be none.
 *
 * Throws `invalid_name` or `duplicate_column`.
 */
export function requireDistinctNames(columns: readonly ColumnDefinition[]): void {
  const seen = new Set<string>();
  for (const { name } of columns) {
    requireColumnName(name);
    if (seen.has(foldCase(name))) {
      throw new EngineRefusal("duplicate_column", `There are two columns "${name}" in any case`);
    }
    seen.add(foldCase(name));
  }
}

function requireColumnName(name: string): void {
  if (name !== "*" && !name.includes(".")) return;
  throw new EngineRefusal("invalid_name", `A column cannot be named "${name}"`);
}
