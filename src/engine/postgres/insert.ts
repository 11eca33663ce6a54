import type { Insert } from "../../query/shape.ts";
import { insertRows } from "../remote/insert.ts";
import type { PostgresPlace } from "./place.ts";
import { moveSequence } from "./sequence.ts";
import { readTable } from "./tables.ts";

/** Values in one statement, well below what the protocol allows. */
const valuesPerStatement = 20_000;

/**
 * Inserts rows in their order; a column that a row leaves out is null or takes its default.
 * Returns the number of rows.
 *
 * Throws `EngineRefusal` for an unknown table or column and for unfit values.
 */
export async function insert(place: PostgresPlace, query: Insert): Promise<number> {
  const table = await readTable(place, query.table);
  return insertRows(place, table, query.values, {
    valuesPerStatement,
    onNumbers: (identity, numbers) => moveSequence(place, table.name, identity.name, numbers),
  });
}
