import { sql } from "kysely";
import { findTaken, optionalNames, withoutTable } from "../../core/query/names.ts";
import type {
  Aggregate,
  CellValue,
  Condition,
  Exists,
  Include,
  InnerSelect,
  Join,
  Order,
  Select,
} from "../../core/query/tree.ts";
import { EngineRefusal } from "../refusal.ts";
import { type ComputeDialect, Computed } from "./compute.ts";
import {
  comparisonMayFail,
  conditionSql,
  findLeaves,
  guardedSql,
  isAlike,
  type Leaf,
  linkMayFail,
  linkSides,
  splitTerms,
  termsAbout,
  whereSql,
} from "./conditions.ts";
import { type ByShape, type Flattening, type Fragment, isShort, SizeBudget } from "./fragment.ts";
import {
  asGrouped,
  type Column,
  type ColumnKind,
  type ColumnReference,
  columnAlias,
  columnSql,
  columnsOf,
  distinctColumns,
  type Measure,
  type NestedSelect,
  type Nesting,
  type PresentValue,
  type Resolve,
  resolveColumn,
  type Scope,
  selectedColumns,
  setSqlName,
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

export function tableKeys(
  columns: readonly { name: string; isKey: boolean; isNullable: boolean; isFolded?: boolean }[],
  keys: readonly UniqueKey[],
): TableKeys {
  const primary = columns.filter(({ isKey }) => isKey);
  const certain = columns.filter((one) => !one.isNullable && one.isFolded !== true);
  const required = new Set(certain.map(({ name }) => name));
  const single = keys.flatMap((key) => (key.columns.length === 1 ? key.columns : []));
  return {
    primary: primary.every(({ name }) => required.has(name)) ? primary.map(({ name }) => name) : [],
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
  /** The database sorts by no more bytes of a value, with four for each character. */
  readonly sortedBytes?: number;
  /** With `=`, the database would sort by the other columns only. */
  equalFirst?(column: Fragment, value: unknown): Fragment;
}

/** A column of the order, with the value that rows come after. */
interface Bound extends Omit<OrderTerm, "reference"> {
  readonly column: Fragment;
  readonly isNull: Fragment;
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
    requireSorted(reference.column, given, dialect);
    const value = given === null ? null : sortedValue(reference.column, given);
    const column = columnSql(reference);
    const { sorted, isNull } = reference.column.kind;
    const orNull = isNull?.(column) ?? sql`${column} is null`;
    return { ...term, column: sorted?.column(column) ?? column, isNull: orNull, value };
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

function requireSorted(
  { name, type, kind }: Column,
  given: CellValue,
  { sortedBytes = Number.POSITIVE_INFINITY }: PageDialect,
): void {
  if (kind.sortsSpellings === true) {
    const problem = `Column "${name}" (${type}): after takes no JSON that is stored as text`;
    throw new EngineRefusal("not_supported", `${problem}; order by another column`);
  }
  if (typeof given !== "string" || 4 * given.length <= sortedBytes) return;
  const size = kind.family === "bytes" ? (given.length * 3) / 4 : 4 * [...given].length;
  if (size <= sortedBytes) return;
  const problem = `after holds a value of column "${name}" that is longer than the database sorts by`;
  throw new EngineRefusal("not_supported", `${problem}; order by another column`);
}

function sortedValue({ kind, ...column }: Column, given: PresentValue): unknown {
  const { grouped, store, sorted } = kind;
  if (grouped === undefined) {
    const compared = comparedValue({ kind, ...column }, given);
    return sorted?.value(compared) ?? compared;
  }
  return grouped(sql`${comparedValue({ ...column, kind: { ...kind, compare: store } }, given)}`);
}

function equalSql({ column, isNull, value }: Bound, equal: PageDialect["equalFirst"]): Fragment {
  if (value === null) return isNull;
  return equal?.(column, value) ?? sql`${column} = ${value}`;
}

function rangesBeyond({ column, direction, hasNulls, isNull, value }: Bound): Fragment[] {
  if (value === null) return direction === "DESC" ? [] : [sql`${column} is not null`];
  if (direction === "ASC") return [sql`${column} > ${value}`];
  return [sql`${column} < ${value}`, ...(hasNulls ? [isNull] : [])];
}

interface AggregateSql<Kind> {
  readonly expression: Fragment;
  readonly kind: Kind;
}

export interface AggregateDialect<Kind extends ColumnKind> {
  readonly count: Kind;
  readonly double: Kind;
  /** Of the least and the greatest text, if columns have collations. */
  readonly text?: Kind;
  /** Exact for integers and decimals. A sum of integers beyond 64 bits is `number_out_of_range`. */
  sum(column: Fragment, measure: Measure, kind: Kind): AggregateSql<Kind>;
  /** In doubles. */
  average(sum: Fragment, count: Fragment): Fragment;
  /** Text is compared by bytes. */
  extreme(fn: "min" | "max", column: Fragment, measure: Measure, kind: Kind): Fragment;
}

function columnAliases<Kind extends ColumnKind>(
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
  const { kind } = reference.column;
  // A `null` of JSON is null.
  const isGrouped = distinct === true || kind.family === "json";
  const column = columnSql(isGrouped ? asGrouped(reference) : reference);
  const count = distinct === true ? sql`count(distinct ${column})` : sql`count(${column})`;
  if (fn === "count") return { expression: count, kind: dialect.count };
  const measure = requireMeasure(fn, reference.column);
  if (fn === "min" || fn === "max") {
    const expression = dialect.extreme(fn, column, measure, kind);
    return { expression, kind: (kind.collation && dialect.text) || kind };
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
  throw new EngineRefusal("invalid_value", `Column "${name}" (${type}): ${fn} requires ${allowed}`);
}

function listJoins({ join }: Pick<Select, "join">): readonly Join[] {
  return [join ?? []].flat();
}

type Source = Exclude<Select["from"], string>;

export function listSources(query: Pick<Select, "from" | "join">): Source[] {
  const { from } = query;
  const sources = [typeof from === "string" ? { table: from, as: from } : from];
  for (const { table, as: name = table } of listJoins(query)) sources.push({ table, as: name });
  if (new Set(sources.map(({ as: name }) => name)).size === sources.length) return sources;
  const problem = "A table cannot be joined with itself under one name; use as";
  throw new EngineRefusal("self_join", problem);
}

type Conditions = Partial<Pick<Select, "where" | "having" | "compute">>;

/** All conditions of a Select but those within them. */
function conditionsIn({ where, having, compute = [] }: Conditions) {
  return [where, having, ...compute.map(({ when }) => when)];
}

/** The tables that a Select reads, at every level, each as often as it is named. */
export function tablesIn(query: InnerSelect | Select): string[] {
  const sources = listSources(query);
  return [
    ...sources.flatMap((source) => ("table" in source ? source.table : tablesIn(source.select))),
    ...conditionsIn(query).flatMap(tablesWithin),
    ...("include" in query ? (query.include ?? []).flatMap(tablesIncluded) : []),
  ];
}

export function tablesIncluded(one: Include): string[] {
  const { table, include = [] } = one;
  return [table, ...conditionsIn(one).flatMap(tablesWithin), ...include.flatMap(tablesIncluded)];
}

/** The tables that a condition contains, at every level. */
export function tablesWithin(condition: Condition | null | undefined): string[] {
  return findLeaves(condition).flatMap((leaf) => {
    if ("exists" in leaf) return [leaf.exists.table, ...tablesWithin(leaf.exists.where)];
    return "select" in leaf ? tablesIn(leaf.select) : [];
  });
}

export interface SelectDialect<Kind extends ColumnKind> extends PageDialect, Flattening {
  readonly aggregates: AggregateDialect<Kind>;
  readonly computing: ComputeDialect<Kind>;
  /** True if the database evaluates conditions on rows that others exclude, even within a `case`. */
  readonly needsPrefilter?: boolean;
  /** True if the database ignores the offset of distinct rows that it knows to be constant. */
  readonly losesDistinctOffset?: boolean;
  /** Precedes each row of `values`. */
  readonly row?: string;
  /** The most, if each key of an include is one. */
  readonly valuesPerStatement?: number;
  /** The keys of an include, numbered from 1, if they are bound as one value. */
  keyRows?(keys: readonly unknown[], kind: Kind): Fragment | undefined;
  /** Nulls come first. */
  order(column: Fragment, direction: "ASC" | "DESC", hasNulls: boolean): Fragment;
  limit(limit: number | undefined, offset: number | undefined): Fragment;
  /** True if the database joins for `not exists`, but may compare each row with all of `not in`. */
  readonly joinsExcluded?: boolean;
  /** True if a change may not read its own table, unless the rows read are stored first. */
  readonly locksChanged?: boolean;
  readonly templates: ByShape<SelectTemplate<Kind>>;
  /** True if an include reads all rows of its keys, which costs less than to rank them. */
  readonly readsAllIncluded?: boolean;
}

/** The parts of a Select that do not depend on values. */
interface SelectTemplate<Kind extends ColumnKind> {
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

/** Each statement has its own. */
type WrittenField = "database" | "from" | "where" | "having" | "limit" | "offset" | "after";
/** What tells the templates of a table apart. A new field of Select must be named here or above. */
type TemplateShape = Record<Exclude<keyof Select, WrittenField | "join" | "compute">, unknown>;

type SelectedColumn<Kind extends ColumnKind> = Column<Kind> & { readonly isNullable?: boolean };

export interface SelectedTable<Kind extends ColumnKind> extends Table<SelectedColumn<Kind>> {
  readonly keys?: TableKeys;
  /** In a `from`, if not its name. */
  readonly source?: Fragment;
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

/** The words of a Select around the condition of each statement. */
interface StatementParts {
  readonly head: Fragment;
  /** In row order. */
  readonly conditions: readonly Fragment[];
  readonly tail: readonly Fragment[];
}

type ScopedQuery = Pick<Select, "from" | "join" | "where" | "compute" | "aggregate">;

/** Rows that meet the terms that cannot fail, as tables of their own. */
interface Prefilter<Kind extends ColumnKind> {
  readonly tables: readonly SelectedTable<Kind>[];
  /** The other terms. */
  readonly where: Condition;
  /** @param source what follows `from`, and `more` a further column of it */
  sourceSql(source: Fragment, more?: Fragment): Fragment;
}

const pickedName = "picked values";
const groupedName = "grouped rows";
export const prefilteredName = "prefiltered rows";
const space = sql` `;

/** Plans the Selects of an operation and those within its conditions, over tables that were read. */
export class SelectPlanner<Kind extends ColumnKind> implements Nesting {
  readonly budget = new SizeBudget();
  readonly dialect: SelectDialect<Kind>;
  readonly #schema: string;
  readonly #tables: ReadonlyMap<string, SelectedTable<Kind>>;
  readonly #isChange: boolean;

  /** @param isChange true in an Update or Delete, some of which may not read their own table */
  constructor(
    schema: string,
    tables: ReadonlyMap<string, SelectedTable<Kind>>,
    dialect: SelectDialect<Kind>,
    isChange = false,
  ) {
    this.#schema = schema;
    this.#tables = tables;
    this.dialect = dialect;
    this.#isChange = isChange;
  }

  tableNamed(name: string): SelectedTable<Kind> {
    const table = this.#tables.get(name);
    if (table === undefined) throw new Error("A query contains a table that was not read");
    return { ...table, nesting: this };
  }

  /** @param isIsolated true if a Select around it may compute with its rows */
  scopeOf(query: ScopedQuery, isIsolated = false): SelectedTable<Kind>[] {
    const isComputed = isIsolated || query.compute !== undefined;
    const scope = this.#scopeOf(query, isComputed);
    const isPlain = isComputed || typeof query.from === "string" || "table" in query.from;
    return isPlain || !this.#mayCast(scope, query) ? scope : this.#scopeOf(query, true);
  }

  #scopeOf(query: ScopedQuery, isIsolated: boolean): SelectedTable<Kind>[] {
    return listSources(query).map((source) => {
      const { as: name } = source;
      if ("table" in source) return underName(this.#schema, this.tableNamed(source.table), name);
      const { columns, statement } = this.#planWithin(source.select, isIsolated);
      return { ...selectedAs(name, columns, statement), nesting: this };
    });
  }

  /** A Select within another query, with aliases for its columns. */
  #planWithin(query: InnerSelect, isIsolated: boolean) {
    // Keeps conditions out of it, as servers could compute hidden rows for them.
    const isOpen = (isIsolated || query.compute !== undefined) && query.limit === undefined;
    const whole = { ...query, database: "", ...(isOpen ? { offset: query.offset ?? 0 } : {}) };
    const { columns, statements } = this.plan(this.scopeOf(query, isIsolated), whole, true);
    const [statement] = statements(() => 0);
    const [first] = columns;
    if (first === undefined || statement === undefined) throw new Error("A Select has no columns");
    return { columns, first: first.column, statement };
  }

  /** True if a Select, which computes nothing, casts columns that it joins or compares. */
  #mayCast(scope: readonly SelectedTable<Kind>[], query: ScopedQuery): boolean {
    if (resolveLinks(scope, query).some(linkMayFail)) return true;
    const resolve = this.resolveIn(scope, query);
    return splitTerms(resolve, query.where ?? { and: [] }, scope).failing.length > 0;
  }

  link(outer: Scope, { table, on }: Exists): [left: ColumnReference, right: ColumnReference] {
    return linkedColumns([...outer, this.tableNamed(table)], on);
  }

  exists(outer: Scope, { table, on, where }: Exists): Fragment {
    const inner = this.tableNamed(table);
    const more =
      where == null ? sql`` : sql` and ${guardedSql(columnsOf([inner]), where, [inner])}`;
    const [left, right] = linkedColumns([...outer, inner], on);
    const [own, key] = on.startsWith(`${table}.`) ? [left, right] : [right, left];
    // The outer column comes first in both forms, since its collation counts.
    const side = linkSides(left.column, right.column);
    const [wanted, found] = [key, own].map((one) => side(one.column, columnSql(one)));
    const terms = linkMayFail([left, right])
      ? termsAbout(inner, columnsOf([inner]), where, [inner])
      : [];
    const source = this.castSourceSql(inner, terms);
    const { isIndexed } = inner;
    return isIndexed === undefined ||
      (isAlike(own.column, key.column) && isIndexed(own.column.name))
      ? sql`exists (select 1 from ${source} where ${wanted} = ${found}${more})`
      : sql`(${wanted} is not null and ${wanted} in
            (select ${found} from ${source} where ${found} is not null${more}))`;
  }

  select(query: InnerSelect, compared?: Column): NestedSelect {
    const { dialect } = this;
    const whole = this.#isChange && dialect.locksChanged === true ? storingRows(query) : query;
    // MariaDB merges Selects within each other wrongly if the inner ones compare expressions.
    const isIsolated = dialect.needsPrefilter === true && tablesWithin(query.where).length > 0;
    const open = this.#planWithin(whole, isIsolated);
    const isCast = !isIsolated && compared !== undefined && comparisonMayFail(compared, open.first);
    const { first, statement: inner } = isCast ? this.#planWithin(whole, true) : open;
    const bare = sql.id(pickedName, columnAlias(0));
    // MariaDB looks values up in an index as the index would store them, cut or rounded.
    const isLookedUp = dialect.needsPrefilter !== true || compared?.type === first.type;
    const areIntegers = [compared, first].every((one) => one?.kind.family === "integer");
    const picked = isLookedUp || areIntegers ? bare : sql`coalesce(${bare})`;
    const from = sql`from (${inner}) as ${sql.id(pickedName)}`;
    const statement = (side: (column: Fragment) => Fragment) =>
      sql`select ${side(picked)} ${from} where ${side(picked)} is not null`;
    return {
      column: first,
      statement,
      excludes(left, side) {
        if (dialect.joinsExcluded !== true || !isShort(inner)) return undefined;
        return sql`(not exists (select 1 ${from} where ${left} = ${side(picked)})
            and (${left} is not null or not exists (${statement(side)}) or null))`;
      },
    };
  }

  plan(tables: readonly SelectedTable<Kind>[], query: Select, isNested = false): SelectPlan<Kind> {
    const prefilter = this.prefilter(tables, query);
    const scope = prefilter?.tables ?? tables;
    const rest = prefilter === undefined ? query : { ...query, where: prefilter.where };
    const template = this.#knownTemplate(scope, rest, isNested, () => {
      const source = this.#joinedSql(tables, query);
      return prefilter?.sourceSql(source) ?? source;
    });
    const { dialect } = this;
    const { columns, selected } = template;
    const parts = isNestedSummary(query, dialect)
      ? this.#groupedParts(template, scope, rest)
      : this.#plainParts(template, scope, rest);
    return {
      columns,
      selected,
      statements: (found) => makeStatements(parts, query, dialect, found),
    };
  }

  sourceSql({ name, source }: SelectedTable<Kind>): Fragment {
    return source ?? sql.id(this.#schema, name);
  }

  /** A table whose values are cast to link them: first, only for rows that meet its own terms. */
  castSourceSql(table: SelectedTable<Kind>, terms: Condition[]): Fragment {
    const source = this.sourceSql(table);
    if (terms.length === 0) return source;
    const wanted = conditionSql(columnsOf([table]), { and: terms }, [table]);
    const all = this.dialect.limit(undefined, 0);
    return sql`(select * from ${source} where ${wanted} ${all}) as ${sql.id(table.name)}`;
  }

  #joinedSql(tables: readonly SelectedTable<Kind>[], query: Select): Fragment {
    const types = listJoins(query).map(({ join_type }) => join_type);
    const links = resolveLinks(tables, query);
    const castTables = links.filter(linkMayFail).flat();
    const cast = new Set(castTables.map(({ table }) => table.name));
    const names = tables.map(({ name }) => name);
    const optional = optionalNames(names, types);
    const resolve = cast.size === 0 ? undefined : this.resolveIn(tables, query);
    const [from = sql``, ...joined] = tables.map((table) => {
      if (resolve === undefined || !cast.has(table.name) || optional.has(table.name)) {
        return this.sourceSql(table);
      }
      return this.castSourceSql(table, termsAbout(table, resolve, query.where, tables));
    });
    const joins = links.map(([left, right], index) => {
      const type = sql.raw((types[index] ?? "").toLowerCase());
      const side = linkSides(left.column, right.column);
      const sides = [left, right].map((one) => side(one.column, columnSql(one)));
      return sql`${type} join ${joined[index]} on ${sql.join(sides, sql` = `)}`;
    });
    return sql.join([from, ...joins], space);
  }

  /** Undefined unless the database needs it for this query. */
  prefilter(
    tables: readonly SelectedTable<Kind>[],
    query: Pick<Select, "where" | "compute" | "aggregate">,
  ): Prefilter<Kind> | undefined {
    const { where, compute } = query;
    const { needsPrefilter, limit } = this.dialect;
    if (needsPrefilter !== true || compute === undefined || where == null) return undefined;
    const { safe, failing } = splitTerms(this.resolveIn(tables, query), where, tables);
    if (safe.length === 0 || failing.length === 0) return undefined;
    const used = new Set(namesIn(query));
    const selected: Fragment[] = [];
    const within = tables.map((table) => {
      const columns = Array.from(table.columns, ([name, column]) => {
        const own = { ...column };
        if (used.has("*") || used.has(name)) {
          const alias = columnAlias(selected.length);
          selected.push(sql`${columnSql({ table, column })} as ${sql.id(alias)}`);
          setSqlName(own, sql.id(prefilteredName, alias));
        }
        return [name, own] as const;
      });
      return { ...table, columns: new Map(columns) };
    });
    const wanted = conditionSql(columnsOf(tables), { and: safe }, tables);
    return {
      tables: within,
      where: { and: failing },
      sourceSql(source, more = sql`1`) {
        return sql`(select ${sql.join([...selected, more])} from ${source} where ${wanted}
        ${limit(undefined, 0)}) as ${sql.id(prefilteredName)}`;
      },
    };
  }

  #knownTemplate(
    tables: readonly SelectedTable<Kind>[],
    query: Select,
    isNested: boolean,
    sourceOf: () => Fragment,
  ): SelectTemplate<Kind> {
    const make = () => this.#makeTemplate(tables, query, isNested, sourceOf());
    const [table, ...others] = tables;
    const { columns, group_by, aggregate, distinct, order_by, compute } = query;
    const isCommon = compute === undefined && !isNestedSummary(query, this.dialect);
    const isOfOneTable = !isNested && others.length === 0;
    if (table === undefined || !isOfOneTable || !isCommon) return make();
    const include = query.include?.map(outerSide);
    const shape: TemplateShape = { columns, group_by, aggregate, distinct, order_by, include };
    return this.dialect.templates.find(table, JSON.stringify(shape), make);
  }

  #makeTemplate(
    tables: readonly SelectedTable<Kind>[],
    query: Select,
    isNested: boolean,
    source: Fragment,
  ): SelectTemplate<Kind> {
    const { aggregate = [], group_by: groups = [] } = query;
    const { aggregates, flatten } = this.dialect;
    const resolve = this.resolveIn(tables, query);
    const aliases = columnAliases(aggregate, tables, resolve, aggregates);
    const grouped = groups.map((name) => asGrouped(resolve(name)));
    const columns =
      aggregate.length > 0
        ? [...distinctColumns(grouped), ...aliases.values()]
        : selectedColumns<Column<Kind>>(tables, query.columns ?? [], resolve).map((one) =>
            query.distinct === true ? asGrouped(one) : one,
          );
    const includes = query.include ?? [];
    const keys = includes.map((one) => resolveColumn<Column<Kind>>(tables, outerSide(one)));
    const selected = distinctColumns([...columns, ...keys]);
    const resolveGrouped = (name: string) => aliases.get(name) ?? asGrouped(resolve(name));
    const terms = orderTerms(resolveGrouped, query);
    if (query.distinct === true && aggregate.length === 0) requireSelected(terms, columns);
    const isNamed = isNestedSummary(query, this.dialect);
    const words = query.distinct === true ? sql`select distinct` : sql`select`;
    const all = sql.join(selected.map(isNested || isNamed ? aliasedSql : columnSql));
    const head = sql`${words} ${all} from ${source}`;
    const isFlat = query.compute === undefined;
    const ordered = columns.map(({ column }) => column);
    // Servers do not recognize the expressions of computed names, but their places in the list.
    const groupNames = grouped.map((one) =>
      isNamed ? sql.raw(String(ordered.indexOf(one.column) + 1)) : columnSql(one),
    );
    const groupBy = groupNames.length === 0 ? [] : [sql`group by ${sql.join(groupNames)}`];
    const flat = (parts: Fragment[]) => (isFlat ? parts.map(flatten) : parts);
    return {
      columns,
      selected,
      resolve,
      resolveGrouped,
      terms,
      head: isFlat ? flatten(head) : head,
      groups: flat(groupBy),
      order: flat(this.orderSql(terms)),
    };
  }

  resolveIn(
    tables: readonly SelectedTable<Kind>[],
    { compute = [], aggregate = [] }: Pick<Select, "compute" | "aggregate">,
  ): Resolve<SelectedColumn<Kind>> {
    const later = new Set(aggregate.map(({ as: name }) => name));
    const columns: Resolve<SelectedColumn<Kind>> = (name) => {
      if (!later.has(name)) return resolveColumn(tables, name);
      const problem = `"${name}" is aggregated after where and compute; use having, or from with this Select`;
      throw new EngineRefusal("unknown_column", problem);
    };
    if (compute.length === 0) return columns;
    const computed = new Computed<Kind>(columns, this.dialect.computing, tables);
    for (const definition of compute) {
      requireNewName(definition.as, tables);
      computed.define(definition);
    }
    return computed.resolve;
  }

  #plainParts(
    { head, groups, order, terms, resolve, resolveGrouped }: SelectTemplate<Kind>,
    tables: readonly SelectedTable<Kind>[],
    query: Select,
  ): StatementParts {
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
    const ranges = rangesAfter(terms, after, this.dialect);
    return { head, conditions: ranges.map((range) => sql`${first} ${range}`), tail };
  }

  /**
   * Groups in a nested query. Servers do not see that an expression with bound values is the grouped
   * one, so the conditions and the order of groups need names. With an offset, servers do not move
   * these conditions to rows, of which some are hidden.
   */
  #groupedParts(
    { columns, head, groups, terms, resolve, resolveGrouped }: SelectTemplate<Kind>,
    tables: readonly SelectedTable<Kind>[],
    query: Select,
  ): StatementParts {
    const where = whereSql(tables, query.where, resolve);
    const named = new Map<Column, ColumnReference>(
      columns.map((reference, index) => {
        const expression = sql.id(groupedName, columnAlias(index));
        return [reference.column, { ...reference, expression }];
      }),
    );
    const nameOf = (reference: ColumnReference) => named.get(reference.column) ?? reference;
    const names = sql.join([...named.values()].map(aliasedSql));
    const inner = sql.join([head, where, ...groups, this.dialect.limit(undefined, 0)], space);
    const order = terms.map((term) => ({ ...term, reference: nameOf(term.reference) }));
    const resolveName = (name: string) => nameOf(resolveGrouped(name));
    return {
      head: sql`select ${names} from (${inner}) as ${sql.id(groupedName)}`,
      conditions: [sql.join(filterSql("where", query.having, resolveName, tables))],
      tail: this.orderSql(order),
    };
  }

  orderSql(terms: readonly OrderTerm[]): Fragment[] {
    return terms.length === 0 ? [] : [sql`order by ${sql.join(this.orderedSql(terms))}`];
  }

  orderedSql(terms: readonly OrderTerm[]): Fragment[] {
    return terms.map(({ reference, direction, hasNulls }) =>
      this.dialect.order(columnSql(reference), direction, hasNulls),
    );
  }
}

