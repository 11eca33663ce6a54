import { sql } from "kysely";
import type {
  Condition,
  Include,
  InnerSelect,
  Join,
  Order,
  Select,
} from "../../query/operation-types.ts";
import type { Aggregate } from "../../query/operations.ts";
import type { CellValue } from "../../query/values.ts";
import { EngineRefusal } from "../refusal.ts";
import { type ComputeDialect, Computed } from "./compute.ts";
import { conditionSql } from "./conditions.ts";
import type { ByShape, Fragment } from "./fragment.ts";
import {
  type Column,
  type ColumnKind,
  type ColumnReference,
  columnSql,
  columnsOf,
  type Measure,
  type Nesting,
  nameInSql,
  once,
  type Resolve,
  resolveColumn,
  type Scope,
  selectedColumns,
} from "./scope.ts";
import type { UniqueKey } from "./target.ts";
import { comparedValue } from "./values.ts";

interface OrderTerm {
  readonly reference: ColumnReference;
  readonly direction: "ASC" | "DESC";
  /** Nulls may also come from an outer join. */
  readonly hasNulls: boolean;
}

interface TableKeys {
  readonly primary: readonly string[];
  /** Columns that are unique and never null. */
  readonly unique: ReadonlySet<string>;
}

export function tableKeysOf(
  columns: readonly { name: string; isKey: boolean; isNullable: boolean }[],
  keys: readonly UniqueKey[],
): TableKeys {
  const primary = columns.filter(({ isKey }) => isKey);
  const required = new Set(columns.filter((one) => !one.isNullable).map(({ name }) => name));
  const single = keys.flatMap((key) => (key.columns.length === 1 ? key.columns : []));
  return {
    primary: primary.some(({ isNullable }) => isNullable) ? [] : primary.map(({ name }) => name),
    unique: new Set(single.filter((name) => required.has(name))),
  };
}

/** If two rows were equal in the order, a page that ends between them would lose one. */
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
    const plain = "after requires an order in which no two rows are equal";
    const problem = `${plain}: ${remedy} (primary key of ${table}: ${key})`;
    throw new EngineRefusal("order_not_unique", problem, { plain });
  }
}

interface PageDialect {
  /** True if `(a, b) > (1, 2)` uses an index. Otherwise several ranges are joined by `or`. */
  readonly comparesRows: boolean;
  /** With `=`, the database would sort by the other columns only. */
  equalFirst?(column: Fragment, value: unknown): Fragment;
}

/** Ranges of an index, in order, for rows after these values; null is the smallest value. */
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
    return rangesBeyond(last, values[at] ?? null).map(
      (beyond) => sql`(${sql.join([...equal, beyond], sql` and `)})`,
    );
  });
  // Rows that are equal in more columns come first.
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

function rangesBeyond({ reference, direction, hasNulls }: OrderTerm, value: CellValue): Fragment[] {
  const column = columnSql(reference);
  if (value === null) return direction === "DESC" ? [] : [sql`${column} is not null`];
  const compared = comparedValue(reference.column, value);
  if (direction === "ASC") return [sql`${column} > ${compared}`];
  return [sql`${column} < ${compared}`, ...(hasNulls ? [sql`${column} is null`] : [])];
}

interface AggregateSql<Kind> {
  readonly expression: Fragment;
  readonly kind: Kind;
}

export interface AggregateDialect<Kind extends ColumnKind> {
  readonly count: Kind;
  readonly double: Kind;
  /** Exact for integers and decimals. A sum of integers beyond 64 bits is `number_out_of_range`. */
  sum(column: Fragment, measure: Measure, kind: Kind): AggregateSql<Kind>;
  /** In doubles. */
  average(sum: Fragment, count: Fragment): Fragment;
  /** Text is compared by bytes. */
  extreme(fn: "min" | "max", column: Fragment, measure: Measure, kind: Kind): Fragment;
}

type Aliases<Kind extends ColumnKind> = ReadonlyMap<string, ColumnReference<Column<Kind>>>;

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
      const { expression, kind } = aggregateSql(aggregate, resolve, dialect);
      const type = `${fn} of ${column ?? "rows"}`;
      return [name, { table: { name: "" }, column: { name, type, kind }, expression }];
    }),
  );
}

