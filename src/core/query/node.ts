import type { Deferred } from "../json/exact.ts";
import { quoteName } from "../json/fault.ts";
import { optionalNames } from "./names.ts";
import type { QueryTape } from "./tape.ts";
import type { Condition } from "./tree.ts";

export const MOST_JOINS = 4;
/** Levels of Selects, the outermost counted, and the Selects and `exists` of one operation. */
const MOST_LEVELS = 6;
const MOST_NESTED = 16;
/** Levels of Selects as `from`, the outermost counted. */
const MOST_SOURCES = 3;
export const MOST_INCLUDES = 8;
const MOST_INCLUDED_LEVELS = 3;
export const DEFAULT_INCLUDED = 100;
/** One more than an operation has tables, so that one of them is another table. */
const MOST_REFERENCES = MOST_JOINS + 2;

/** Where a query may name columns. */
export const positions = [
  "columns",
  "compute",
  "where",
  "on",
  "group_by",
  "aggregate",
  "having",
  "order_by",
  "values",
  "set",
  "add",
  "bind",
  "on_conflict",
  "update",
  "returning",
  "references",
] as const;
export type Position = (typeof positions)[number];

/** Columns by position, each as `*`, `column` or `table.column`. */
type ColumnUses = ReadonlyMap<Position, ReadonlySet<string>>;

/** A column where the query names it. */
interface Use {
  readonly position: Position;
  readonly column: string;
  /** The operator, and what it compares with if that is no value. */
  comparison?: string;
}

/** How an operation contains another one. */
export type Nesting = "select" | "exists" | "from" | "include";

/** Byte offsets in a body. `end` is exclusive. */
interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/** A table as an operation names it. */
interface Source {
  /** Undefined for a Select as `from`. */
  readonly table: string | undefined;
  /** The name by which columns refer to it: that of `as`, or the same. */
  readonly name: string;
}

interface Joined extends Source {
  readonly table: string;
  readonly type: string;
}

/** State that the operations of a body share while it is parsed. */
export interface Body {
  /** The earlier elements of a Batch that change rows, by index. */
  readonly changes: ReadonlyMap<number, OperationNode>;
  /** Values that are read later. */
  readonly deferred: Deferred[];
}

/**
 * An operation, or one within it. The kinds of the grammar report here what they read, so that no
 * field with a column or a table is forgotten by those who judge the query.
 */
export class OperationNode {
  readonly body: Body;
  /** Index in a Batch. */
  readonly element: number | undefined;
  /** The operation that contains this one, and how. */
  readonly outer: OperationNode | undefined;
  readonly nesting: Nesting | undefined;
  /** The name of the operation; for a Preview, of the change that it contains. */
  operation = "Select";
  /** Empty until it is read, which names no database. Every operation requires it. */
  database = "";
  source: Source | undefined;
  joins: readonly Joined[] = [];
  /** True if a table has another name. */
  hasAliases = false;
  /** Where the columns are that are read next. */
  position: Position = "columns";
  readonly uses: Use[] = [];
  /** Names that a Select computes, in order, then those of its aggregates. */
  computed: string[] = [];
  aliases: readonly string[] = [];
  /** Tables of the same database that a new table refers to. */
  readonly referenced: string[] = [];
  hasExtraFields = false;
  /** The object of fields, as it is in the tree. */
  fields: object = {};
  /** Of the object of fields. */
  range: ByteRange = { start: 0, end: 0 };
  /** The value of `where`, which may be null. Undefined if it is absent. */
  where: ByteRange | undefined;
  /** Of the whole operation, in the order of the body. Shared by all within it. */
  readonly nested: OperationNode[];
  /** The operation under a Preview, or Batch. */
  previewed: string | undefined;
  /** The elements of a Batch under a Preview. */
  previewedElements: OperationNode[] | undefined;
  /** The value of `where`, without long values that are still deferred. */
  condition: Condition | null | undefined;
  /** True for a Select with `aggregate`. */
  isAggregate = false;
  /** The most rows that a Select returns, or an included table for each outer row. */
  mostRows: number | undefined;
  #level = 1;
  /** Levels of the same nesting. */
  #depth = 1;
  /** The first `on` that names a column of `outer`. */
  #onToken: number | undefined;
  #sides: readonly string[] = [];
  #columnUses: ColumnUses | undefined;
  #references: { readonly table: string; readonly token: number }[] | undefined;

