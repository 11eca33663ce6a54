import { sql } from "kysely";
import type { Join, Select } from "../../query/shape.ts";
import { EngineRefusal } from "../refusal.ts";
import type { Spool } from "../spool.ts";
import { whereSql } from "./conditions.ts";
import { createRowEncoder } from "./encode.ts";
import type { DatabaseHandle } from "./handle.ts";
import { type ColumnReference, columnSql, resolveColumn, type Scope } from "./scope.ts";
import { type Fragment, rows } from "./statements.ts";
import { readTable } from "./tables.ts";

const joinTypes = {
  INNER: sql`inner join`,
  LEFT: sql`left join`,
  RIGHT: sql`right join`,
};

/**
 * Carries out a Select and writes its rows to the spool as one JSON array.
 *
 * Throws `EngineRefusal` for unknown tables and columns and for unfit values.
 */
export function select(handle: DatabaseHandle, query: Select, spool: Spool): void {
  const scope = readScope(handle, query);
  const columns = selectedColumns(scope, query.columns);
  const encode = createRowEncoder(columns);
  let separator = "[";
  for (const row of rows(handle.connection, selectSql(handle, scope, columns, query))) {
    spool.write(separator + encode(row));
    separator = ",";
  }
  spool.write(separator === "[" ? "[]" : "]");
}

function readScope(handle: DatabaseHandle, { from, join }: Select): Scope {
  if (join === undefined) return [readTable(handle, from)];
  if (join.table !== from) return [readTable(handle, from), readTable(handle, join.table)];
  throw new EngineRefusal("self_join", "A table cannot be joined with itself");
}

/** The columns asked for, each once, with `*` standing for all of them. */
function selectedColumns(scope: Scope, names: readonly string[]): ColumnReference[] {
  const references = names.flatMap((name) =>
    name === "*" ? everyColumn(scope) : [resolveColumn(scope, name)],
  );
  return [...new Map(references.map((reference) => [reference.column, reference])).values()];
}

function everyColumn(scope: Scope): ColumnReference[] {
  return scope.flatMap((table) => [...table.columns.values()].map((column) => ({ table, column })));
}

function selectSql(
  { schema }: DatabaseHandle,
  scope: Scope,
  columns: readonly ColumnReference[],
  query: Select,
): Fragment {
  const joined = query.join === undefined ? sql`` : joinSql(schema, scope, query.join);
  const condition = whereSql(scope, query.where);
  return sql`select ${sql.join(columns.map(columnSql))} from ${sql.id(schema, query.from)}${joined}${condition}${orderSql(scope, query.order_by)}${limitSql(query)}`;
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

function orderSql(scope: Scope, order: Select["order_by"]): Fragment {
  if (order === undefined) return sql``;
  const direction = order.direction === "DESC" ? sql`desc` : sql`asc`;
  return sql` order by ${columnSql(resolveColumn(scope, order.column))} ${direction}`;
}

/** SQLite has no offset without a limit; -1 is its word for none. */
function limitSql({ limit, offset }: Select): Fragment {
  if (limit === undefined && offset === undefined) return sql``;
  return sql` limit ${limit ?? -1} offset ${offset ?? 0}`;
}
