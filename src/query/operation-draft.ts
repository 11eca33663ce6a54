import { quoteName } from "../json/fault.ts";
import type { ByteText } from "../json/reader.ts";
import type { BodyReader } from "./body-reader.ts";
import { type BodyLocation, QueryRefused } from "./refusal.ts";
import type { RowReader } from "./row-reader.ts";

export const MOST_JOINS = 4;
export const MOST_GROUPS = 64;
/** Levels of Selects, the outermost counted, and the Selects and `exists` of one operation. */
const MOST_LEVELS = 6;
const MOST_NESTED = 16;
/** Levels of Selects as `from`, the outermost counted. */
const MOST_SOURCES = 3;
export const MOST_INCLUDES = 8;
const MOST_INCLUDED_LEVELS = 3;
export const DEFAULT_INCLUDED = 100;
/** Collected per operation. A shape needs no more. */
const MOST_COMPARISONS = 128;
/** Bytes of the terms collected per operation. Row filters are shorter. */
const MOST_TERM_BYTES = 64 * 1024;
const MOST_NAMED = 4096;
/** One more than an operation has tables, so that one of them is another table. */
const MOST_REFERENCES = MOST_JOINS + 2;

/** Collect no columns, as many as a query's shape needs, or all. */
export type Collects = false | "shape" | true;

export type Position =
  | "columns"
  | "compute"
  | "where"
  | "on"
  | "group_by"
  | "aggregate"
  | "having"
  | "order_by"
  | "values"
  | "set"
  | "add"
  | "bind"
  | "on_conflict"
  | "update"
  | "returning"
  | "references";

/** Columns by position, each as `*`, `column` or `table.column`. */
export type ColumnUses = ReadonlyMap<Position, ReadonlySet<string>>;

export function addUse(
  uses: Map<Position, Set<string>>,
  position: Position,
  column: { toString(): string },
): void {
  const known = uses.get(position);
  if (known === undefined) uses.set(position, new Set([column.toString()]));
  else known.add(column.toString());
}

/** A column and its position. `comparison` is set if it is compared there. */
export interface NamedColumn {
  readonly position: Position;
  readonly column: { toString(): string };
  readonly comparison?: string;
}

/** How an operation contains another one. */
export type Nesting = "select" | "exists" | "from" | "include";

interface TableReference {
  readonly table: ByteText;
  readonly location: BodyLocation;
}

interface OperationPlace {
  readonly rows: RowReader;
  /** Index in a Batch. */
  readonly element: number | undefined;
  /** The earlier elements that change rows, by index. */
  readonly changes: ReadonlyMap<number, OperationDraft>;
}

/** The parts of a Select that need more than rows of tables. */
interface Summary {
  /** The names in `group_by`, as written. */
  readonly groups: string[];
  readonly aliases: string[];
  /** Names under `having`, up to one more than can be valid. */
  readonly conditions: Set<string>;
}

/** Notes on one operation while its fields are read, which may come in any order. */
export class OperationDraft {
  /** Empty until it is read, which names no database. Every operation requires it. */
  database = "";
  table: string | undefined;
  joined: string[] | undefined;
  /** The name that `as` gives to `table` or a Select as `from`, and the names of `joined`. */
  alias: string | undefined;
  joinedNames: string[] | undefined;
  joinTypes: ("INNER" | "LEFT" | "RIGHT")[] | undefined;
  /** `as` of the join that is being read. */
  joinedAlias: string | undefined;
  hasAliases = false;
  /** True if `from` is a Select, so that `table` is undefined. */
  readsSelect = false;
  /** The two tables in each join's `on`, in the order of the joins. */
  ons: (readonly [string, string])[] | undefined;
  /** Tables of the same database that a new table refers to. */
  referenced: string[] | undefined;
  position: Position = "columns";
  readonly named: NamedColumn[] | undefined;
  /** Columns beyond the limit of `named`. Undefined if not all are collected. */
  readonly others: Map<Position, Set<string>> | undefined;
  /** True if columns beyond the limit were dropped. */
  isCut = false;
  readonly compared: NamedColumn[] | undefined;
  /** Offsets of comparisons with values that every row must meet, if all columns are collected. */
  terms: (readonly [start: number, end: number])[] | undefined;
  #termBytes = 0;
  /** Names that a Select has computed so far. */
  computed: string[] | undefined;
  computeStart = 0;
  /** Set by `group_by`, `aggregate` and `having`. */
  summary: Summary | undefined;
  /** The columns of `order_by`. */
  orders: ByteText[] | undefined;
  /** Start offsets of a Select's `columns` and `after`, or 0 if absent. */
  columnsStart = 0;
  afterStart = 0;
  aggregateStart = 0;
  afterCount = 0;
  limit: number | undefined;
  limitStart = 0;
  hasOffset = false;
  isDistinct = false;
  changesColumns = false;
  /** Offsets of `where`, or 0 if it is absent. */
  whereStart = 0;
  whereEnd = 0;
  hasExtraFields = false;
  /** The operation under a Preview, or Batch, and the offsets of its fields. Undefined until read. */
  previewed: string | undefined;
  previewedStart = 0;
  previewedEnd = 0;
  /** The elements of a Batch under a Preview. */
  previewedElements: OperationDraft[] | undefined;
  /** The operation that contains this one, and how. */
  outer: OperationDraft | undefined;
  nesting: Nesting | undefined;
  /** Offsets of a nested operation. */
  start = 0;
  end = 0;
  /** The tables that `include` adds to each row, and where the field starts. */
  includes: OperationDraft[] | undefined;
  includeStart = 0;
  /** Of an included table: its member's name, and whether that is a single row. */
  member = "";
  isOne = false;
  /** Of the whole operation, in the order of the body. */
  nested: OperationDraft[] | undefined;
  readonly #place: OperationPlace;
  readonly #collects: Collects;
  readonly element: number | undefined;
  #level = 1;
  /** Levels of the same nesting. */
  #depth = 1;
  #onLocation: BodyLocation | undefined;
  #references: TableReference[] | undefined = undefined;

