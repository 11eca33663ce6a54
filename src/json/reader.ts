import type { Steps } from "../cooperative-scheduling.ts";
import { JsonFault } from "./fault.ts";

// Each module repeats the constants for single bytes. An imported constant is loaded at every
// comparison, which costs the scanner a tenth of its speed.

/** A table with 1 for each accepted byte, else 0. */
export function byteTable(accepts: (byte: number) => boolean): Uint8Array {
  return Uint8Array.from({ length: 256 }, (_, byte) => (accepts(byte) ? 1 : 0));
}

export function characterTable(characters: string): Uint8Array {
  return byteTable((byte) => characters.includes(String.fromCharCode(byte)));
}

function beginsNumber(byte: number): boolean {
  return byte === 0x2d || (byte >= 0x30 && byte <= 0x39);
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

  static from(text: string): ByteText {
    return new ByteText(Buffer.from(text));
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

/** The usual spelling of a string, with its quotes. */
export function tokenOf(text: string): Buffer {
  return Buffer.from(JSON.stringify(text));
}

/**
 * The remaining work of a reader that paused, so that a long body does not block the event loop.
 * Each caller adds its own. Undefined if everything is read, as it usually is.
 */
export type Rest = Steps<void> | undefined;

/** Does `work` when everything is read. */
export function andThen(rest: Rest, work: () => void): Rest {
  if (rest !== undefined) return workAfter(rest, work);
  work();
  return undefined;
}

function* workAfter(rest: Steps<void>, work: () => void): Steps<void> {
  yield* rest;
  work();
}

/** Reads once, and again while `next` returns true. */
export function repeat(read: () => Rest, next: () => boolean): Rest {
  do {
    const rest = read();
    if (rest !== undefined) return repeatAfter(rest, read, next);
  } while (next());
  return undefined;
}

function* repeatAfter(rest: Steps<void>, read: () => Rest, next: () => boolean): Steps<void> {
  yield* rest;
  while (next()) {
    const more = read();
    if (more !== undefined) yield* more;
  }
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

export const plainInString = byteTable(
  (byte) => byte >= BLANK && byte !== QUOTE && byte !== BACKSLASH,
);
const digit = characterTable("0123456789");
const simpleEscape = characterTable('"\\/bfnrt');

/** -1 for all other bytes. */
const hexadecimal = Int8Array.from({ length: 256 }, (_, byte) =>
  "0123456789abcdef".indexOf(String.fromCharCode(byte).toLowerCase()),
);

function plainEnd(bytes: Buffer, start: number): number {
  let position = start;
  while (plainInString[bytes[position] ?? 0] === 1) position++;
  return position;
}

/** The offset after an escape, given its backslash. @throws JsonFault */
function escapeEnd(bytes: Buffer, position: number): number {
  return simpleEscape[bytes[position + 1] ?? 0] === 1 ? position + 2 : codeUnitEnd(bytes, position);
}

function stringFault(bytes: Buffer, position: number): JsonFault {
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
    isLowSurrogate(codeUnit(bytes, next));
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

function isLowSurrogate(unit: number): boolean {
  return unit >= 0xdc00 && unit <= 0xdfff;
}

/** Maximum bytes of a string that is unescaped without a pause. */
const LONGEST_ESCAPED = 64 * 1024;

const space = characterTable(" \t\n\r");

const CLOSE_BRACE = 0x7d;
const CLOSE_BRACKET = 0x5d;
const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const OPEN_BRACKET = 0x5b;

/** The body's own object is at depth 1. */
export const DEEPEST_NESTING = 64;

const COLON = 0x3a;

export type ValueKind = "an object" | "an array" | "a string" | "a number" | "a boolean" | "null";

/**
 * Reads JSON values (RFC 8259) strictly from valid UTF-8. Methods that read a value start at its
 * first byte. All throw `JsonFault`.
 *
 * An object is read by `for (let more = reader.openObject(); more; more = reader.nextMember()) {
 * key, then value }`, an array likewise.
 */
export class JsonReader {
  readonly bytes: Buffer;
  position = 0;
  /** Number of open arrays and objects. */
  depth = 0;
  /** The number of elements of the last array that `skipValue` skipped. */
  elements = 0;
  /** Byte offset from which a pause is due. */
  pauseAt: number;
  /** True while a pause interrupts a string. */
  #isInString = false;
  #pauseLength = 0;
  /** By depth, for the containers of a value that is skipped. */
  readonly #isObject: boolean[] = [];

  constructor(bytes: Buffer) {
    this.bytes = bytes;
    this.pauseAt = bytes.length + 1;
  }

  /** Makes `pause` and `skipValue` pause after every `bytes` bytes. By default they never do. */
  pauseEvery(bytes: number): void {
    this.#pauseLength = bytes;
    this.pauseAt = this.position + bytes;
  }

  /** Pauses if a pause is due. Must be called wherever a body may be long. */
  pause(): Rest {
    return this.position < this.pauseAt ? undefined : this.rest();
  }

  *rest(): Steps<void> {
    yield;
    this.pauseAt = this.position + this.#pauseLength;
  }

  readString(): ByteText {
    const start = this.position;
    if (!this.skipString()) return new ByteText(this.bytes, start + 1, this.position - 1);
    const length = this.position - start;
    if (length > LONGEST_ESCAPED) {
      const problem = `a name or key with escapes takes ${length} bytes; allowed: ${LONGEST_ESCAPED}`;
      throw new JsonFault("invalid_value", problem, start);
    }
    const text: string = JSON.parse(this.bytes.toString("utf8", start, this.position));
    return ByteText.from(text);
  }

  /** True if the string has escapes. */
  skipString(): boolean {
    this.position++;
    return this.#finishString(Number.POSITIVE_INFINITY) === "escaped";
  }

  /** Reads to the end of the current string, or past `until`, since escapes take long. */
  #finishString(until: number): "plain" | "escaped" | "unfinished" {
    const { bytes } = this;
    let position = this.position;
    let escaped = false;
    while (true) {
      position = plainEnd(bytes, position);
      const byte = bytes[position] ?? 0;
      if (byte === QUOTE) break;
      if (byte !== BACKSLASH) throw stringFault(bytes, position);
      escaped = true;
      position = escapeEnd(bytes, position);
      if (position > until) {
        this.position = position;
        return "unfinished";
      }
    }
    this.position = position + 1;
    return escaped ? "escaped" : "plain";
  }

  /** Continues a string that a pause interrupted. True if it is interrupted again. */
  #stayInString(): boolean {
    this.#isInString = this.#finishString(this.pauseAt) === "unfinished";
    return this.#isInString;
  }

  *#finishInSteps(): Steps<void> {
    do yield* this.rest();
    while (this.#stayInString());
  }

  /** Skips a string if it is spelled as these bytes, quotes included. */
  skipToken(token: Uint8Array): boolean {
    const { bytes, position } = this;
    const { length } = token;
    // The first byte is a quote in nearly all tokens, so the second one is more selective.
    for (let index = 1; index < length; index++) {
      if (bytes[position + index] !== token[index]) return false;
    }
    if (bytes[position] !== token[0]) return false;
    this.position = position + length;
    return true;
  }

  /** Skips bytes that repeat those between two offsets. */
  skipRepeated(start: number, end: number): boolean {
    const { bytes, position } = this;
    const distance = position - start;
    for (let offset = start; offset < end; offset++) {
      if (bytes[offset] !== bytes[offset + distance]) return false;
    }
    this.position = position + end - start;
    return true;
  }

  skipSpace(): void {
    if ((this.bytes[this.position] ?? 0) <= BLANK) this.#skipSpaces();
  }

  #skipSpaces(): void {
    const { bytes } = this;
    let position = this.position;
    while (space[bytes[position] ?? 0] === 1) position++;
    this.position = position;
  }

  /** Reads again at an offset, without a pause, and returns to the current position. */
  reread<Result>(offset: number, read: () => Result): Result {
    const { position, depth, pauseAt } = this;
    this.position = offset;
    this.pauseAt = this.bytes.length + 1;
    const result = read();
    this.position = position;
    this.depth = depth;
    this.pauseAt = pauseAt;
    return result;
  }

  kind(): ValueKind {
    const byte = this.bytes[this.position] ?? 0;
    if (byte === OPEN_BRACE) return "an object";
    if (byte === OPEN_BRACKET) return "an array";
    if (byte === QUOTE) return "a string";
    if (byte === LETTER_T || byte === LETTER_F) return "a boolean";
    if (byte === LETTER_N) return "null";
    if (beginsNumber(byte)) return "a number";
    throw this.#unexpected("a value");
  }

  expect(wanted: ValueKind): void {
    const found = this.kind();
    if (found === wanted) return;
    throw new JsonFault("wrong_type", `${wanted} is expected, ${found} was found`, this.position);
  }

  /** True if the object has a member. */
  openObject(): boolean {
    if (this.bytes[this.position] !== OPEN_BRACE) this.expect("an object");
    return this.#open(CLOSE_BRACE);
  }

  /** True if another member follows, false after the end of the object. */
  nextMember(): boolean {
    return this.#next(CLOSE_BRACE);
  }

  /** True if the array has an element. */
  openArray(): boolean {
    if (this.bytes[this.position] !== OPEN_BRACKET) this.expect("an array");
    return this.#open(CLOSE_BRACKET);
  }

  /** True if another element follows, false after the end of the array. */
  nextElement(): boolean {
    return this.#next(CLOSE_BRACKET);
  }

  /** Enters an array or object that ends with `close`. True if it is not empty. */
  #open(close: number): boolean {
    if (this.depth === DEEPEST_NESTING) {
      const problem = `arrays and objects are nested more than ${DEEPEST_NESTING} deep`;
      throw new JsonFault("nesting_too_deep", problem, this.position);
    }
    this.depth++;
    if (this.#advance() !== close) return true;
    this.#leave();
    return false;
  }

  /** True if another value follows, false after the end of the array or object. */
  #next(close: number): boolean {
    this.skipSpace();
    const byte = this.bytes[this.position] ?? 0;
    if (byte === COMMA) {
      this.#advance();
      return true;
    }
    if (byte !== close) throw this.#unexpected(`a comma or ${String.fromCharCode(close)}`);
    this.#leave();
    return false;
  }

  readKey(): ByteText {
    const key = this.readBareKey();
    this.skipColon();
    return key;
  }

  /** Stops before the colon. */
  readBareKey(): ByteText {
    if (this.bytes[this.position] !== QUOTE) throw this.#unexpected("a key");
    return this.readString();
  }

  skipKey(): void {
    if (this.bytes[this.position] !== QUOTE) throw this.#unexpected("a key");
    this.skipString();
    this.skipColon();
  }

  /** Reads a key if it is spelled as these bytes, and moves to its value. */
  skipKeyToken(token: Uint8Array): boolean {
    if (!this.skipToken(token)) return false;
    this.skipColon();
    return true;
  }

  skipColon(): void {
    if (this.bytes[this.position] !== COLON) this.skipSpace();
    if (this.bytes[this.position] !== COLON) throw this.#unexpected("a colon");
    this.#advance();
  }

  /** Whether an object begins here whose first key is spelled as these bytes. */
  firstKeyIs(token: Uint8Array): boolean {
    const { position } = this;
    if (this.bytes[position] !== OPEN_BRACE) return false;
    this.position++;
    this.skipSpace();
    const found = this.skipToken(token);
    this.position = position;
    return found;
  }

  /** The first key of the object that begins here, without moving. Undefined if it has none. */
  peekFirstKey(): ByteText | undefined {
    const { position, depth } = this;
    const key = this.openObject() ? this.readKey() : undefined;
    this.position = position;
    this.depth = depth;
    return key;
  }

  skipNumber(): void {
    this.position = numberEnd(this.bytes, this.position);
  }

  /** Skips any value. Checks its syntax, but not its keys. */
  skipValue(): Rest {
    const byte = this.bytes[this.position] ?? 0;
    if (byte === OPEN_BRACKET || byte === OPEN_BRACE) {
      const outside = this.depth;
      this.elements = 0;
      return this.#skipWithin(outside) ? undefined : this.#skipInSteps(outside);
    }
    this.#skipScalar(byte);
    return this.#isInString ? this.#finishInSteps() : undefined;
  }

  *#skipInSteps(outside: number): Steps<void> {
    do yield* this.rest();
    while (!this.#skipWithin(outside));
  }

  /** Reads until the containers opened since depth `outside` are closed. False if it paused. */
  #skipWithin(outside: number): boolean {
    if (this.#isInString) {
      if (this.#stayInString()) return false;
      if (!this.#skipToNext(outside)) return true;
    }
    do {
      const byte = this.bytes[this.position] ?? 0;
      if (byte === OPEN_BRACE) {
        if (this.#open(CLOSE_BRACE)) {
          this.#isObject[this.depth] = true;
          this.skipKey();
          continue;
        }
      } else if (byte === OPEN_BRACKET) {
        if (this.#open(CLOSE_BRACKET)) {
          this.#isObject[this.depth] = false;
          if (this.depth === outside + 1) this.elements = 1;
          continue;
        }
      } else this.#skipScalar(byte);
      if (this.#isInString) return false;
      if (!this.#skipToNext(outside)) return true;
    } while (this.position < this.pauseAt);
    return false;
  }

  /** Moves to the next value in the containers opened since `outside`. False if they are closed. */
  #skipToNext(outside: number): boolean {
    while (this.depth > outside) {
      const inObject = this.#isObject[this.depth] === true;
      if (!this.#next(inObject ? CLOSE_BRACE : CLOSE_BRACKET)) continue;
      if (inObject) this.skipKey();
      else if (this.depth === outside + 1) this.elements++;
      return true;
    }
    return false;
  }

  /** Skips a value that is neither array nor object. May pause in a string (`#isInString`). */
  #skipScalar(byte: number): void {
    if (byte === QUOTE) {
      this.position++;
      this.#stayInString();
    } else if (beginsNumber(byte)) this.skipNumber();
    else if (byte === LETTER_T || byte === LETTER_F || byte === LETTER_N) {
      this.position = literalEnd(this.bytes, this.position);
    } else throw this.#unexpected("a value");
  }

  #advance(): number {
    const byte = this.bytes[++this.position] ?? 0;
    if (byte > BLANK) return byte;
    this.skipSpace();
    return this.bytes[this.position] ?? 0;
  }

  #leave(): void {
    this.depth--;
    this.position++;
  }

  #unexpected(wanted: string): JsonFault {
    const sign = String.fromCharCode(this.bytes[this.position] ?? 0);
    const other = "{}[]:,".includes(sign) ? `${sign} is` : "something else is";
    const found = this.position >= this.bytes.length ? "the body ends" : other;
    return new JsonFault("invalid_json", `${found} where ${wanted} is expected`, this.position);
  }
}
