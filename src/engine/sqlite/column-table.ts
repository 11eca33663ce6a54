import type { DatabaseSync } from "node:sqlite";
import { sql } from "kysely";
import type { ColumnDefinition } from "../../query/operation-types.ts";
import type { DatabaseHandle } from "./handle.ts";
import { columnTableName } from "./names.ts";
import { run } from "./statements.ts";

/**
 * Makes the table that remembers the declared types of columns. STRICT tables know storage
 * classes only, and a boolean would come back as a number after a restart.
 */
export function createColumnTable(connection: DatabaseSync, schema: string): void {
  run(
    connection,
    sql`create table if not exists ${sql.id(schema, columnTableName)} (
      "table" text not null,
      "column" text not null,
      "type" text not null,
      primary key ("table", "column")
    ) strict, without rowid`,
  );
}

/** Remembers the declared types of a new table. */
export function rememberColumns(
  handle: DatabaseHandle,
  table: string,
  columns: readonly ColumnDefinition[],
): void {
  const columnTable = sql.id(handle.schema, columnTableName);
  for (const { name, type } of columns) {
    run(
      handle.connection,
      sql`insert or replace into ${columnTable} values (${table}, ${name}, ${type})`,
    );
  }
}

/** Forgets the declared types of a dropped table. */
export function forgetColumns(handle: DatabaseHandle, table: string): void {
  const columnTable = sql.id(handle.schema, columnTableName);
  run(handle.connection, sql`delete from ${columnTable} where "table" = ${table}`);
}
