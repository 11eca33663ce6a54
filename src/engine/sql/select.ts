import { sql } from "kysely";
import type { Join, Select } from "../../query/shape.ts";
import { EngineRefusal } from "../refusal.ts";
import { whereSql } from "./conditions.ts";
import type { Fragment } from "./fragment.ts";
import {
  type Column,
  type ColumnReference,
  columnSql,
  resolveColumn,
  type Scope,
} from "./scope.ts";

/** What a Select says differently from one database to the next. */
export interface SelectDialect<Found extends Column> {
  /** The words that order by a column, nulls before everything else. */
  order(reference: ColumnReference<Found>, direction: "ASC" | "DESC"): Fragment;
  /** The clause that cuts the rows; one of the two at least is there. */
  limit(limit: number | undefined, offset: number | undefined): Fragment;
}

const joinTypes = {
  INNER: sql`inner join`,
  LEFT: sql`left join`,
  RIGHT: sql`right join`,
};

/** The tables of a Select. Throws `self_join` for a table that is joined with itself. */
export function tablesOf({ from, join }: Select): string[] {
  if (join === undefined) return [from];
  if (join.table !== from) return [from, join.table];
  throw new EngineRefusal("self_join", "A table cannot be joined with itself");
}

/**
 * The columns asked for, each once, with `*` standing for all of them.
 *
 * Throws `unknown_column` or `ambiguous_column`.
 */
export function selectedColumns<Found extends Column>(
  scope: Scope<Found>,
  names: readonly string[],
): ColumnReference<Found>[] {
  const references = names.flatMap((name) =>
    name === "*" ? everyColumn(scope) : [resolveColumn(scope, name)],
  );
  return [...new Map(references.map((reference) => [reference.column, reference])).values()];
}

function everyColumn<Found extends Column>(scope: Scope<Found>): ColumnReference<Found>[] {
  return scope.flatMap((table) => [...table.columns.values()].map((column) => ({ table, column })));
}

/**
 * The statement of a Select whose tables are in `schema`.
 *
 * Throws `EngineRefusal` for unknown columns and unfit values.
 */
export function selectSql<Found extends Column>(
  schema: string,
  scope: Scope<Found>,
  columns: readonly ColumnReference<Found>[],
  query: Select,
  dialect: SelectDialect<Found>,
): Fragment {
  const joined = query.join === undefined ? sql`` : joinSql(schema, scope, query.join);
  const condition = whereSql(scope, query.where);
  const order = orderSql(scope, query.order_by, dialect);
  const { limit, offset } = query;
  const isCut = limit !== undefined || offset !== undefined;
  const cut = isCut ? dialect.limit(limit, offset) : sql``;
  return sql`select ${sql.join(columns.map(columnSql))} from ${sql.id(schema, query.from)}${joined}${condition}${order}${cut}`;
}

function joinSql(schema: string, scope: Scope, join: Join): Fragment {
  const [, left, right] = /^([^.]+\.[^.]+) = ([^.]+\.[^.]+)$/.exec(join.on) ?? [];
  if (left === undefined || right === undefined) {
    throw new EngineRefusal("invalid_value", `"on" is "table.column = table.column"`);
  }
  const leftSql = columnSql(resolveColumn(scope, left));
  const rightSql = columnSql(resolveColumn(scope, right));
  return sql` ${joinTypes[join.join_type]} ${sql.id(schema, join.table)} on ${leftSql} = ${rightSql}`;
}

function orderSql<Found extends Column>(
  scope: Scope<Found>,
  order: Select["order_by"],
  dialect: SelectDialect<Found>,
): Fragment {
  if (order === undefined) return sql``;
  const reference = resolveColumn(scope, order.column);
  return sql` order by ${dialect.order(reference, order.direction ?? "ASC")}`;
}
