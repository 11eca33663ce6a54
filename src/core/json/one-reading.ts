import type { Steps } from "../base/cooperative-scheduling.ts";
import {
  characterTable,
  DEEPEST_NESTING,
  nestingTooDeep,
  plainEnd,
  requireUtf8,
  scalarEnd,
  stringEnd,
  trailingData,
  unexpected,
} from "./lexical.ts";
import { ObjectKeys, shortUnique, Tape, UNIQUE } from "./tape.ts";

const NEWLINE = 0x0a;
const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;

const anywhere = characterTable(" \t\n\r");
const withinLine = characterTable(" \t\r");

/** V8 does not inline it, so the reader of a container calls it for actual white space only. */
function skip(bytes: Buffer, start: number, space: Uint8Array): number {
  let position = start;
  while (space[bytes[position] ?? 0] === 1) position++;
  return position;
}

/** The offset after a value whose objects have unique keys. @throws JsonFault */
function valueEnd(bytes: Buffer, start: number, depth: number, space: Uint8Array): number {
  const byte = bytes[start] ?? 0;
  if (byte === QUOTE) return stringEnd(bytes, start);
  if (byte !== OPEN_BRACE && byte !== OPEN_BRACKET) return scalarEnd(bytes, start);
  if (depth === DEEPEST_NESTING) throw nestingTooDeep(start);
  return containerEnd(bytes, start, byte === OPEN_BRACE, depth + 1, space);
}

function containerEnd(
  bytes: Buffer,
  start: number,
  isObject: boolean,
  depth: number,
  space: Uint8Array,
): number {
  const close = isObject ? CLOSE_BRACE : CLOSE_BRACKET;
  let position = skip(bytes, start + 1, space);
  if (bytes[position] === close) return position + 1;
  const keys = shortUnique[depth] ?? new ObjectKeys();
  if (isObject) keys.clear();
  for (;;) {
    if (isObject) {
      if (bytes[position] !== QUOTE) throw unexpected(bytes, position, "a key in double quotes");
      const plain = plainEnd(bytes, position + 1);
      const hasEscape = bytes[plain] !== QUOTE;
      const end = hasEscape ? stringEnd(bytes, position) : plain + 1;
      keys.add(bytes, position, end, hasEscape);
      position = bytes[end] === COLON ? end : skip(bytes, end, space);
      if (bytes[position] !== COLON) throw unexpected(bytes, position, "a colon");
      position++;
      if (space[bytes[position] ?? 0] === 1) position = skip(bytes, position, space);
    }
    position = valueEnd(bytes, position, depth, space);
    if (bytes[position] !== COMMA) {
      position = skip(bytes, position, space);
      const byte = bytes[position] ?? 0;
      if (byte === close) return position + 1;
      if (byte !== COMMA) {
        throw unexpected(bytes, position, `a comma or ${String.fromCharCode(close)}`);
      }
    }
    position++;
    if (space[bytes[position] ?? 0] === 1) position = skip(bytes, position, space);
  }
}

/** The offset after one JSON value and the white space around it. @throws JsonFault */
function endOf(bytes: Buffer, start: number, space: Uint8Array): number {
  return skip(bytes, valueEnd(bytes, skip(bytes, start, space), 0, space), space);
}

/**
 * Checks that a line of valid UTF-8 is one JSON value, as `requireOneReading` does.
 *
 * @returns the offset of the newline, or the length of the last line
 * @throws JsonFault
 */
export function requireOneReadingOfLine(bytes: Buffer, start: number): number {
  const end = endOf(bytes, start, withinLine);
  if (bytes[end] !== NEWLINE && end < bytes.length) throw trailingData(end);
  return end;
}

/**
 * Checks that a body is UTF-8 and one JSON value, with unique keys in all objects and at most 64
 * levels deep. All parsers read such a body alike.
 *
 * @throws JsonFault
 */
export function requireOneReading(bytes: Buffer): void {
  requireUtf8(bytes);
  const end = endOf(bytes, 0, anywhere);
  if (end < bytes.length) throw trailingData(end);
}

const STEP_BYTES = 32 * 1024;

/** The same in steps, for a long body. @throws JsonFault */
export function* requireOneReadingInSteps(bytes: Buffer): Steps<void> {
  const tape = new Tape(bytes, false, UNIQUE);
  while (!tape.run(STEP_BYTES)) yield;
}
