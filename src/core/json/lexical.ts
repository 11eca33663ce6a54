import { isUtf8 } from "node:buffer";
import { JsonFault } from "./fault.ts";

// The tapes repeat the constants for single bytes that follow below. An imported constant is loaded
// at every comparison, which costs them up to half of their speed.

/** The body's own object is at depth 1. */
export const DEEPEST_NESTING = 64;

/** A table with 1 for each accepted byte, else 0. */
export function byteTable(accepts: (byte: number) => boolean): Uint8Array {
  return Uint8Array.from({ length: 256 }, (_, byte) => (accepts(byte) ? 1 : 0));
}

export function characterTable(characters: string): Uint8Array {
  return byteTable((byte) => characters.includes(String.fromCharCode(byte)));
}

/** A range of valid, unescaped UTF-8 in a buffer. */
export class ByteText {
  readonly bytes: Buffer;
  readonly start: number;
  /** Exclusive. */
  readonly end: number;

  constructor(bytes: Buffer, start = 0, end = bytes.length) {
    this.bytes = bytes;
    this.start = start;
    this.end = end;
  }

  equals(other: ByteText): boolean {
    if (this.end - this.start !== other.end - other.start) return false;
    const distance = other.start - this.start;
    for (let position = this.start; position < this.end; position++) {
      if (this.bytes[position] !== other.bytes[position + distance]) return false;
    }
    return true;
  }

  toString(): string {
    return this.bytes.toString("utf8", this.start, this.end);
  }
}

export const BACKSLASH = 0x5c;
export const BLANK = 0x20;
export const CLOSE_BRACE = 0x7d;
export const CLOSE_BRACKET = 0x5d;
export const COLON = 0x3a;
export const COMMA = 0x2c;
const LETTER_A = 0x61;
const LETTER_E = 0x65;
export const LETTER_F = 0x66;
const LETTER_L = 0x6c;
export const LETTER_N = 0x6e;
const LETTER_R = 0x72;
const LETTER_S = 0x73;
export const LETTER_T = 0x74;
const LETTER_U = 0x75;
const MINUS = 0x2d;
export const NINE = 0x39;
export const OPEN_BRACE = 0x7b;
export const OPEN_BRACKET = 0x5b;
const PLUS = 0x2b;
const POINT = 0x2e;
export const QUOTE = 0x22;
export const ZERO = 0x30;

/** Four equal bytes. */
const QUOTES = 0x22222222;
const BACKSLASHES = 0x5c5c5c5c;
const BLANKS = 0x20202020;
const ONES = 0x01010101;
const HIGH_BITS = 0x80808080;

const plainInString = byteTable((byte) => byte >= BLANK && byte !== QUOTE && byte !== BACKSLASH);
const digit = characterTable("0123456789");
const simpleEscape = characterTable('"\\/bfnrt');
const space = characterTable(" \t\n\r");
const beginsNumber = characterTable("-0123456789");

/** -1 for all other bytes. */
const hexadecimal = Int8Array.from({ length: 256 }, (_, byte) =>
  "0123456789abcdef".indexOf(String.fromCharCode(byte).toLowerCase()),
);

export function plainEnd(bytes: Buffer, start: number): number {
  let position = start;
  while (plainInString[bytes[position] ?? 0] === 1) position++;
  return position;
}

/** As `plainEnd`, four bytes at a time. It may stop early, but only within the last three bytes. */
export function plainEndByWords(words: DataView, start: number, last: number): number {
  let position = start;
  while (position <= last) {
    const word = words.getInt32(position, true);
    const quotes = word ^ QUOTES;
    const backslashes = word ^ BACKSLASHES;
    // The lowest flag is right: a borrow can only set wrong ones above it.
    const flags =
      (((quotes - ONES) & ~quotes) |
        ((backslashes - ONES) & ~backslashes) |
        ((word - BLANKS) & ~word)) &
      HIGH_BITS;
    if (flags !== 0) return position + ((31 - Math.clz32(flags & -flags)) >> 3);
    position += 4;
  }
  return position;
}

/** The offset after an escape, given its backslash. @throws JsonFault */
export function escapeEnd(bytes: Buffer, position: number): number {
  return simpleEscape[bytes[position + 1] ?? 0] === 1 ? position + 2 : codeUnitEnd(bytes, position);
}

export function stringFault(bytes: Buffer, position: number): JsonFault {
  const problem =
    position >= bytes.length
      ? "the body ends within a string"
      : "a string contains a control character, which must be escaped";
  return new JsonFault("invalid_json", problem, position);
}

/** The offset after a `\uXXXX`, or after the surrogate pair that it begins. */
function codeUnitEnd(bytes: Buffer, position: number): number {
  if (bytes[position + 1] !== LETTER_U) {
    const allowed = 'one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\u and four hexadecimal digits';
    const problem = `a backslash does not begin an escape; allowed: ${allowed}`;
    throw new JsonFault("invalid_json", problem, position);
  }
  const unit = codeUnit(bytes, position);
  if (unit < 0xd800 || unit > 0xdfff) return position + 6;
  const next = position + 6;
  const paired =
    unit <= 0xdbff &&
    bytes[next] === BACKSLASH &&
    bytes[next + 1] === LETTER_U &&
    (codeUnit(bytes, next) & 0xfc00) === 0xdc00;
  if (paired) return next + 6;
  const problem =
    "half of a surrogate pair is escaped; a high half must be followed by its low half";
  throw new JsonFault("lone_surrogate", problem, position);
}

