import { sql } from "kysely";
import { findTaken, optionalNames } from "../../core/query/names.ts";
import type {
  Aggregate,
  CellValue,
  Condition,
  Include,
  InnerSelect,
  Join,
  Order,
  Select,
} from "../../core/query/tree.ts";
import { EngineRefusal } from "../refusal.ts";
import { type ComputeDialect, Computed } from "./compute.ts";
import {
  besideMayFail,
  conditionSql,
  guardedSql,
  isAlike,
  type Leaf,
  leavesOf,
  linkMayFail,
  linkSides,
  splitTerms,
  termsAbout,
  whereSql,
} from "./conditions.ts";
import { type ByShape, type Fragment, isShort, SizeBudget } from "./fragment.ts";
import {
  asGrouped,
  type Column,
  type ColumnKind,
  type ColumnReference,
  columnAlias,
  columnSql,
  columnsOf,
  type Measure,
  type Nesting,
  nameInSql,
  once,
  type PresentValue,
  type Resolve,
  resolveColumn,
  type Scope,
  selectedColumns,
  type Table,
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
  tables: readonly SelectedTable<ColumnKind>[],
): void {
  for (const { name: table, keys } of tables) {
    if (keys === undefined) continue;
    const { primary, unique } = keys;
    const ordered = terms
      .filter(({ reference }) => reference.table.name === table)
      .map(({ reference }) => reference.column.name);
    if (primary.length > 0 && primary.every((name) => ordered.includes(name))) continue;
    if (ordered.some((name) => unique.has(name))) continue;
    const key = primary.join(", ");
    const remedy = key
      ? `add ${key} to order_by`
      : "order by a column that is unique and never null";
    const plain = "after requires an order in which no two rows are equal";
    const problem = `${plain}: ${remedy} (primary key of ${table}: ${key || "none"})`;
    throw new EngineRefusal("order_not_unique", problem, { plain });
  }
}

interface PageDialect {
  /** True if `(a, b) > (1, 2)` uses an index. Otherwise several ranges are joined by `or`. */
  readonly comparesRows: boolean;
  /** With `=`, the database would sort by the other columns only. */
  equalFirst?(column: Fragment, value: unknown): Fragment;
}

/** A column of the order, with the value that rows come after. */
interface Bound extends Omit<OrderTerm, "reference"> {
  readonly column: Fragment;
  readonly value: unknown;
}

/** Ranges of an index, in order, for rows after these values; null is the smallest value. */
function rangesAfter(
  terms: readonly OrderTerm[],
  values: readonly CellValue[],
  dialect: PageDialect,
): Fragment[] {
  const bounds = terms.map(({ reference, ...term }, at): Bound => {
    const given = values[at] ?? null;
    const value = given === null ? null : sortedValue(reference.column, given);
    return { ...term, column: columnSql(reference), value };
  });
  const directions = new Set(terms.map(({ direction }) => direction));
  const isPlain =
    directions.size === 1 && bounds.every(({ hasNulls, value }) => !hasNulls && value !== null);
  if (dialect.comparesRows && isPlain) {
    const operator = directions.has("DESC") ? sql`<` : sql`>`;
    const columns = sql.join(bounds.map(({ column }) => column));
    return [sql`(${columns}) ${operator} (${sql.join(bounds.map(({ value }) => value))})`];
  }
  const ranges = bounds.map((last, at) => {
    const equal = bounds
      .slice(0, at)
      .map((one, place) => equalSql(one, place === 0 ? dialect.equalFirst : undefined));
    return rangesBeyond(last).map((beyond) => sql`(${sql.join([...equal, beyond], sql` and `)})`);
  });
  // Rows that are equal in more columns come first.
  const inOrder = ranges.toReversed().flat();
  if (inOrder.length === 0) return [sql`false`];
  return dialect.comparesRows ? inOrder : [sql`(${sql.join(inOrder, sql` or `)})`];
}

function sortedValue({ kind, ...column }: Column, given: PresentValue): unknown {
  const { grouped, store } = kind;
  if (grouped === undefined) return comparedValue({ kind, ...column }, given);
  return grouped(sql`${comparedValue({ ...column, kind: { ...kind, compare: store } }, given)}`);
}

function equalSql({ column, value }: Bound, equal: PageDialect["equalFirst"]): Fragment {
  if (value === null) return sql`${column} is null`;
  return equal?.(column, value) ?? sql`${column} = ${value}`;
}

