import { sql } from "kysely";
import { isPlainName } from "../../query/names.ts";
import { databaseNotFound } from "../remote/refused.ts";
import type { PostgresPlace } from "./place.ts";

/** The tables and views that a query can name, sorted. Throws `database_not_found`. */
export async function listTables({ session, database, schema }: PostgresPlace): Promise<string[]> {
  const found = await session.rows(sql`
    select class.relname from pg_catalog.pg_namespace as namespace
    left join pg_catalog.pg_class as class on class.relnamespace = namespace.oid
      and class.relkind in ('r', 'p', 'f', 'v', 'm')
    where namespace.nspname = ${schema}`);
  if (found.length === 0) throw databaseNotFound(database);
  return found
    .map(([table]) => table ?? "")
    .filter(isPlainName)
    .sort();
}
