import { sql } from "kysely";
import { DatabaseError } from "pg";
import { isPlainName } from "../../query/names.ts";
import { EngineRefusal } from "../refusal.ts";
import { databaseNotFound, refused } from "../remote/refused.ts";
import { foldCase } from "../sql/names.ts";
import type { ServerAddress } from "./address.ts";
import { PostgresConnection } from "./connection.ts";
import type { PostgresSession } from "./session.ts";

/** The databases that every server has for its own use. */
const reserved = ["postgres", "template0", "template1"];

/** The schema that holds the tables of a database, as far as queries can see. */
const publicSchema = "public";

/** PostgreSQL's words for a database that it lets nobody into, and for one in use. */
const notAccepting = "55000";
const inUse = "55006";

/** The database of a query. Throws `database_not_found` for one of the server's own. */
export function visibleDatabase(database: string): string {
  if (isReserved(database)) throw databaseNotFound(database);
  return database;
}

/** The schema of its tables. Throws `database_not_found` for one of the server's own. */
export function publicSchemaOf(database: string): string {
  visibleDatabase(database);
  return publicSchema;
}

/**
 * Makes a connection to a database.
 *
 * Throws `database_not_found`, `permission_denied`, and what `PostgresConnection.open` throws. That
 * the engine's own database is not there is an error of the server.
 */
export async function openDatabase(
  address: ServerAddress,
  database: string,
): Promise<PostgresConnection> {
  try {
    return await PostgresConnection.open(address, database);
  } catch (error) {
    if (database === address.database || !(error instanceof DatabaseError)) throw error;
    if (error.code === "3D000" || error.code === notAccepting) throw databaseNotFound(database);
    // The server has no rule by which this user gets into this database.
    if (error.code === "28000") throw new EngineRefusal(...refused.forbidden);
    throw error;
  }
}

/** The databases that a query can name and the engine's user may connect to, sorted. */
export async function listDatabases(session: PostgresSession): Promise<string[]> {
  const found = await session.rows(sql`select datname from pg_catalog.pg_database
    where datallowconn and pg_catalog.has_database_privilege(datname, 'CONNECT')`);
  return found
    .map(([name]) => name ?? "")
    .filter((name) => isPlainName(name) && !isReserved(name))
    .sort();
}

/** Makes a database. Throws `database_exists` or `invalid_name`. */
export async function createDatabase(session: PostgresSession, database: string): Promise<void> {
  if (isReserved(database)) {
    throw new EngineRefusal("invalid_name", `PostgreSQL keeps the name ${database} for itself`);
  }
  const [[taken] = []] = await session.rows(sql`select datname from pg_catalog.pg_database
    where pg_catalog.lower(datname) = pg_catalog.lower(${database})`);
  if (taken != null) {
    throw new EngineRefusal("database_exists", `Database ${taken} exists already`);
  }
  await session.define(sql`create database ${sql.id(database)}`);
}

/**
 * Refuses to drop the database of the session if more is in it than tables that queries can name,
 * since nobody could make that again by queries.
 *
 * Throws `constraint_violation`.
 */
export async function requireDroppable(session: PostgresSession): Promise<void> {
  const others = await session.rows(sql`
    select 1 from pg_catalog.pg_namespace
      where nspname not in (${publicSchema}, 'information_schema') and nspname not like 'pg\\_%'
    union all select 1 from pg_catalog.pg_class as class
      join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
      where nspname = ${publicSchema} and relkind in ('v', 'm', 'f', 'c')
    union all select 1 from pg_catalog.pg_proc
      join pg_catalog.pg_namespace as namespace on namespace.oid = pronamespace
      where nspname = ${publicSchema}
    limit 1`);
  if (others.length > 0) throw new EngineRefusal(...refused.depended);
}

/**
 * Drops a database with its tables.
 *
 * Throws `database_not_found`, `database_protected` for the engine's own and for templates, or
 * `database_in_use`.
 */
export async function dropDatabase(session: PostgresSession, database: string): Promise<void> {
  visibleDatabase(database);
  const [[use] = []] = await session.rows(sql`
    select case when datistemplate or datname = pg_catalog.current_database()
      then 'protected' else 'free' end
    from pg_catalog.pg_database where datname = ${database}`);
  if (use == null) throw databaseNotFound(database);
  if (use === "protected") {
    throw new EngineRefusal("database_protected", `Database ${database} cannot be dropped`);
  }
  try {
    await session.define(sql`drop database ${sql.id(database)}`);
  } catch (error) {
    if (!(error instanceof DatabaseError) || error.code !== inUse) throw error;
    throw new EngineRefusal("database_in_use", `Database ${database} is in use`);
  }
}

function isReserved(name: string): boolean {
  return reserved.includes(foldCase(name));
}