  constructor(place: OperationPlace, collects: Collects) {
    this.#place = place;
    this.#collects = collects;
    this.element = place.element;
    this.named = collects === false ? undefined : [];
    this.compared = collects === false ? undefined : [];
    this.others = collects === true ? new Map() : undefined;
  }

  /** Shared by all operations of a body, since their rows tend to be alike. */
  get rows(): RowReader {
    return this.#place.rows;
  }

  addPreviewed(): OperationDraft {
    this.previewedElements ??= [];
    const { rows, previewedElements: elements } = this;
    const place = { rows, element: elements.length, changes: new Map(elements.entries()) };
    const draft = new OperationDraft(place, this.#collects);
    elements.push(draft);
    return draft;
  }

  /** Records that a later element reads a column of the row that `element` has affected. */
  bindTo(element: number, column: string): boolean {
    const change = this.#place.changes.get(element);
    if (change === undefined) return false;
    change.position = "returning";
    change.use(column);
    return true;
  }

  get tables(): string[] {
    if (this.table === undefined) return this.joined ?? [];
    return this.joined === undefined ? [this.table] : [this.table, ...this.joined];
  }

  /** The names by which columns refer to `tables`. */
  get names(): string[] {
    if (!this.hasAliases) return this.tables;
    return [this.alias ?? this.table ?? "", ...(this.joinedNames ?? [])];
  }

  use(column: { toString(): string }): void {
    if (this.named === undefined) return;
    if (this.named.length === MOST_NAMED) this.#useFurther(column);
    // If all columns are wanted, each is used more than once, so the string is made now.
    else if (this.others === undefined) this.named.push({ position: this.position, column });
    else this.named.push({ position: this.position, column: column.toString() });
  }

  #useFurther(column: { toString(): string }): void {
    if (this.others === undefined) this.isCut = true;
    else addUse(this.others, this.position, column);
  }

  /** The last column, if columns are collected. */
  get lastUsed(): NamedColumn["column"] | undefined {
    return this.named?.at(-1)?.column;
  }

  /** Records how a column is compared, if columns are collected. */
  compare(column: NamedColumn["column"] | undefined, comparison: string): void {
    const { compared } = this;
    if (compared === undefined || column === undefined) return;
    const last = compared.at(-1);
    const isRepeated = last?.column === column && last.comparison === comparison;
    if (isRepeated || compared.length === MOST_COMPARISONS) return;
    compared.push({ position: this.position, column, comparison });
  }

  /** Records a comparison with a value that every row must meet, unless it is too long. */
  demand(start: number, end: number): void {
    const total = this.#termBytes + end - start;
    if (this.others === undefined || total > MOST_TERM_BYTES) return;
    this.#termBytes = total;
    this.terms ??= [];
    this.terms.push([start, end]);
  }

  /** Only earlier names are in scope of `compute`; anything else there is a column. */
  isEarlierName(text: ByteText): boolean {
    return this.position === "compute" && this.computed?.includes(text.toString()) === true;
  }

  joinedBy(left: string, right: string): void {
    this.ons ??= [];
    this.ons.push([left, right]);
  }

  summarize(): Summary {
    this.summary ??= { groups: [], aliases: [], conditions: new Set() };
    return this.summary;
  }

