import { sql } from "kysely";
import { assignmentsSql } from "../sql/assignments.ts";
import { whereSql } from "../sql/conditions.ts";
import type { Table } from "../sql/scope.ts";
import type { Changes } from "./dialect.ts";
import type { Place } from "./place.ts";
import type { Session } from "./session.ts";

/**
 * The changes of rows that are there, in tables as `readTable` finds them. They throw
 * `EngineRefusal` for an unknown column and for unfit values.
 */
export function changesOfRows<Lent extends Session>(
  readTable: (place: Place<Lent>, table: string) => Promise<Table>,
): Pick<Changes<Lent>, "Update" | "Delete"> {
  return {
    async Update(place, { table: name, set, where }) {
      const table = await readTable(place, name);
      const assignments = assignmentsSql(table, set);
      const target = sql.id(place.schema, name);
      return place.session.run(sql`update ${target} set ${assignments}${whereSql([table], where)}`);
    },
    async Delete(place, { table: name, where }) {
      const table = await readTable(place, name);
      const target = sql.id(place.schema, name);
      return place.session.run(sql`delete from ${target}${whereSql([table], where)}`);
    },
  };
}
