import { sql } from "kysely";
import { isPlainName } from "../../query/names.ts";
import { type ColumnFacts, describe, type TableDescription } from "../sql/description.ts";
import { readKeys } from "../sql/target.ts";
import { take } from "./change.ts";
import { estimateRows } from "./estimate.ts";
import type { DatabaseHandle } from "./handle.ts";
import { isSerial } from "./kinds.ts";
import { isClientTable } from "./names.ts";
import { rows } from "./statements.ts";
import { keysSql, readTable } from "./tables.ts";

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
 * A table with its columns in their order, their types as they were declared.
 *
 * Throws `table_not_found`, and `invalid_name` for a reserved name.
 */
export function describeTable(handle: DatabaseHandle, name: string): TableDescription {
  const { columns } = readTable(handle, name);
  const found = rows(
    handle.connection,
    sql`select "name", "notnull", "pk", "dflt_value",
        (select "table" || '.' || "to" from pragma_foreign_key_list(${name}, ${handle.schema})
          where "from" = info."name" limit 1)
      from pragma_table_xinfo(${name}, ${handle.schema}) as info`,
  );
  const marks = new Map(Array.from(found, (row) => [String(row[0]), row]));
  const facts = Array.from(columns.values(), ({ name: column, type, kind }): ColumnFacts => {
    const {
      1: isRequired,
      2: place,
      3: value = null,
      4: referred = null,
    } = marks.get(column) ?? {};
    const isKey = Number(place) !== 0;
    return {
      name: column,
      type,
      isKey,
      isNullable: Number(isRequired) === 0 && !isKey,
      isSerial: isSerial(kind),
      default: value === null ? null : String(value),
      references: referred === null ? null : String(referred),
    };
  });
  const keys = take(handle, readKeys(keysSql(handle, name)));
  return describe(facts, keys, { rows: estimateRows(handle, name, [...columns.keys()]) });
}