/** Whether a name that is both means the alias or the column depends on database and clause. */
function requireNewName(name: string, scope: Scope): void {
  const folded = name.toLowerCase();
  for (const { name: table, columns } of scope) {
    const existing = [...columns.keys()].find((column) => column.toLowerCase() === folded);
    if (existing === undefined) continue;
    const plain = `"as": "${name}" is taken`;
    const problem = `${plain}: table ${table} has a column "${existing}"`;
    throw new EngineRefusal("duplicate_column", problem, { plain });
  }
}

function aggregateSql<Kind extends ColumnKind>(
  { fn, column: name, distinct }: Aggregate,
  resolve: Resolve<Column<Kind>>,
  dialect: AggregateDialect<Kind>,
): AggregateSql<Kind> {
  if (name === undefined) return { expression: sql`count(*)`, kind: dialect.count };
  const reference = resolve(name);
  const column = columnSql(reference);
  const { kind } = reference.column;
  const count = distinct === true ? sql`count(distinct ${column})` : sql`count(${column})`;
  if (fn === "count") return { expression: count, kind: dialect.count };
  const measure = requireMeasure(fn, reference.column);
  if (fn === "min" || fn === "max") {
    return { expression: dialect.extreme(fn, column, measure, kind), kind };
  }
  const sum = dialect.sum(column, measure, kind);
  if (fn === "sum") return sum;
  return { expression: dialect.average(sum.expression, count), kind: dialect.double };
}

function requireMeasure(fn: Aggregate["fn"], { name, type, kind }: Column): Measure {
  const { measure } = kind;
  const addsUp = fn === "sum" || fn === "avg";
  const isNumber = measure !== "text" && measure !== "moment";
  if (measure !== undefined && (isNumber || !addsUp)) return measure;
  const allowed = addsUp ? "numbers" : "numbers, text, dates and times";
  const problem = `Column "${name}" (${type}): ${fn} requires ${allowed}`;
  throw new EngineRefusal("invalid_value", problem);
}

const joinTypes = {
  INNER: sql`inner join`,
  LEFT: sql`left join`,
  RIGHT: sql`right join`,
};

function joinsOf({ join }: Pick<Select, "join">): readonly Join[] {
  return [join ?? []].flat();
}

type From = Select["from"];
type Source = Exclude<From, string>;

export function sourcesOf(query: Pick<Select, "from" | "join">): Source[] {
  const { from } = query;
  const sources = [typeof from === "string" ? { table: from, as: from } : from];
  for (const { table, as: name = table } of joinsOf(query)) sources.push({ table, as: name });
  if (new Set(sources.map(({ as: name }) => name)).size === sources.length) return sources;
  const problem = "A table cannot be joined with itself under one name; use as";
  throw new EngineRefusal("self_join", problem);
}

export function sourceSql(schema: string, { name, place }: SelectedTable<ColumnKind>): Fragment {
  return place ?? sql.id(schema, name);
}

/** All conditions of a Select but those within them. */
function conditionsIn({
  where,
  having,
  compute = [],
}: Partial<Pick<Select, "where" | "having" | "compute">>): (Condition | null | undefined)[] {
  return [where, having, ...compute.map(({ when }) => when)];
}

/** The tables that a Select reads, at every level, each as often as it is named. */
export function tablesIn(query: InnerSelect | Select): string[] {
  const sources = sourcesOf(query);
  return [
    ...sources.flatMap((source) => ("table" in source ? source.table : tablesIn(source.select))),
    ...conditionsIn(query).flatMap(tablesWithin),
    ...("include" in query ? (query.include ?? []).flatMap(tablesIncluded) : []),
  ];
}

function tablesIncluded(one: Include): string[] {
  const { table, include = [] } = one;
  return [table, ...conditionsIn(one).flatMap(tablesWithin), ...include.flatMap(tablesIncluded)];
}

