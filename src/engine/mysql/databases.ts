import { sql } from "kysely";
import { isPlainName } from "../../query/names.ts";
import { foldCase } from "../fold-case.ts";
import { EngineRefusal } from "../refusal.ts";
import { databaseNotFound, refused } from "../remote/failures.ts";
import type { MysqlSession } from "./session.ts";

/** The databases of the server's own. */
const reserved = ["mysql", "information_schema", "performance_schema", "sys", "ndbinfo"];

/** The database of a query. @throws EngineRefusal `database_not_found` for one of the server's own */
export function visibleDatabase(database: string): string {
  if (isReserved(database)) throw databaseNotFound(database);
  return database;
}

/** The databases that a query can name, sorted. */
export async function listDatabases(session: MysqlSession): Promise<string[]> {
  const found = await session.rows(sql`select schema_name from information_schema.schemata`);
  return found
    .map(([name]) => String(name))
    .filter((name) => isPlainName(name) && !isReserved(name))
    .sort();
}

/** @throws EngineRefusal `database_not_found` for a database that is not there in this very spelling */
export async function requireDatabase(session: MysqlSession, database: string): Promise<void> {
  const found = await session.rows(
    sql`select schema_name from information_schema.schemata where schema_name = ${database}`,
  );
  if (!found.some(([name]) => name === database)) throw databaseNotFound(database);
}

/** Makes a database. @throws EngineRefusal `database_exists` or `invalid_name` */
export async function createDatabase(session: MysqlSession, database: string): Promise<void> {
  if (isReserved(database)) {
    throw new EngineRefusal("invalid_name", `MySQL keeps the name ${database} for itself`);
  }
  requireKeptName(session, database);
  const found = await session.rows(sql`select schema_name from information_schema.schemata`);
  const taken = found.find(([name]) => foldCase(String(name)) === foldCase(database));
  if (taken !== undefined) {
    throw new EngineRefusal("database_exists", `Database ${taken[0]} exists already`);
  }
  const collation = sql.raw(session.server.collation);
  await session.define(
    sql`create database ${sql.id(database)} default character set utf8mb4 collate ${collation}`,
  );
}

/**
 * Drops a database with its tables. Not one with views, routines or events, which nobody could make
 * again by queries, nor one whose rows those of another database refer to.
 *
 * @throws EngineRefusal `database_not_found` or `constraint_violation`
 */
export async function dropDatabase(session: MysqlSession, database: string): Promise<void> {
  visibleDatabase(database);
  await requireDatabase(session, database);
  const others = await session.rows(sql`
    select 1 from information_schema.tables
      where table_schema = ${database} and table_type in ('VIEW', 'SEQUENCE')
    union all select 1 from information_schema.routines where routine_schema = ${database}
    union all select 1 from information_schema.events where event_schema = ${database}
    union all select 1 from information_schema.key_column_usage
      where referenced_table_schema = ${database} and table_schema <> ${database}
    limit 1`);
  if (others.length > 0) throw new EngineRefusal(...refused.depended);
  await session.define(sql`drop database ${sql.id(database)}`);
}

/** Refuses a new name that the server would write in lower case. @throws EngineRefusal `invalid_name` */
export function requireKeptName({ server }: MysqlSession, name: string): void {
  if (!server.foldsNames || foldCase(name) === name) return;
  throw new EngineRefusal(
    "invalid_name",
    `The server writes names in lower case: ${foldCase(name)} would be one that it keeps`,
  );
}

function isReserved(name: string): boolean {
  return reserved.includes(foldCase(name));
}
