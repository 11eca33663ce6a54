import { sql } from "kysely";
import { isPlainName } from "../../query/names.ts";
import { EngineRefusal } from "../refusal.ts";
import { databaseNotFound } from "../remote/refused.ts";
import { foldCase } from "../sql/names.ts";
import type { PostgresSession } from "./session.ts";

/** The schema of a database's name. Throws `database_not_found` for one of the server's own. */
export function visibleSchema(database: string): string {
  if (isReserved(database)) throw databaseNotFound(database);
  return database;
}

/** The schemas that a query can name, sorted. */
export async function listSchemas(session: PostgresSession): Promise<string[]> {
  const found = await session.rows(sql`select nspname from pg_catalog.pg_namespace`);
  return found
    .map(([name]) => name ?? "")
    .filter((name) => isPlainName(name) && !isReserved(name))
    .sort();
}

/** Makes a schema. Throws `database_exists` or `invalid_name`. */
export async function createSchema(session: PostgresSession, database: string): Promise<void> {
  if (isReserved(database)) {
    throw new EngineRefusal("invalid_name", `PostgreSQL keeps the name ${database} for itself`);
  }
  const [[taken] = []] = await session.rows(
    sql`select nspname from pg_catalog.pg_namespace
      where pg_catalog.lower(nspname) = pg_catalog.lower(${database})`,
  );
  if (taken != null) {
    throw new EngineRefusal("database_exists", `Database ${taken} exists already`);
  }
  await session.run(sql`create schema ${sql.id(database)}`);
}

/**
 * Drops a schema with its tables. Never with `cascade`, which would reach into other schemas: what
 * stands there and needs what is here makes the server refuse.
 *
 * Throws `database_not_found`, or PostgreSQL's error if something other than tables is left.
 */
export async function dropSchema(session: PostgresSession, database: string): Promise<void> {
  const schema = visibleSchema(database);
  const found = await session.rows(
    sql`select class.relname from pg_catalog.pg_namespace as namespace
      left join pg_catalog.pg_class as class
        on class.relnamespace = namespace.oid and class.relkind in ('r', 'p')
        and not exists (select 1 from pg_catalog.pg_inherits where inhrelid = class.oid)
      where namespace.nspname = ${schema}`,
  );
  if (found.length === 0) throw databaseNotFound(database);
  const tables = found.flatMap(([table]) => (table == null ? [] : [sql.id(schema, table)]));
  if (tables.length > 0) await session.run(sql`drop table ${sql.join(tables)}`);
  await session.run(sql`drop schema ${sql.id(schema)}`);
}

/** The schemas of the server's own. */
function isReserved(name: string): boolean {
  const folded = foldCase(name);
  return folded.startsWith("pg_") || ["information_schema", "crdb_internal"].includes(folded);
}