  /** True if `on` also names columns of `outer`. */
  get isCorrelated(): boolean {
    return this.nesting === "exists" || this.nesting === "include";
  }

  /** Of an included table: the most rows for each row of the whole Select. */
  get rowsPerRow(): number {
    if (this.nesting !== "include") return 1;
    const most = this.isOne ? 1 : (this.limit ?? DEFAULT_INCLUDED);
    return most * (this.outer?.rowsPerRow ?? 1);
  }

  /** Begins an operation within this one. @throws QueryRefused */
  nest(reader: BodyReader, nesting: Nesting): OperationDraft {
    const inner = new OperationDraft(this.#place, this.#collects);
    inner.outer = this;
    inner.nesting = nesting;
    inner.#depth = nesting === this.nesting ? this.#depth + 1 : 1;
    // An included table is read by a query of its own.
    inner.#level = nesting === "include" ? this.#level : this.#level + 1;
    if (nesting === "from") this.readsSelect = true;
    if (nesting === "include") {
      this.includes ??= [];
      this.includes.push(inner);
    }
    let whole: OperationDraft = this;
    while (whole.outer !== undefined) whole = whole.outer;
    whole.nested ??= [];
    whole.nested.push(inner);
    const problem = inner.#excess(whole.nested);
    if (problem === undefined) return inner;
    throw reader.refusal("invalid_value", problem);
  }

  #excess(nested: readonly OperationDraft[]): string | undefined {
    const included = nested.filter(({ nesting }) => nesting === "include").length;
    if (this.nesting === "include") {
      if (this.#depth > MOST_INCLUDED_LEVELS) {
        return `include is at most ${MOST_INCLUDED_LEVELS} levels deep; read further rows by a Select of their own`;
      }
      return included > MOST_INCLUDES
        ? `an operation includes at most ${MOST_INCLUDES} tables; send several operations`
        : undefined;
    }
    if (this.nesting === "from" && this.#depth >= MOST_SOURCES) {
      return `Selects as from are at most ${MOST_SOURCES} levels deep, the outermost counted; use join or compute instead`;
    }
    if (this.#level > MOST_LEVELS) {
      return `conditions and Selects contain each other at most ${MOST_LEVELS} levels deep, the outermost counted; use a Select with join instead`;
    }
    return nested.length - included > MOST_NESTED
      ? `an operation contains at most ${MOST_NESTED} of exists and select; send several operations`
      : undefined;
  }

  /** Requires that `on` links the own table to one of the enclosing tables. */
  #judgeCorrelation(): void {
    const { outer, table = "", ons: [sides] = [] } = this;
    if (!this.isCorrelated || outer === undefined || this.#onLocation === undefined) return;
    for (let around: OperationDraft | undefined = outer; around; around = around.outer) {
      // SQLite ignores the case of names.
      if (around.names.some((name) => name.toLowerCase() === table.toLowerCase())) {
        const remedy =
          this.nesting === "exists"
            ? "around exists; use IN with a select instead"
            : 'around include; give the outer table another name with "as"';
        const problem = `the table ${quoteName(table)} is already in use ${remedy}`;
        throw new QueryRefused("invalid_value", problem, this.#onLocation);
      }
      if (this.nesting === "include" || around.nesting !== "exists") break;
    }
    if (sides?.includes(table) && sides.some((side) => outer.names.includes(side))) return;
    const allowed = outer.names.map(quoteName).join(" or ");
    const problem = `on must compare a column of ${quoteName(table)} with one of ${allowed}`;
    throw new QueryRefused("invalid_value", problem, this.#onLocation);
  }

  /** Records a table named by a column, for `judgeReferences`. */
  refer(table: ByteText, reader: BodyReader, offset: number): void {
    if (this.isCorrelated && this.position === "on") {
      this.#onLocation ??= reader.location(offset);
      return;
    }
    this.#references ??= [];
    if (this.#references.length === MOST_REFERENCES) return;
    if (this.#references.some((known) => known.table.equals(table))) return;
    this.#references.push({ table, location: reader.location(offset) });
  }

  /** Requires that columns are of tables in their scope, also within conditions. */
  judgeReferences(): void {
    for (const one of this.nested ?? []) {
      one.judgeReferences();
      one.#judgeCorrelation();
    }
    if (this.#references === undefined) return;
    const { names: tables } = this;
    for (const { table, location } of this.#references) {
      const name = table.toString();
      if (tables.includes(name)) continue;
      const allowed = tables.map((own) => quoteName(own)).join(" and ");
      const problem = `a column of the table ${quoteName(name)} is named; allowed: ${allowed}`;
      throw new QueryRefused("invalid_column", problem, location);
    }
  }
}