/** The tables that a condition contains, at every level. */
export function tablesWithin(condition: Condition | null | undefined): string[] {
  if (condition === null || condition === undefined) return [];
  if ("and" in condition) return condition.and.flatMap(tablesWithin);
  if ("or" in condition) return condition.or.flatMap(tablesWithin);
  if ("not" in condition) return tablesWithin(condition.not);
  if ("exists" in condition) {
    return [condition.exists.table, ...tablesWithin(condition.exists.where)];
  }
  return "select" in condition ? tablesIn(condition.select) : [];
}

/** Makes the scopes of a Select and of those within it, of tables that were read. */
export interface Planner<Kind extends ColumnKind> extends Nesting {
  tableNamed(name: string): SelectedTable<Kind>;
  /** @param isFenced true if the scope is of rows that a Select around it may compute with */
  scopeOf(
    query: Pick<Select, "from" | "join" | "compute">,
    isFenced?: boolean,
  ): SelectedTable<Kind>[];
}

/** @param isChange true in an Update or Delete, some of which may not read their own table */
export function plannerOf<Kind extends ColumnKind>(
  schema: string,
  tables: ReadonlyMap<string, SelectedTable<Kind>>,
  dialect: SelectDialect<Kind>,
  isChange: boolean,
): Planner<Kind> {
  const tableNamed = (name: string): SelectedTable<Kind> => {
    const table = tables.get(name);
    if (table === undefined) throw new Error("A query contains a table that was not read");
    return { ...table, nesting: planner };
  };
  /** A Select within another query, with its columns named `c1` and so on. */
  const planWithin = (query: InnerSelect, isFenced: boolean) => {
    // Keeps conditions out of it, as servers could compute hidden rows for them.
    const isOpen = (isFenced || query.compute !== undefined) && query.limit === undefined;
    const whole = { ...query, database: "", ...(isOpen ? { offset: query.offset ?? 0 } : {}) };
    const scope = planner.scopeOf(query, isFenced);
    const { columns, statements } = planSelect(schema, scope, whole, dialect, true);
    const [statement] = statements(() => 0);
    const [first] = columns;
    if (first === undefined || statement === undefined) throw new Error("A Select has no columns");
    return { columns, first: first.column, statement };
  };
  const picked = sql.id("picked", "c1");
  const planner: Planner<Kind> = {
    tableNamed,
    scopeOf(query, isFenced = false) {
      const isComputed = isFenced || query.compute !== undefined;
      return sourcesOf(query).map((source) => {
        const { as: name } = source;
        if ("table" in source) return underName(schema, tableNamed(source.table), name);
        const { columns, statement } = planWithin(source.select, isComputed);
        return { ...selectedAs(name, columns, statement), nesting: planner };
      });
    },
    exists(outer, { table, on, where }) {
      const inner = tableNamed(table);
      const more =
        where == null ? sql`` : sql` and ${conditionSql(columnsOf([inner]), where, [inner])}`;
      const [left, right] = sidesOf([...outer, inner], on);
      const [own, key] = on.startsWith(`${table}.`) ? [left, right] : [right, left];
      // The outer column comes first in both forms, since its collation counts.
      const [wanted, found] = [columnSql(key), columnSql(own)];
      const place = sourceSql(schema, inner);
      const isAlike = own.column.kind.family === key.column.kind.family;
      const { isIndexed } = inner;
      return isIndexed === undefined || (isAlike && isIndexed(own.column.name))
        ? sql`exists (select 1 from ${place} where ${wanted} = ${found}${more})`
        : sql`(${wanted} is not null and ${wanted} in
            (select ${found} from ${place} where ${found} is not null${more}))`;
    },
    select(query) {
      const { order_by: _, ...unordered } = query;
      const { limit, offset, aggregate } = query;
      const isPlain = limit === undefined && offset === undefined && aggregate === undefined;
      const isStored = isChange && isPlain && dialect.locksChanged === true;
      const whole = isStored ? { ...unordered, distinct: true } : query;
      const { first, statement: inner } = planWithin(whole, false);
      const statement = (side: (column: Fragment) => Fragment) =>
        sql`select ${side(picked)} from (${inner}) as ${sql.id("picked")} where ${picked} is not null`;
      return { column: first, statement };
    },
  };
  return planner;
}

