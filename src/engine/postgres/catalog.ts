import { sql } from "kysely";
import { isPlainName } from "../../query/names.ts";
import type { Place } from "./place.ts";
import { databaseNotFound, readTable } from "./tables.ts";

/** A column of an existing table, its type as PostgreSQL names it. */
export interface ColumnDescription {
  readonly name: string;
  readonly type: string;
  readonly primary_key: boolean;
  readonly nullable: boolean;
}

/** The tables and views that a query can name, sorted. Throws `database_not_found`. */
export async function listTables({ session, schema }: Place): Promise<string[]> {
  const found = await session.rows(sql`
    select class.relname from pg_catalog.pg_namespace as namespace
    left join pg_catalog.pg_class as class on class.relnamespace = namespace.oid
      and class.relkind in ('r', 'p', 'f', 'v', 'm')
    where namespace.nspname = ${schema}`);
  if (found.length === 0) throw databaseNotFound(schema);
  return found
    .map(([table]) => table ?? "")
    .filter(isPlainName)
    .sort();
}

/** A table's columns in their order. Throws `database_not_found` or `table_not_found`. */
export async function describeTable(place: Place, name: string): Promise<ColumnDescription[]> {
  const { columns } = await readTable(place, name);
  return Array.from(columns.values(), ({ name: column, type, isKey, isNullable }) => ({
    name: column,
    type,
    primary_key: isKey,
    nullable: isNullable,
  }));
}
