import { sql } from "kysely";
import type { Delete, Update } from "../../query/shape.ts";
import { assignmentsSql } from "../sql/assignments.ts";
import { whereSql } from "../sql/conditions.ts";
import type { DatabaseHandle } from "./handle.ts";
import { run } from "./statements.ts";
import { readTable } from "./tables.ts";

/**
 * Changes the rows that fulfil the condition and returns their number.
 *
 * Throws `EngineRefusal` for an unknown table or column and for unfit values.
 */
export function update(handle: DatabaseHandle, query: Update): number {
  const table = readTable(handle, query.table);
  const target = sql.id(handle.schema, table.name);
  return run(
    handle.connection,
    sql`update ${target} set ${assignmentsSql(table, query.set)}${whereSql([table], query.where)}`,
  );
}

/**
 * Deletes the rows that fulfil the condition and returns their number.
 *
 * Throws `EngineRefusal` for an unknown table or column and for unfit values.
 */
export function deleteRows(handle: DatabaseHandle, query: Delete): number {
  const table = readTable(handle, query.table);
  const target = sql.id(handle.schema, table.name);
  return run(handle.connection, sql`delete from ${target}${whereSql([table], query.where)}`);
}
