import { isAscii } from "node:buffer";
import { JsonFault, quoteName } from "./fault.ts";
import {
  ByteText,
  colonEnd,
  DEEPEST_NESTING,
  escapeEnd,
  kindAt,
  nestingTooDeep,
  plainEnd,
  requireUtf8,
  scalarEnd,
  spaceEnd,
  stringEnd,
  stringFault,
  trailingData,
  unexpected,
  type ValueKind,
} from "./lexical.ts";

/** How the contents of an array or object are read. */
export type Mode = typeof TOKENS | typeof SKIPPED | typeof UNIQUE | typeof ROWS | typeof ROW;
/** Each key and value is a token. */
export const TOKENS = 0;
/** Checked as JSON. */
export const SKIPPED = 1;
/** Checked as JSON in which each key of an object is unique. */
export const UNIQUE = 2;
/** Objects whose keys `rowKey` reads, and whose values are skipped. */
export const ROWS = 3;
/** Such an object itself. */
export const ROW = 4;

/** Integers of a token: the byte offsets of its start and end, the token after it, and its size. */
export const STRIDE = 4;
/** The size of a string that has escapes. */
const ESCAPED = 1;
/** The size of an array or object is the number of its elements or members, above two flags. */
const SIZE_SHIFT = 2;
const HAS_NULL = 1;
const HAS_OBJECT = 2;

/** Maximum bytes of a name or key with escapes. */
const LONGEST_ESCAPED = 64 * 1024;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const LETTER_N = 0x6e;
const LETTER_T = 0x74;

const VALUE = 0;
/** Within a string that was interrupted. */
const STRING = 1;
const KEY = 2;
const AFTER = 3;

/** A word of a grammar, as a key or a string. */
export class Word {
  readonly name: string;
  /** The usual spelling, with quotes. */
  readonly spelling: Uint8Array;

  constructor(name: string) {
    this.name = name;
    this.spelling = Buffer.from(JSON.stringify(name));
  }
}

/** The arrays and objects that are open, by depth. */
class Open {
  readonly modes = new Array<Mode>(DEEPEST_NESTING + 1).fill(TOKENS);
  readonly isObject = new Uint8Array(DEEPEST_NESTING + 1);
  readonly sizes = new Int32Array(DEEPEST_NESTING + 1);
  readonly flags = new Uint8Array(DEEPEST_NESTING + 1);
  /** The token of the container, or -1 if it has none. */
  readonly containers = new Int32Array(DEEPEST_NESTING + 1);
  /** The token of the last key. */
  readonly keys = new Int32Array(DEEPEST_NESTING + 1);
}

/** Most objects have no more keys, for which comparing is faster than a set. */
const FEW = 16;

export class ObjectKeys {
  /** Offsets of the quotes of keys without escapes. */
  readonly #starts = new Int32Array(FEW);
  readonly #ends = new Int32Array(FEW);
  /** `FEW` once all keys are in the set. */
  #count = 0;
  readonly #all = new Set<string>();

