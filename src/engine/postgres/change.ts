import { sql } from "kysely";
import type { Delete, Update } from "../../query/shape.ts";
import { whereSql } from "../sql/conditions.ts";
import { requireDistinct, resolveColumn, storedValue } from "../sql/scope.ts";
import type { Place } from "./place.ts";
import { readTable } from "./tables.ts";

/**
 * Changes the rows that fulfil the condition and returns their number.
 *
 * Throws `EngineRefusal` for an unknown table or column and for unfit values.
 */
export async function update(place: Place, query: Update): Promise<number> {
  const table = await readTable(place, query.table);
  const changes = Object.entries(query.set).map(([name, value]) => ({
    column: resolveColumn([table], name).column,
    value,
  }));
  requireDistinct(changes.map(({ column }) => column));
  const assignments = changes.map(
    ({ column, value }) => sql`${sql.id(column.name)} = ${storedValue(column, value)}`,
  );
  const target = sql.id(place.schema, table.name);
  return place.session.run(
    sql`update ${target} set ${sql.join(assignments)}${whereSql([table], query.where)}`,
  );
}

/**
 * Deletes the rows that fulfil the condition and returns their number.
 *
 * Throws `EngineRefusal` for an unknown table or column and for unfit values.
 */
export async function deleteRows(place: Place, query: Delete): Promise<number> {
  const table = await readTable(place, query.table);
  const target = sql.id(place.schema, table.name);
  return place.session.run(sql`delete from ${target}${whereSql([table], query.where)}`);
}
