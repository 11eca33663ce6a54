import { sql } from "kysely";
import { isPlainName } from "../../query/names.ts";
import type { DatabaseHandle } from "./handle.ts";
import { isClientTable } from "./names.ts";
import { rows } from "./statements.ts";
import { readTable } from "./tables.ts";

/** A column of an existing table, as it was declared. */
export interface ColumnDescription {
  readonly name: string;
  readonly type: string;
  readonly primary_key: boolean;
  readonly nullable: boolean;
}

/** The clients' tables that a query can name, sorted. */
export function listTables({ connection, schema }: DatabaseHandle): string[] {
  const found = rows(
    connection,
    sql`select "name" from ${sql.id(schema, "sqlite_schema")} where "type" = 'table' order by "name"`,
  );
  return Array.from(found, (row) => String(row[0])).filter(
    (name) => isPlainName(name) && isClientTable(name),
  );
}

/**
 * A table's columns in their order, with their declared types.
 *
 * Throws `table_not_found`, and `invalid_name` for a reserved name.
 */
export function describeTable(handle: DatabaseHandle, name: string): ColumnDescription[] {
  const { columns } = readTable(handle, name);
  const found = rows(
    handle.connection,
    sql`select "name", "notnull", "pk" from pragma_table_xinfo(${name}, ${handle.schema})`,
  );
  const marks = new Map(
    Array.from(found, (row) => [
      String(row[0]),
      { isRequired: Number(row[1]) !== 0, isKey: Number(row[2]) !== 0 },
    ]),
  );
  return Array.from(columns.values(), ({ name: column, type }) => {
    const { isRequired = false, isKey = false } = marks.get(column) ?? {};
    return { name: column, type, primary_key: isKey, nullable: !isRequired && !isKey };
  });
}
