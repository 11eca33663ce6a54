import { sql } from "kysely";
import type { Join, Order, Select } from "../../query/operation-types.ts";
import type { Aggregate } from "../../query/operations.ts";
import type { CellValue } from "../../query/values.ts";
import { EngineRefusal } from "../refusal.ts";
import { conditionSql, whereSql } from "./conditions.ts";
import type { ByShape, Fragment } from "./fragment.ts";
import {
  type Column,
  type ColumnKind,
  type ColumnReference,
  columnSql,
  columnsOf,
  type Measure,
  type Resolve,
  resolveColumn,
  type Scope,
  selectedColumns,
} from "./scope.ts";
import type { UniqueKey } from "./target.ts";
import { comparedValue } from "./values.ts";

/** Pages: the rows that follow one in an order. */

/** A column of an order, with what a page must know of it. */
interface OrderTerm {
  readonly reference: ColumnReference;
  readonly direction: "ASC" | "DESC";
  /** True if it may be null, also since its table is joined from outside. */
  readonly hasNulls: boolean;
}

/** What tells the rows of a table apart. */
interface TableKeys {
  /** The columns of the primary key; none if there is none. */
  readonly primary: readonly string[];
  /** The columns of which each row has a value of its own. */
  readonly unique: ReadonlySet<string>;
}

/** The same by what is known of the columns, in their order, and of the unique keys of a table. */
export function tableKeysOf(
  columns: readonly { name: string; isKey: boolean; isNullable: boolean }[],
  keys: readonly UniqueKey[],
): TableKeys {
  const primary = columns.filter(({ isKey }) => isKey);
  const required = new Set(columns.filter((one) => !one.isNullable).map(({ name }) => name));
  const alone = keys.flatMap((key) => (key.columns.length === 1 ? key.columns : []));
  return {
    primary: primary.some(({ isNullable }) => isNullable) ? [] : primary.map(({ name }) => name),
    unique: new Set(alone.filter((name) => required.has(name))),
  };
}

/**
 * Refuses an order in which two rows may be equal: a page that ends between them would lose one.
 *
 * @throws EngineRefusal `order_not_unique`
 */
function requireUniqueOrder(
  terms: readonly OrderTerm[],
  tables: ReadonlyMap<string, TableKeys>,
): void {
  for (const [table, { primary, unique }] of tables) {
    const ordered = terms
      .filter(({ reference }) => reference.table.name === table)
      .map(({ reference }) => reference.column.name);
    if (primary.length > 0 && primary.every((name) => ordered.includes(name))) continue;
    if (ordered.some((name) => unique.has(name))) continue;
    const key = primary.length > 0 ? primary.join(", ") : "none";
    const remedy =
      primary.length > 0
        ? `add ${key} to order_by`
        : "order by a column that is unique and never null";
    const plain = "after needs an order in which no two rows are equal";
    const problem = `${plain}: ${remedy} (primary key of ${table}: ${key})`;
    throw new EngineRefusal("order_not_unique", problem, { plain });
  }
}

/** How a database finds pages by an index. */
interface PageDialect {
  /** Whether it does so for `(a, b) > (1, 2)`; one that does not finds several ranges under `or`. */
  readonly comparesRows: boolean;
  /** That the first column equals a value, where `=` would have the database order by the others alone. */
  equalFirst?(column: Fragment, value: unknown): Fragment;
}

/**
 * The conditions that rows come after the one with these values, null being the smallest. Each is a
 * range of an index of the columns, and the rows of each come before those of the next.
 *
 * @throws EngineRefusal `invalid_value` for a value that does not fit its column
 */
function rangesAfter(
  terms: readonly OrderTerm[],
  values: readonly CellValue[],
  dialect: PageDialect,
): Fragment[] {
  const directions = new Set(terms.map(({ direction }) => direction));
  const isPlain =
    directions.size === 1 && terms.every(({ hasNulls }, at) => !hasNulls && values[at] !== null);
  if (dialect.comparesRows && isPlain) return [rowComparison(terms, values)];
  const ranges = terms.map((last, at) => {
    const equal = terms.slice(0, at).map((term, place) => {
      return equalSql(term, values[place] ?? null, place === 0 ? dialect.equalFirst : undefined);
    });
    return beyondSql(last, values[at] ?? null).map(
      (beyond) => sql`(${sql.join([...equal, beyond], sql` and `)})`,
    );
  });
  // Rows that are equal in more of the columns come first.
  const inOrder = ranges.toReversed().flat();
  if (inOrder.length === 0) return [sql`false`];
  return dialect.comparesRows ? inOrder : [sql`(${sql.join(inOrder, sql` or `)})`];
}

function rowComparison(terms: readonly OrderTerm[], values: readonly CellValue[]): Fragment {
  const columns = terms.map(({ reference }) => columnSql(reference));
  const compared = terms.map(({ reference }, at) =>
    comparedValue(reference.column, values[at] ?? null),
  );
  const operator = terms[0]?.direction === "DESC" ? sql`<` : sql`>`;
  return sql`(${sql.join(columns)}) ${operator} (${sql.join(compared)})`;
}

function equalSql(
  { reference }: OrderTerm,
  value: CellValue,
  equal: PageDialect["equalFirst"] = (column, compared) => sql`${column} = ${compared}`,
): Fragment {
  const column = columnSql(reference);
  if (value === null) return sql`${column} is null`;
  return equal(column, comparedValue(reference.column, value));
}

/** The ranges of a column behind a value, in their order. */
function beyondSql({ reference, direction, hasNulls }: OrderTerm, value: CellValue): Fragment[] {
  const column = columnSql(reference);
  if (value === null) return direction === "DESC" ? [] : [sql`${column} is not null`];
  const compared = comparedValue(reference.column, value);
  if (direction === "ASC") return [sql`${column} > ${compared}`];
  return [sql`${column} < ${compared}`, ...(hasNulls ? [sql`${column} is null`] : [])];
}