/** Columns of its own, since columns are compared and remembered by identity. */
function underName<Kind extends ColumnKind>(
  schema: string,
  table: SelectedTable<Kind>,
  name: string,
): SelectedTable<Kind> {
  if (table.name === name) return table;
  const columns = new Map(Array.from(table.columns, ([key, column]) => [key, { ...column }]));
  const place = sql`${sql.id(schema, table.name)} as ${sql.id(name)}`;
  return { ...table, name, columns, place };
}

/** The rows of a Select as a table. */
function selectedAs<Kind extends ColumnKind>(
  name: string,
  selected: readonly ColumnReference<Column<Kind>>[],
  statement: Fragment,
): SelectedTable<Kind> {
  const columns = new Map<string, Column<Kind>>();
  const taken = new Set<string>();
  for (const [index, { column }] of selected.entries()) {
    const folded = column.name.toLowerCase();
    if (taken.has(folded)) {
      const problem = `The Select "${name}" returns two columns "${column.name}"; select one of them`;
      throw new EngineRefusal("duplicate_column", problem);
    }
    taken.add(folded);
    const own = { name: column.name, type: column.type, kind: column.kind };
    nameInSql(own, sql.id(name, `c${index + 1}`));
    columns.set(own.name, own);
  }
  const keys = { primary: [], unique: new Set<string>() };
  return { name, columns, keys, isSelect: true, place: sql`(${statement}) as ${sql.id(name)}` };
}

/** The columns of `table.column = table.column`. */
function sidesOf(scope: Scope, on: string): [left: ColumnReference, right: ColumnReference] {
  const [left = "", right = ""] = on.split(" = ");
  return [resolveColumn(scope, left), resolveColumn(scope, right)];
}

function onSql(scope: Scope, on: string): Fragment {
  const [left, right] = sidesOf(scope, on);
  return sql`${columnSql(left)} = ${columnSql(right)}`;
}

export interface SelectDialect<Kind extends ColumnKind> extends PageDialect {
  readonly aggregates: AggregateDialect<Kind>;
  readonly computing: ComputeDialect<Kind>;
  /** Precedes each row of `values`. */
  readonly row?: string;
  /** The keys of an include, numbered from 1, if they are bound as one value. */
  keyRows?(keys: readonly unknown[], kind: Kind): Fragment;
  /** Nulls come first. */
  order(column: Fragment, direction: "ASC" | "DESC", hasNulls: boolean): Fragment;
  limit(limit: number | undefined, offset: number | undefined): Fragment;
  /** True if a change may not read its own table, unless the rows read are stored first. */
  readonly locksChanged?: boolean;
  readonly frames?: ByShape<Frame<Kind>>;
  /** Makes a fragment without values cheaper to reuse. */
  flatten?(fragment: Fragment): Fragment;
}

/** The parts of a Select that do not depend on values. */
interface Frame<Kind extends ColumnKind> {
  readonly columns: readonly ColumnReference<Column<Kind>>[];
  readonly selected: readonly ColumnReference<Column<Kind>>[];
  readonly aliases: Aliases<Kind>;
  /** Columns and computed names. */
  readonly resolve: Resolve<Column<Kind>>;
  readonly terms: readonly OrderTerm[];
  readonly head: Fragment;
  readonly groups: readonly Fragment[];
  readonly order: readonly Fragment[];
}

export interface SelectedTable<Kind extends ColumnKind> {
  readonly name: string;
  readonly columns: ReadonlyMap<string, Column<Kind> & { readonly isNullable?: boolean }>;
  readonly keys?: TableKeys;
  /** In a `from`, if not its name. */
  readonly place?: Fragment;
  /** True for the rows of a Select. */
  readonly isSelect?: boolean;
  readonly bytewise?: readonly string[];
  readonly nesting?: Nesting | undefined;
  isIndexed?(column: string): boolean;
}

