import { sql } from "kysely";
import { isPlainName } from "../../query/names.ts";
import { foldCase } from "../fold-case.ts";
import { type ColumnFacts, describe, type TableDescription } from "../sql/description.ts";
import { readKeys } from "../sql/target.ts";
import { take } from "./change.ts";
import { isSerial } from "./kinds.ts";
import { type DatabaseHandle, rows } from "./statements.ts";
import { isClientTable, keysSql, readTable } from "./tables.ts";

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
 * @throws EngineRefusal `table_not_found`, and `invalid_name` for a reserved name
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

/** Rows that are counted; beyond them it is only guessed how many there are. */
const COUNTED = 10_000;

/** The names of a row's number, each hidden by a column of that name (SQLite, "ROWIDs and the INTEGER PRIMARY KEY"). */
const rowNumbers = ["rowid", "_rowid_", "oid"];

/**
 * About how many rows a table has: their number where there are few, else as many as fit between the
 * first row's number and the last one's if all stand as densely as the first. SQLite keeps no
 * count, and to count a large table takes as long as to read it.
 */
function estimateRows(
  { connection, schema }: DatabaseHandle,
  name: string,
  columns: readonly string[],
): number | undefined {
  const taken = new Set(columns.map(foldCase));
  const number = rowNumbers.find((word) => !taken.has(word));
  const [kind] = rows(
    connection,
    sql`select "wr" from pragma_table_list where "schema" = ${schema} and "name" = ${name}`,
  );
  if (number === undefined || Number(kind?.[0]) !== 0) return undefined;
  const [id, table] = [sql.raw(number), sql.id(schema, name)];
  const [found] = rows(
    connection,
    sql`select count(*), min("id"), max("id"), (select max(${id}) from ${table})
      from (select ${id} as "id" from ${table} order by ${id} limit ${sql.lit(COUNTED)})`,
  );
  const [counted, first, end, last] = [0, 1, 2, 3].map((at) => Number(found?.[at] ?? 0));
  if (counted === undefined || counted < COUNTED) return counted;
  const [firstId = 0, endId = 0, lastId = 0] = [first, end, last];
  return Math.round((counted * (lastId - firstId + 1)) / (endId - firstId + 1));
}
