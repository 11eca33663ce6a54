/** What is known of one operation while its fields are read, which may come in any order. */

import type { ByteText } from "../json/bytes.ts";
import { quoteName } from "../json/fault.ts";
import type { BodyReader } from "./body-reader.ts";
import { type BodyLocation, QueryRefused } from "./refusal.ts";
import type { RowReader } from "./row-reader.ts";

/** Tables that a Select joins at the most. */
export const MOST_JOINS = 4;
/** Columns that a Select groups by, and aggregates that it asks for, each at the most. */
export const MOST_GROUPS = 64;
/** Comparisons of an operation that are kept for whoever wants to know. */
const MOST_COMPARISONS = 128;

// An operation has a few tables at most, so among one name more one is foreign.
const NAMES_THAT_DECIDE = MOST_JOINS + 2;

/** Columns of an operation that are kept as they come; a shape needs no more. */
const MOST_NAMED = 4096;

/** What is noted of columns: nothing, as many as the shape of a query needs, or all. */
export type Collects = false | "shape" | true;

/** Where in an operation a column stands. */
export type Position =
  | "columns"
  | "where"
  | "on"
  | "group_by"
  | "aggregate"
  | "having"
  | "order_by"
  | "values"
  | "set"
  | "add"
  | "on_conflict"
  | "update"
  | "returning"
  | "references";

/** The columns that an operation names, each as `*`, `column` or `table.column`, by position. */
export type ColumnUses = ReadonlyMap<Position, ReadonlySet<string>>;

/** A column that was read, and where it stands; `comparison` if it is compared there. */
export interface NamedColumn {
  readonly position: Position;
  readonly column: { toString(): string };
  readonly comparison?: string;
}

/** A table that a column names, and where it was named first. */
interface TableReference {
  readonly table: ByteText;
  readonly location: BodyLocation;
}

/** Has the reader of a body's rows, or makes it when it is first wanted. */
interface RowsOfBody {
  readonly rows: RowReader;
}

/** What a Select says beyond rows of tables. */
interface Summary {
  /** The names of `group_by`, as they were written. */
  readonly groups: string[];
  /** The names that aggregates give to their results. */
  readonly aliases: string[];
  /** Names under `having`; more than can be right are not kept. */
  readonly conditions: Set<string>;
}

/** The database and tables of one operation, and what its fields have to agree on. */
export class OperationDraft {
  /** Empty, which names no database, until it is read; every operation's fields require it. */
  database = "";
  table: string | undefined;
  /** The tables that a Select joins, in their order. */
  joined: string[] | undefined;
  /** The tables that each join's `on` names, in the order of the joins. */
  ons: (readonly [string, string])[] | undefined;
  /** Tables of the database that a new table refers to. */
  referenced: string[] | undefined;
  /** Where the columns stand that are read now. */
  position: Position = "columns";
  /** The columns named so far; undefined unless somebody wants to know. */
  readonly named: NamedColumn[] | undefined;
  /** Further ones, each once; undefined if they are not wanted. */
  readonly others: Map<Position, Set<string>> | undefined;
  /** True if there were further ones, and they are not wanted. */
  isCut = false;
  /** The comparisons so far, as far as they are kept; undefined likewise. */
  readonly compared: NamedColumn[] | undefined;
  /** Set by `group_by`, `aggregate` and `having`. */
  summary: Summary | undefined;
  /** Where a Select's `columns`, `order_by` and `after` begin; 0 for one that is left out. */
  columnsStart = 0;
  orderStart = 0;
  afterStart = 0;
  aggregateStart = 0;
  /** How many values `after` has, and columns `order_by`. */
  afterCount = 0;
  orderCount = 0;
  /** Which fields were given that others have to agree with. */
  hasOffset = false;
  isDistinct = false;
  changesColumns = false;
  /** Where `where` begins and ends; 0 if it is left out. */
  whereStart = 0;
  whereEnd = 0;
  /** Whether it has a field that the configuration adds. */
  hasExtraFields = false;
  /** The operation under a Preview, and where its fields begin and end; undefined until it is read. */
  previewed: string | undefined;
  previewedStart = 0;
  previewedEnd = 0;
  readonly #body: RowsOfBody;
  #references: TableReference[] | undefined = undefined;
  #columnStart = 0;
  #columnEnd = 0;