/** Rows are also stored for a limit, and for groups. */
function storingRows(query: InnerSelect): InnerSelect {
  const { order_by: _, ...unordered } = query;
  const { limit, offset, aggregate } = query;
  const isPlain = limit === undefined && offset === undefined && aggregate === undefined;
  return isPlain ? { ...unordered, distinct: true } : query;
}

/** Columns of its own, since columns are compared and remembered by identity. */
function underName<Kind extends ColumnKind>(
  schema: string,
  table: SelectedTable<Kind>,
  name: string,
): SelectedTable<Kind> {
  if (table.name === name) return table;
  const columns = new Map(Array.from(table.columns, ([key, column]) => [key, { ...column }]));
  const source = sql`${sql.id(schema, table.name)} as ${sql.id(name)}`;
  return { ...table, name, columns, source };
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
    setSqlName(own, sql.id(name, columnAlias(index)));
    columns.set(own.name, own);
  }
  const keys = { primary: [], unique: new Set<string>() };
  return { name, columns, keys, source: sql`(${statement}) as ${sql.id(name)}` };
}

function resolveLinks(scope: Scope, query: Pick<Select, "join">) {
  return listJoins(query).map(({ on }) => linkedColumns(scope, on));
}

/** The columns of `table.column = table.column`. */
function linkedColumns(scope: Scope, on: string): [left: ColumnReference, right: ColumnReference] {
  const [left = "", right = ""] = on.split(" = ");
  return [resolveColumn(scope, left), resolveColumn(scope, right)];
}

