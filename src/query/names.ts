/** What databases, tables and columns may be called, and their names as strings. */

import { type ByteText, byteTable, characterTable } from "../json/bytes.ts";

/** What `isPlainName` accepts, in words for a message. */
export const plainNameRule = "1 to 63 ASCII letters, digits, _ and -";

/** The same as a regular expression without its ends. */
export const plainNamePattern = "[A-Za-z0-9_-]{1,63}";

/** The same as a whole. */
export const wholePlainName = new RegExp(`^${plainNamePattern}$`);
const LONGEST_PLAIN_NAME = 63;
const plainByte = byteTable((byte) => isPlainName(String.fromCharCode(byte)));

/** `isPlainName` of text that is still bytes. */
export function isPlainText({ bytes, start, end }: ByteText): boolean {
  if (end === start || end - start > LONGEST_PLAIN_NAME) return false;
  for (let position = start; position < end; position++) {
    if (plainByte[bytes[position] ?? 0] !== 1) return false;
  }
  return true;
}

/** What `isColumnName` accepts, in words for a message. */
export const columnNameRule =
  "1 to 128 characters, not *, without control characters, quotes, backslash, backtick or dot";

/** Whether a database or table may be called so; such a name cannot reach into another database. */
export function isPlainName(text: string): boolean {
  return wholePlainName.test(text);
}

/** A character of a column name, as a regular expression. */
const columnCharacter = "[^\\u0000-\\u001f\\u007f-\\u009f'\"\\\\`.]";
/** The same as a regular expression without its ends, which it has to end with. */
export const columnNamePattern = `(?!\\*$)${columnCharacter}{1,128}`;
/** `table.column` as a regular expression without its ends. */
export const qualifiedColumnPattern = `${plainNamePattern}\\.${columnNamePattern}`;
/** A side of a join's `on`. */
export const joinSidePattern = `${plainNamePattern}\\.(?!\\*(?: |$))(?:(?![ =])${columnCharacter}){1,128}`;

const forbidden = characterTable("'\"\\`.");
const LONGEST_COLUMN_NAME = 128;
/** Bytes that a column name has at most: a character takes at most four in UTF-8. */
export const LONGEST_COLUMN_BYTES = 4 * LONGEST_COLUMN_NAME;
const columnByte = byteTable((byte) => byte >= 0x20 && byte !== 0x7f && forbidden[byte] !== 1);

/** Whether a column of a table may be called so. Takes bytes, since it judges the keys of rows. */
export function isColumnName(text: ByteText): boolean {
  const { bytes, start, end } = text;
  if (end - start > LONGEST_COLUMN_BYTES) return false;
  if (end - start === 1 && bytes[start] === 0x2a) return false;
  let characters = 0;
  for (let position = start; position < end; position++) {
    const byte = bytes[position] ?? 0;
    if (columnByte[byte] !== 1) return false;
    if (byte === 0xc2 && isC1Control(bytes[position + 1] ?? 0)) return false;
    if (!isContinuation(byte)) characters++;
  }
  return characters >= 1 && characters <= LONGEST_COLUMN_NAME;
}

/** U+0080 to U+009F are the bytes C2 80 to C2 9F. */
function isC1Control(second: number): boolean {
  return second <= 0x9f;
}

/** The bytes of a UTF-8 character after its first one (RFC 3629, section 3). */
function isContinuation(byte: number): boolean {
  return (byte & 0xc0) === 0x80;
}

const CACHED_NAMES = 64;

/**
 * Names as strings without a new string for each body: a gateway hears the same few all day. It
 * keeps the last name of each place of a small table, and never holds more than those.
 */
export class NameCache {
  readonly #names: string[] = new Array(CACHED_NAMES).fill("");

  /** The string of an ASCII name. */
  take(text: ByteText): string {
    const place = placeOf(text);
    const kept = this.#names[place] ?? "";
    if (isWritten(kept, text)) return kept;
    const name = text.toString();
    this.#names[place] = name;
    return name;
  }
}

function placeOf({ bytes, start, end }: ByteText): number {
  let sum = 0;
  for (let position = start; position < end; position++) {
    sum = (Math.imul(sum, 31) + (bytes[position] ?? 0)) | 0;
  }
  return sum & (CACHED_NAMES - 1);
}

/** Whether the bytes are exactly those of the ASCII name. */
function isWritten(name: string, { bytes, start, end }: ByteText): boolean {
  if (name.length !== end - start) return false;
  for (let index = 0; index < name.length; index++) {
    if (name.charCodeAt(index) !== bytes[start + index]) return false;
  }
  return true;
}
