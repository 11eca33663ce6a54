import type { DatabaseSync, SQLOutputValue } from "node:sqlite";
import { sql } from "kysely";
import { resultCode } from "../../core/base/files/lock.ts";
import { memoize } from "../../core/base/memoize.ts";
import { foldCase } from "../../core/query/names.ts";
import type { ColumnDefinition } from "../../core/query/tree.ts";
import { EngineRefusal } from "../refusal.ts";
import type { RemoteColumn } from "../remote/dialect.ts";
import type { Fragment } from "../sql/fragment.ts";
import { MAX_NAMES_COMPARED, type Table, tableNotFound } from "../sql/scope.ts";
import { findKind, legacyKind, type SqliteKind } from "./kinds.ts";
import { type ResultRow, rows, run, type SqliteContext, type SqliteSession } from "./statements.ts";

/** SQLite's result code for a statement that it cannot prepare. */
const SQLITE_ERROR = 1;

interface SqliteColumn extends RemoteColumn {
  readonly kind: SqliteKind;
}

export interface SqliteTable extends Table<SqliteColumn> {
  readonly isView: boolean;
  readonly isVirtual: boolean;
  readonly hasTriggers: boolean;
  /** True if its definition says that a row may replace another one, or be left out in silence. */
  readonly hasConflictClause: boolean;
}

/**
 * Tables and views that queries may name. Shadow tables hold the data of virtual ones, such as those
 * of FTS5.
 */
export function tablesSql(schema: string): Fragment {
  return sql`(select entry."name", entry."type", entry."sql" from ${sql.id(schema, "sqlite_schema")} as entry
    join temp.pragma_table_list(entry."name") as listed on listed."schema" = ${schema}
    where entry."type" in ('table', 'view') and listed."type" <> 'shadow') as entry`;
}

type Tables = Map<string, SqliteTable>;

/** Reading a table takes as long as running most statements on it. */
const tablesRead = new WeakMap<SqliteSession, Tables>();

interface KnownTables {
  readonly version: SQLOutputValue | undefined;
  readonly tables: Tables;
}

/** The tables of a version of the schema, which any process may change. */
const knownTables = new WeakMap<DatabaseSync, KnownTables>();

function currentTables({ connection, keepsTables }: SqliteSession): Tables {
  if (!keepsTables) return new Map();
  const [row] = rows(connection, sql`pragma schema_version`);
  const version = row?.[0];
  const known = knownTables.get(connection);
  if (known?.version === version && known !== undefined) return known.tables;
  const tables: Tables = new Map();
  knownTables.set(connection, { version, tables });
  return tables;
}

/** What follows in the session may be rolled back, so that it is not known beyond it. */
function forgetTables(session: SqliteSession): void {
  tablesRead.set(session, new Map());
}

/** Names are compared exactly, so that only one spelling reaches a table. */
export function readTable(context: SqliteContext, name: string): SqliteTable {
  const { session } = context;
  const known = tablesRead.get(session) ?? currentTables(session);
  tablesRead.set(session, known);
  const place = `${context.schema}.${name}`;
  const table = known.get(place) ?? readNewTable(context, name);
  known.set(place, table);
  return table;
}

function readNewTable(context: SqliteContext, name: string): SqliteTable {
  requireClientTable(name);
  const { session, schema } = context;
  const declared = hasColumnTable(context)
    ? sql.id(schema, columnTableName)
    : sql`(select null as "table", null as "column", null as "type")`;
  const found = rows(
    session.connection,
    sql`select info."name", info."type", declared."type", info."pk" > 0,
        info."notnull" or (info."pk" and not exists (
          select 1 from temp.pragma_index_list(entry."name", ${schema}) where "origin" = 'pk')),
        info."hidden" > 1, case info."cid" when 0 then entry."sql" end,
        info."cid" = 0 and exists (select 1 from ${sql.id(schema, "sqlite_schema")}
          where "type" = 'trigger' and "tbl_name" = entry."name" collate nocase)
      from ${tablesSql(schema)}
      join temp.pragma_table_xinfo(entry."name", ${schema}) as info
      left join ${declared} as declared
        on declared."table" = entry."name" and declared."column" = info."name"
      where entry."name" = ${name} and info."hidden" <> 1
      order by info."cid"`,
  );
  const all = [...found];
  const definition = String(all[0]?.[6] ?? "");
  const isView = /^create view/i.test(definition);
  const folded = /\bcollate\b/i.test(definition) ? findFolded(context, name) : [];
  const read = all.map((row) => readColumn(row, isView, folded));
  const columns = new Map(read.map((column) => [column.name, column]));
  const isIndexed = memoize((column: string) => startsIndex(context, name, column));
  const isVirtual = /^create virtual/i.test(definition);
  const hasConflictClause = /\bon\s+conflict\b/i.test(definition);
  const hasTriggers = Number(all[0]?.[7]) === 1;
  if (columns.size > 0) {
    return { name, isView, isVirtual, hasTriggers, hasConflictClause, columns, isIndexed };
  }
  const existing = rows(
    session.connection,
    sql`select "name" from ${tablesSql(schema)} limit ${sql.lit(MAX_NAMES_COMPARED)}`,
  );
  const names = Array.from(existing, (row) => String(row[0])).filter(isClientTable);
  throw tableNotFound(name, context.database, names);
}

