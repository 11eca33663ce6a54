import { OutdatedTable } from "../remote/known-tables.ts";
import type { RowOutput } from "../spool.ts";
import { layoutOf, type RowLayout } from "../sql/encode.ts";
import type { Column, ColumnReference } from "../sql/scope.ts";
import { ByteWriter } from "./byte-writer.ts";
import { MOST_GROWTH, type PutCell, putCellOf } from "./cell-bytes.ts";
import type { PostgresKind } from "./kinds.ts";

/** A column of a result, as the server describes it. */
export interface ResultColumn {
  readonly dataTypeID: number;
}

/** A column of rows that are written as they come. */
interface Cell {
  readonly prefix: Buffer;
  readonly kind: PostgresKind;
  readonly put: PutCell | undefined;
}

/** A number of 32 bits; `readInt32BE` takes several times as long. */
function lengthAt(bytes: Buffer, at: number): number {
  const [a = 0, b = 0, c = 0, d = 0] = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
  return (a << 24) | (b << 16) | (c << 8) | d;
}

/** Bytes of a value from which on it is read as a string: room for its worst case would be too much. */
const LONG_VALUE = 64 * 1024;

/** Writes rows, out of the messages of PostgreSQL that hold them, to an output in the form it wants. */
export class RowBytes {
  readonly #layout: RowLayout;
  readonly #cells: readonly Cell[];
  readonly #writer: ByteWriter;
  readonly #output: RowOutput;
  readonly #separator: Buffer;
  readonly #end: Buffer;
  readonly #absent: Buffer;
  /** Rows that were written. */
  count = 0;

  constructor(columns: readonly ColumnReference<Column<PostgresKind>>[], output: RowOutput) {
    this.#layout = layoutOf(columns, output.form);
    const { prefixes, separator, end, absent } = this.#layout;
    this.#cells = columns.map(({ column: { kind } }, index) => ({
      prefix: Buffer.from(prefixes[index] ?? ""),
      kind,
      put: kind.bytes === undefined ? undefined : putCellOf(kind.bytes, output.form),
    }));
    this.#writer = new ByteWriter(output);
    this.#output = output;
    this.#separator = Buffer.from(separator);
    this.#end = Buffer.from(end);
    this.#absent = Buffer.from(absent);
  }

  /**
   * Sees that the columns are still of the types that they were known by.
   *
   * @throws OutdatedTable if one is not
   */
  requireTypes(columns: readonly ResultColumn[]): void {
    const areKnown = this.#cells.every(({ kind }, index) => {
      const type = columns[index]?.dataTypeID;
      return type !== undefined && kind.isWrittenAs(type);
    });
    if (!areKnown) throw new OutdatedTable();
  }

  /**
   * Writes a row: what follows the length of a `DataRow` (PostgreSQL, "Message Formats"), up to `end`.
   * @throws Error for one that is not as long as it says
   */
  write(message: Buffer, start: number, end: number): void {
    const writer = this.#writer;
    if (this.count > 0) this.#put(this.#separator);
    else writer.text(this.#layout.head);
    this.count += 1;
    if (message.readInt16BE(start) !== this.#cells.length)
      throw new Error("A row of other columns");
    let at = start + 2;
    for (const cell of this.#cells) {
      const length = lengthAt(message, at);
      at += 4;
      this.#put(cell.prefix);
      if (length === -1) {
        this.#put(this.#absent);
        continue;
      }
      if (at + length > end) throw new Error("A value beyond its row");
      this.#putValue(cell, message, at, at + length);
      at += length;
    }
    this.#put(this.#end);
  }

  /** Bytes that were written and not handed over. */
  get length(): number {
    return this.#writer.at;
  }

  /** Hands over what was written so far. */
  flush(): void {
    this.#writer.flush();
  }

  /** Writes what follows the last row. */
  end(): void {
    const { head, tail } = this.#layout;
    this.#writer.text(this.count > 0 ? tail : head + tail);
    this.flush();
    this.#output.countRows(this.count);
  }

  #put(bytes: Buffer): void {
    this.#writer.reserve(bytes.length);
    this.#writer.copy(bytes, 0, bytes.length);
  }

  #putValue({ kind, put }: Cell, message: Buffer, start: number, end: number): void {
    const length = end - start;
    if (put !== undefined && length < LONG_VALUE) {
      this.#writer.reserve(MOST_GROWTH * length + 2);
      if (put(message, start, end, this.#writer)) return;
    }
    this.#writer.text(this.#layout.cell(kind.encode(message.toString("utf8", start, end))));
  }
}
