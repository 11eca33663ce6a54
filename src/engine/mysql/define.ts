import { sql } from "kysely";
import type { ColumnDefinition, CreateTable, DropTable } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import { takeIn } from "../remote/change.ts";
import { isNoTable } from "../remote/failures.ts";
import { numberText, type PresentValue } from "../sql/cell-text.ts";
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
import type { MysqlPlace } from "./session.ts";
import { keysSql, readTable, requireDatabase, requireKeptName, tableMissing } from "./tables.ts";
import { commentOf, descriptionOf, type NewType, newType, typeWords } from "./type-words.ts";

/** The longest name of a column, in characters. */
const LONGEST_NAME = 64;

/** What a key holds at the most, with some bytes to spare for the lengths of its parts. */
const KEY_BYTES = 3000;

/**
 * Creates a table.
 *
 * @throws EngineRefusal `database_not_found`, `table_exists`, `invalid_name`, `invalid_type` or
 * `duplicate_column`
 */
export async function createTable(place: MysqlPlace, query: CreateTable): Promise<Changed> {
  const { table, columns } = query;
  const { session, schema } = place;
  requireDistinctNames(columns);
  for (const { name } of columns) requireKeepable(name);
  requireKeptName(session, table);
  await requireDatabase(session, schema);
  await requireFreeName(place, table);
  const collation = sql.raw(session.server.collation);
  const key = primaryKeyOf(columns);
  const parts = columns.map((column) => columnSql(column, key, collation));
  parts.push(...primaryKeySql(key));
  for (const reference of referencesOf(query)) {
    const { column, table: other } = reference;
    const referred = other === table ? newTableAsReferred(query) : await readReferred(place, other);
    const type = other === table ? column.type : (newType(column.type)?.name ?? "");
    parts.push(referenceSql(reference, type, referred, sql.id(schema, other)));
  }
  await session.define(sql`create table ${sql.id(schema, table)} (${sql.join(parts)})
    engine = InnoDB default character set utf8mb4 collate ${collation}`);
  return {};
}

async function readReferred(place: MysqlPlace, name: string): Promise<Referred> {
  const { columns } = await readTable(place, name);
  const keys = await takeIn(place.session, readKeys(keysSql(place.schema, name)));
  return { columns, keys };
}

/** Drops a table. @throws EngineRefusal `database_not_found` or `table_not_found` */
export async function dropTable(place: MysqlPlace, { table }: DropTable): Promise<Changed> {
  const { session, schema } = place;
  const found = await session.rows(sql`select table_name, table_type
    from information_schema.tables where table_schema = ${schema} and table_name = ${table}`);
  const type = found.find(([name]) => name === table)?.[1];
  if (type === undefined) throw await tableMissing(place, table);
  if (type === "VIEW" || type === "SEQUENCE") throw isNoTable(table, schema);
  await session.define(sql`drop table ${sql.id(schema, table)}`);
  return {};
}

async function requireFreeName({ session, schema }: MysqlPlace, table: string): Promise<void> {
  const [[taken] = []] = await session.rows(sql`select table_name from information_schema.tables
    where table_schema = ${schema} and lower(table_name) = lower(${table})`);
  if (taken !== undefined) throw tableExists(taken, schema);
}

/** Names are of the first 65,536 characters, and a space at the end is none of theirs. */
function requireKeepable(name: string): void {
  if (name.length <= LONGEST_NAME && !/[\u{10000}-\u{10ffff}]| $/u.test(name)) return;
  throw new EngineRefusal(
    "invalid_name",
    `Column "${name}" cannot be kept by MySQL: it takes ${LONGEST_NAME} characters, none beyond U+FFFF and no space at the end`,
  );
}

function columnSql(
  column: ColumnDefinition,
  key: readonly ColumnDefinition[],
  collation: Fragment,
): Fragment {
  const type = newType(column.type);
  if (type === undefined) throw unknownType(column.name, typeWords);
  const partOfKey = key.includes(column);
  if (type.isSerial) requireSoleKey(column, key);
  const isAlone = column.unique === true || column.references !== undefined;
  const parts = Math.max(isAlone ? 1 : 0, partOfKey ? key.length : 0);
  const keyName = parts > 0 ? type.keyName?.(Math.floor(KEY_BYTES / parts)) : undefined;
  const name = keyName ?? type.name;
  const id = sql.id(column.name);
  const words = [
    sql`${id} ${sql.raw(name)}`,
    type.isText ? sql`character set utf8mb4 collate ${collation}` : sql``,
    partOfKey || column.nullable === false ? sql`not null` : sql`null`,
    type.isSerial ? sql`auto_increment` : sql``,
    defaultSql(column, { ...type, name }),
    column.unique === true ? sql`unique` : sql``,
    type.mark === undefined ? sql`` : sql`comment ${sql.lit(commentOf(type.mark))}`,
    type.mark === "json" ? sql`check (json_valid(${id}))` : sql``,
  ];
  return sql.join(words, sql` `);
}

function defaultSql(column: ColumnDefinition, type: NewType): Fragment {
  const { default: value = null } = column;
  if (value === null) return sql``;
  if (type.isSerial) throw takesNoDefault(column);
  const kind = kindOf(descriptionOf(type));
  const stored = storedValue({ name: column.name, type: column.type, kind }, value);
  const literal = sql.raw(literalOf(value, stored));
  // What a long column holds is an expression to MySQL, and no literal.
  return type.name.startsWith("long") ? sql`default (${literal})` : sql`default ${literal}`;
}

function literalOf(value: PresentValue, stored: unknown): string {
  if (Buffer.isBuffer(stored)) return `x'${stored.toString("hex")}'`;
  if (typeof stored === "string") return `'${stored.replace(/['\\]/g, "\\$&")}'`;
  return numberText(value) ?? String(Number(value));
}