export interface SelectPlan<Kind extends ColumnKind> {
  readonly columns: readonly ColumnReference<Column<Kind>>[];
  /** `columns`, and those that `include` needs. */
  readonly selected: readonly ColumnReference<Column<Kind>>[];
  /**
   * Several for a page that no single index range covers. `found` returns how many rows the earlier
   * statements have returned.
   */
  statements(found: () => number): Iterable<Fragment>;
}

const space = sql` `;

export function planSelect<Kind extends ColumnKind>(
  schema: string,
  tables: readonly SelectedTable<Kind>[],
  query: Select,
  dialect: SelectDialect<Kind>,
  isNested = false,
): SelectPlan<Kind> {
  const frame = isNested
    ? frameOf(schema, tables, query, dialect, true)
    : knownFrame(schema, tables, query, dialect);
  const { columns, selected, aliases, terms, resolve } = frame;
  if (query.compute !== undefined && isSummary(query)) {
    return planSummary(frame, tables, query, dialect);
  }
  const having = havingSql(query, (name) => aliases.get(name) ?? resolve(name), tables);
  const conditions = conditionsOf(tables, resolve, query, terms, dialect);
  const parts = {
    head: frame.head,
    conditions,
    tail: [...frame.groups, ...having, ...frame.order],
  };
  return { columns, selected, statements: (found) => statementsOf(parts, query, dialect, found) };
}

function knownFrame<Kind extends ColumnKind>(
  schema: string,
  tables: readonly SelectedTable<Kind>[],
  query: Select,
  dialect: SelectDialect<Kind>,
): Frame<Kind> {
  const make = () => frameOf(schema, tables, query, dialect);
  const [table, ...others] = tables;
  const { compute, include } = query;
  const isPlain = others.length === 0 && compute === undefined && include === undefined;
  if (table === undefined || !isPlain || dialect.frames === undefined) return make();
  const { columns, distinct, aggregate, group_by, order_by } = query;
  const shape = JSON.stringify({ columns, distinct, aggregate, group_by, order_by });
  return dialect.frames.find(table, shape, make);
}

function frameOf<Kind extends ColumnKind>(
  schema: string,
  tables: readonly SelectedTable<Kind>[],
  query: Select,
  dialect: SelectDialect<Kind>,
  isNested = false,
): Frame<Kind> {
  const { aggregate = [], group_by: groups = [] } = query;
  const resolve = resolveIn(tables, query, dialect);
  const aliases = aliasesOf(aggregate, tables, resolve, dialect.aggregates);
  const grouped = groups.map(resolve);
  const columns =
    aggregate.length > 0
      ? [...once(grouped), ...aliases.values()]
      : selectedColumns<Column<Kind>>(tables, query.columns ?? [], resolve);
  const keys = (query.include ?? []).map((one) => resolveColumn<Column<Kind>>(tables, keyOf(one)));
  const selected = once([...columns, ...keys]);
  const terms = orderTerms(resolve, query, aliases);
  if (query.distinct === true && aggregate.length === 0) requireSelected(terms, columns);
  const isNamed = query.compute !== undefined && isSummary(query);
  const [from = sql``, ...joined] = tables.map((table) => sourceSql(schema, table));
  const words = [
    query.distinct === true ? sql`select distinct` : sql`select`,
    sql.join(selected.map(isNested || isNamed ? renamed : columnSql)),
    sql`from ${from}`,
    ...joinsOf(query).map(({ join_type, on }, index) => {
      return sql`${joinTypes[join_type]} ${joined[index]} on ${onSql(tables, on)}`;
    }),
  ];
  const head = sql.join(words, space);
  const isFlat = query.compute === undefined;
  return {
    columns,
    selected,
    aliases,
    resolve,
    terms,
    head: (isFlat ? dialect.flatten?.(head) : undefined) ?? head,
    groups:
      grouped.length === 0
        ? []
        : [sql`group by ${sql.join(groupNames(grouped, columns, isNamed))}`],
    order: orderSql(terms, dialect),
  };
}

/** The side of `on` that is not of the included table. */
export function keyOf({ table, on }: Pick<Include, "table" | "on">): string {
  const [left = "", right = ""] = on.split(" = ");
  return left.startsWith(`${table}.`) ? right : left;
}

