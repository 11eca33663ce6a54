import { sql } from "kysely";
import type { Update } from "../../query/shape.ts";
import type { Fragment } from "./fragment.ts";
import { requireDistinct, resolveColumn, storedValue, type Table } from "./scope.ts";

/**
 * What stands behind `set` in an update.
 *
 * Throws `EngineRefusal` for an unknown column and for unfit values.
 */
export function assignmentsSql(table: Table, values: Update["set"]): Fragment {
  const changes = Object.entries(values).map(([name, value]) => ({
    column: resolveColumn([table], name).column,
    value,
  }));
  requireDistinct(changes.map(({ column }) => column));
  return sql.join(
    changes.map(({ column, value }) => sql`${sql.id(column.name)} = ${storedValue(column, value)}`),
  );
}