  constructor(body: Body, element?: number, outer?: OperationNode, nesting?: Nesting) {
    this.body = body;
    this.element = element;
    this.outer = outer;
    this.nesting = nesting;
    this.nested = outer === undefined ? [] : outer.nested;
  }

  /** Without those of nested operations. */
  get tables(): string[] {
    const joined = this.joins.map(({ table }) => table);
    const { table } = this.source ?? {};
    return table === undefined ? joined : [table, ...joined];
  }

  /** The names by which columns refer to its rows. */
  get names(): string[] {
    const joined = this.joins.map(({ name }) => name);
    return this.source === undefined ? joined : [this.source.name, ...joined];
  }

  /** True if `from` is a Select, whose columns are of none of `tables`. */
  get readsSelect(): boolean {
    return this.source !== undefined && this.source.table === undefined;
  }

  /** The names of tables that an outer join may fill with nulls. */
  get optional(): ReadonlySet<string> {
    const types = this.joins.map(({ type }) => type);
    return optionalNames(this.names, types);
  }

  /** True if `on` also names columns of `outer`. */
  get isCorrelated(): boolean {
    return this.nesting === "exists" || this.nesting === "include";
  }

  /** Of an included table: the most rows for each row of the whole Select. */
  get rowsPerRow(): number {
    if (this.nesting !== "include") return 1;
    return (this.mostRows ?? DEFAULT_INCLUDED) * (this.outer?.rowsPerRow ?? 1);
  }

  use(column: string): void {
    this.uses.push({ position: this.position, column });
  }

  /** Columns named, by position, without names that the operation itself makes. */
  get columnUses(): ColumnUses {
    this.#columnUses ??= this.#groupUses();
    return this.#columnUses;
  }

  #groupUses(): ColumnUses {
    const uses = new Map<Position, Set<string>>();
    for (const { position, column } of this.uses) {
      if (this.#isOwnName(position, column)) continue;
      const known = uses.get(position);
      if (known === undefined) uses.set(position, new Set([column]));
      else known.add(column);
    }
    return uses;
  }