  clear(): void {
    if (this.#count === FEW) this.#all.clear();
    this.#count = 0;
  }

  /**
   * @param end exclusive, after the closing quote
   * @throws JsonFault if the object has the key already
   */
  add(bytes: Buffer, start: number, end: number, hasEscape: boolean): void {
    const count = this.#count;
    if (count === FEW || hasEscape) {
      this.#addToSet(bytes, start, end);
      return;
    }
    for (let at = 0; at < count; at++) {
      const other = this.#starts[at] ?? 0;
      const isLong = (this.#ends[at] ?? 0) - other === end - start;
      if (isLong && isSame(bytes, start, end, other)) throw keyTwice(bytes, start, end);
    }
    this.#starts[count] = start;
    this.#ends[count] = end;
    this.#count = count + 1;
  }

  #addToSet(bytes: Buffer, start: number, end: number): void {
    const all = this.#all;
    if (all.size === 0) {
      for (let at = 0; at < this.#count; at++) {
        const from = (this.#starts[at] ?? 0) + 1;
        all.add(bytes.toString("utf8", from, (this.#ends[at] ?? 0) - 1));
      }
      this.#count = FEW;
    }
    const { size } = all;
    if (all.add(unescaped(bytes, start, end).toString()).size === size) {
      throw keyTwice(bytes, start, end);
    }
  }
}

function keyTwice(bytes: Buffer, start: number, end: number): JsonFault {
  const name = quoteName(unescaped(bytes, start, end).toString());
  const problem = `the key ${name} is given twice; each key is allowed once`;
  return new JsonFault("duplicate_key", problem, start);
}

function isSame(bytes: Buffer, start: number, end: number, other: number): boolean {
  for (let position = start; position < end; position++) {
    if (bytes[position] !== bytes[position + other - start]) return false;
  }
  return true;
}

function keysByDepth(): ObjectKeys[] {
  return Array.from({ length: DEEPEST_NESTING + 1 }, () => new ObjectKeys());
}

/** Serve all short bodies that are parsed at once. A larger array replaces the first. */
let shortTokens: Int32Array<ArrayBufferLike> = new Int32Array(STRIDE * 1024);
const shortOpen = new Open();
/** Serve one body or line at a time. */
export const shortUnique: readonly ObjectKeys[] = keysByDepth();

const SHORT_BODY = 64 * 1024;
/** To decode a short body as a whole takes as long as to decode one part for each of this many bytes. */
const BYTES_PER_SLICE = 512;

/**
 * The tokens of one JSON value (RFC 8259), read strictly in one pass that may pause. Skipped
 * values are checked all the same. A token is valid until the next tape is made.
 */
export class Tape {
  readonly bytes: Buffer;
  /** Called with the bytes that more tokens take. It may throw. */
  onGrow: ((bytes: number) => void) | undefined;
  /** Keys and elements on the tape, which subclasses bound. */
  protected parts = 0;
  protected mostParts = Number.POSITIVE_INFINITY;
  #tokens: Int32Array<ArrayBufferLike>;
  /** The integers in use. */
  #count = 0;
  #text: string | undefined;
  #slices = 0;
  #position = 0;
  #phase: number = VALUE;
  #depth = 0;
  /** Of the string that is being read. */
  #stringStart = 0;
  #stringSize = 0;
  readonly #modes: Mode[];
  readonly #isObject: Uint8Array;
  readonly #sizes: Int32Array;
  readonly #flags: Uint8Array;
  readonly #containers: Int32Array;
  readonly #keys: Int32Array;
  /** By depth. Cleared whenever an object begins. */
  #unique: readonly ObjectKeys[] | undefined;

  /**
   * @param isAtOnce true if the tape is read and dropped before another one is made
   * @throws JsonFault for invalid UTF-8 and a byte-order mark
   */
  constructor(bytes: Buffer, isAtOnce: boolean, mode: Mode = TOKENS) {
    this.bytes = bytes;
    const isShared = isAtOnce && bytes.length <= SHORT_BODY;
    const open = isShared ? shortOpen : new Open();
    this.#modes = open.modes;
    this.#isObject = open.isObject;
    this.#sizes = open.sizes;
    this.#flags = open.flags;
    this.#containers = open.containers;
    this.#keys = open.keys;
    this.#unique = isShared ? shortUnique : undefined;
    this.#tokens = isShared ? shortTokens : new Int32Array(STRIDE * 64);
    requireUtf8(bytes);
    this.#modes[0] = mode;
    this.#isObject[0] = 0;
    this.#position = spaceEnd(bytes, 0);
  }

  /** The offset at which reading begins, or goes on. */
  get position(): number {
    return this.#position;
  }

  /** The depth of the container that is being read. */
  protected get depth(): number {
    return this.#depth;
  }

  /** How a container is read that is the value of a key of an object in `TOKENS`. */
  protected modeOf(_key: number, _isObject: boolean): Mode {
    return TOKENS;
  }

  protected keyAt(depth: number): number | undefined {
    return this.#isObject[depth] === 1 ? this.#keys[depth] : undefined;
  }

  /** Called with the first key of `ROWS` or `ROW`. */
  protected beginRows(_isRows: boolean): void {}

  /**
   * Reads past the key of a row. It may also read past whole cells and rows before it.
   *
   * @param _until an offset beyond which it should not begin a row
   * @returns the offset of the value
   */
  protected rowKey(position: number, _until: number): number {
    return colonEnd(this.bytes, stringEnd(this.bytes, position));
  }

  /** Called at each object in `ROWS`, before its first key. */
  protected beginRow(): void {}

  /** The rows that have begun. */
  protected get rows(): number {
    return 0;
  }

  /** Called with the token of `ROWS` or `ROW` that has at least one row or key. */
  protected endRows(_token: number): void {}

  /** Called with each key of `TOKENS` that has escapes. `end` is exclusive, after the quote. */
  protected escapedKey(_start: number, _end: number): void {}

  /** Called when there are more parts than `mostParts`. */
  protected exceed(position: number): Error {
    return new JsonFault("invalid_value", "there are too many parts", position);
  }

  /** Reads about `length` bytes. True once all is read. @throws JsonFault */
  run(length: number): boolean {
    const { bytes } = this;
    const until = this.#position + length;
    let position = this.#position;
    for (;;) {
      if (this.#phase !== AFTER) {
        if (position >= until) {
          this.#position = position;
          return false;
        }
        const mode = this.#modes[this.#depth] ?? TOKENS;
        const byte = bytes[position] ?? 0;
        if (byte === QUOTE || this.#phase === STRING) {
          if (this.#phase !== STRING) this.#beginString(position);
          position = this.#stringEnd(this.#phase === STRING ? position : position + 1, until);
          if (this.#phase === STRING) {
            this.#position = position;
            return false;
          }
          if (mode === TOKENS) this.#add(this.#stringStart, position, this.#stringSize);
          else if (mode === ROWS) throw this.#noRow(this.#stringStart);
        } else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
          position = this.#open(position, byte === OPEN_BRACE, mode, until);
          if (this.#phase !== AFTER) continue;
        } else {
          const end = scalarEnd(bytes, position);
          if (mode === TOKENS) this.#add(position, end, 0);
          else if (mode === ROWS) throw this.#noRow(position);
          else if (byte === LETTER_N) this.#flags[this.#depth] = this.#nullFlag();
          position = end;
        }
        this.#phase = AFTER;
      }
      if (this.#depth === 0) break;
      position = this.#next(position, until);
    }
    this.#position = spaceEnd(bytes, position);
    if (this.#position < bytes.length) throw trailingData(this.#position);
    return true;
  }

  #beginString(position: number): void {
    this.#stringStart = position;
    this.#stringSize = 0;
  }

  /** The offset after the string, or the phase is `STRING` and it is to be continued. */
  #stringEnd(start: number, until: number): number {
    const { bytes } = this;
    let position = start;
    for (;;) {
      position = plainEnd(bytes, position);
      const byte = bytes[position] ?? 0;
      if (byte === QUOTE) {
        this.#phase = VALUE;
        return position + 1;
      }
      if (byte !== BACKSLASH) throw stringFault(bytes, position);
      this.#stringSize = ESCAPED;
      position = escapeEnd(bytes, position);
      if (position > until) {
        this.#phase = STRING;
        return position;
      }
    }
  }

  #nullFlag(): number {
    const flags = this.#flags[this.#depth] ?? 0;
    return (this.#containers[this.#depth] ?? -1) < 0 ? flags : flags | HAS_NULL;
  }

  #noRow(position: number): JsonFault {
    const found = kindAt(this.bytes, position);
    return new JsonFault("wrong_type", `an object is expected, ${found} was found`, position);
  }

  #add(start: number, end: number, size: number): number {
    const token = this.#count;
    let tokens = this.#tokens;
    if (token + STRIDE > tokens.length) {
      this.onGrow?.(tokens.byteLength);
      tokens = new Int32Array(2 * tokens.length);
      tokens.set(this.#tokens);
      if (this.#tokens === shortTokens) shortTokens = tokens;
      this.#tokens = tokens;
    }
    this.#count = token + STRIDE;
    tokens[token] = start;
    tokens[token + 1] = end;
    tokens[token + 2] = token + STRIDE;
    tokens[token + 3] = size;
    return token;
  }

  /** Enters an array or object, up to its first value. */
  #open(start: number, isObject: boolean, mode: Mode, until: number): number {
    const { bytes } = this;
    if (this.#depth === DEEPEST_NESTING) throw nestingTooDeep(start);
    if (mode === ROWS && !isObject) throw this.#noRow(start);
    let inner: Mode = mode;
    let token = -1;
    if (mode === TOKENS) {
      const key = this.keyAt(this.#depth);
      if (key !== undefined) inner = this.modeOf(key, isObject);
      token = this.#add(start, start, 0);
    } else if (mode === ROWS) inner = ROW;
    else {
      if (mode === ROW) inner = SKIPPED;
      if (isObject) this.#noteObject();
    }
    const depth = ++this.#depth;
    this.#modes[depth] = inner;
    this.#isObject[depth] = isObject ? 1 : 0;
    this.#containers[depth] = token;
    this.#sizes[depth] = 0;
    this.#flags[depth] = token >= 0 && isObject && inner === SKIPPED ? HAS_OBJECT : 0;
    const position = spaceEnd(bytes, start + 1);
    if (bytes[position] === (isObject ? CLOSE_BRACE : CLOSE_BRACKET)) {
      if (mode === ROWS) this.beginRow();
      return this.#close(position);
    }
    this.#sizes[depth] = 1;
    if (inner >= ROWS) {
      if (token >= 0) this.beginRows(inner === ROWS);
      if (inner === ROW) this.beginRow();
    } else if (inner === UNIQUE) this.#uniqueAt(depth).clear();
    if (isObject) return this.#key(position, until);
    if (inner === TOKENS) this.#countPart(position);
    this.#phase = VALUE;
    return position;
  }

  /** Marks the outermost skipped container, or the rows, around an object. */
  #noteObject(): void {
    let depth = this.#depth;
    while (depth > 0 && (this.#containers[depth] ?? -1) < 0) depth--;
    this.#flags[depth] = (this.#flags[depth] ?? 0) | HAS_OBJECT;
  }

  #uniqueAt(depth: number): ObjectKeys {
    this.#unique ??= keysByDepth();
    return this.#unique[depth] ?? new ObjectKeys();
  }

  #close(position: number): number {
    const depth = this.#depth--;
    this.#phase = AFTER;
    const token = this.#containers[depth] ?? -1;
    if (token < 0) return position + 1;
    const mode = this.#modes[depth] ?? TOKENS;
    let size = this.#sizes[depth] ?? 0;
    if (mode >= ROWS && size > 0) {
      this.endRows(token);
      if (mode === ROWS) size = this.rows;
    }
    this.#tokens[token + 1] = position + 1;
    this.#tokens[token + 2] = this.#count;
    this.#tokens[token + 3] = (size << SIZE_SHIFT) | (this.#flags[depth] ?? 0);
    return position + 1;
  }

  /** Reads past a comma, and past the key after it, or past the end of the container. */
  #next(start: number, until: number): number {
    const { bytes } = this;
    const position = spaceEnd(bytes, start);
    const depth = this.#depth;
    const isObject = this.#isObject[depth] === 1;
    const byte = bytes[position] ?? 0;
    if (byte === COMMA) {
      this.#sizes[depth] = (this.#sizes[depth] ?? 0) + 1;
      const next = spaceEnd(bytes, position + 1);
      if (isObject) return this.#key(next, until);
      if (this.#modes[depth] === TOKENS) this.#countPart(next);
      this.#phase = VALUE;
      return next;
    }
    const close = isObject ? CLOSE_BRACE : CLOSE_BRACKET;
    if (byte === close) return this.#close(position);
    throw unexpected(bytes, position, `a comma or ${String.fromCharCode(close)}`);
  }

  #countPart(position: number): void {
    if (++this.parts > this.mostParts) throw this.exceed(position);
  }

  #key(position: number, until: number): number {
    const { bytes } = this;
    const depth = this.#depth;
    this.#phase = KEY;
    if (bytes[position] !== QUOTE) throw unexpected(bytes, position, "a key in double quotes");
    const mode = this.#modes[depth];
    let value: number;
    if (mode === TOKENS) {
      this.#countPart(position);
      this.#beginString(position);
      const end = this.#stringEnd(position + 1, Number.POSITIVE_INFINITY);
      this.#phase = KEY;
      if (this.#stringSize === ESCAPED) this.escapedKey(position, end);
      this.#keys[depth] = this.#add(position, end, this.#stringSize);
      value = colonEnd(bytes, end);
    } else if (mode === ROW) value = this.rowKey(position, until);
    else {
      const plain = plainEnd(bytes, position + 1);
      const hasEscape = bytes[plain] !== QUOTE;
      const end = hasEscape ? stringEnd(bytes, position) : plain + 1;
      if (mode === UNIQUE) this.#uniqueAt(depth).add(bytes, position, end, hasEscape);
      value = colonEnd(bytes, end);
    }
    this.#phase = VALUE;
    return value;
  }

  /** The path to what is being read, as far as it is on the tape or a row. */
  protected openPath(): string {
    let path = "";
    for (let depth = 1; depth <= this.#depth; depth++) {
      const isInside = depth < this.#depth || this.#phase === VALUE || this.#phase === STRING;
      const mode = this.#modes[depth];
      if (!isInside || mode === undefined) break;
      if (mode === ROWS) path += `[${this.#depth === depth ? this.rows : this.rows - 1}]`;
      if (mode !== TOKENS) break;
      if (this.#isObject[depth] === 0) path += `[${(this.#sizes[depth] ?? 1) - 1}]`;
      else {
        const key = this.bytesOf(this.#keys[depth] ?? 0).toString();
        // Any other key is not one of the grammar.
        if (!/^\w{1,64}$/.test(key)) break;
        path += `.${key}`;
      }
    }
    return path.replace(/^\./, "");
  }

  start(token: number): number {
    return this.#tokens[token] ?? 0;
  }

  /** Exclusive. */
  end(token: number): number {
    return this.#tokens[token + 1] ?? 0;
  }

  /** The token after a value and its contents. */
  next(token: number): number {
    return this.#tokens[token + 2] ?? 0;
  }

  /** The number of elements or members of an array or object. */
  size(token: number): number {
    return (this.#tokens[token + 3] ?? 0) >> SIZE_SHIFT;
  }

  /** True if a skipped array has the element null. */
  hasNull(token: number): boolean {
    return ((this.#tokens[token + 3] ?? 0) & HAS_NULL) !== 0;
  }

  /** True if something skipped is or contains an object. */
  hasObject(token: number): boolean {
    return ((this.#tokens[token + 3] ?? 0) & HAS_OBJECT) !== 0;
  }

  kind(token: number): ValueKind {
    return kindAt(this.bytes, this.start(token));
  }

  isTrue(token: number): boolean {
    return this.bytes[this.start(token)] === LETTER_T;
  }

  isNull(token: number): boolean {
    return this.bytes[this.start(token)] === LETTER_N;
  }

  source(token: number): string {
    return this.slice(this.start(token), this.end(token));
  }

  /** A string that may be long. */
  string(token: number): string {
    if (this.#tokens[token + 3] === ESCAPED) return JSON.parse(this.source(token));
    return this.slice(this.start(token) + 1, this.end(token) - 1);
  }

  /** The text between two byte offsets. */
  protected slice(start: number, end: number): string {
    const { bytes } = this;
    const isRead = bytes.length > SHORT_BODY || ++this.#slices * BYTES_PER_SLICE < bytes.length;
    if (isRead) return bytes.toString("utf8", start, end);
    this.#text ??= isAscii(bytes) ? bytes.toString("latin1") : "";
    return this.#text === ""
      ? bytes.toString("utf8", start, end)
      : this.#text.substring(start, end);
  }

  /** A name or key. @throws JsonFault if it is long and has escapes */
  name(token: number): string {
    if (this.#tokens[token + 3] === ESCAPED) return this.bytesOf(token).toString();
    return this.string(token);
  }

  /** The UTF-8 of a name or key. @throws JsonFault if it is long and has escapes */
  bytesOf(token: number): ByteText {
    const start = this.start(token);
    const end = this.end(token);
    if (this.#tokens[token + 3] === ESCAPED) return unescaped(this.bytes, start, end);
    return new ByteText(this.bytes, start + 1, end - 1);
  }

  /** True for a string or key that spells a word. */
  is(token: number, { name, spelling }: Word): boolean {
    const { bytes } = this;
    const start = this.start(token);
    if (this.#tokens[token + 3] === ESCAPED) return this.name(token) === name;
    if (this.end(token) - start !== spelling.length) return false;
    for (let index = 1; index < spelling.length; index++) {
      if (bytes[start + index] !== spelling[index]) return false;
    }
    return true;
  }

  member(object: number, word: Word): number | undefined {
    const end = this.next(object);
    for (let key = object + STRIDE; key < end; key = this.next(key + STRIDE)) {
      if (this.is(key, word)) return key + STRIDE;
    }
    return undefined;
  }

  /** The path to a value, or to the object of a key. */
  path(target: number): string {
    let path = "";
    let container = 0;
    while (container !== target) {
      const isObject = this.kind(container) === "an object";
      let child = container + STRIDE;
      let index = 0;
      for (;;) {
        const value = isObject ? child + STRIDE : child;
        if (target < value) return path.replace(/^\./, "");
        const next = this.next(value);
        if (target < next) {
          path += isObject ? `.${this.name(child)}` : `[${index}]`;
          container = value;
          break;
        }
        child = next;
        index++;
      }
    }
    return path.replace(/^\./, "");
  }
}

/** @param start of the opening quote */
export function unescaped(bytes: Buffer, start: number, end: number): ByteText {
  let position = start;
  while (position < end && bytes[position] !== BACKSLASH) position++;
  if (position === end) return new ByteText(bytes, start + 1, end - 1);
  if (end - start > LONGEST_ESCAPED) {
    const problem = `a name or key with escapes takes ${end - start} bytes; allowed: ${LONGEST_ESCAPED}`;
    throw new JsonFault("invalid_value", problem, start);
  }
  const text: string = JSON.parse(bytes.toString("utf8", start, end));
  return new ByteText(Buffer.from(text));
}
