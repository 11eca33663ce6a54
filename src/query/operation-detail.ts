import type { BodyReader } from "./body-reader.ts";
import type { Condition } from "./conditions.ts";
import type { ColumnUses, NamedColumn, OperationDraft, Position } from "./operation-draft.ts";
import type { Operation } from "./operation-types.ts";
import { isOperationName } from "./operations.ts";
import type { CellValue } from "./values.ts";

/** What an operation asks for, in words that hold no value: for the audit. */

/** What stands at the end of a shape that is cut. */
const CUT = "...";
/** Bytes of a UTF-16 code unit in UTF-8, at most. */
const WIDEST = 3;

/** Writes the columns of each position once, in the order in which they come. */
class ShapeWriter {
  text = "";
  #position: Position | undefined;
  #first = "";
  /** What was written of the position; made with its second column. */
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
  if (text.length * WIDEST <= most || Buffer.byteLength(text) <= most) return text;
  const kept = Buffer.from(text).toString("utf8", 0, most - CUT.length);
  return kept.replace(/\ufffd+$/, "") + CUT;
}

/** The shape of an operation, such as `columns(id, name) where(age >, name LIKE)`. */
function shapeOf({ named = [], compared = [] }: OperationDraft, most: number): string {
  const writer = new ShapeWriter();
  for (const one of named) {
    // What is compared is told with its comparisons.
    if (one.position !== "where" && one.position !== "having") writer.add(one);
    if (writer.text.length > most) break;
  }
  for (const one of compared) {
    if (writer.text.length > most) break;
    writer.add(one);
  }
  writer.end();
  return cut(writer.text, most);
}

/** What one operation says beyond its tables: what grants on columns and rows are judged by. */

/** A part of a body, in byte offsets: `end` is behind its last byte. */
interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/** An operation as it stands in a body; for a Preview the change that it holds. */
export interface OperationDetail extends ByteRange {
  /** The operation's key. */
  readonly operation: string;
  /** The columns that it names, by position; aliases of aggregates are none. */
  readonly uses: ColumnUses;
  /** False if it names more columns than `uses` has, since the scan was asked for its shape alone. */
  readonly isWhole: boolean;
  /** The value of its `where`, which may be null; undefined if that is left out. */
  readonly where: ByteRange | undefined;
  /** True if it has a field that the configuration adds. */
  readonly hasExtraFields: boolean;
  /** True for a Select with aggregates. */
  readonly isAggregate: boolean;
  /** The tables of its database that a new table refers to. */
  readonly referenced: readonly string[];
  /**
   * The columns in the order in which they stand, by position, and how they are compared, such as
   * `columns(id, name) where(age >, name LIKE)`; never a value.
   *
   * @param most bytes that it has at most, three or more: what is cut ends with `...`
   */
  shape(most: number): string;
  /** Its `where`, parsed as `fields` are; undefined if that is left out. */
  condition(): Condition | null | undefined;
  /**
   * Its fields, parsed; undefined for a configured operation. Whole numbers that a double cannot
   * hold are bigint, and numbers written with a fraction or an exponent an object with their text,
   * which is equal to nothing.
   */
  fields(): Operation | undefined;
}

const none: readonly never[] = [];

/** An operation that was read to its end; what costs more than to remember is found when asked for. */
class ReadOperation implements OperationDetail {
  readonly operation: string;
  readonly start: number;
  readonly end: number;
  readonly #draft: OperationDraft;
  readonly #reader: BodyReader;
  #uses: ColumnUses | undefined;

  constructor(name: string, draft: OperationDraft, reader: BodyReader, start: number) {
    const { previewed, previewedStart, previewedEnd } = draft;
    this.operation = previewed ?? name;
    this.start = previewed === undefined ? start : previewedStart;
    this.end = previewed === undefined ? reader.position : previewedEnd;
    this.#draft = draft;
    this.#reader = reader;
  }

  get uses(): ColumnUses {
    this.#uses ??= usesOf(this.#draft);
    return this.#uses;
  }

  get isWhole(): boolean {
    return !this.#draft.isCut;
  }

  get hasExtraFields(): boolean {
    return this.#draft.hasExtraFields;
  }

  get isAggregate(): boolean {
    return this.#draft.aggregateStart > 0;
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

  condition(): Condition | null | undefined {
    const { where } = this;
    return where && parseExactly(this.#textOf(where));
  }

  fields(): Operation | undefined {
    const { operation } = this;
    return isOperationName(operation)
      ? { name: operation, fields: parseExactly(this.#textOf(this)) }
      : undefined;
  }

  #textOf({ start, end }: ByteRange): string {
    return this.#reader.bytes.toString("utf8", start, end);
  }
}

/** What was found out about an operation whose end the reader has just reached. */
export function detailOf(
  name: string,
  draft: OperationDraft,
  reader: BodyReader,
  start: number,
): OperationDetail {
  return new ReadOperation(name, draft, reader, start);
}

function usesOf({ named = [], others, summary }: OperationDraft): ColumnUses {
  const uses = new Map<Position, Set<string>>(others);
  for (const { position, column } of named) {
    const known = uses.get(position);
    if (known === undefined) uses.set(position, new Set([column.toString()]));
    else known.add(column.toString());
  }
  if (summary !== undefined) {
    for (const position of ["having", "order_by"] as const) {
      for (const alias of summary.aliases) uses.get(position)?.delete(alias);
    }
  }
  return uses;
}

/** Parses what was read before. */
function parseExactly(text: string) {
  return oddNumber.test(text) ? JSON.parse(text, keepExactly) : JSON.parse(text);
}

/** Matches where a number may stand that a double writes otherwise, or that is not whole. */
const oddNumber = /\d{16}|\d[.eE]/;

/** `context` is what numbers come with: their text (ECMAScript, JSON.parse source text access). */
function keepExactly(_key: string, value: CellValue, context?: { source: string }): CellValue {
  if (typeof value !== "number") return value;
  const source = context?.source ?? "";
  if (!/^-?\d+$/.test(source)) return { number: source };
  return Number.isSafeInteger(value) ? value : BigInt(source);
}
