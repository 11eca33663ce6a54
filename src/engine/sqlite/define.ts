import { sql } from "kysely";
import type { ColumnDefinition, CreateTable, DropTable } from "../../query/shape.ts";
import { EngineRefusal } from "../refusal.ts";
import type { Fragment } from "../sql/fragment.ts";
import { requireDistinctNames } from "../sql/names.ts";
import type { Changed } from "../sql/target.ts";
import { forgetColumns, rememberColumns } from "./column-table.ts";
import type { DatabaseHandle } from "./handle.ts";
import { constraintOf, isSerial, kindOf, type SqliteKind, typeWords } from "./kinds.ts";
import { requireClientTable } from "./names.ts";
import { run } from "./statements.ts";
import { findTaken, readTable } from "./tables.ts";

/**
 * Creates a STRICT table, in which a column holds values of its type only.
 *
 * Throws `table_exists`, `invalid_name`, `invalid_type` or `duplicate_column`.
 */
export function createTable(handle: DatabaseHandle, { table, columns }: CreateTable): Changed {
  requireClientTable(table);
  const taken = findTaken(handle, table);
  if (taken !== undefined) {
    throw new EngineRefusal("table_exists", `Table ${taken} exists already in ${handle.name}`);
  }
  requireDistinctNames(columns);
  const key = columns.filter((column) => column.primary_key === true);
  const parts = columns.map((column) => columnSql(column, key));
  if (key.length > 0) {
    parts.push(sql`primary key (${sql.join(key.map((column) => sql.id(column.name)))})`);
  }
  run(
    handle.connection,
    sql`create table ${sql.id(handle.schema, table)} (${sql.join(parts)}) strict`,
  );
  rememberColumns(handle, table, columns);
  return {};
}

/** Drops a table. Throws `table_not_found` or `invalid_name`. */
export function dropTable(handle: DatabaseHandle, { table }: DropTable): Changed {
  readTable(handle, table);
  run(handle.connection, sql`drop table ${sql.id(handle.schema, table)}`);
  forgetColumns(handle, table);
  return {};
}

function columnSql(column: ColumnDefinition, key: readonly ColumnDefinition[]): Fragment {
  const kind = requireKind(column);
  const partOfKey = key.includes(column);
  if (isSerial(kind) && !(partOfKey && key.length === 1)) {
    throw new EngineRefusal(
      "invalid_type",
      `Column "${column.name}" is ${column.type}, which only a sole primary key can be`,
    );
  }
  const name = sql.id(column.name);
  const required = partOfKey || column.nullable === false ? sql` not null` : sql``;
  const unique = column.unique === true ? sql` unique` : sql``;
  return sql`${name} ${sql.raw(kind.storage)}${required}${unique}${checkSql(column.name, kind)}`;
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
  if (kind !== undefined) return kind;
  throw new EngineRefusal(
    "invalid_type",
    `Column "${name}" has an unknown type; known are ${typeWords.join(", ")}`,
  );
}
