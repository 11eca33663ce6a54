import { sql } from "kysely";
import type { Join, Select } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import type { Fragment } from "./fragment.ts";
import { columnSql, resolveColumn, type Scope } from "./scope.ts";

const joinTypes = {
  INNER: sql`inner join`,
  LEFT: sql`left join`,
  RIGHT: sql`right join`,
};

/** The joins of a Select, in their order. */
export function joinsOf({ join }: Select): readonly Join[] {
  return [join ?? []].flat();
}

/** The tables of a Select. @throws EngineRefusal `self_join` for a table that is joined with itself */
export function tablesOf(query: Select): string[] {
  const tables = [query.from, ...joinsOf(query).map(({ table }) => table)];
  if (new Set(tables).size === tables.length) return tables;
  throw new EngineRefusal("self_join", "A table cannot be joined with itself");
}

/** A join in SQL, whose tables are in `schema`. @throws EngineRefusal for an unknown column */
export function joinSql(schema: string, scope: Scope, join: Join): Fragment {
  const [, left, right] = /^([^.]+\.[^.]+) = ([^.]+\.[^.]+)$/.exec(join.on) ?? [];
  if (left === undefined || right === undefined) {
    throw new EngineRefusal("invalid_value", `"on" is "table.column = table.column"`);
  }
  const leftSql = columnSql(resolveColumn(scope, left));
  const rightSql = columnSql(resolveColumn(scope, right));
  return sql`${joinTypes[join.join_type]} ${sql.id(schema, join.table)} on ${leftSql} = ${rightSql}`;
}
