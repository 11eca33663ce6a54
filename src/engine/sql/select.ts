import { sql } from "kysely";
import type { Join, Order, Select } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import {
  type OrderTerm,
  type PageDialect,
  rangesAfter,
  requireUniqueOrder,
  type TableKeys,
} from "./after.ts";
import { type AggregateDialect, type Aliases, aliasesOf } from "./aggregates.ts";
import { conditionSql, whereSql } from "./conditions.ts";
import type { Fragment } from "./fragment.ts";
import {
  type Column,
  type ColumnKind,
  type ColumnReference,
  columnSql,
  columnsOf,
  resolveColumn,
  type Scope,
  selectedColumns,
} from "./scope.ts";

/** What a Select says differently from one database to the next. */
export interface SelectDialect<Kind extends ColumnKind> extends PageDialect {
  readonly aggregates: AggregateDialect<Kind>;
  /** The words that order by a column, nulls before everything else. */
  order(column: Fragment, direction: "ASC" | "DESC", hasNulls: boolean): Fragment;
  /** The clause that cuts the rows; one of the two at least is there. */
  limit(limit: number | undefined, offset: number | undefined): Fragment;
}

/** A table that is read, with what tells its rows apart where a page asks for it. */
export interface SelectedTable<Kind extends ColumnKind> {
  readonly name: string;
  readonly columns: ReadonlyMap<string, Column<Kind> & { readonly isNullable?: boolean }>;
  readonly keys?: TableKeys;
}

/** How a Select is carried out, and the columns of its rows. */
export interface SelectPlan<Kind extends ColumnKind> {
  readonly columns: readonly ColumnReference<Column<Kind>>[];
  /**
   * The statements that have the rows, one behind the other: several for a page that no single range
   * of an index has. `found` tells how many rows those before have had.
   */
  statements(found: () => number): Iterable<Fragment>;
}

const joinTypes = {
  INNER: sql`inner join`,
  LEFT: sql`left join`,
  RIGHT: sql`right join`,
};

/** The joins of a Select, in their order. */
function joinsOf({ join }: Select): readonly Join[] {
  return asList(join);
}

function asList<Item>(items: Item | Item[] | undefined): readonly Item[] {
  if (items === undefined) return [];
  return Array.isArray(items) ? items : [items];
}

/** The tables of a Select. @throws EngineRefusal `self_join` for a table that is joined with itself */
export function tablesOf(query: Select): string[] {
  const tables = [query.from, ...joinsOf(query).map(({ table }) => table)];
  if (new Set(tables).size === tables.length) return tables;
  throw new EngineRefusal("self_join", "A table cannot be joined with itself");
}

/**
 * How to carry out a Select whose tables are in `schema`.
 *
 * @throws EngineRefusal for unknown columns, unfit values and an order that pages would lose rows in
 */
export function planSelect<Kind extends ColumnKind>(
  schema: string,
  tables: readonly SelectedTable<Kind>[],
  query: Select,
  dialect: SelectDialect<Kind>,
): SelectPlan<Kind> {
  const { aggregate = [], group_by: groups = [] } = query;
  const resolve = columnsOf<Column<Kind>>(tables);
  const aliases = aliasesOf(aggregate, tables, resolve, dialect.aggregates);
  const grouped = groups.map(resolve);
  const columns =
    aggregate.length > 0
      ? [...new Map(grouped.map((term) => [term.column, term])).values(), ...aliases.values()]
      : selectedColumns<Column<Kind>>(tables, query.columns ?? []);
  const terms = orderTerms(tables, query, aliases);
  if (query.distinct === true && aggregate.length === 0) requireSelected(terms, columns);
  const head = [
    query.distinct === true ? sql`select distinct` : sql`select`,
    sql.join(columns.map(columnSql)),
    sql`from ${sql.id(schema, query.from)}`,
    ...joinsOf(query).map((join) => joinSql(schema, tables, join)),
  ];
  const tail = [
    ...(grouped.length === 0 ? [] : [sql`group by ${sql.join(grouped.map(columnSql))}`]),
    ...havingSql(query, (name) => aliases.get(name) ?? resolve(name)),
    ...orderSql(terms, dialect),
  ];
  const conditions = conditionsOf(tables, query, terms, dialect);
  const parts = { head, conditions, tail };
  return { columns, statements: (found) => statementsOf(parts, query, dialect, found) };
}

