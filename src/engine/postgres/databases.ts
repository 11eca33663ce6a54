import { sql } from "kysely";
import { DatabaseError } from "pg";
import { isPlainName } from "../../query/names.ts";
import { foldCase } from "../fold-case.ts";
import { EngineRefusal } from "../refusal.ts";
import { databaseNotFound, refused } from "../remote/failures.ts";
import type { KnownTables } from "../remote/known-tables.ts";
import type { ServerAddress } from "./address.ts";
import { PostgresConnection } from "./connection.ts";
import type { Row } from "./exchange.ts";
import type { PostgresSession } from "./session.ts";
import type { PostgresTable } from "./tables.ts";

/** The databases that every server has for its own use. */
const reserved = ["postgres", "template0", "template1"];

/** The schema that holds the tables of a database, as far as queries can see. */
const publicSchema = "public";

/** Where replicas of the gateway keep users and keys, should they be in a database that is served. */
const storeSchema = "gatehouse";

/** PostgreSQL's words for a database that it lets nobody into, and for one in use. */
const notAccepting = "55000";
const inUse = "55006";

/** The database of a query. @throws EngineRefusal `database_not_found` for one of the server's own */
export function visibleDatabase(database: string): string {
  if (isServersDatabase(database)) throw databaseNotFound(database);
  return database;
}

/** The schema of its tables. @throws EngineRefusal `database_not_found` for one of the server's own */
export function publicSchemaOf(database: string): string {
  visibleDatabase(database);
  return publicSchema;
}

/**
 * Makes a connection to a database.
 *
 * @throws EngineRefusal `database_not_found`, `permission_denied`, and what `PostgresConnection.open` throws. That
 * the engine's own database is not there is an error of the server.
 */
export async function openDatabase(
  address: ServerAddress,
  database: string,
  tables: KnownTables<PostgresTable>,
): Promise<PostgresConnection> {
  try {
    return await PostgresConnection.open(address, database, tables);
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
  return clientNames(found, isServersDatabase);
}

/** Makes a database. @throws EngineRefusal `database_exists` or `invalid_name` */
export async function createDatabase(session: PostgresSession, database: string): Promise<void> {
  if (isServersDatabase(database)) throw keptName(database);
  const [[taken] = []] = await session.rows(sql`select datname from pg_catalog.pg_database
    where pg_catalog.lower(datname) = pg_catalog.lower(${database})`);
  if (taken != null) throw databaseExists(taken);
  await session.defineAlone(sql`create database ${sql.id(database)}`);
}

/**
 * Refuses to drop the database of the session if more is in it than tables that queries can name,
 * since nobody could make that again by queries.
 *
 * @throws EngineRefusal `constraint_violation`
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
 * @throws EngineRefusal `database_not_found`, `database_protected` for the engine's own and for templates, or
 * `database_in_use`
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
    await session.defineAlone(sql`drop database ${sql.id(database)}`);
  } catch (error) {
    if (!(error instanceof DatabaseError) || error.code !== inUse) throw error;
    throw new EngineRefusal("database_in_use", `Database ${database} is in use`);
  }
}

/** The schema of a database's name. @throws EngineRefusal `database_not_found` for one of the server's own */
export function visibleSchema(database: string): string {
  if (isKeptSchema(database)) throw databaseNotFound(database);
  return database;
}

/** The schemas that a query can name, sorted. */
export async function listSchemas(session: PostgresSession): Promise<string[]> {
  const found = await session.rows(sql`select nspname from pg_catalog.pg_namespace`);
  return clientNames(found, isKeptSchema);
}

/** Makes a schema. @throws EngineRefusal `database_exists` or `invalid_name` */
export async function createSchema(session: PostgresSession, database: string): Promise<void> {
  if (isKeptSchema(database)) throw keptName(database);
  const [[taken] = []] = await session.rows(
    sql`select nspname from pg_catalog.pg_namespace
      where pg_catalog.lower(nspname) = pg_catalog.lower(${database})`,
  );
  if (taken != null) throw databaseExists(taken);
  await session.run(sql`create schema ${sql.id(database)}`);
}

/**
 * Drops a schema with its tables. Never with `cascade`, which would reach into other schemas: what
 * stands there and needs what is here makes the server refuse.
 *
 * @throws EngineRefusal `database_not_found`, or PostgreSQL's error if something other than tables is left
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
  if (tables.length > 0) await session.define(sql`drop table ${sql.join(tables)}`);
  await session.define(sql`drop schema ${sql.id(schema)}`);
}

/** What no query reaches in any database: schemas of the server's own, and that of a store. */
const keptSchemas = ["information_schema", "crdb_internal", storeSchema];

function isKeptSchema(name: string): boolean {
  const folded = foldCase(name);
  return folded.startsWith("pg_") || keptSchemas.includes(folded);
}

function isServersDatabase(name: string): boolean {
  return reserved.includes(foldCase(name));
}

/** The names that a query can have, sorted. */
function clientNames(found: readonly Row[], isServers: (name: string) => boolean): string[] {
  return found
    .map(([name]) => name ?? "")
    .filter((name) => isPlainName(name) && !isServers(name))
    .sort();
}

function keptName(name: string): EngineRefusal {
  const owner = foldCase(name) === storeSchema ? "Gatehouse" : "PostgreSQL";
  return new EngineRefusal("invalid_name", `${owner} keeps the name ${name} for itself`);
}

function databaseExists(name: string): EngineRefusal {
  return new EngineRefusal("database_exists", `Database ${name} exists already`);
}
