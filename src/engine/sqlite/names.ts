import { EngineRefusal } from "../refusal.ts";
import { foldCase } from "../sql/names.ts";

/** The name of the table that remembers declared column types. */
export const columnTableName = "_gatehouse_columns";

const reservedPrefixes = ["sqlite_", "_gatehouse"];

/** True for the name of a table that may be the clients'. */
export function isClientTable(name: string): boolean {
  const folded = foldCase(name);
  return !reservedPrefixes.some((reserved) => folded.startsWith(reserved));
}

/** Refuses the names of tables that are not the clients'. Throws `invalid_name`. */
export function requireClientTable(name: string): void {
  const folded = foldCase(name);
  const prefix = reservedPrefixes.find((reserved) => folded.startsWith(reserved));
  if (prefix === undefined) return;
  throw new EngineRefusal("invalid_name", `Table names that begin with ${prefix} are reserved`);
}