function codeUnit(bytes: Buffer, position: number): number {
  const unit =
    (hexadecimalAt(bytes, position + 2) << 12) |
    (hexadecimalAt(bytes, position + 3) << 8) |
    (hexadecimalAt(bytes, position + 4) << 4) |
    hexadecimalAt(bytes, position + 5);
  if (unit >= 0) return unit;
  throw new JsonFault("invalid_json", "\\u needs four hexadecimal digits", position);
}

/** The value of a hexadecimal digit. Negative for any other byte. */
function hexadecimalAt(bytes: Buffer, position: number): number {
  return hexadecimal[bytes[position] ?? 0] ?? -1;
}

/** The offset after a number. @throws JsonFault */
export function numberEnd(bytes: Buffer, start: number): number {
  let position = start;
  if (bytes[position] === MINUS) position++;
  // A leading zero must be the only digit before the point. In `01`, the 1 is left to the caller,
  // which expects a comma.
  position = bytes[position] === ZERO ? position + 1 : digitsEnd(bytes, position);
  let byte = bytes[position] ?? 0;
  if (byte === POINT) {
    position = digitsEnd(bytes, position + 1);
    byte = bytes[position] ?? 0;
  }
  if ((byte | 0x20) !== LETTER_E) return position;
  const sign = bytes[position + 1];
  return digitsEnd(bytes, position + (sign === PLUS || sign === MINUS ? 2 : 1));
}

function digitsEnd(bytes: Buffer, start: number): number {
  let position = start;
  while (digit[bytes[position] ?? 0] === 1) position++;
  if (position === start) throw new JsonFault("invalid_json", "a number lacks a digit", start);
  return position;
}

/** The offset after `true`, `false` or `null`. @throws JsonFault */
export function literalEnd(bytes: Buffer, start: number): number {
  const first = bytes[start];
  // Comparing the letters by hand is much faster than a loop.
  const second = bytes[start + 1];
  const third = bytes[start + 2];
  const fourth = bytes[start + 3];
  if (first === LETTER_T && second === LETTER_R && third === LETTER_U && fourth === LETTER_E) {
    return start + 4;
  }
  if (first === LETTER_N && second === LETTER_U && third === LETTER_L && fourth === LETTER_L) {
    return start + 4;
  }
  const isFalse =
    first === LETTER_F &&
    second === LETTER_A &&
    third === LETTER_L &&
    fourth === LETTER_S &&
    bytes[start + 4] === LETTER_E;
  if (isFalse) return start + 5;
  throw new JsonFault("invalid_json", "a word is not true, false or null", start);
}

export function spaceEnd(bytes: Buffer, start: number): number {
  let position = start;
  while (space[bytes[position] ?? 0] === 1) position++;
  return position;
}

/** The offset after a string, given that of its opening quote. @throws JsonFault */
export function stringEnd(bytes: Buffer, start: number): number {
  let position = start + 1;
  for (;;) {
    position = plainEnd(bytes, position);
    const byte = bytes[position] ?? 0;
    if (byte === QUOTE) return position + 1;
    if (byte !== BACKSLASH) throw stringFault(bytes, position);
    position = escapeEnd(bytes, position);
  }
}

/** The offset of the value after a key, given the offset after the key. @throws JsonFault */
export function colonEnd(bytes: Buffer, start: number): number {
  const position = spaceEnd(bytes, start);
  if (bytes[position] !== COLON) throw unexpected(bytes, position, "a colon");
  return spaceEnd(bytes, position + 1);
}

export type ValueKind = "an object" | "an array" | "a string" | "a number" | "a boolean" | "null";

/** The kind of the value that begins here. @throws JsonFault */
export function kindAt(bytes: Buffer, position: number): ValueKind {
  const byte = bytes[position] ?? 0;
  if (byte === OPEN_BRACE) return "an object";
  if (byte === OPEN_BRACKET) return "an array";
  if (byte === QUOTE) return "a string";
  if (byte === LETTER_T || byte === LETTER_F) return "a boolean";
  if (byte === LETTER_N) return "null";
  if (beginsNumber[byte] === 1) return "a number";
  throw unexpected(bytes, position, "a value");
}

/** The offset after a number, `true`, `false` or `null`. @throws JsonFault */
export function scalarEnd(bytes: Buffer, start: number): number {
  const byte = bytes[start] ?? 0;
  if (beginsNumber[byte] === 1) return numberEnd(bytes, start);
  if (byte === LETTER_T || byte === LETTER_F || byte === LETTER_N) return literalEnd(bytes, start);
  throw unexpected(bytes, start, "a value");
}

export function unexpected(bytes: Buffer, position: number, wanted: string): JsonFault {
  const sign = String.fromCharCode(bytes[position] ?? 0);
  const other = "{}[]:,".includes(sign) ? `, ${sign} was found` : "";
  const found = position >= bytes.length ? ", but the body ends" : other;
  return new JsonFault("invalid_json", `${wanted} is expected${found}`, position);
}

/** @throws JsonFault for invalid UTF-8 and a byte-order mark */
export function requireUtf8(bytes: Buffer): void {
  if (!isUtf8(bytes)) throw new JsonFault("invalid_utf8", "the body is not valid UTF-8", 0);
  if (bytes[0] !== 0xef || bytes[1] !== 0xbb || bytes[2] !== 0xbf) return;
  const problem = "the body begins with a byte-order mark; UTF-8 without one is expected";
  throw new JsonFault("byte_order_mark", problem, 0);
}

export function nestingTooDeep(position: number): JsonFault {
  const problem = `arrays and objects are nested more than ${DEEPEST_NESTING} deep`;
  return new JsonFault("nesting_too_deep", problem, position);
}

export function trailingData(position: number): JsonFault {
  const problem = "something follows the end of the object; allowed: white space";
  return new JsonFault("trailing_data", problem, position);
}