function readColumn(row: ResultRow, isView: boolean, folded: readonly unknown[]): SqliteColumn {
  const { 0: name, 1: storage, 2: declared, 3: isKey, 4: isRequired, 5: isComputed } = row;
  // SQLite calls the expressions of a view blobs.
  const type = String(declared || storage).replace(isView ? /^blob$/i : /^$/, "");
  return {
    name: String(name),
    type,
    kind: findKind(String(declared ?? "")) ?? legacyKind(type),
    isKey: Number(isKey) === 1,
    isNullable: Number(isRequired) !== 1,
    isComputed: Number(isComputed) === 1,
    isFolded: folded.includes(name),
  };
}

/** Columns whose own comparison takes for equal what a unique index of theirs tells apart. */
function findFolded({ session, schema }: SqliteContext, table: string): unknown[] {
  const parts = rows(
    session.connection,
    sql`select part."name", part."coll" from temp.pragma_index_list(${table}, ${schema}) as list
      join temp.pragma_index_xinfo(list."name", ${schema}) as part
      join temp.pragma_collation_list as known on known."name" = part."coll" collate nocase
      where list."unique" = 1 and part."key" = 1 and part."name" is not null`,
  );
  return [...parts].flatMap(({ 0: name, 1: collation }) => {
    const folds = (text: string) =>
      sql`("own" = ${text} and 'a' <> ${text} collate ${sql.id(String(collation))})`;
    const column = sql`select ${sql.id(String(name))} as "own" from ${sql.id(schema, table)}`;
    const probe = sql`select 1 from (${column} where false union all select 'a')`;
    const folded = sql`${probe} where ${folds("A")} or ${folds("a ")}`;
    try {
      return Array.from(rows(session.connection, folded), () => name);
    } catch (error) {
      // Only the program that made the table has the collation. Other columns can be used.
      if (resultCode(error) !== SQLITE_ERROR) throw error;
      return [name];
    }
  });
}

function startsIndex({ session, schema }: SqliteContext, table: string, column: string): boolean {
  const [found] = rows(
    session.connection,
    sql`select exists (select 1 from temp.pragma_index_list(${table}, ${schema}) as list
        join temp.pragma_index_info(list."name", ${schema}) as part
        where list."partial" = 0 and part."seqno" = 0 and part."name" = ${column})
      or (select count(*) = 1 and max("name") = ${column} and max("type") = 'INTEGER'
        from temp.pragma_table_info(${table}, ${schema}) where "pk" > 0)`,
  );
  return Number(found?.[0]) === 1;
}

export function keysSql(schema: string, name: string): Fragment {
  return sql`select "key", "primary", "column" from (
    select '' as "key", 1 as "primary", "name" as "column", "pk" as "place"
      from temp.pragma_table_xinfo(${name}, ${schema}) where "pk" > 0
    union all
    select list."name", 0, case list."partial" when 0 then part."name" end, part."seqno"
      from temp.pragma_index_list(${name}, ${schema}) as list
      join temp.pragma_index_info(list."name", ${schema}) as part
      where list."unique" = 1 and list."origin" <> 'pk'
  ) order by "primary" desc, "key", "place"`;
}

export function findExisting({ session, schema }: SqliteContext, name: string): string | undefined {
  const [found] = rows(
    session.connection,
    sql`select "name" from ${sql.id(schema, "sqlite_schema")}
      where "name" = ${name} collate nocase`,
  );
  return found && String(found[0]);
}

const columnTableName = "_gatehouse_columns";

const reservedPrefixes = ["sqlite_", "_gatehouse"];

export function isClientTable(name: string): boolean {
  return findReservedPrefix(name) === undefined;
}

function findReservedPrefix(name: string): string | undefined {
  const folded = foldCase(name);
  return reservedPrefixes.find((prefix) => folded.startsWith(prefix));
}

export function requireClientTable(name: string): void {
  const prefix = findReservedPrefix(name);
  if (prefix === undefined) return;
  throw new EngineRefusal("invalid_name", `Table names that begin with ${prefix} are reserved`);
}

function hasColumnTable(context: SqliteContext): boolean {
  return findExisting(context, columnTableName) !== undefined;
}

/**
 * Stores the declared types of columns. STRICT tables know only storage classes, so a boolean would
 * become a number after a restart. Files without such tables are left as they are.
 */
export function storeColumnTypes(
  { session, schema }: SqliteContext,
  table: string,
  columns: readonly ColumnDefinition[],
): void {
  forgetTables(session);
  const columnTable = sql.id(schema, columnTableName);
  run(
    session.connection,
    sql`create table if not exists ${columnTable} (
      "table" text not null,
      "column" text not null,
      "type" text not null,
      primary key ("table", "column")
    ) strict, without rowid`,
  );
  for (const { name, type } of columns) {
    const values = sql`${table}, ${name}, ${type}`;
    run(session.connection, sql`insert or replace into ${columnTable} values (${values})`);
  }
}

export function deleteColumnTypes(context: SqliteContext, table: string): void {
  const { session, schema } = context;
  forgetTables(session);
  if (!hasColumnTable(context)) return;
  const columnTable = sql.id(schema, columnTableName);
  run(session.connection, sql`delete from ${columnTable} where "table" = ${table}`);
}
