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
const beginsScalar = characterTable('"-0123456789tfn');

/** V8 does not inline it, so the reader of a container calls it for actual white space only. */
function skip(bytes: Buffer, start: number, space: Uint8Array): number {
  let position = start;
  while (space[bytes[position] ?? 0] === 1) position++;
  return position;
}

/** The offset after a value whose objects have unique keys. @throws JsonFault */
function valueEnd(
  bytes: Buffer,
  start: number,
  depth: number,
  space: Uint8Array,
  scalars: Scalars | undefined,
): number {
  const byte = bytes[start] ?? 0;
  if (byte !== OPEN_BRACE && byte !== OPEN_BRACKET) {
    const end = byte === QUOTE ? stringEnd(bytes, start) : scalarEnd(bytes, start);
    scalars?.add(start, end);
    return end;
  }
  if (depth === DEEPEST_NESTING) throw nestingTooDeep(start);
  return containerEnd(bytes, start, byte === OPEN_BRACE, depth + 1, space, scalars);
}

function containerEnd(
  bytes: Buffer,
  start: number,
  isObject: boolean,
  depth: number,
  space: Uint8Array,
  scalars: Scalars | undefined,
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
    position = valueEnd(bytes, position, depth, space, scalars);
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
function endOf(bytes: Buffer, start: number, space: Uint8Array, scalars?: Scalars): number {
  return skip(bytes, valueEnd(bytes, skip(bytes, start, space), 0, space, scalars), space);
}

/** Lines with more, such as those with vectors, are not compared. */
const MOST_SCALARS = 64;

/** Offsets of the scalars in a line, of which only the first are kept. */
class Scalars {
  readonly starts: number[] = [];
  readonly ends: number[] = [];
  count = 0;

  add(start: number, end: number): void {
    if (this.count < MOST_SCALARS) {
      this.starts[this.count] = start;
      this.ends[this.count] = end;
    }
    this.count++;
  }
}

/** After this many lines in a row that differ in more, lines are not compared any more. */
const MOST_MISSES = 8;

/**
 * Checks lines of valid UTF-8 as `requireOneReading` does. Most lines differ from the one before in
 * their scalars only: the rest is compared, which is faster than reading it.
 */
export class LineReader {
  readonly #bytes: Buffer;
  readonly #words: DataView;
  /** Of the last line: those that may differ in the next. */
  readonly #scalars = new Scalars();
  #start = 0;
  /** Of the newline. -1 if the next line cannot be compared. */
  #end = -1;
  #misses = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
    this.#words = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  /** @returns the offset of the newline, or the length of the body. @throws JsonFault */
  read(start: number): number {
    const bytes = this.#bytes;
    const scalars = this.#scalars;
    scalars.count = 0;
    const end = endOf(bytes, start, withinLine, scalars);
    if (bytes[end] !== NEWLINE && end < bytes.length) throw trailingData(end);
    this.#start = start;
    this.#end = scalars.count > MOST_SCALARS ? -1 : end;
    return end;
  }

  /**
   * As `read`, or -1 for a line that differs from the last one in more than scalars. Read such a
   * line next.
   *
   * @throws JsonFault
   */
  readSimilar(start: number): number {
    const { starts, ends, count } = this.#scalars;
    if (this.#end === -1 || this.#misses === MOST_MISSES) return -1;
    this.#misses++;
    const bytes = this.#bytes;
    let last = this.#start;
    let position = start;
    for (let at = 0; at < count; at++) {
      const between = (starts[at] ?? 0) - last;
      if (!this.isRepeated(last, position, between)) return -1;
      position += between;
      const byte = bytes[position] ?? 0;
      if (beginsScalar[byte] !== 1) return -1;
      // The previous line is not needed any more: if this one is not similar, it is read next.
      last = ends[at] ?? 0;
      starts[at] = position;
      position = byte === QUOTE ? stringEnd(bytes, position) : scalarEnd(bytes, position);
      ends[at] = position;
    }
    const rest = this.#end + 1 - last;
    if (!this.isRepeated(last, position, rest)) return -1;
    this.#misses = 0;
    this.#start = start;
    this.#end = position + rest - 1;
    return this.#end;
  }

  /**
   * Lets only the scalars after a text of this form differ, such as those of a key.
   *
   * @returns what the first group of the form matched, by scalar
   */
  keepAfter(form: RegExp): string[] {
    const { starts, ends, count } = this.#scalars;
    const kept: string[] = [];
    let last = this.#start;
    for (let at = 0; at < count; at++) {
      const start = starts[at] ?? 0;
      const [, found] = form.exec(this.#bytes.toString("latin1", last, start)) ?? [];
      last = ends[at] ?? 0;
      if (found === undefined) continue;
      starts[kept.length] = start;
      ends[kept.length] = last;
      kept.push(found);
    }
    this.#scalars.count = kept.length;
    return kept;
  }

  /** Where a scalar that may differ begins in the last line. */
  startOf(at: number): number {
    return this.#scalars.starts[at] ?? 0;
  }

  /** Exclusive. */
  endOf(at: number): number {
    return this.#scalars.ends[at] ?? 0;
  }

  /** True if the same bytes are at both offsets. Compares four at a time. */
  isRepeated(start: number, other: number, length: number): boolean {
    const bytes = this.#bytes;
    if (other + length > bytes.length) return false;
    const words = this.#words;
    let at = 0;
    for (; at + 4 <= length; at += 4) {
      if (words.getInt32(start + at, true) !== words.getInt32(other + at, true)) return false;
    }
    for (; at < length; at++) {
      if (bytes[start + at] !== bytes[other + at]) return false;
    }
    return true;
  }
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
