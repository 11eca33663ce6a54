import { isUtf8 } from "node:buffer";
import type { Steps } from "../../cooperative-scheduling.ts";
import { JsonFault } from "../../json/fault.ts";
import { JsonReader } from "../../json/reader.ts";

/** Rows of an answer, as JSON text without line breaks. */
export interface Rows {
  readonly rows: readonly Buffer[];
  /** True if the answer goes on behind these. */
  readonly isCut: boolean;
}

/** Bytes that are read between two chances to interrupt. */
const BYTES_PER_STEP = 32 * 1024;
/** Digits up to which every whole number is one that a double holds. */
const SAFE_DIGITS = 15;
const letterE = 0x65;
const lineFeed = 0x0a;
const carriageReturn = 0x0d;
const space = 0x20;
const quote = Buffer.from('"');

/** True if JSON readers may round the number, or take it for infinite. */
export function isRounded(number: string): boolean {
  const value = Number(number);
  return /^-?\d+$/.test(number) ? !Number.isSafeInteger(value) : !Number.isFinite(value);
}

/** Reads JSON and notes the numbers that other readers may take for others. */
class NumberReader extends JsonReader {
  /** Byte offsets of the first digit and of what follows the last one, in turn. */
  rounded: number[] = [];

  override skipNumber(): void {
    const start = this.position;
    super.skipNumber();
    const end = this.position;
    // A short one can only be infinite, by its exponent.
    if (end - start <= SAFE_DIGITS && !this.#hasExponent(start, end)) return;
    if (isRounded(this.bytes.toString("latin1", start, end))) this.rounded.push(start, end);
  }

  #hasExponent(start: number, end: number): boolean {
    for (let at = start; at < end; at++) {
      if (((this.bytes[at] ?? 0) | 0x20) === letterE) return true;
    }
    return false;
  }
}

/** The row's bytes, with the numbers at these offsets as strings of their digits. */
function rowAt(bytes: Buffer, start: number, end: number, rounded: readonly number[]): Buffer {
  if (rounded.length === 0) return bytes.subarray(start, end);
  const pieces: Buffer[] = [];
  let from = start;
  for (const place of rounded) {
    pieces.push(bytes.subarray(from, place), quote);
    from = place;
  }
  return Buffer.concat([...pieces, bytes.subarray(from, end)]);
}

/** Line breaks of JSON stand between its tokens alone; in an event stream they would end a line. */
function eraseLineBreaks(row: Buffer): void {
  if (!row.includes(lineFeed) && !row.includes(carriageReturn)) return;
  for (let at = 0; at < row.length; at++) {
    if (row[at] === lineFeed || row[at] === carriageReturn) row[at] = space;
  }
}

function* readRows(reader: NumberReader, rows: Buffer[]): Steps<void> {
  for (let more = reader.openArray(); more; more = reader.nextElement()) {
    reader.expect("an object");
    const start = reader.position;
    reader.rounded = [];
    const rest = reader.skipValue() ?? reader.pause();
    if (rest !== undefined) yield* rest;
    const row = rowAt(reader.bytes, start, reader.position, reader.rounded);
    eraseLineBreaks(row);
    rows.push(row);
  }
}

function* readData(reader: NumberReader, rows: Buffer[]): Steps<boolean> {
  let isThere = false;
  reader.skipSpace();
  for (let more = reader.openObject(); more; more = reader.nextMember()) {
    const isData = reader.readKey().toString() === "data";
    const rest = isData ? readRows(reader, rows) : reader.skipValue();
    if (rest !== undefined) yield* rest;
    isThere ||= isData;
  }
  return isThere;
}

/**
 * The rows of an answer. A whole number beyond 2^53 - 1 becomes a string of its digits.
 *
 * @param bytes nobody else's: line breaks in them are erased
 * @param isCut true if the answer went on behind these bytes
 * @returns undefined if it is none with rows, or one that not every JSON reader would take
 */
export function* rowsIn(bytes: Buffer, isCut: boolean): Steps<Rows | undefined> {
  const reader = new NumberReader(bytes);
  reader.pauseEvery(BYTES_PER_STEP);
  const rows: Buffer[] = [];
  try {
    const isThere = yield* readData(reader, rows);
    return isThere && isUtf8(bytes) ? { rows, isCut } : undefined;
  } catch (error) {
    if (!(error instanceof JsonFault)) throw error;
    return isCut && rows.every(isUtf8) ? { rows, isCut } : undefined;
  }
}