export function renamed(reference: ColumnReference, index: number): Fragment {
  return sql`${columnSql(reference)} as ${sql.id(`c${index + 1}`)}`;
}

/** Computed names by their place in the list, as servers do not recognize their expressions. */
function groupNames(
  grouped: readonly ColumnReference[],
  columns: readonly ColumnReference[],
  byPlace: boolean,
): Fragment[] {
  const places = columns.map(({ column }) => column);
  return grouped.map((one) =>
    byPlace ? sql.raw(String(places.indexOf(one.column) + 1)) : columnSql(one),
  );
}

export function resolveIn<Kind extends ColumnKind>(
  tables: readonly SelectedTable<Kind>[],
  { compute = [] }: Pick<Select, "compute">,
  dialect: SelectDialect<Kind>,
): Resolve<SelectedColumn<Kind>> {
  const columns = columnsOf<SelectedColumn<Kind>>(tables);
  if (compute.length === 0) return columns;
  const computed = new Computed<Kind>(columns, dialect.computing, tables);
  for (const definition of compute) {
    requireNewName(definition.as, tables);
    computed.define(definition);
  }
  return computed.resolve;
}

/** The terms of which every row must meet each. */
function termsIn(where: Condition): readonly Condition[] {
  return "and" in where ? where.and.flatMap(termsIn) : [where];
}

function namesAny(where: Condition, names: ReadonlySet<string>): boolean {
  if ("and" in where) return where.and.some((one) => namesAny(one, names));
  if ("or" in where) return where.or.some((one) => namesAny(one, names));
  if ("not" in where) return namesAny(where.not, names);
  if ("exists" in where) return false;
  return names.has(where.column) || ("other" in where && names.has(where.other));
}

/**
 * Computes only for rows that meet the other terms: a number out of range in a row that a row
 * filter hides would reveal that row. Servers may evaluate the terms of an `and` in any order, but
 * not those of a `case`.
 */
export function wantedSql(
  resolve: Resolve,
  { where, compute = [] }: Pick<Select, "where" | "compute">,
  scope: Scope,
): Fragment | undefined {
  if (where === undefined || where === null) return undefined;
  const names = new Set(compute.map(({ as: name }) => name));
  const terms = names.size === 0 ? [] : termsIn(where);
  const computed = terms.filter((term) => namesAny(term, names));
  const others = terms.filter((term) => !namesAny(term, names));
  if (computed.length === 0 || others.length === 0) return conditionSql(resolve, where, scope);
  const [first, then] = [others, computed].map((and) => conditionSql(resolve, { and }, scope));
  return sql`${first} and case when ${first} then ${then} else false end`;
}

function isSummary({ aggregate, distinct }: Select): boolean {
  return aggregate !== undefined || distinct === true;
}

/**
 * Groups in a nested query. Servers do not see that an expression with bound values is the grouped
 * one, so the conditions and the order of groups need names. With an offset, servers do not move
 * these conditions to rows, of which some are hidden.
 */
function planSummary<Kind extends ColumnKind>(
  { aliases, columns, head, groups, terms, resolve }: Frame<Kind>,
  tables: readonly SelectedTable<Kind>[],
  query: Select,
  dialect: SelectDialect<Kind>,
): SelectPlan<Kind> {
  const { having, limit, offset } = query;
  const wanted = wantedSql(resolve, query, tables);
  const named = new Map(
    columns.map((reference, index) => {
      const expression = sql.id("grouped", `c${index + 1}`);
      return [reference.column, { ...reference, expression }] as const;
    }),
  );
  const all = [...named.values()];
  const resolveGroup = (name: string) => {
    const reference = aliases.get(name) ?? resolve(name);
    return named.get(reference.column) ?? reference;
  };
  const whole = dialect.limit(undefined, 0);
  const inner = [head, ...(wanted === undefined ? [] : [sql`where ${wanted}`]), ...groups, whole];
  const groupsWanted =
    having === undefined || having === null ? [] : [conditionSql(resolveGroup, having, tables)];
  const isCut = limit !== undefined || offset !== undefined;
  const order = terms.map((term) => ({
    ...term,
    reference: named.get(term.reference.column as Column<Kind>) ?? term.reference,
  }));
  const words = [
    sql`select ${sql.join(all.map(renamed))} from (${sql.join(inner, space)}) as ${sql.id("grouped")}`,
    ...groupsWanted.map((condition) => sql`where ${condition}`),
    ...orderSql(order, dialect),
    ...(isCut ? [dialect.limit(limit, offset)] : []),
  ];
  return { columns, selected: columns, statements: () => [sql.join(words, space)] };
}

