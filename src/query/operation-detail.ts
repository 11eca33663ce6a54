/** What one operation says beyond its tables: what grants on columns and rows are judged by. */

import type { BodyReader } from "./body-reader.ts";
import type { CellValue } from "./cells.ts";
import type { ColumnUses, OperationDraft, Position } from "./operation-draft.ts";
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
  /** The value of its `where`, which may be null; undefined if that is left out. */
  readonly where: ByteRange | undefined;
  /** True if it has a field that the configuration adds. */
  readonly hasExtraFields: boolean;
  /**
   * Its fields, parsed; undefined for a configured operation. Whole numbers that a double cannot
   * hold are bigint, and numbers written with a fraction or an exponent an object with their text,
   * which is equal to nothing.
   */
  fields(): Operation | undefined;
}

/** Puts together what was found out about an operation that was read to its end. */
export function detailOf(
  name: string,
  draft: OperationDraft,
  uses: Map<Position, Set<string>>,
  reader: BodyReader,
  operationStart: number,
): OperationDetail {
  const { previewed, previewedStart, summary, whereStart, hasExtraFields } = draft;
  for (const position of ["having", "order_by"] as const) {
    for (const alias of summary?.aliases ?? []) uses.get(position)?.delete(alias);
  }
  const operation = previewed ?? name;
  const start = previewed === undefined ? operationStart : previewedStart;
  const end = endOf(reader, start);
  const where =
    whereStart === 0 ? undefined : { start: whereStart, end: endOf(reader, whereStart) };
  const { bytes } = reader;
  return {
    operation,
    uses,
    start,
    end,
    where,
    hasExtraFields,
    fields() {
      if (!isOperationName(operation)) return undefined;
      const text = bytes.toString("utf8", start, end);
      const fields = oddNumber.test(text) ? JSON.parse(text, keepExactly) : JSON.parse(text);
      return { name: operation, fields };
    },
  };
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
