import { sql } from "kysely";
import { isPlainName } from "../../query/names.ts";
import { foldCase } from "../fold-case.ts";
import { EngineRefusal } from "../refusal.ts";
import { takeIn } from "../remote/change.ts";
import { databaseNotFound, refused } from "../remote/failures.ts";
import { describe, type TableDescription } from "../sql/description.ts";
import { readKeys } from "../sql/target.ts";
import type { MysqlPlace, MysqlSession, Row } from "./session.ts";
import { keysSql, readTable } from "./tables.ts";
import { markOf } from "./type-words.ts";

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

/** The tables and views that a query can name, sorted. @throws EngineRefusal `database_not_found` */
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

/** A table in MySQL's words. @throws EngineRefusal `database_not_found` or `table_not_found` */
export async function describeTable(place: MysqlPlace, name: string): Promise<TableDescription> {
  const { session, schema } = place;
  const { columns } = await readTable(place, name);
  const keys = await takeIn(session, readKeys(keysSql(schema, name)));
  const found = await session.rows(sql`
    select column_name, column_default, column_comment,
      (select concat(referenced_table_name, '.', referenced_column_name)
        from information_schema.key_column_usage as reference
        where reference.table_schema = described.table_schema
          and reference.table_name = described.table_name
          and reference.column_name = described.column_name
          and reference.referenced_table_schema = described.table_schema limit 1)
    from information_schema.columns as described
    where table_schema = ${schema} and table_name = ${name}`);
  const [[comment, rows] = []] = await session.rows(sql`
    select case when table_type = 'BASE TABLE' then table_comment end, table_rows
    from information_schema.tables where table_schema = ${schema} and table_name = ${name}`);
  const facts = new Map(found.map(([column, ...rest]) => [String(column), rest]));
  return describe(
    Array.from(columns.values(), (column) => {
      const [value, remark, references] = textsOf(facts.get(column.name) ?? []);
      const isMark = markOf(remark ?? "") !== undefined;
      return {
        ...column,
        isSerial: column.isIdentity,
        // MariaDB writes a default that is none as a word.
        default: session.server.isMariaDb && value === "NULL" ? undefined : value,
        references,
        comment: isMark ? undefined : remark,
      };
    }),
    keys,
    { comment: textsOf([comment ?? null])[0], rows: rows == null ? undefined : Number(rows) },
  );
}

function textsOf(row: Row): (string | undefined)[] {
  return row.map((value) => (value === null ? undefined : String(value)));
}