/** What groups of rows amount to. */

/** What is computed, and how it is compared and written. */
interface Computed<Kind> {
  readonly expression: Fragment;
  readonly kind: Kind;
}

/** How a database adds up and compares, so that all come to the same. */
export interface AggregateDialect<Kind extends ColumnKind> {
  /** The kind of a count. */
  readonly count: Kind;
  /** The kind of an average. */
  readonly double: Kind;
  /**
   * The sum of the numbers of a column: exact for whole numbers and decimals. The kind of a sum of
   * whole numbers throws `number_out_of_range` for one past 64 bits.
   */
  sum(column: Fragment, measure: Measure, kind: Kind): Computed<Kind>;
  /** A sum and a number of rows, divided as doubles. */
  average(sum: Fragment, count: Fragment): Fragment;
  /** The smallest or largest value; of text by its bytes. */
  extreme(fn: "min" | "max", column: Fragment, measure: Measure): Fragment;
}

/** What the aliases of `aggregate` stand for, by their names. */
type Aliases<Kind extends ColumnKind> = ReadonlyMap<string, ColumnReference<Column<Kind>>>;

/**
 * Computes the aggregates of a Select.
 *
 * @throws EngineRefusal `duplicate_column` for an alias that is a column of a table, `invalid_value` for a column
 * that cannot be summed up so, `unknown_column` or `ambiguous_column`
 */
function aliasesOf<Kind extends ColumnKind>(
  aggregates: readonly Aggregate[],
  scope: Scope<Column<Kind>>,
  resolve: Resolve<Column<Kind>>,
  dialect: AggregateDialect<Kind>,
): Aliases<Kind> {
  for (const { as: name } of aggregates) requireNewName(name, scope);
  return new Map(
    aggregates.map((aggregate) => {
      const { as: name, fn, column } = aggregate;
      const { expression, kind } = compute(aggregate, resolve, dialect);
      const type = `${fn} of ${column ?? "rows"}`;
      return [name, { table: { name: "" }, column: { name, type, kind }, expression }];
    }),
  );
}

/** An alias that is a column too would be read as the one or the other, by database and clause. */
function requireNewName(name: string, scope: Scope): void {
  const folded = name.toLowerCase();
  for (const { name: table, columns } of scope) {
    const taken = [...columns.keys()].find((column) => column.toLowerCase() === folded);
    if (taken === undefined) continue;
    const plain = `"as": "${name}" is taken`;
    const problem = `${plain}: table ${table} has a column "${taken}"`;
    throw new EngineRefusal("duplicate_column", problem, { plain });
  }
}

function compute<Kind extends ColumnKind>(
  { fn, column: name, distinct }: Aggregate,
  resolve: Resolve<Column<Kind>>,
  dialect: AggregateDialect<Kind>,
): Computed<Kind> {
  if (name === undefined) return { expression: sql`count(*)`, kind: dialect.count };
  const reference = resolve(name);
  const column = columnSql(reference);
  const { kind } = reference.column;
  const count = distinct === true ? sql`count(distinct ${column})` : sql`count(${column})`;
  if (fn === "count") return { expression: count, kind: dialect.count };
  const measure = requireMeasure(fn, reference.column);
  if (fn === "min" || fn === "max") {
    return { expression: dialect.extreme(fn, column, measure), kind };
  }
  const sum = dialect.sum(column, measure, kind);
  if (fn === "sum") return sum;
  return { expression: dialect.average(sum.expression, count), kind: dialect.double };
}

/** @throws EngineRefusal `invalid_value` for a column whose values do not amount to anything under this function */
function requireMeasure(fn: Aggregate["fn"], { name, type, kind }: Column): Measure {
  const { measure } = kind;
  const addsUp = fn === "sum" || fn === "avg";
  const isNumber = measure !== "text" && measure !== "moment";
  if (measure !== undefined && (isNumber || !addsUp)) return measure;
  const allowed = addsUp ? "numbers" : "numbers, text, dates and times";
  const problem = `Column "${name}" (${type}): ${fn} takes ${allowed}`;
  throw new EngineRefusal("invalid_value", problem);
}

const joinTypes = {
  INNER: sql`inner join`,
  LEFT: sql`left join`,
  RIGHT: sql`right join`,
};

/** The joins of a Select, in their order. */
function joinsOf({ join }: Select): readonly Join[] {
  return [join ?? []].flat();
}

/** The tables of a Select. @throws EngineRefusal `self_join` for a table that is joined with itself */
export function tablesOf(query: Select): string[] {
  const tables = [query.from, ...joinsOf(query).map(({ table }) => table)];
  if (new Set(tables).size === tables.length) return tables;
  throw new EngineRefusal("self_join", "A table cannot be joined with itself");
}

/** A join in SQL, whose tables are in `schema`. @throws EngineRefusal for an unknown column */
function joinSql(schema: string, scope: Scope, join: Join): Fragment {
  const [, left, right] = /^([^.]+\.[^.]+) = ([^.]+\.[^.]+)$/.exec(join.on) ?? [];
  if (left === undefined || right === undefined) {
    throw new EngineRefusal("invalid_value", `"on" is "table.column = table.column"`);
  }
  const leftSql = columnSql(resolveColumn(scope, left));
  const rightSql = columnSql(resolveColumn(scope, right));
  return sql`${joinTypes[join.join_type]} ${sql.id(schema, join.table)} on ${leftSql} = ${rightSql}`;
}

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
interface Frame<Kind extends ColumnKind> {
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