  constructor(body: RowsOfBody, collects: Collects) {
    this.#body = body;
    this.named = collects === false ? undefined : [];
    this.compared = collects === false ? undefined : [];
    this.others = collects === true ? new Map() : undefined;
  }

  /** Shared by all operations of a body, since their rows tend to be alike. */
  get rows(): RowReader {
    return this.#body.rows;
  }

  /** The operation's tables as far as they are known, `from` before the joined ones. */
  get tables(): string[] {
    if (this.table === undefined) return [];
    return this.joined === undefined ? [this.table] : [this.table, ...this.joined];
  }

  /** Says where the columns stand that are read next. */
  enter(position: Position): void {
    this.position = position;
    this.#columnEnd = 0;
  }

  /** Notes that a column is named here; only if somebody wants to know. */
  use(column: { toString(): string }): void {
    if (this.named === undefined) return;
    if (this.named.length === MOST_NAMED) this.#useFurther(column);
    // Who wants all of them wants them more than once.
    else if (this.others === undefined) this.named.push({ position: this.position, column });
    else this.named.push({ position: this.position, column: column.toString() });
  }

  #useFurther(column: { toString(): string }): void {
    if (this.others === undefined) {
      this.isCut = true;
      return;
    }
    const known = this.others.get(this.position);
    if (known === undefined) this.others.set(this.position, new Set([column.toString()]));
    else known.add(column.toString());
  }

  /** Notes how the column that was named last is compared; only if somebody wants to know. */
  compare(comparison: string): void {
    const { compared } = this;
    const column = this.named?.at(-1)?.column;
    if (compared === undefined || column === undefined) return;
    const last = compared.at(-1);
    const isRepeated = last?.column === column && last.comparison === comparison;
    if (isRepeated || compared.length === MOST_COMPARISONS) return;
    compared.push({ position: this.position, column, comparison });
  }

  /** Notes the tables that a join's `on` names. */
  joinedBy(left: string, right: string): void {
    this.ons ??= [];
    this.ons.push([left, right]);
  }

  /** What a Select says beyond rows of tables; made when first wanted. */
  summarize(): Summary {
    this.summary ??= { groups: [], aliases: [], conditions: new Set() };
    return this.summary;
  }

  /** Notes that the string token between two offsets is a good column. */
  noteColumn(start: number, end: number): void {
    this.#columnStart = start;
    this.#columnEnd = end;
  }

  /** Reads past a column if it repeats the one noted last, as those of many conditions do. */
  repeatsColumn(reader: BodyReader): boolean {
    return this.#columnEnd > 0 && reader.skipRepeated(this.#columnStart, this.#columnEnd);
  }

  /** Notes a table that a column names, for `judgeReferences`. */
  refer(table: ByteText, reader: BodyReader, offset: number): void {
    this.#references ??= [];
    if (this.#references.length === NAMES_THAT_DECIDE) return;
    for (const reference of this.#references) {
      if (reference.table.equals(table)) return;
    }
    this.#references.push({ table, location: reader.location(offset) });
  }

  /** Refuses a column of a table that is not one of the operation's; to be called at its end. */
  judgeReferences(): void {
    if (this.#references === undefined) return;
    const { tables } = this;
    for (const { table, location } of this.#references) {
      const name = table.toString();
      if (tables.includes(name)) continue;
      const allowed = tables.map((own) => quoteName(own)).join(" and ");
      const problem = `a column of the table ${quoteName(name)} is named; allowed: ${allowed}`;
      throw new QueryRefused("invalid_column", problem, location);
    }
  }
}
