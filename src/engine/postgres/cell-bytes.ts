/**
 * Values as PostgreSQL writes them, put into an answer byte by byte: a string for each of them would
 * cost more than all else that is done with a row.
 */

import type { RowForm } from "../spool.ts";
import type { ByteWriter } from "./byte-writer.ts";

/** How the bytes of a type become those of an answer; a type without one is read as a string. */
export type ByteForm = "boolean" | "decimal" | "double" | "instant" | "integer" | "local" | "text";

/**
 * Puts the value between `start` and `end` of a message into an answer, for which there is room.
 * Returns false for one that has to be read as a string; nothing of it was put then.
 */
export type PutCell = (from: Buffer, start: number, end: number, to: ByteWriter) => boolean;

/** Most bytes that one byte of a value may become: `\u0001`. */
export const MOST_GROWTH = 6;

const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;
const ZERO = 0x30;
const MINUS = 0x2d;
const SPACE = 0x20;
const hex = Buffer.from("0123456789abcdef");
const yes = Buffer.from("true");
const no = Buffer.from("false");

/** The letters that stand behind a backslash in JSON; 1 for what is written by its number. */
const escapes = new Uint8Array(256);
escapes.fill(1, 0, SPACE);
for (const [character, letter] of Object.entries({
  ...{ "\b": "b", "\t": "t", "\n": "n", "\f": "f", "\r": "r", '"': '"', "\\": "\\" },
})) {
  escapes[character.charCodeAt(0)] = letter.charCodeAt(0);
}

/** How values of a type are put into rows of a form. */
export function putCellOf(bytes: ByteForm, form: RowForm): PutCell {
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

/** Not `NaN` and `Infinity`, which JSON has no numbers for. */
const putDecimal: PutCell = (from, start, end, to) => {
  const first = from[start] === MINUS ? from[start + 1] : from[start];
  return first !== undefined && isDigit(first) && putPlain(from, start, end, to);
};

/** Digits that a double gives back as they are: few of them, and no exponent. */
const putDouble: PutCell = (from, start, end, to) => {
  const isNegative = from[start] === MINUS;
  // `-0` is none of them.
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

/** `2026-01-02 03:04:05.678`, which `+00` follows where it is an instant. */
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

/** As `JSON.stringify` writes it. */
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

/** Quoted where that is needed, and where it is empty, which tells it from null. */
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
