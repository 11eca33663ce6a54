import { sql } from "kysely";
import type { Insert } from "../../query/shape.ts";
import { insertRows } from "../remote/insert.ts";
import type { MysqlPlace } from "./place.ts";
import { readChangedTable } from "./tables.ts";

/** Values in one statement: the server describes each of them when it prepares the statement. */
const valuesPerStatement = 2000;

/** Characters in one statement, well below what servers take in one packet. */
const lengthPerStatement = 256 * 1024;

/**
 * Inserts rows in their order; a column that a row leaves out is null or takes its default.
 * Returns the number of rows.
 *
 * Throws `EngineRefusal` for an unknown table or column and for unfit values.
 */
export async function insert(place: MysqlPlace, query: Insert): Promise<number> {
  const table = await readChangedTable(place, query.table);
  return insertRows(place, table, query.values, {
    valuesPerStatement,
    lengthPerStatement,
    // Where zero is a number as any other, `default` is zero.
    nextNumber: sql`null`,
  });
}