/** All that may be names of columns, without their tables. */
function namesIn(part: unknown): string[] {
  if (typeof part === "string") {
    return [part, ...part.split(" = ")].map(withoutTable);
  }
  return typeof part === "object" && part !== null ? Object.values(part).flatMap(namesIn) : [];
}

/** The side of `on` that is not of the included table. */
export function outerSide({ table, on }: Pick<Include, "table" | "on">): string {
  const [left = "", right = ""] = on.split(" = ");
  return left.startsWith(`${table}.`) ? right : left;
}

export function aliasedSql(reference: ColumnReference, index: number): Fragment {
  return sql`${columnSql(reference)} as ${sql.id(columnAlias(index))}`;
}

function isNestedSummary(
  { compute, aggregate = [], distinct = false, offset = 0, having }: Select,
  { losesDistinctOffset }: Pick<SelectDialect<ColumnKind>, "losesDistinctOffset">,
): boolean {
  if (distinct && offset > 0 && losesDistinctOffset === true) return true;
  // MariaDB finds no aggregate in a Select, and within `exists` `count(*)` would count its rows.
  // PostgreSQL could cast grouped columns of rows that `where` excludes.
  const aliases = new Set(aggregate.map(({ as: name }) => name));
  const isPlain = (leaf: Leaf) => "value" in leaf && aliases.has(leaf.column);
  if (!findLeaves(having).every(isPlain)) return true;
  return compute !== undefined && (aggregate.length > 0 || distinct);
}

/** A generator function created per Select would get its own class, which V8 collects late. */
function* makeStatements<Kind extends ColumnKind>(
  parts: StatementParts,
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
  const isOuter = listJoins(query).some(({ join_type }) => join_type !== "INNER");
  const term = ({ column: name, direction = "ASC" }: Order): OrderTerm => {
    const reference = resolve(name);
    const { isNullable, kind } = reference.column;
    const hasNulls = isOuter || isNullable !== false || kind.family === "json";
    return { reference, direction, hasNulls };
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
