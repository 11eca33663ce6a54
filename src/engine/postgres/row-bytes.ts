import { OutdatedTable } from "../remote/known-tables.ts";
import type { RowForm, RowOutput } from "../spool.ts";
import { ByShape } from "../sql/fragment.ts";
import type { Column, ColumnReference } from "../sql/scope.ts";
import { layoutOf, type RowLayout } from "../sql/values.ts";
import type { PostgresKind } from "./kinds.ts";

const FIRST_ROOM = 4 * 1024;
const USUAL_ROOM = 128 * 1024;

const noRoom = Buffer.alloc(0);

const SPARE_BUFFERS = 4;

/**
 * Collects bytes for an output. Buffers are reused once the output has finished with them, because
 * new ones for each piece would keep the garbage collector busy. Call `reserve` before writing at
 * `at`.
 */
class ByteWriter {
  bytes: Buffer = Buffer.allocUnsafe(FIRST_ROOM);
  at = 0;
  readonly #output: RowOutput;
  readonly #spare: Buffer[] = [];

  constructor(output: RowOutput) {
    this.#output = output;
  }

  reserve(count: number): void {
    if (this.at + count <= this.bytes.length) return;
    const larger = Buffer.allocUnsafeSlow(
      Math.max(USUAL_ROOM, 2 * this.bytes.length, this.at + count),
    );
    this.bytes.copy(larger, 0, 0, this.at);
    this.bytes = larger;
  }

  copy(from: Buffer, start: number, end: number): void {
    const { bytes } = this;
    let { at } = this;
    // A call for a few bytes costs more than copying them.
    if (end - start > 32) at += from.copy(bytes, at, start, end);
    else for (let next = start; next < end; next += 1) bytes[at++] = from[next] ?? 0;
    this.at = at;
  }

  /** Reserves the room it needs. */
  text(text: string): void {
    this.reserve(text.length < USUAL_ROOM ? 3 * text.length : Buffer.byteLength(text));
    this.at += this.bytes.write(text, this.at);
  }

  flush(): void {
    if (this.at === 0) return;
    const { bytes } = this;
    this.#output.writeBytes(bytes.subarray(0, this.at), () => {
      const isUsual = bytes.length === USUAL_ROOM;
      if (isUsual && this.#spare.length < SPARE_BUFFERS) this.#spare.push(bytes);
    });
    // Most answers end here, so no buffer is allocated before it is needed.
    this.bytes = this.#spare.pop() ?? noRoom;
    this.at = 0;
  }
}

/**
 * Values are copied from PostgreSQL's messages to an answer byte by byte. A string for each would
 * cost more than everything else that is done with a row.
 */

/**
 * How the bytes of a type are converted for an answer. A type without a form is read as a string.
 */
export type ByteForm = "boolean" | "decimal" | "double" | "instant" | "integer" | "local" | "text";

/**
 * Writes the value between `start` and `end` of a message, for which there is room. Returns false,
 * with nothing written, if it has to be read as a string.
 */
type PutCell = (from: Buffer, start: number, end: number, to: ByteWriter) => boolean;

/** The longest escape of one byte is `\u0001`. */
const MOST_GROWTH = 6;

const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;
const ZERO = 0x30;
const MINUS = 0x2d;
const SPACE = 0x20;
const hex = Buffer.from("0123456789abcdef");
const yes = Buffer.from("true");
const no = Buffer.from("false");

/** Letters that follow a backslash in JSON. 1 stands for an escape by code, 0 for none. */
const escapes = new Uint8Array(256);
escapes.fill(1, 0, SPACE);
for (const [character, letter] of Object.entries({
  ...{ "\b": "b", "\t": "t", "\n": "n", "\f": "f", "\r": "r", '"': '"', "\\": "\\" },
})) {
  escapes[character.charCodeAt(0)] = letter.charCodeAt(0);
}

function putCellOf(bytes: ByteForm, form: RowForm): PutCell {
  const isCsv = form === "csv";
  switch (bytes) {
    case "boolean":
      return putBoolean;
    case "integer":
      return putPlain;
    case "decimal":
      return putDecimal;
    case "double":
      return putDouble;
    case "instant":
      return isCsv ? putMoment("Z", "") : putMoment("Z", '"');
    case "local":
      return isCsv ? putMoment("", "") : putMoment("", '"');
    case "text":
      return isCsv ? putCsvText : putJsonText;
  }
}

const putPlain: PutCell = (from, start, end, to) => {
  to.copy(from, start, end);
  return true;
};

const putBoolean: PutCell = (from, start, _end, to) => {
  const word = from[start] === 0x74 ? yes : no;
  to.copy(word, 0, word.length);
  return true;
};

/** Excludes `NaN` and `Infinity`, which JSON has no numbers for. */
const putDecimal: PutCell = (from, start, end, to) => {
  const first = from[start] === MINUS ? from[start + 1] : from[start];
  return first !== undefined && isDigit(first) && putPlain(from, start, end, to);
};

