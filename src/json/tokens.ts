/** Where the tokens of JSON (RFC 8259) end, in bytes that are known to be valid UTF-8. */

import { byteTable, characterTable } from "./bytes.ts";
import { JsonFault } from "./fault.ts";
import type { LongRuns } from "./long-runs.ts";

/** A body, with the finder of the ends of its long runs of plain text. */
export interface Body {
  readonly bytes: Buffer;
  runs(): LongRuns;
}

const BACKSLASH = 0x5c;
const BLANK = 0x20;
const LETTER_A = 0x61;
const LETTER_E = 0x65;
const LETTER_F = 0x66;
const LETTER_L = 0x6c;
const LETTER_N = 0x6e;
const LETTER_R = 0x72;
const LETTER_S = 0x73;
const LETTER_T = 0x74;
const LETTER_U = 0x75;
const MINUS = 0x2d;
const PLUS = 0x2b;
const POINT = 0x2e;
const QUOTE = 0x22;
const ZERO = 0x30;

/** Bytes of a string after which the rest of it is taken for long. */
const LONG_RUN = 32;

/** Bytes that stand for themselves in a string: all but controls, the quote and the backslash. */
const plainInString = byteTable((byte) => byte >= BLANK && byte !== QUOTE && byte !== BACKSLASH);
const digit = characterTable("0123456789");
const simpleEscape = characterTable('"\\/bfnrt');

/** The values of hexadecimal digits, -1 for all other bytes. */
const hexadecimal = Int8Array.from({ length: 256 }, (_, byte) =>
  "0123456789abcdef".indexOf(String.fromCharCode(byte).toLowerCase()),
);

/** Offset of the first byte from an offset on that does not stand for itself in a string. */
export function plainEnd(body: Body, start: number): number {
  const { bytes } = body;
  let position = start;
  const long = position + LONG_RUN;
  while (position < long && plainInString[bytes[position] ?? 0] === 1) position++;
  return position === long ? body.runs().end(position) : position;
}

/** Offset after the escape that begins with the backslash at an offset. @throws JsonFault */
export function escapeEnd(bytes: Buffer, position: number): number {
  return simpleEscape[bytes[position + 1] ?? 0] === 1 ? position + 2 : codeUnitEnd(bytes, position);
}

/** What is wrong with a byte that neither stands for itself nor ends a string or begins an escape. */
export function stringFault(bytes: Buffer, position: number): JsonFault {
  const problem =
    position >= bytes.length
      ? "the body ends within a string"
      : "a control character stands in a string; it has to be escaped";
  return new JsonFault("invalid_json", problem, position);
}

/** Takes the offset of a `\uXXXX` and gives the one after it, or after the pair that it begins. */
function codeUnitEnd(bytes: Buffer, position: number): number {
  if (bytes[position + 1] !== LETTER_U) {
    const allowed = 'one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\u and four hexadecimal digits';
    const problem = `a backslash begins no escape; allowed: ${allowed}`;
    throw new JsonFault("invalid_json", problem, position);
  }
  const unit = codeUnit(bytes, position);
  if (unit < 0xd800 || unit > 0xdfff) return position + 6;
  const next = position + 6;
  const paired =
    unit <= 0xdbff &&
    bytes[next] === BACKSLASH &&
    bytes[next + 1] === LETTER_U &&
    isLowSurrogate(codeUnit(bytes, next));
  if (paired) return next + 6;
  const problem = "half of a surrogate pair is escaped; a high half and its low half go together";
  throw new JsonFault("lone_surrogate", problem, position);
}

/** The UTF-16 code unit of the `\uXXXX` at an offset. */
function codeUnit(bytes: Buffer, position: number): number {
  const unit =
    (hexadecimalAt(bytes, position + 2) << 12) |
    (hexadecimalAt(bytes, position + 3) << 8) |
    (hexadecimalAt(bytes, position + 4) << 4) |
    hexadecimalAt(bytes, position + 5);
  if (unit >= 0) return unit;
  throw new JsonFault("invalid_json", "\\u needs four hexadecimal digits", position);
}

/** The value of the hexadecimal digit at an offset; negative for any other byte. */
function hexadecimalAt(bytes: Buffer, position: number): number {
  return hexadecimal[bytes[position] ?? 0] ?? -1;
}

/** Offset after the number that begins at an offset. @throws JsonFault */
export function numberEnd(bytes: Buffer, start: number): number {
  let position = start;
  if (bytes[position] === MINUS) position++;
  // A zero stands alone before the point: `01` leaves its 1 to whoever expects a comma.
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

/** Takes the offset of the first of one or more digits and gives the one after the last. */
function digitsEnd(bytes: Buffer, start: number): number {
  let position = start;
  while (digit[bytes[position] ?? 0] === 1) position++;
  if (position === start) throw new JsonFault("invalid_json", "a number lacks a digit", start);
  return position;
}

/** Offset after the `true`, `false` or `null` that begins at an offset. @throws JsonFault */
export function literalEnd(bytes: Buffer, start: number): number {
  const first = bytes[start];
  // The letters after the first one; told apart by hand, which is much quicker than a loop.
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
  throw new JsonFault("invalid_json", "a word is neither true, false nor null", start);
}

function isLowSurrogate(unit: number): boolean {
  return unit >= 0xdc00 && unit <= 0xdfff;
}