/** A generator function created per Select would get its own class, which V8 collects late. */
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
    // With a limit of 0 the statement still runs, so that the database checks it.
    if (left !== undefined && left <= 0 && limit !== 0) return;
    const isCut = left !== undefined || offset !== undefined;
    const cut = isCut ? [dialect.limit(left, offset)] : [];
    yield sql.join([parts.head, condition, ...parts.tail, ...cut], space);
  }
}

/** Repeated columns have no effect. */
export function orderTerms<Kind extends ColumnKind>(
  resolve: Resolve<SelectedColumn<Kind>>,
  query: Pick<Select, "join" | "order_by">,
  aliases: Aliases<Kind>,
): OrderTerm[] {
  const isOuter = joinsOf(query).some(({ join_type }) => join_type !== "INNER");
  const term = ({ column: name, direction = "ASC" }: Order): OrderTerm => {
    const alias = aliases.get(name);
    if (alias !== undefined) return { reference: alias, direction, hasNulls: true };
    const reference = resolve(name);
    return { reference, direction, hasNulls: isOuter || reference.column.isNullable !== false };
  };
  const terms = [query.order_by ?? []].flat().map(term);
  return [
    ...new Map(terms.toReversed().map((one) => [one.reference.column, one])).values(),
  ].reverse();
}

type SelectedColumn<Kind extends ColumnKind> = Column<Kind> & { readonly isNullable?: boolean };

function requireSelected(terms: readonly OrderTerm[], columns: readonly ColumnReference[]): void {
  const selected = new Set(columns.map(({ column }) => column));
  const other = terms.find(({ reference }) => !selected.has(reference.column));
  if (other === undefined) return;
  throw new EngineRefusal(
    "invalid_value",
    `With distinct, order_by allows only selected columns; "${other.reference.column.name}" is not selected`,
  );
}

/** The `where` clause of each statement, in row order. */
function conditionsOf<Kind extends ColumnKind>(
  tables: readonly SelectedTable<Kind>[],
  resolve: Resolve<Column<Kind>>,
  query: Select,
  terms: readonly OrderTerm[],
  dialect: SelectDialect<Kind>,
): readonly Fragment[] {
  const { after } = query;
  const wanted = wantedSql(resolve, query, tables);
  if (after === undefined) return [wanted === undefined ? sql`` : sql`where ${wanted}`];
  const keys = tables.flatMap(({ name, keys }) =>
    keys === undefined ? [] : [[name, keys] as const],
  );
  requireUniqueOrder(terms, new Map(keys));
  if (terms.length !== after.length) {
    throw new EngineRefusal("invalid_value", "With after, order_by must name each column once");
  }
  const ranges = rangesAfter(terms, after, dialect);
  if (wanted === undefined) return ranges.map((range) => sql`where ${range}`);
  return ranges.map((range) => sql`where ${wanted} and ${range}`);
}

function havingSql<Kind extends ColumnKind>(
  { having }: Select,
  resolve: (name: string) => ColumnReference<Column<Kind>>,
  scope: Scope,
): Fragment[] {
  if (having === undefined || having === null) return [];
  return [sql`having ${conditionSql(resolve, having, scope)}`];
}

export function orderSql<Kind extends ColumnKind>(
  terms: readonly OrderTerm[],
  dialect: SelectDialect<Kind>,
): Fragment[] {
  if (terms.length === 0) return [];
  const columns = terms.map(({ reference, direction, hasNulls }) =>
    dialect.order(columnSql(reference), direction, hasNulls),
  );
  return [sql`order by ${sql.join(columns)}`];
}
