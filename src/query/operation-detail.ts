import { parseExact } from "../json/exact.ts";
import type { BodyReader } from "./body-reader.ts";
import type { Condition } from "./conditions.ts";
import { optionalNames } from "./names.ts";
import {
  addUse,
  type ColumnUses,
  type NamedColumn,
  type OperationDraft,
  type Position,
} from "./operation-draft.ts";
import type { Operation } from "./operation-types.ts";
import type { CellValue } from "./values.ts";

const CUT = "...";
/** Maximum UTF-8 bytes of a UTF-16 code unit. */
const MOST_BYTES_PER_UNIT = 3;

class ShapeWriter {
  text = "";
  #position: Position | undefined;
  #first = "";
  /** Columns already written for the position. Created for its second column. */
  #seen: Set<string> | undefined;

  add({ position, column, comparison }: NamedColumn): void {
    const name = column.toString();
    const word = comparison === undefined ? name : `${name} ${comparison}`;
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

function cut(text: string, most: number): string {
  if (text.length * MOST_BYTES_PER_UNIT <= most || Buffer.byteLength(text) <= most) return text;
  const kept = Buffer.from(text).toString("utf8", 0, most - CUT.length);
  return kept.replace(/\ufffd+$/, "") + CUT;
}

function shapeOf({ named = [], compared = [], nested = [] }: OperationDraft, most: number): string {
  const writer = new ShapeWriter();
  for (const one of named) {
    // Compared columns are written with their comparisons.
    if (one.position !== "where" && one.position !== "having") writer.add(one);
    if (writer.text.length > most) break;
  }
  for (const one of compared) {
    if (writer.text.length > most) break;
    writer.add(one);
  }
  writer.end();
  for (const inner of nested) {
    if (writer.text.length > most) break;
    writer.text += ` ${inner.nesting} ${inner.tables.join(", ")}[${shapeOf(inner, most)}]`;
  }
  return cut(writer.text, most);
}

/** A comparison with a value. */
export type Term = Extract<Condition, { readonly value: CellValue }>;

/** Byte offsets in a body. `end` is exclusive. */
interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/** A Select, `exists` or included table within an operation. */
export interface NestedDetail {
  readonly detail: OperationDetail;
  /** For `exists` and `include`: the operation whose columns `on` also names. */
  readonly linked: OperationDetail | undefined;
  /** For `include`: the most rows for each row of the whole Select. */
  readonly rowsPerRow: number | undefined;
}

/** An operation as narrowed grants judge it. For a Preview, the change that it contains. */
export interface OperationDetail extends ByteRange {
  readonly operation: string;
  /** Columns named, by position, without aliases of aggregates. */
  readonly uses: ColumnUses;
  /** False if `uses` is incomplete because the scan collected only the shape. */
  readonly isWhole: boolean;
  /** The value of `where`, which may be null. Undefined if it is absent. */
  readonly where: ByteRange | undefined;
  readonly hasExtraFields: boolean;
  readonly isAggregate: boolean;
  /** Without those of nested operations. */
  readonly tables: readonly string[];
  /** The names by which columns refer to `tables`: those of `as`, or the same. */
  readonly names: readonly string[];
  /** True if `from` is a Select, whose columns are of none of `tables`. */
  readonly readsSelect: boolean;
  /** In the order of the body. */
  readonly nested: readonly NestedDetail[];
  readonly isComputed: boolean;
  /** The names of tables that an outer join may fill with nulls. */
  readonly optional: ReadonlySet<string>;
  /** The most rows that a Select returns. Undefined without a limit. */
  readonly mostRows: number | undefined;
  /** Tables of the same database that a new table refers to. */
  readonly referenced: readonly string[];
  /**
   * The columns by position, in order, with their comparisons, such as `columns(id, name) where(age
   * >, name LIKE)`. Never contains a value.
   *
   * @param most maximum bytes, at least three. A shape that is cut ends with `...`
   */
  shape(most: number): string;
  /** Comparisons in `where` that every row must meet. May lack some if `where` is long. */
  readonly terms: readonly Term[];
  /** The operation as it will be run. Undefined for a configured one, and for a nested one. */
  fields(): Operation | undefined;
}

const none: readonly never[] = [];

export class ReadOperation implements OperationDetail {
  readonly operation: string;
  readonly start: number;
  readonly end: number;
  readonly fields: () => Operation | undefined;
  readonly #draft: OperationDraft;
  readonly #reader: BodyReader;
  #uses: ColumnUses | undefined;
  #nested: readonly NestedDetail[] | undefined;
  #terms: readonly Term[] | undefined;

  constructor(
    name: string,
    draft: OperationDraft,
    reader: BodyReader,
    start: number,
    fields: () => Operation | undefined = () => undefined,
  ) {
    this.fields = fields;
    const { previewed, previewedStart, previewedEnd } = draft;
    this.operation = previewed ?? name;
    this.start = previewed === undefined ? start : previewedStart;
    const end = draft.outer === undefined ? reader.position : draft.end;
    this.end = previewed === undefined ? end : previewedEnd;
    this.#draft = draft;
    this.#reader = reader;
  }

  get uses(): ColumnUses {
    this.#uses ??= usesOf(this.#draft);
    return this.#uses;
  }

  get isWhole(): boolean {
    return !this.#draft.isCut && this.nested.every(({ detail }) => detail.isWhole);
  }

  get hasExtraFields(): boolean {
    return this.#draft.hasExtraFields;
  }

  get isAggregate(): boolean {
    return this.#draft.aggregateStart > 0;
  }

  get tables(): readonly string[] {
    return this.#draft.tables;
  }

  get names(): readonly string[] {
    return this.readsSelect ? this.#draft.names.slice(1) : this.#draft.names;
  }

  get readsSelect(): boolean {
    return this.#draft.readsSelect;
  }

  get nested(): readonly NestedDetail[] {
    if (this.#draft.nested === undefined) return none;
    this.#nested ??= nestedIn(this, this.#draft, this.#draft.nested, this.#reader);
    return this.#nested;
  }

  get isComputed(): boolean {
    return this.#draft.computed !== undefined;
  }

  get optional(): ReadonlySet<string> {
    return optionalNames(this.#draft.names, this.#draft.joinTypes ?? none);
  }

  get mostRows(): number | undefined {
    const { limit, summary } = this.#draft;
    const isSingle = this.isAggregate && summary?.groups.length === 0;
    return isSingle ? Math.min(1, limit ?? 1) : limit;
  }

  get referenced(): readonly string[] {
    return this.#draft.referenced ?? none;
  }

  get where(): ByteRange | undefined {
    const { whereStart: start, whereEnd: end } = this.#draft;
    return end === 0 ? undefined : { start, end };
  }

  shape(most: number): string {
    return shapeOf(this.#draft, most);
  }

  get terms(): readonly Term[] {
    const { terms = none } = this.#draft;
    this.#terms ??= terms.map(([start, end]) => parseExact(this.#textOf({ start, end })));
    return this.#terms;
  }

  #textOf({ start, end }: ByteRange): string {
    return this.#reader.bytes.toString("utf8", start, end);
  }
}

function nestedIn(
  whole: OperationDetail,
  draft: OperationDraft,
  nested: readonly OperationDraft[],
  reader: BodyReader,
): NestedDetail[] {
  const details = new Map<OperationDraft | undefined, OperationDetail>([[draft, whole]]);
  return nested.map((one) => {
    const detail = new ReadOperation("Select", one, reader, one.start);
    details.set(one, detail);
    const linked = one.isCorrelated ? details.get(one.outer) : undefined;
    return { detail, linked, rowsPerRow: one.nesting === "include" ? one.rowsPerRow : undefined };
  });
}

const computedPositions = [
  "columns",
  "where",
  "group_by",
  "aggregate",
  "having",
  "order_by",
] as const;

function usesOf({ named = [], others, summary, computed = [] }: OperationDraft): ColumnUses {
  const uses = new Map<Position, Set<string>>(others);
  for (const { position, column } of named) addUse(uses, position, column);
  // Their columns are in `compute`.
  for (const position of computedPositions) {
    for (const name of computed) uses.get(position)?.delete(name);
  }
  if (summary !== undefined) {
    for (const position of ["having", "order_by"] as const) {
      for (const alias of summary.aliases) uses.get(position)?.delete(alias);
    }
  }
  return uses;
}