function rangesBeyond({ column, direction, hasNulls, value }: Bound): Fragment[] {
  if (value === null) return direction === "DESC" ? [] : [sql`${column} is not null`];
  if (direction === "ASC") return [sql`${column} > ${value}`];
  return [sql`${column} < ${value}`, ...(hasNulls ? [sql`${column} is null`] : [])];
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

function aliasesOf<Kind extends ColumnKind>(
  aggregates: readonly Aggregate[],
  scope: Scope<Column<Kind>>,
  resolve: Resolve<Column<Kind>>,
  dialect: AggregateDialect<Kind>,
): ReadonlyMap<string, ColumnReference<Column<Kind>>> {
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
    const taken = `"as": "${name}" is taken by a column`;
    const remedy = "choose a name that no table of the query has";
    const plain = `${taken} of a table of the query; ${remedy}`;
    throw new EngineRefusal(
      "duplicate_column",
      `${taken}: table ${table} has a column "${existing}"; ${remedy}`,
      { plain },
    );
  }
}

function aggregateSql<Kind extends ColumnKind>(
  { fn, column: name, distinct }: Aggregate,
  resolve: Resolve<Column<Kind>>,
  dialect: AggregateDialect<Kind>,
): AggregateSql<Kind> {
  if (name === undefined) return { expression: sql`count(*)`, kind: dialect.count };
  const reference = resolve(name);
  const column = columnSql(distinct === true ? asGrouped(reference) : reference);
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

function joinsOf({ join }: Pick<Select, "join">): readonly Join[] {
  return [join ?? []].flat();
}

type Source = Exclude<Select["from"], string>;

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

/** A table whose values are cast to link them: first, only for rows that meet its own terms. */
export function castSourceSql<Kind extends ColumnKind>(
  schema: string,
  table: SelectedTable<Kind>,
  terms: Condition[],
  dialect: SelectDialect<Kind>,
): Fragment {
  const source = sourceSql(schema, table);
  if (terms.length === 0) return source;
  const wanted = conditionSql(columnsOf([table]), { and: terms }, [table]);
  return sql`(select * from ${source} where ${wanted} ${dialect.limit(undefined, 0)}) as ${sql.id(table.name)}`;
}

type Conditions = Partial<Pick<Select, "where" | "having" | "compute">>;

/** All conditions of a Select but those within them. */
function conditionsIn({ where, having, compute = [] }: Conditions) {
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
  return leavesOf(condition).flatMap((leaf) => {
    if ("exists" in leaf) return [leaf.exists.table, ...tablesWithin(leaf.exists.where)];
    return "select" in leaf ? tablesIn(leaf.select) : [];
  });
}

type ScopedQuery = Pick<Select, "from" | "join" | "where" | "compute" | "aggregate">;

/** Makes the scopes of a Select and of those within it, of tables that were read. */
export interface Planner<Kind extends ColumnKind> extends Nesting {
  tableNamed(name: string): SelectedTable<Kind>;
  /** @param isFenced true if the scope is of rows that a Select around it may compute with */
  scopeOf(query: ScopedQuery, isFenced?: boolean): SelectedTable<Kind>[];
}

const pickedName = "picked values";

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
  /** A Select within another query, with aliases for its columns. */
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
  const picked = sql.id(pickedName, columnAlias(0));
  const planner: Planner<Kind> = {
    budget: new SizeBudget(),
    tableNamed,
    scopeOf(query, isFenced = false) {
      const isComputed = isFenced || query.compute !== undefined;
      const scopeWith = (isFenced: boolean) =>
        sourcesOf(query).map((source) => {
          const { as: name } = source;
          if ("table" in source) return underName(schema, tableNamed(source.table), name);
          const { columns, statement } = planWithin(source.select, isFenced);
          return { ...selectedAs(name, columns, statement), nesting: planner };
        });
      const scope = scopeWith(isComputed);
      const isPlain = isComputed || typeof query.from === "string" || "table" in query.from;
      return isPlain || !mayCast(scope, query, dialect) ? scope : scopeWith(true);
    },
    link: (outer, { table, on }) => sidesOf([...outer, tableNamed(table)], on),
    exists(outer, { table, on, where }) {
      const inner = tableNamed(table);
      const more =
        where == null ? sql`` : sql` and ${guardedSql(columnsOf([inner]), where, [inner])}`;
      const [left, right] = sidesOf([...outer, inner], on);
      const [own, key] = on.startsWith(`${table}.`) ? [left, right] : [right, left];
      // The outer column comes first in both forms, since its collation counts.
      const side = linkSides(left.column, right.column);
      const [wanted, found] = [key, own].map((one) => side(one.column, columnSql(one)));
      const terms = linkMayFail([left, right])
        ? termsAbout(inner, columnsOf([inner]), where, [inner])
        : [];
      const place = castSourceSql(schema, inner, terms, dialect);
      const { isIndexed } = inner;
      return isIndexed === undefined ||
        (isAlike(own.column, key.column) && isIndexed(own.column.name))
        ? sql`exists (select 1 from ${place} where ${wanted} = ${found}${more})`
        : sql`(${wanted} is not null and ${wanted} in
            (select ${found} from ${place} where ${found} is not null${more}))`;
    },
    select(query, beside) {
      const { order_by: _, ...unordered } = query;
      const { limit, offset, aggregate } = query;
      const isPlain = limit === undefined && offset === undefined && aggregate === undefined;
      const isStored = isChange && isPlain && dialect.locksChanged === true;
      const whole = isStored ? { ...unordered, distinct: true } : query;
      // MariaDB merges Selects within each other wrongly if the inner ones compare expressions.
      const isFenced = dialect.needsFence === true && tablesWithin(query.where).length > 0;
      const open = planWithin(whole, isFenced);
      const isCast = !isFenced && beside !== undefined && besideMayFail(beside, open.first);
      const { first, statement: inner } = isCast ? planWithin(whole, true) : open;
      const from = sql`from (${inner}) as ${sql.id(pickedName)}`;
      const statement = (side: (column: Fragment) => Fragment) =>
        sql`select ${side(picked)} ${from} where ${picked} is not null`;
      return {
        column: first,
        statement,
        excludes(left, side) {
          if (dialect.joinsExcluded !== true || !isShort(inner)) return undefined;
          return sql`(not exists (select 1 ${from} where ${left} = ${side(picked)})
            and (${left} is not null or not exists (${statement(side)}) or null))`;
        },
      };
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
  const taken = findTaken(selected.map(({ column }) => column.name));
  if (taken !== undefined) {
    const problem = `The Select "${name}" returns two columns "${taken}"; select one of them`;
    throw new EngineRefusal("duplicate_column", problem);
  }
  for (const [index, { column }] of selected.entries()) {
    const own = { name: column.name, type: column.type, kind: column.kind };
    nameInSql(own, sql.id(name, columnAlias(index)));
    columns.set(own.name, own);
  }
  const keys = { primary: [], unique: new Set<string>() };
  return { name, columns, keys, place: sql`(${statement}) as ${sql.id(name)}` };
}

function linksOf(scope: Scope, query: Pick<Select, "join">) {
  return joinsOf(query).map(({ on }) => sidesOf(scope, on));
}

/** True if a Select, which computes nothing, casts columns that it joins or compares. */
function mayCast<Kind extends ColumnKind>(
  scope: readonly SelectedTable<Kind>[],
  query: ScopedQuery,
  dialect: SelectDialect<Kind>,
): boolean {
  if (linksOf(scope, query).some(linkMayFail)) return true;
  const resolve = resolveIn(scope, query, dialect);
  return splitTerms(resolve, query.where ?? { and: [] }, scope).failing.length > 0;
}

/** The columns of `table.column = table.column`. */
function sidesOf(scope: Scope, on: string): [left: ColumnReference, right: ColumnReference] {
  const [left = "", right = ""] = on.split(" = ");
  return [resolveColumn(scope, left), resolveColumn(scope, right)];
}

export interface SelectDialect<Kind extends ColumnKind> extends PageDialect {
  readonly aggregates: AggregateDialect<Kind>;
  readonly computing: ComputeDialect<Kind>;
  /** True if the database evaluates conditions on rows that others exclude, even within a `case`. */
  readonly needsFence?: boolean;
  /** Precedes each row of `values`. */
  readonly row?: string;
  /** The most, if each key of an include is one. */
  readonly valuesPerStatement?: number;
  /** The keys of an include, numbered from 1, if they are bound as one value. */
  keyRows?(keys: readonly unknown[], kind: Kind): Fragment;
  /** Nulls come first. */
  order(column: Fragment, direction: "ASC" | "DESC", hasNulls: boolean): Fragment;
  limit(limit: number | undefined, offset: number | undefined): Fragment;
  /** True if the database joins for `not exists`, but may compare each row with all of `not in`. */
  readonly joinsExcluded?: boolean;
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
  /** Columns and computed names. */
  readonly resolve: Resolve<Column<Kind>>;
  /** Aggregates too. */
  readonly resolveGrouped: Resolve<Column<Kind>>;
  readonly terms: readonly OrderTerm[];
  readonly head: Fragment;
  readonly groups: readonly Fragment[];
  readonly order: readonly Fragment[];
}

type SelectedColumn<Kind extends ColumnKind> = Column<Kind> & { readonly isNullable?: boolean };

export interface SelectedTable<Kind extends ColumnKind> extends Table<SelectedColumn<Kind>> {
  readonly keys?: TableKeys;
  /** In a `from`, if not its name. */
  readonly place?: Fragment;
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
  const fence = fenceOf(tables, query, dialect);
  const scope = fence?.tables ?? tables;
  const rest = fence === undefined ? query : { ...query, where: fence.where };
  const frame = knownFrame(scope, rest, dialect, isNested, () => {
    const source = joinedSql(schema, tables, query, dialect);
    return fence?.around(source) ?? source;
  });
  const { columns, selected } = frame;
  const parts = isNestedSummary(query)
    ? summaryParts(frame, scope, rest, dialect)
    : plainParts(frame, scope, rest, dialect);
  return { columns, selected, statements: (found) => statementsOf(parts, query, dialect, found) };
}

function joinedSql<Kind extends ColumnKind>(
  schema: string,
  tables: readonly SelectedTable<Kind>[],
  query: Select,
  dialect: SelectDialect<Kind>,
): Fragment {
  const types = joinsOf(query).map(({ join_type }) => join_type);
  const links = linksOf(tables, query);
  const cast = new Set(
    links.filter(linkMayFail).flatMap((sides) => sides.map(({ table }) => table.name)),
  );
  const optional = optionalNames(
    tables.map(({ name }) => name),
    types,
  );
  const resolve = cast.size === 0 ? undefined : resolveIn(tables, query, dialect);
  const [from = sql``, ...joined] = tables.map((table) => {
    if (resolve === undefined || !cast.has(table.name) || optional.has(table.name)) {
      return sourceSql(schema, table);
    }
    const terms = termsAbout(table, resolve, query.where, tables);
    return castSourceSql(schema, table, terms, dialect);
  });
  const joins = links.map(([left, right], index) => {
    const type = sql.raw((types[index] ?? "").toLowerCase());
    const side = linkSides(left.column, right.column);
    const sides = [left, right].map((one) => side(one.column, columnSql(one)));
    return sql`${type} join ${joined[index]} on ${sql.join(sides, sql` = `)}`;
  });
  return sql.join([from, ...joins], space);
}

/** Rows that meet the terms that cannot fail, as tables of their own. */
interface Fence<Kind extends ColumnKind> {
  readonly tables: readonly SelectedTable<Kind>[];
  /** The other terms. */
  readonly where: Condition;
  /** @param source what follows `from`, and `more` a further column of it */
  around(source: Fragment, more?: Fragment): Fragment;
}

export const fenced = "fenced rows";

/** Undefined unless the database needs it for this query. */
export function fenceOf<Kind extends ColumnKind>(
  tables: readonly SelectedTable<Kind>[],
  query: Pick<Select, "where" | "compute" | "aggregate">,
  dialect: SelectDialect<Kind>,
): Fence<Kind> | undefined {
  const { where, compute } = query;
  if (dialect.needsFence !== true || compute === undefined || where == null) return undefined;
  const { safe, failing } = splitTerms(resolveIn(tables, query, dialect), where, tables);
  if (safe.length === 0 || failing.length === 0) return undefined;
  const used = new Set(namesIn(query));
  const selected: Fragment[] = [];
  const within = tables.map((table) => {
    const columns = Array.from(table.columns, ([name, column]) => {
      const own = { ...column };
      if (used.has("*") || used.has(name)) {
        const place = columnAlias(selected.length);
        selected.push(sql`${columnSql({ table, column })} as ${sql.id(place)}`);
        nameInSql(own, sql.id(fenced, place));
      }
      return [name, own] as const;
    });
    return { ...table, columns: new Map(columns) };
  });
  const wanted = conditionSql(columnsOf(tables), { and: safe }, tables);
  return {
    ...{ tables: within, where: { and: failing } },
    around(source, more = sql`1`) {
      return sql`(select ${sql.join([...selected, more])} from ${source} where ${wanted}
        ${dialect.limit(undefined, 0)}) as ${sql.id(fenced)}`;
    },
  };
}

/** All that may be names of columns, without their tables. */
function namesIn(part: unknown): string[] {
  if (typeof part === "string") {
    return [part, ...part.split(" = ")].map((name) => name.slice(name.indexOf(".") + 1));
  }
  return typeof part === "object" && part !== null ? Object.values(part).flatMap(namesIn) : [];
}

function knownFrame<Kind extends ColumnKind>(
  tables: readonly SelectedTable<Kind>[],
  query: Select,
  dialect: SelectDialect<Kind>,
  isNested: boolean,
  sourceOf: () => Fragment,
): Frame<Kind> {
  const make = () => frameOf(tables, query, dialect, isNested, sourceOf());
  const [table, ...others] = tables;
  const { compute, include } = query;
  const isCommon = compute === undefined && include === undefined && !isNestedSummary(query);
  const isPlain = others.length === 0 && isCommon;
  if (isNested || table === undefined || !isPlain || dialect.frames === undefined) return make();
  const { columns, distinct, aggregate, group_by, order_by } = query;
  const shape = JSON.stringify({ columns, distinct, aggregate, group_by, order_by });
  return dialect.frames.find(table, shape, make);
}

function frameOf<Kind extends ColumnKind>(
  tables: readonly SelectedTable<Kind>[],
  query: Select,
  dialect: SelectDialect<Kind>,
  isNested: boolean,
  source: Fragment,
): Frame<Kind> {
  const { aggregate = [], group_by: groups = [] } = query;
  const resolve = resolveIn(tables, query, dialect);
  const aliases = aliasesOf(aggregate, tables, resolve, dialect.aggregates);
  const grouped = groups.map((name) => asGrouped(resolve(name)));
  const columns =
    aggregate.length > 0
      ? [...once(grouped), ...aliases.values()]
      : selectedColumns<Column<Kind>>(tables, query.columns ?? [], resolve).map((one) =>
          query.distinct === true ? asGrouped(one) : one,
        );
  const keys = (query.include ?? []).map((one) => resolveColumn<Column<Kind>>(tables, keyOf(one)));
  const selected = once([...columns, ...keys]);
  const resolveGrouped = (name: string) => aliases.get(name) ?? asGrouped(resolve(name));
  const terms = orderTerms(resolveGrouped, query);
  if (query.distinct === true && aggregate.length === 0) requireSelected(terms, columns);
  const isNamed = isNestedSummary(query);
  const words = query.distinct === true ? sql`select distinct` : sql`select`;
  const all = sql.join(selected.map(isNested || isNamed ? renamed : columnSql));
  const head = sql`${words} ${all} from ${source}`;
  const isFlat = query.compute === undefined;
  const places = columns.map(({ column }) => column);
  // Servers do not recognize the expressions of computed names, but their places in the list.
  const groupNames = grouped.map((one) =>
    isNamed ? sql.raw(String(places.indexOf(one.column) + 1)) : columnSql(one),
  );
  return {
    columns,
    selected,
    resolve,
    resolveGrouped,
    terms,
    head: (isFlat ? dialect.flatten?.(head) : undefined) ?? head,
    groups: groupNames.length === 0 ? [] : [sql`group by ${sql.join(groupNames)}`],
    order: orderSql(terms, dialect),
  };
}

/** The side of `on` that is not of the included table. */
export function keyOf({ table, on }: Pick<Include, "table" | "on">): string {
  const [left = "", right = ""] = on.split(" = ");
  return left.startsWith(`${table}.`) ? right : left;
}

export function renamed(reference: ColumnReference, index: number): Fragment {
  return sql`${columnSql(reference)} as ${sql.id(columnAlias(index))}`;
}

export function resolveIn<Kind extends ColumnKind>(
  tables: readonly SelectedTable<Kind>[],
  { compute = [], aggregate = [] }: Pick<Select, "compute" | "aggregate">,
  dialect: SelectDialect<Kind>,
): Resolve<SelectedColumn<Kind>> {
  const later = new Set(aggregate.map(({ as: name }) => name));
  const columns: Resolve<SelectedColumn<Kind>> = (name) => {
    if (!later.has(name)) return resolveColumn(tables, name);
    const problem = `"${name}" is aggregated after where and compute; use having, or from with this Select`;
    throw new EngineRefusal("unknown_column", problem);
  };
  if (compute.length === 0) return columns;
  const computed = new Computed<Kind>(columns, dialect.computing, tables);
  for (const definition of compute) {
    requireNewName(definition.as, tables);
    computed.define(definition);
  }
  return computed.resolve;
}

function isNestedSummary({ compute, aggregate = [], distinct, having }: Select): boolean {
  // MariaDB finds no aggregate in a Select, and within `exists` `count(*)` would count its rows.
  // PostgreSQL could cast grouped columns of rows that `where` excludes.
  const aliases = new Set(aggregate.map(({ as: name }) => name));
  const isPlain = (leaf: Leaf) => "value" in leaf && aliases.has(leaf.column);
  if (!leavesOf(having).every(isPlain)) return true;
  return compute !== undefined && (aggregate.length > 0 || distinct === true);
}

const groupedName = "grouped rows";

/** The words of a Select around the condition of each statement. */
interface Parts {
  readonly head: Fragment;
  /** In row order. */
  readonly conditions: readonly Fragment[];
  readonly tail: readonly Fragment[];
}

function plainParts<Kind extends ColumnKind>(
  { head, groups, order, terms, resolve, resolveGrouped }: Frame<Kind>,
  tables: readonly SelectedTable<Kind>[],
  query: Select,
  dialect: SelectDialect<Kind>,
): Parts {
  const { after } = query;
  const having = filterSql("having", query.having, resolveGrouped, tables);
  const tail = [...groups, ...having, ...order];
  const wanted = whereSql(tables, query.where, resolve);
  if (after === undefined) return { head, conditions: [wanted], tail };
  requireUniqueOrder(terms, tables);
  if (terms.length !== after.length) {
    throw new EngineRefusal("invalid_value", "With after, order_by must name each column once");
  }
  const first = query.where == null ? sql`where` : sql`${wanted} and`;
  const ranges = rangesAfter(terms, after, dialect);
  return { head, conditions: ranges.map((range) => sql`${first} ${range}`), tail };
}

/**
 * Groups in a nested query. Servers do not see that an expression with bound values is the grouped
 * one, so the conditions and the order of groups need names. With an offset, servers do not move
 * these conditions to rows, of which some are hidden.
 */
function summaryParts<Kind extends ColumnKind>(
  { columns, head, groups, terms, resolve, resolveGrouped }: Frame<Kind>,
  tables: readonly SelectedTable<Kind>[],
  query: Select,
  dialect: SelectDialect<Kind>,
): Parts {
  const where = whereSql(tables, query.where, resolve);
  const named = new Map<Column, ColumnReference>(
    columns.map((reference, index) => {
      const expression = sql.id(groupedName, columnAlias(index));
      return [reference.column, { ...reference, expression }];
    }),
  );
  const nameOf = (reference: ColumnReference) => named.get(reference.column) ?? reference;
  const names = sql.join([...named.values()].map(renamed));
  const inner = sql.join([head, where, ...groups, dialect.limit(undefined, 0)], space);
  const order = terms.map((term) => ({ ...term, reference: nameOf(term.reference) }));
  const resolveName = (name: string) => nameOf(resolveGrouped(name));
  return {
    head: sql`select ${names} from (${inner}) as ${sql.id(groupedName)}`,
    conditions: [sql.join(filterSql("where", query.having, resolveName, tables))],
    tail: orderSql(order, dialect),
  };
}

/** A generator function created per Select would get its own class, which V8 collects late. */
function* statementsOf<Kind extends ColumnKind>(
  parts: Parts,
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
): OrderTerm[] {
  const isOuter = joinsOf(query).some(({ join_type }) => join_type !== "INNER");
  const term = ({ column: name, direction = "ASC" }: Order): OrderTerm => {
    const reference = resolve(name);
    return { reference, direction, hasNulls: isOuter || reference.column.isNullable !== false };
  };
  const terms = [query.order_by ?? []].flat().map(term);
  return [
    ...new Map(terms.toReversed().map((one) => [one.reference.column, one])).values(),
  ].reverse();
}

function requireSelected(terms: readonly OrderTerm[], columns: readonly ColumnReference[]): void {
  const selected = new Set(columns.map(({ column }) => column));
  const other = terms.find(({ reference }) => !selected.has(reference.column));
  if (other === undefined) return;
  throw new EngineRefusal(
    "invalid_value",
    `With distinct, order_by allows only selected columns; "${other.reference.column.name}" is not selected`,
  );
}

function filterSql(
  word: "where" | "having",
  condition: Condition | null | undefined,
  resolve: Resolve,
  scope: Scope,
): Fragment[] {
  if (condition === undefined || condition === null) return [];
  return [sql`${sql.raw(word)} ${conditionSql(resolve, condition, scope)}`];
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
