import { sql } from "kysely";
import { foldCase } from "../sql/names.ts";
import type { DatabaseHandle } from "./handle.ts";
import { rows } from "./statements.ts";

/** Rows that are counted; beyond them it is only guessed how many there are. */
const COUNTED = 10_000;

/** The names of a row's number, each hidden by a column of that name (SQLite, "ROWIDs and the INTEGER PRIMARY KEY"). */
const rowNumbers = ["rowid", "_rowid_", "oid"];

/**
 * About how many rows a table has: their number where there are few, else as many as fit between the
 * first row's number and the last one's if all stand as densely as the first. SQLite keeps no
 * count, and to count a large table takes as long as to read it.
 */
export function estimateRows(
  { connection, schema }: DatabaseHandle,
  name: string,
  columns: readonly string[],
): number | undefined {
  const taken = new Set(columns.map(foldCase));
  const number = rowNumbers.find((word) => !taken.has(word));
  const [kind] = rows(
    connection,
    sql`select "wr" from pragma_table_list where "schema" = ${schema} and "name" = ${name}`,
  );
  if (number === undefined || Number(kind?.[0]) !== 0) return undefined;
  const [id, table] = [sql.raw(number), sql.id(schema, name)];
  const [found] = rows(
    connection,
    sql`select count(*), min("id"), max("id"), (select max(${id}) from ${table})
      from (select ${id} as "id" from ${table} order by ${id} limit ${sql.lit(COUNTED)})`,
  );
  const [counted, first, end, last] = [0, 1, 2, 3].map((at) => Number(found?.[at] ?? 0));
  if (counted === undefined || counted < COUNTED) return counted;
  const [firstId = 0, endId = 0, lastId = 0] = [first, end, last];
  return Math.round((counted * (lastId - firstId + 1)) / (endId - firstId + 1));
}
