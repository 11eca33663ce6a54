import { sql } from "kysely";
import { LRUCache } from "lru-cache";
import { memoizeByObject } from "../../core/base/memoize.ts";
import { foldCase, isPlainName } from "../../core/query/names.ts";
import { EngineRefusal } from "../refusal.ts";
import type { RemoteColumn } from "../remote/dialect.ts";
import { databaseNotFound, failed, refused } from "../remote/failures.ts";
import type { Fragment } from "../sql/fragment.ts";
import { MAX_NAMES_COMPARED, type Table, tableNotFound } from "../sql/scope.ts";
import type { ServerAddress } from "./address.ts";
import { failures } from "./failures.ts";
import { findKind, findValueType, type MysqlKind, readMark } from "./kinds.ts";
import type { RawRow } from "./rows.ts";
import { collations, type MysqlContext, type MysqlSession } from "./session.ts";

export interface MysqlColumn extends RemoteColumn {
  /** If the type's name does not say how values are written. */
  readonly valueType: string | undefined;
  readonly kind: MysqlKind;
}

export interface MysqlTable extends Table<MysqlColumn> {
  /** False if a change could not be rolled back. Undefined if that must be read. */
  readonly isTransactional: boolean | undefined;
}

/** Tables of a server by their descriptions. Plans of queries are kept with their table. */
const describedOn = memoizeByObject((_: ServerAddress) => {
  const sizeCalculation = (_table: MysqlTable, description: string) => description.length;
  return new LRUCache<string, MysqlTable>({ maxSize: 4 * 1024 * 1024, sizeCalculation });
});

/** In the order of their names. */
export function readTables(context: MysqlContext, names: readonly string[]): Promise<MysqlTable[]> {
  return Array.fromAsync(names, (name) => readTable(context, name));
}

/** Names are compared exactly, so that only one spelling reaches a table. */
export async function readTable(context: MysqlContext, name: string): Promise<MysqlTable> {
  const table = await readCurrentTable(context, name);
  context.session.noteTable(`${context.schema}.${name}`, table);
  return table;
}

async function readCurrentTable(context: MysqlContext, name: string): Promise<MysqlTable> {
  const { session, schema } = context;
  const described = describedOn(session.address);
  const definition = await readDefinition(context, name);
  if (definition === undefined) {
    const view = await readColumnsOf(context, name);
    session.readsViews = true;
    return view;
  }
  const known = described.get(definition);
  if (known !== undefined) return known;
  // A table that the transaction has read cannot be altered before its end.
  const held = await unlessRefused(
    session.show(sql`select 1 from ${sql.id(schema, name)} limit 0`),
  );
  const table = await readColumnsOf(context, name, held !== undefined);
  const isCurrent = held !== undefined && definition === (await readDefinition(context, name));
  if (isCurrent) described.set(definition, table);
  return table;
}

/** The number that the next row gets. */
const nextNumber = /(?<=^\n\) ENGINE=\w+) AUTO_INCREMENT=\d+/;

/**
 * The server's own definition of a table, which it has at hand: for the columns, MariaDB makes
 * temporary tables on disk. Undefined for a view, and if the user may not see all columns.
 */
async function readDefinition(
  { session, schema }: MysqlContext,
  name: string,
): Promise<string | undefined> {
  const shown = session.show(sql`show create table ${sql.id(schema, name)}`);
  const [row = []] = (await unlessRefused(shown)) ?? [];
  if (row.length !== 2) return undefined;
  const text = String(row[1]);
  const end = text.lastIndexOf("\n) ENGINE=");
  const parts = [text.slice(0, end), text.slice(end).replace(nextNumber, "")];
  return JSON.stringify([schema, name, ...parts]);
}

async function unlessRefused(rows: Promise<RawRow[]>): Promise<RawRow[] | undefined> {
  try {
    return await rows;
  } catch (error) {
    if (failures.concernsStatement(error)) return undefined;
    throw error;
  }
}

