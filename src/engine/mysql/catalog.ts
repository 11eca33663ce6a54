import { sql } from "kysely";
import { isPlainName } from "../../query/names.ts";
import { requireDatabase } from "./databases.ts";
import type { MysqlPlace } from "./place.ts";

/** The tables and views that a query can name, sorted. Throws `database_not_found`. */
export async function listTables({ session, schema }: MysqlPlace): Promise<string[]> {
  await requireDatabase(session, schema);
  const found = await session.rows(
    sql`select table_name from information_schema.tables where table_schema = ${schema}`,
  );
  return found
    .map(([table]) => String(table))
    .filter(isPlainName)
    .sort();
}
