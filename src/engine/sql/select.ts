import { sql } from "kysely";
import type { Order, Select } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import {
  type OrderTerm,
  type PageDialect,
  rangesAfter,
  requireUniqueOrder,
  type TableKeys,
} from "./after.ts";
import { type AggregateDialect, type Aliases, aliasesOf } from "./aggregates.ts";
import type { ByShape } from "./by-shape.ts";
import { conditionSql, whereSql } from "./conditions.ts";
import type { Fragment } from "./fragment.ts";
import { joinSql, joinsOf } from "./joins.ts";
import {
  type Column,
  type ColumnKind,
  type ColumnReference,
  columnSql,
  columnsOf,
  resolveColumn,
  selectedColumns,
} from "./scope.ts";

/** What a Select says differently from one database to the next. */
export interface SelectDialect<Kind extends ColumnKind> extends PageDialect {
  readonly aggregates: AggregateDialect<Kind>;
  /** The words that order by a column, nulls before everything else. */
  order(column: Fragment, direction: "ASC" | "DESC", hasNulls: boolean): Fragment;
  /** The clause that cuts the rows; one of the two at least is there. */
  limit(limit: number | undefined, offset: number | undefined): Fragment;
  /** Where frames are remembered, by the tables that they are on. */
  readonly frames?: ByShape<Frame<Kind>>;
  /** Makes a fragment without values cheaper to use again. */
  flatten?(fragment: Fragment): Fragment;
}

/** What a Select says besides its values. */
export interface Frame<Kind extends ColumnKind> {
  readonly columns: readonly ColumnReference<Column<Kind>>[];
  readonly aliases: Aliases<Kind>;
  readonly terms: readonly OrderTerm[];
  /** The statement up to its condition. */
  readonly head: Fragment;
  readonly groups: readonly Fragment[];
  readonly order: readonly Fragment[];
}

/** A table that is read, with what tells its rows apart where a page asks for it. */
export interface SelectedTable<Kind extends ColumnKind> {
  readonly name: string;
  readonly columns: ReadonlyMap<string, Column<Kind> & { readonly isNullable?: boolean }>;
  readonly keys?: TableKeys;
  /** Columns that are compared by bytes too. */
  readonly bytewise?: readonly string[];
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

const space = sql` `;

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
  const frame = knownFrame(schema, tables, query, dialect);
  const { columns, aliases, terms } = frame;
  const resolve = columnsOf<Column<Kind>>(tables);
  const having = havingSql(query, (name) => aliases.get(name) ?? resolve(name));
  const conditions = conditionsOf(tables, query, terms, dialect);
  const parts = {
    head: frame.head,
    conditions,
    tail: [...frame.groups, ...having, ...frame.order],
  };
  return { columns, statements: (found) => statementsOf(parts, query, dialect, found) };
}

/** The frame of a Select on one table as it is remembered, if the dialect does. */
function knownFrame<Kind extends ColumnKind>(
  schema: string,
  tables: readonly SelectedTable<Kind>[],
  query: Select,
  dialect: SelectDialect<Kind>,
): Frame<Kind> {
  const make = () => frameOf(schema, tables, query, dialect);
  const [table, ...others] = tables;
  if (table === undefined || others.length > 0 || dialect.frames === undefined) return make();
  const { columns, distinct, aggregate, group_by, order_by } = query;
  const shape = JSON.stringify({ columns, distinct, aggregate, group_by, order_by });
  return dialect.frames.find(table, shape, make);
}

/** @throws EngineRefusal for unknown columns */
function frameOf<Kind extends ColumnKind>(
  schema: string,
  tables: readonly SelectedTable<Kind>[],
  query: Select,
  dialect: SelectDialect<Kind>,
): Frame<Kind> {
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
  const words = [
    query.distinct === true ? sql`select distinct` : sql`select`,
    sql.join(columns.map(columnSql)),
    sql`from ${sql.id(schema, query.from)}`,
    ...joinsOf(query).map((join) => joinSql(schema, tables, join)),
  ];
  const head = sql.join(words, space);
  return {
    columns,
    aliases,
    terms,
    head: dialect.flatten?.(head) ?? head,
    groups: grouped.length === 0 ? [] : [sql`group by ${sql.join(grouped.map(columnSql))}`],
    order: orderSql(terms, dialect),
  };
}

/** A generator made anew for each Select would have a class of its own, which V8 collects late. */
function* statementsOf<Kind extends ColumnKind>(
  parts: {
    readonly head: Fragment;
    readonly conditions: readonly Fragment[];
    readonly tail: readonly Fragment[];
  },
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
    yield sql.join([parts.head, condition, ...parts.tail, ...cut], space);
  }
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
  const terms = [query.order_by ?? []].flat().map(term);
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
