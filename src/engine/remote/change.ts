import { sql } from "kysely";
import type { Delete, Update } from "../../query/shape.ts";
import { assignmentsSql } from "../sql/assignments.ts";
import { whereSql } from "../sql/conditions.ts";
import type { Table } from "../sql/scope.ts";
import type { Place } from "./place.ts";

/**
 * Changes the rows that fulfil the condition and returns their number.
 *
 * Throws `EngineRefusal` for an unknown column and for unfit values.
 */
export async function update(place: Place, table: Table, query: Update): Promise<number> {
  const target = sql.id(place.schema, table.name);
  return place.session.run(
    sql`update ${target} set ${assignmentsSql(table, query.set)}${whereSql([table], query.where)}`,
  );
}

/**
 * Deletes the rows that fulfil the condition and returns their number.
 *
 * Throws `EngineRefusal` for an unknown column and for unfit values.
 */
export async function deleteRows(place: Place, table: Table, query: Delete): Promise<number> {
  const target = sql.id(place.schema, table.name);
  return place.session.run(sql`delete from ${target}${whereSql([table], query.where)}`);
}
