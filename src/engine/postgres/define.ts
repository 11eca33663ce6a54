import { sql } from "kysely";
import type { ColumnDefinition, CreateTable, DropTable } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import { takeIn } from "../remote/change.ts";
import { databaseNotFound, isNoTable, refused } from "../remote/failures.ts";
import type { Fragment } from "../sql/fragment.ts";
import {
  newTableAsReferred,
  primaryKeyOf,
  primaryKeySql,
  type Referred,
  referenceSql,
  referencesOf,
  requireDistinctNames,
  requireSoleKey,
  tableExists,
  takesNoDefault,
  unknownType,
} from "../sql/new-table.ts";
import { storedValue } from "../sql/stored-values.ts";
import { type Changed, readKeys } from "../sql/target.ts";
import { kindOf } from "./kinds.ts";
import type { PostgresPlace } from "./session.ts";
import { keysSql, readTable } from "./tables.ts";
import { columnType, typeWords } from "./type-words.ts";

/** PostgreSQL cuts longer names off, and two of them could become one. */
const LONGEST_NAME_BYTES = 63;

/**
 * Creates a table.
 *
 * @throws EngineRefusal `database_not_found`, `table_exists`, `invalid_name`, `invalid_type` or
 * `duplicate_column`
 */
export async function createTable(place: PostgresPlace, query: CreateTable): Promise<Changed> {
  const { table, columns } = query;
  requireDistinctNames(columns);
  for (const { name } of columns) requireShort(name);
  const { taken, hasBytewiseOrder } = await readSurroundings(place, table);
  if (taken !== null) throw tableExists(taken, place.database);
  const collation = hasBytewiseOrder ? sql` collate "C"` : sql``;
  const key = primaryKeyOf(columns);
  const parts: Fragment[] = [];
  for (const column of columns) {
    const value = await defaultSql(place, column);
    parts.push(sql`${columnSql(column, key, collation)}${value}`);
  }
  parts.push(...primaryKeySql(key));
  for (const reference of referencesOf(query)) {
    const { column, table: other } = reference;
    const referred = other === table ? newTableAsReferred(query) : await readReferred(place, other);
    parts.push(referenceSql(reference, column.type, referred, sql.id(place.schema, other)));
  }
  await place.session.define(sql`create table ${sql.id(place.schema, table)} (${sql.join(parts)})`);
  return {};
}

async function readReferred(place: PostgresPlace, name: string): Promise<Referred> {
  const { columns } = await readTable(place, name);
  const keys = await takeIn(place.session, readKeys(keysSql(place.schema, name)));
  return { columns, keys };
}

/** The server puts the value into its own words, which a definition takes no values beside. */
async function defaultSql({ session }: PostgresPlace, column: ColumnDefinition): Promise<Fragment> {
  const { name, type: declared, default: value = null } = column;
  const type = columnType(declared);
  if (type === undefined || value === null) return sql``;
  if (type.isSerial) throw takesNoDefault(column);
  if (typeof value === "string" && [...value].length > type.length) {
    throw new EngineRefusal(...refused.tooLong).at(`Column "${name}"`);
  }
  const stored = storedValue({ name, type: declared, kind: kindOf(type.description) }, value);
  const [[literal] = []] = await session.rows(
    sql`select pg_catalog.quote_literal(cast(${stored} as text))`,
  );
  return sql` default ${sql.raw(literal ?? "null")}`;
}

/** Drops a table. @throws EngineRefusal `database_not_found` or `table_not_found` */
export async function dropTable(place: PostgresPlace, { table }: DropTable): Promise<Changed> {
  const { isTable } = await readTable(place, table);
  if (!isTable) throw isNoTable(table, place.database);
  await place.session.define(sql`drop table ${sql.id(place.schema, table)}`);
  return {};
}

/**
 * What has the name already, in any case; and whether the server knows the order by bytes by
 * PostgreSQL's name for it. One that does not orders by bytes anyway.
 */
async function readSurroundings(
  { session, database, schema }: PostgresPlace,
  table: string,
): Promise<{ taken: string | null; hasBytewiseOrder: boolean }> {
  const [row] = await session.rows(sql`
    select (select class.relname from pg_catalog.pg_class as class
        where class.relnamespace = namespace.oid
          and pg_catalog.lower(class.relname) = pg_catalog.lower(${table}) limit 1),
      exists (select 1 from pg_catalog.pg_collation where collname = 'C')
    from pg_catalog.pg_namespace as namespace where namespace.nspname = ${schema}`);
  if (row === undefined) throw databaseNotFound(database);
  const [taken = null, hasBytewiseOrder] = row;
  return { taken, hasBytewiseOrder: hasBytewiseOrder === "t" || hasBytewiseOrder === "true" };
}

function requireShort(name: string): void {
  if (Buffer.byteLength(name) <= LONGEST_NAME_BYTES) return;
  throw new EngineRefusal(
    "invalid_name",
    `Column "${name}" has more than ${LONGEST_NAME_BYTES} bytes, the most that PostgreSQL keeps`,
  );
}

function columnSql(
  column: ColumnDefinition,
  key: readonly ColumnDefinition[],
  collation: Fragment,
): Fragment {
  const type = columnType(column.type);
  if (type === undefined) throw unknownType(column.name, typeWords);
  const partOfKey = key.includes(column);
  if (type.isSerial) requireSoleKey(column, key);
  const collated = type.isText ? collation : sql``;
  const required = partOfKey || column.nullable === false ? sql` not null` : sql``;
  const unique = column.unique === true ? sql` unique` : sql``;
  const numbered = type.isSerial ? sql` generated by default as identity` : sql``;
  return sql`${sql.id(column.name)} ${type.sql}${collated}${numbered}${required}${unique}`;
}