  #isOwnName(position: Position, column: string): boolean {
    // In `compute` and `on`, any name is a column. An earlier name in `compute` was not recorded.
    const isComputed =
      position !== "compute" && position !== "on" && this.computed.includes(column);
    const isAlias = position === "having" || position === "order_by";
    return isComputed || (isAlias && this.aliases.includes(column));
  }

  /** Only earlier names are in scope of `compute`; anything else there is a column. */
  isEarlierName(column: string): boolean {
    return this.position === "compute" && this.computed.includes(column);
  }

  /** Records that a later element reads a column of the row that `element` has affected. */
  bindTo(element: number, column: string): boolean {
    const change = this.body.changes.get(element);
    if (change === undefined) return false;
    change.position = "returning";
    change.use(column);
    return true;
  }

  /** Begins an operation within this one. @throws QueryRefused */
  nest(nesting: Nesting, token: number, tape: QueryTape): OperationNode {
    const inner = new OperationNode(this.body, undefined, this, nesting);
    inner.#depth = nesting === this.nesting ? this.#depth + 1 : 1;
    // An included table is read by a query of its own.
    inner.#level = nesting === "include" ? this.#level : this.#level + 1;
    this.nested.push(inner);
    const problem = inner.#excess();
    if (problem === undefined) return inner;
    throw tape.refusal("invalid_value", problem, token);
  }

  #excess(): string | undefined {
    const included = this.nested.filter(({ nesting }) => nesting === "include").length;
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
    return this.nested.length - included > MOST_NESTED
      ? `an operation contains at most ${MOST_NESTED} of exists and select; send several operations`
      : undefined;
  }

  /** Records the tables that `on` names, for `requireReferences`. */
  join(sides: readonly string[], token: number): void {
    if (this.isCorrelated) {
      this.#onToken ??= token;
      this.#sides = sides;
    } else for (const side of sides) this.refer(side, token);
  }

  /** Records a table named by a column, for `requireReferences`. */
  refer(table: string, token: number): void {
    this.#references ??= [];
    if (this.#references.length === MOST_REFERENCES) return;
    if (this.#references.some((known) => known.table === table)) return;
    this.#references.push({ table, token });
  }

  /** Requires that columns are of tables in their scope, also within conditions. */
  requireReferences(tape: QueryTape): void {
    if (this.outer === undefined) {
      for (const one of this.nested) {
        one.requireReferences(tape);
        one.#requireCorrelation(tape);
      }
    }
    if (this.#references === undefined) return;
    const { names } = this;
    for (const { table, token } of this.#references) {
      if (names.includes(table)) continue;
      const allowed = names.map(quoteName).join(" and ");
      const problem = `a column of the table ${quoteName(table)} is named; allowed: ${allowed}`;
      throw tape.refusal("invalid_column", problem, token);
    }
  }

  /** Requires that `on` links the own table to one of the enclosing tables. */
  #requireCorrelation(tape: QueryTape): void {
    const { outer } = this;
    if (outer === undefined || this.#onToken === undefined) return;
    const table = this.source?.table ?? "";
    const refuse = (problem: string, token: number) =>
      tape.refusal("invalid_value", problem, token);
    for (let around: OperationNode | undefined = outer; around; around = around.outer) {
      // SQLite ignores the case of names.
      if (around.names.some((name) => name.toLowerCase() === table.toLowerCase())) {
        const remedy =
          this.nesting === "exists"
            ? "around exists; use IN with a select instead"
            : 'around include; give the outer table another name with "as"';
        throw refuse(`the table ${quoteName(table)} is already in use ${remedy}`, this.#onToken);
      }
      if (this.nesting === "include" || around.nesting !== "exists") break;
    }
    const { names } = outer;
    if (this.#sides.includes(table) && this.#sides.some((side) => names.includes(side))) return;
    const allowed = names.map(quoteName).join(" or ");
    const problem = `on must compare a column of ${quoteName(table)} with one of ${allowed}`;
    throw refuse(problem, this.#onToken);
  }
}

const CUT = "...";
/** Maximum UTF-8 bytes of a UTF-16 code unit. */
const MOST_BYTES_PER_UNIT = 3;

class ShapeWriter {
  text = "";
  #position: Position | undefined;
  #first = "";
  /** Columns already written for the position. Created for its second column. */
  #seen: Set<string> | undefined;

  add(position: Position, word: string): void {
    if (position !== this.#position) {
      this.end();
      this.text += `${this.text === "" ? "" : " "}${position}(${word}`;
      this.#position = position;
      this.#first = word;
      this.#seen = undefined;
    } else if (!this.#isRepeated(word)) this.text += `, ${word}`;
  }

  #isRepeated(word: string): boolean {
    this.#seen ??= new Set([this.#first]);
    if (this.#seen.has(word)) return true;
    this.#seen.add(word);
    return false;
  }

  end(): void {
    if (this.#position !== undefined) this.text += ")";
    this.#position = undefined;
  }
}

/**
 * The columns of an operation by position, in order, with their comparisons, such as `columns(id,
 * name) where(age >, name LIKE)`. Never contains a value.
 *
 * @param most maximum bytes, at least three. A shape that is cut ends with `...`
 */
export function describeShape(node: OperationNode, most: number): string {
  const text = writeShape(node, most);
  if (text.length * MOST_BYTES_PER_UNIT <= most || Buffer.byteLength(text) <= most) return text;
  const kept = Buffer.from(text).toString("utf8", 0, most - CUT.length);
  return kept.replace(/\ufffd+$/, "") + CUT;
}

function writeShape({ uses, nested, outer }: OperationNode, most: number): string {
  const writer = new ShapeWriter();
  for (const { position, column } of uses) {
    // Compared columns are written with their comparisons.
    if (position !== "where" && position !== "having") writer.add(position, column);
    if (writer.text.length > most) break;
  }
  for (const { position, column, comparison } of uses) {
    if (writer.text.length > most) break;
    if (comparison !== undefined) writer.add(position, `${column} ${comparison}`);
  }
  writer.end();
  if (outer !== undefined) return writer.text;
  for (const inner of nested) {
    if (writer.text.length > most) break;
    writer.text += ` ${inner.nesting} ${inner.tables.join(", ")}[${writeShape(inner, most)}]`;
  }
  return writer.text;
}