async function readColumnsOf(
  context: MysqlContext,
  name: string,
  withEngine = false,
): Promise<MysqlTable> {
  const { session, schema } = context;
  const described = describedOn(session.address);
  const parts = descriptionSql(schema, name, session.server.isMariaDb);
  const found = await session.rows(sql`${sql.join(parts, sql` union all `)} order by 3`);
  const rows = found.filter(([inSchema, ofTable]) => inSchema === schema && ofTable === name);
  if (rows.every(([, , position]) => position === null)) throw await tableMissing(context, name);
  const isTransactional = withEngine ? await hasTransactions(context, name) : undefined;
  const description = JSON.stringify([isTransactional, rows]);
  const table = described.get(description) ?? { name, columns: readColumns(rows), isTransactional };
  described.set(description, table);
  return table;
}

/** MariaDB's JSON is text with a check constraint (MariaDB, "JSON Data Type"). */
function descriptionSql(schema: string, name: string, isMariaDb: boolean): Fragment[] {
  const ofTable = sql`table_name = ${name}`;
  const columns = sql`
    select table_schema, table_name, ordinal_position, column_name, data_type, column_type,
      is_nullable, column_key, extra, character_maximum_length, numeric_scale, datetime_precision,
      column_comment, collation_name, character_set_name
    from information_schema.columns where table_schema = ${schema} and ${ofTable}`;
  if (!isMariaDb) return [columns];
  const documents = sql`
    select constraint_schema, table_name, ${sql.join(Array(12).fill(sql`null`))}, check_clause
    from information_schema.check_constraints where constraint_schema = ${schema} and ${ofTable}
      and check_clause like 'json_valid(%)'`;
  return [columns, documents];
}

function readColumns(rows: readonly RawRow[]): ReadonlyMap<string, MysqlColumn> {
  const documents = rows.flatMap(([, , position, ...rest]) => {
    const clause = position === null ? String(rest.at(-1)) : "";
    return /^json_valid\(`([^`]+)`\)$/.exec(clause)?.[1] ?? [];
  });
  const described = rows.filter(([, , position]) => position !== null);
  const isInvisible = ([, , , , , , , , extra]: RawRow) => /\binvisible\b/i.test(String(extra));
  // Rows are not known by the visible columns of such a key.
  const isPartialKey = described.some((row) => isInvisible(row) && row[7] === "PRI");
  const columns = described
    .filter((row) => !isInvisible(row))
    .map((row) => readColumn(row, documents))
    .map((column) => (isPartialKey ? { ...column, isKey: false } : column));
  return new Map(columns.map((column) => [column.name, column]));
}

export async function tableMissing(
  { session, schema }: MysqlContext,
  name: string,
): Promise<EngineRefusal> {
  await requireDatabase(session, schema);
  const found = await session.rows(sql`select table_name from information_schema.tables
    where table_schema = ${schema} limit ${sql.lit(MAX_NAMES_COMPARED)}`);
  const names = found.map(([other]) => String(other));
  if (!names.includes(name)) return tableNotFound(name, schema, names);
  // The server lists no columns of a view whose tables or columns are gone.
  const reason = "it uses a table, column or function that does not exist, or its definer is gone";
  return new EngineRefusal(...failed({ schema, tables: [name] }, undefined, reason));
}

/** Refuses what the server does not roll back, since half of a query could remain. */
export async function readChangedTable(context: MysqlContext, name: string): Promise<MysqlTable> {
  const table = await readTable(context, name);
  if (table.isTransactional ?? (await hasTransactions(context, name))) return table;
  throw new EngineRefusal(
    "permission_denied",
    `Table ${name} is a sequence or has a storage engine without transactions, so it is read-only`,
  );
}

/** The tables and views in the definition of a view, which the server has rewritten. */
const viewed = /(?<=\b(?:from|(?:straight_)?join) \(*)`(?:[^`]|``)+`\.`(?:[^`]|``)+`/g;

async function hasTransactions({ session, schema }: MysqlContext, name: string): Promise<boolean> {
  const places = new Set([`\`${schema}\`.\`${name}\``]);
  for (const place of places) {
    const [, ofSchema = "", table = ""] =
      /^`(.+)`\.`(.+)`$/.exec(place.replaceAll("``", "`")) ?? [];
    const [[transactions, definition] = []] = await session.rows(sql`
      select if(tables.table_type = 'SEQUENCE', 'NO', engines.transactions),
        (select view_definition from information_schema.views
          where table_schema = ${ofSchema} and table_name = ${table})
      from information_schema.tables
      left join information_schema.engines on engines.engine = tables.engine
      where tables.table_schema = ${ofSchema} and tables.table_name = ${table}`);
    if (transactions === "NO") return false;
    for (const [found] of String(definition).matchAll(viewed)) places.add(found);
  }
  return true;
}

