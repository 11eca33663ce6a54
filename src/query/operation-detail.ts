/** What one operation says beyond its tables: what grants on columns and rows are judged by. */

import type { BodyReader } from "./body-reader.ts";
import type { CellValue } from "./cells.ts";
import type { ColumnUses, OperationDraft, Position } from "./operation-draft.ts";
import { shapeOf } from "./operation-shape.ts";
import type { Operation } from "./operation-types.ts";
import { isOperationName } from "./operations.ts";

/** A part of a body, in byte offsets: `end` is behind its last byte. */
export interface ByteRange {
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
  /**
   * The columns in the order in which they stand, by position, and how they are compared, such as
   * `columns(id, name) where(age >, name LIKE)`; never a value.
   *
   * @param most bytes that it has at most, three or more: what is cut ends with `...`
   */
  shape(most: number): string;
  /**
   * Its fields, parsed; undefined for a configured operation. Whole numbers that a double cannot
   * hold are bigint, and numbers written with a fraction or an exponent an object with their text,
   * which is equal to nothing.
   */
  fields(): Operation | undefined;
}

/** An operation that was read to its end; what costs more than to remember is found when asked for. */
class ReadOperation implements OperationDetail {
  readonly operation: string;
  readonly start: number;
  readonly hasExtraFields: boolean;
  readonly #draft: OperationDraft;
  readonly #reader: BodyReader;
  #uses: ColumnUses | undefined;

  constructor(name: string, draft: OperationDraft, reader: BodyReader, start: number) {
    this.operation = draft.previewed ?? name;
    this.start = draft.previewed === undefined ? start : draft.previewedStart;
    this.hasExtraFields = draft.hasExtraFields;
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

  get end(): number {
    return endOf(this.#reader, this.start);
  }

  get where(): ByteRange | undefined {
    const { whereStart: start } = this.#draft;
    return start === 0 ? undefined : { start, end: endOf(this.#reader, start) };
  }

  shape(most: number): string {
    return shapeOf(this.#draft, most);
  }

  fields(): Operation | undefined {
    const { operation } = this;
    if (!isOperationName(operation)) return undefined;
    const text = this.#reader.bytes.toString("utf8", this.start, this.end);
    const fields = oddNumber.test(text) ? JSON.parse(text, keepExactly) : JSON.parse(text);
    return { name: operation, fields };
  }
}

/** What was found out about an operation that was read to its end. */
export function detailOf(
  name: string,
  draft: OperationDraft,
  reader: BodyReader,
  start: number,
): OperationDetail {
  return new ReadOperation(name, draft, reader, start);
}

function usesOf({ named = [], others = new Map(), summary }: OperationDraft): ColumnUses {
  const uses = new Map<Position, Set<string>>(others);
  for (const { position, column } of named) {
    const known = uses.get(position);
    if (known === undefined) uses.set(position, new Set([column.toString()]));
    else known.add(column.toString());
  }
  for (const position of ["having", "order_by"] as const) {
    for (const alias of summary?.aliases ?? []) uses.get(position)?.delete(alias);
  }
  return uses;
}

/** Byte offset behind the value at an offset, which was read before. */
function endOf(reader: BodyReader, start: number): number {
  return reader.reread(start, () => {
    reader.skipValue();
    return reader.position;
  });
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