/** A generator made anew for each Select would have a class of its own, which V8 collects late. */
function* statementsOf<Kind extends ColumnKind>(
  parts: Readonly<Record<"head" | "conditions" | "tail", readonly Fragment[]>>,
  { limit, offset }: Select,
  dialect: SelectDialect<Kind>,
  found: () => number,
): Generator<Fragment> {
  for (const condition of parts.conditions) {
    const left = limit === undefined ? undefined : limit - found();
    // A limit of nothing still has the database judge the statement.
    if (left !== undefined && left <= 0 && limit !== 0) return;
    const isCut = left !== undefined || offset !== undefined;
    const cut = isCut ? [dialect.limit(left, offset)] : [];
    yield sql.join([...parts.head, condition, ...parts.tail, ...cut], sql` `);
  }
}

function joinSql(schema: string, scope: Scope, join: Join): Fragment {
  const [, left, right] = /^([^.]+\.[^.]+) = ([^.]+\.[^.]+)$/.exec(join.on) ?? [];
  if (left === undefined || right === undefined) {
    throw new EngineRefusal("invalid_value", `"on" is "table.column = table.column"`);
  }
  const leftSql = columnSql(resolveColumn(scope, left));
  const rightSql = columnSql(resolveColumn(scope, right));
  return sql`${joinTypes[join.join_type]} ${sql.id(schema, join.table)} on ${leftSql} = ${rightSql}`;
}

/** The columns of `order_by`, each once: one that was named before decides nothing. */
function orderTerms<Kind extends ColumnKind>(
  tables: readonly SelectedTable<Kind>[],
  query: Select,
  aliases: Aliases<Kind>,
): OrderTerm[] {
  const isOuter = joinsOf(query).some(({ join_type }) => join_type !== "INNER");
  const term = ({ column: name, direction = "ASC" }: Order): OrderTerm => {
    const alias = aliases.get(name);
    if (alias !== undefined) return { reference: alias, direction, hasNulls: true };
    const reference = resolveColumn<SelectedColumn<Kind>>(tables, name);
    return { reference, direction, hasNulls: isOuter || reference.column.isNullable !== false };
  };
  const terms = asList(query.order_by).map(term);
  return [
    ...new Map(terms.toReversed().map((one) => [one.reference.column, one])).values(),
  ].reverse();
}

type SelectedColumn<Kind extends ColumnKind> = Column<Kind> & { readonly isNullable?: boolean };

/** @throws EngineRefusal `invalid_value` for an order that says more than the rows which are told apart */
function requireSelected(terms: readonly OrderTerm[], columns: readonly ColumnReference[]): void {
  const selected = new Set(columns.map(({ column }) => column));
  const other = terms.find(({ reference }) => !selected.has(reference.column));
  if (other === undefined) return;
  throw new EngineRefusal(
    "invalid_value",
    `With distinct, order_by names columns that are selected; "${other.reference.column.name}" is not`,
  );
}

/** The `where` clause of each statement, in the order of the rows: several for a page alone. */
function conditionsOf<Kind extends ColumnKind>(
  tables: readonly SelectedTable<Kind>[],
  { where, after }: Select,
  terms: readonly OrderTerm[],
  dialect: SelectDialect<Kind>,
): readonly Fragment[] {
  if (after === undefined) return [whereSql(tables, where)];
  const keys = tables.flatMap(({ name, keys }) =>
    keys === undefined ? [] : [[name, keys] as const],
  );
  requireUniqueOrder(terms, new Map(keys));
  if (terms.length !== after.length) {
    throw new EngineRefusal("invalid_value", "With after, order_by names each column once");
  }
  const ranges = rangesAfter(terms, after, dialect);
  if (where === undefined || where === null) return ranges.map((range) => sql`where ${range}`);
  const wanted = conditionSql(columnsOf(tables), where);
  return ranges.map((range) => sql`where ${wanted} and ${range}`);
}

function havingSql<Kind extends ColumnKind>(
  { having }: Select,
  resolve: (name: string) => ColumnReference<Column<Kind>>,
): Fragment[] {
  if (having === undefined || having === null) return [];
  return [sql`having ${conditionSql(resolve, having)}`];
}

function orderSql<Kind extends ColumnKind>(
  terms: readonly OrderTerm[],
  dialect: SelectDialect<Kind>,
): Fragment[] {
  if (terms.length === 0) return [];
  const columns = terms.map(({ reference, direction, hasNulls }) =>
    dialect.order(columnSql(reference), direction, hasNulls),
  );
  return [sql`order by ${sql.join(columns)}`];
}