function readColumn(row: RawRow, documents: readonly string[]): MysqlColumn {
  const [, , , name, dataType, type, nullable, key, extra, length, scale, precision, ...more] =
    row.map((value) => (value === null ? undefined : String(value)));
  const [comment, collation, characterSet] = more;
  const described = {
    dataType: dataType ?? "",
    columnType: type ?? "",
    mark: documents.includes(name ?? "") ? "json" : readMark(comment ?? ""),
    length: Number(length),
    scale: Number(scale),
    precision: Number(precision ?? 0),
    isBytewise: collations.includes(collation ?? ""),
    characterSet: characterSet ?? "utf8mb4",
    collation,
  } as const;
  return {
    name: name ?? "",
    type: type ?? "",
    valueType: findValueType(described),
    kind: findKind(described),
    isNullable: nullable === "YES",
    isKey: key === "PRI",
    isIdentity: /\bauto_increment\b/i.test(extra ?? ""),
    // Not `DEFAULT_GENERATED`, an expression as default.
    isComputed: /\b(virtual|stored|persistent)\b/i.test(extra ?? ""),
  };
}

export function keysSql(schema: string, name: string): Fragment {
  return sql`select index_name, case when index_name = 'PRIMARY' then 1 else 0 end,
      case when sub_part is null then column_name end
    from information_schema.statistics
    where table_schema = ${schema} and table_name = ${name} and non_unique = 0
    order by index_name <> 'PRIMARY', index_name, seq_in_index`;
}

const reserved = ["mysql", "information_schema", "performance_schema", "sys", "ndbinfo"];

export function visibleDatabase(database: string): string {
  if (isReserved(database)) throw databaseNotFound(database);
  return database;
}

export async function listDatabases(session: MysqlSession): Promise<string[]> {
  const found = await session.rows(sql`select schema_name from information_schema.schemata`);
  return found
    .map(([name]) => String(name))
    .filter((name) => isPlainName(name) && !isReserved(name))
    .sort();
}

export async function requireDatabase(session: MysqlSession, database: string): Promise<void> {
  const found = await session.rows(
    sql`select schema_name from information_schema.schemata where schema_name = ${database}`,
  );
  if (!found.some(([name]) => name === database)) throw databaseNotFound(database);
}

export async function createDatabase(session: MysqlSession, database: string): Promise<void> {
  if (isReserved(database)) {
    throw new EngineRefusal("invalid_name", `The name ${database} is reserved for MySQL`);
  }
  requirePreservedCase(session, database);
  const found = await session.rows(sql`select schema_name from information_schema.schemata`);
  const existing = found.find(([name]) => foldCase(String(name)) === foldCase(database));
  if (existing !== undefined) {
    throw new EngineRefusal("database_exists", `Database ${existing[0]} already exists`);
  }
  const collation = sql.raw(session.server.collation);
  await session.define(
    sql`create database ${sql.id(database)} default character set utf8mb4 collate ${collation}`,
  );
}

/** Refuses a database with objects that queries cannot create, and one that others refer to. */
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

export function requirePreservedCase({ server }: MysqlSession, name: string): void {
  if (!server.foldsNames || foldCase(name) === name) return;
  throw new EngineRefusal(
    "invalid_name",
    `The server stores names in lower case: use ${foldCase(name)}`,
  );
}

function isReserved(name: string): boolean {
  return reserved.includes(foldCase(name));
}
