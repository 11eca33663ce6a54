import type { SQLInputValue } from "node:sqlite";
import { sql } from "kysely";
import type { ColumnDefinition, CreateTable, DropTable } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
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
import { take } from "./change.ts";
import { constraintOf, isSerial, kindOf, type SqliteKind, typeWords } from "./kinds.ts";
import { type DatabaseHandle, rows, run } from "./statements.ts";
import {
  findTaken,
  forgetColumns,
  keysSql,
  readTable,
  rememberColumns,
  requireClientTable,
} from "./tables.ts";

/**
 * Creates a STRICT table, in which a column holds values of its type only.
 *
 * @throws EngineRefusal `table_exists`, `invalid_name`, `invalid_type` or `duplicate_column`
 */
export function createTable(handle: DatabaseHandle, query: CreateTable): Changed {
  const { table, columns } = query;
  requireClientTable(table);
  const taken = findTaken(handle, table);
  if (taken !== undefined) throw tableExists(taken, handle.name);
  requireDistinctNames(columns);
  const key = primaryKeyOf(columns);
  const parts = [...columns.map((column) => columnSql(column, key)), ...primaryKeySql(key)];
  for (const reference of referencesOf(query)) {
    const referred =
      reference.table === table ? newTableAsReferred(query) : readReferred(handle, reference.table);
    parts.push(referenceSql(reference, reference.column.type, referred, sql.id(reference.table)));
  }
  run(
    handle.connection,
    sql`create table ${sql.id(handle.schema, table)} (${sql.join(parts)}) strict`,
  );
  rememberColumns(handle, table, columns);
  return {};
}

function readReferred(handle: DatabaseHandle, name: string): Referred {
  const { columns } = readTable(handle, name);
  return { columns, keys: take(handle, readKeys(keysSql(handle, name))) };
}

/** Drops a table. @throws EngineRefusal `table_not_found`, `invalid_name`, or `constraint_violation` */
export function dropTable(handle: DatabaseHandle, { table }: DropTable): Changed {
  readTable(handle, table);
  requireUnreferred(handle, table);
  run(handle.connection, sql`drop table ${sql.id(handle.schema, table)}`);
  forgetColumns(handle, table);
  return {};
}

/** SQLite would leave the tables that refer to it, and take no more rows into them. */
function requireUnreferred({ connection, schema }: DatabaseHandle, name: string): void {
  const [referring] = rows(
    connection,
    sql`select entry."name" from ${sql.id(schema, "sqlite_schema")} as entry
      join pragma_foreign_key_list(entry."name", ${schema}) as reference
      where entry."type" = 'table' and entry."name" <> ${name}
        and reference."table" = ${name} collate nocase limit 1`,
  );
  if (referring === undefined) return;
  const problem = `Table ${referring[0]} refers to table ${name}`;
  throw new EngineRefusal("constraint_violation", problem);
}

function columnSql(column: ColumnDefinition, key: readonly ColumnDefinition[]): Fragment {
  const kind = requireKind(column);
  const partOfKey = key.includes(column);
  if (isSerial(kind)) requireSoleKey(column, key);
  const name = sql.id(column.name);
  const required = partOfKey || column.nullable === false ? sql` not null` : sql``;
  const unique = column.unique === true ? sql` unique` : sql``;
  const [type, value] = [sql.raw(kind.storage), defaultSql(column, kind)];
  return sql`${name} ${type}${required}${value}${unique}${checkSql(column.name, kind)}`;
}

function defaultSql(column: ColumnDefinition, kind: SqliteKind): Fragment {
  const { name, type, default: value = null } = column;
  if (value === null) return sql``;
  if (isSerial(kind)) throw takesNoDefault(column);
  return sql` default ${sql.raw(literalOf(storedValue({ name, type, kind }, value)))}`;
}

/** A stored value in SQL, in brackets where it is no literal of SQLite's. */
function literalOf(value: SQLInputValue): string {
  if (typeof value === "string") {
    const isPlain = !value.includes("\0");
    return isPlain ? `'${value.replaceAll("'", "''")}'` : `(cast(${hexOf(value)} as text))`;
  }
  if (value instanceof Uint8Array) return hexOf(value);
  // The sign is no part of a literal, and without it this is no integer of 64 bits.
  return value === -(2n ** 63n) ? `(${value + 1n} - 1)` : String(value);
}

function hexOf(bytes: string | Uint8Array): string {
  return `x'${Buffer.from(bytes).toString("hex")}'`;
}

/** What the storage class leaves open is for the database to hold, whoever writes to the file. */
function checkSql(name: string, kind: SqliteKind): Fragment {
  switch (constraintOf(kind)) {
    case "boolean":
      return sql` check (${sql.id(name)} in (0, 1))`;
    case "json":
      return sql` check (json_valid(${sql.id(name)}))`;
    case undefined:
      return sql``;
  }
}

function requireKind({ name, type }: ColumnDefinition): SqliteKind {
  const kind = kindOf(type);
  if (kind === undefined) throw unknownType(name, typeWords);
  return kind;
}
