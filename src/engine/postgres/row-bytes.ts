import { OutdatedTable } from "../remote/known-tables.ts";
import type { RowForm, RowOutput } from "../spool.ts";
import { ByShape } from "../sql/by-shape.ts";
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

/** What stands around the values of rows, in bytes. */
interface Frame {
  readonly layout: RowLayout;
  readonly cells: readonly Cell[];
  readonly separator: Buffer;
  readonly end: Buffer;
  readonly absent: Buffer;
}

const frames = new ByShape<Frame>();

function frameOf(columns: readonly ColumnReference<Column<PostgresKind>>[], form: RowForm): Frame {
  const layout = layoutOf(columns, form);
  const { prefixes, separator, end, absent } = layout;
  const cells = columns.map(({ column: { kind } }, index) => ({
    prefix: Buffer.from(prefixes[index] ?? ""),
    kind,
    put: kind.bytes === undefined ? undefined : putCellOf(kind.bytes, form),
  }));
  return {
    layout,
    cells,
    separator: Buffer.from(separator),
    end: Buffer.from(end),
    absent: Buffer.from(absent),
  };
}

/** Writes rows, out of the messages of PostgreSQL that hold them, to an output in the form it wants. */
export class RowBytes {
  readonly #frame: Frame;
  readonly #writer: ByteWriter;
  readonly #output: RowOutput;
  /** Rows that were written. */
  count = 0;

  constructor(columns: readonly ColumnReference<Column<PostgresKind>>[], output: RowOutput) {
    this.#frame = frames.find(columns, output.form, () => frameOf(columns, output.form));
    this.#writer = new ByteWriter(output);
    this.#output = output;
  }

  /**
   * Sees that the columns are still of the types that they were known by.
   *
   * @throws OutdatedTable if one is not
   */
  requireTypes(columns: readonly ResultColumn[]): void {
    const areKnown = this.#frame.cells.every(({ kind }, index) => {
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
    const { cells, separator, end: rowEnd, absent, layout } = this.#frame;
    if (this.count > 0) this.#put(separator);
    else this.#writer.text(layout.head);
    this.count += 1;
    if (message.readInt16BE(start) !== cells.length) throw new Error("A row of other columns");
    let at = start + 2;
    for (const cell of cells) {
      const length = lengthAt(message, at);
      at += 4;
      this.#put(cell.prefix);
      if (length === -1) {
        this.#put(absent);
        continue;
      }
      if (at + length > end) throw new Error("A value beyond its row");
      this.#putValue(cell, message, at, at + length);
      at += length;
    }
    this.#put(rowEnd);
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
    const { head, tail } = this.#frame.layout;
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
    this.#writer.text(this.#frame.layout.cell(kind.encode(message.toString("utf8", start, end))));
  }
}