/** Takes digits that a double reproduces exactly: few of them, and no exponent. */
const putDouble: PutCell = (from, start, end, to) => {
  const isNegative = from[start] === MINUS;
  // `-0` is not one of them.
  if (end - start > 15 || (isNegative && end - start < 3)) return false;
  for (let at = isNegative ? start + 1 : start; at < end; at += 1) {
    const byte = from[at] ?? 0;
    if (!isDigit(byte) && byte !== 0x2e) return false;
  }
  return putPlain(from, start, end, to);
};

function isDigit(byte: number): boolean {
  return byte >= ZERO && byte <= ZERO + 9;
}

/** Reads `2026-01-02 03:04:05.678`, followed by `+00` in an instant. */
function putMoment(zone: "Z" | "", around: '"' | ""): PutCell {
  const offset = zone === "" ? 0 : "+00".length;
  return (from, start, end, to) => {
    const last = end - offset;
    if (last - start < 19 || from[start + 10] !== SPACE || !isDigit(from[last - 1] ?? 0))
      return false;
    if (offset > 0 && !endsInUtc(from, last)) return false;
    if (around !== "") to.bytes[to.at++] = QUOTE;
    const at = to.at;
    to.copy(from, start, last);
    to.bytes[at + 10] = 0x54;
    if (zone !== "") to.bytes[to.at++] = 0x5a;
    if (around !== "") to.bytes[to.at++] = QUOTE;
    return true;
  };
}

function endsInUtc(from: Buffer, at: number): boolean {
  return from[at] === 0x2b && from[at + 1] === ZERO && from[at + 2] === ZERO;
}

/** Escapes like `JSON.stringify`. */
const putJsonText: PutCell = (from, start, end, to) => {
  const { bytes } = to;
  let { at } = to;
  bytes[at++] = QUOTE;
  for (let next = start; next < end; next += 1) {
    const byte = from[next] ?? 0;
    const letter = escapes[byte] ?? 0;
    if (letter === 0) {
      bytes[at++] = byte;
      continue;
    }
    bytes[at++] = BACKSLASH;
    if (letter === 1) {
      bytes[at++] = 0x75;
      bytes[at++] = ZERO;
      bytes[at++] = ZERO;
      bytes[at++] = hex[byte >> 4] ?? 0;
      bytes[at++] = hex[byte & 15] ?? 0;
    } else bytes[at++] = letter;
  }
  bytes[at++] = QUOTE;
  to.at = at;
  return true;
};

/** Quotes where needed, and an empty value, to distinguish it from null. */
const putCsvText: PutCell = (from, start, end, to) => {
  if (start < end && !needsQuotes(from, start, end)) return putPlain(from, start, end, to);
  const { bytes } = to;
  let { at } = to;
  bytes[at++] = QUOTE;
  for (let next = start; next < end; next += 1) {
    const byte = from[next] ?? 0;
    if (byte === QUOTE) bytes[at++] = QUOTE;
    bytes[at++] = byte;
  }
  bytes[at++] = QUOTE;
  to.at = at;
  return true;
};

function needsQuotes(from: Buffer, start: number, end: number): boolean {
  for (let at = start; at < end; at += 1) {
    const byte = from[at];
    if (byte === QUOTE || byte === COMMA || byte === 0x0d || byte === 0x0a) return true;
  }
  return false;
}

export interface ResultColumn {
  readonly dataTypeID: number;
}

interface Cell {
  readonly prefix: Buffer;
  readonly kind: PostgresKind;
  readonly put: PutCell | undefined;
}

/** Reads 32 bits. `readInt32BE` takes several times as long. */
function lengthAt(bytes: Buffer, at: number): number {
  const [a = 0, b = 0, c = 0, d = 0] = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
  return (a << 24) | (b << 16) | (c << 8) | d;
}

/**
 * Values from this many bytes on are read as strings, because room for their worst case would be
 * too much.
 */
const LONG_VALUE = 64 * 1024;

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

/** Writes rows from PostgreSQL's messages to an output in its format. */
export class RowBytes {
  readonly #frame: Frame;
  readonly #writer: ByteWriter;
  readonly #output: RowOutput;
  count = 0;

  constructor(columns: readonly ColumnReference<Column<PostgresKind>>[], output: RowOutput) {
    this.#frame = frames.find(columns, output.form, () => frameOf(columns, output.form));
    this.#writer = new ByteWriter(output);
    this.#output = output;
  }

  /**
   * Checks that the columns still have the known types.
   *
   * @throws OutdatedTable if one does not
   */
  requireTypes(columns: readonly ResultColumn[]): void {
    const areKnown = this.#frame.cells.every(({ kind }, index) => {
      const type = columns[index]?.dataTypeID;
      return type !== undefined && kind.isWrittenAs(type);
    });
    if (!areKnown) throw new OutdatedTable();
  }

  /**
   * Writes a row from the body of a `DataRow` (PostgreSQL, "Message Formats").
   *
   * @throws Error if it does not fit its columns or its length
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

  get length(): number {
    return this.#writer.at;
  }

  flush(): void {
    this.#writer.flush();
  }

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
