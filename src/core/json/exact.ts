import { isAscii } from "node:buffer";
import { runAtOnce, type Steps } from "../base/cooperative-scheduling.ts";
import {
  BACKSLASH,
  BLANK,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  characterTable,
  LETTER_F,
  LETTER_N,
  LETTER_T,
  NINE,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
  ZERO,
} from "./lexical.ts";

export type JsonObject = Readonly<Record<string, unknown>>;

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The keys of an object that has no others than its type says. */
export function keysOf<Key extends string>(object: Readonly<Record<Key, unknown>>): Key[] {
  return Object.keys(object) as Key[];
}

/** Undefined if it is not JSON. Errors of the parser would quote the text. */
export function parseIfJson<Value = unknown>(
  text: string,
  parse: (text: string) => Value = JSON.parse,
): Value | undefined {
  try {
    return parse(text);
  } catch {
    return undefined;
  }
}

/** A JSON number that a double would write differently, kept as received. */
export class ExactNumber {
  readonly source: string;

  constructor(source: string) {
    this.source = source;
  }
}

/** @param key the member whose value it is; empty in an array */
export type ReadNumber = (source: string, key: string) => unknown;

/**
 * Keeps every digit. A number that a double would write differently becomes BigInt if it is a whole
 * number of moderate length, else `ExactNumber`.
 */
export function exactNumber(source: string): number | bigint | ExactNumber {
  if (source.length > LONGEST_NUMBER) return new ExactNumber(source);
  const value = Number(source);
  if (!isInteger(source)) return String(value) === source ? value : new ExactNumber(source);
  return Number.isSafeInteger(value) ? value : BigInt(source);
}

/** In characters. No double is written longer, and parsing a BigInt takes quadratic time. */
const LONGEST_NUMBER = 100;

export function isInteger(source: string): boolean {
  return /^-?\d+$/.test(source);
}

/** Matches every number that a double may not return as written, and also some strings. */
const inexact = /\d{16}|\d[.eE]/;

/** Shorter text is parsed natively if it has no unusual number, else at once. */
const SHORT_LENGTH = 64 * 1024;
/** A step takes well under a millisecond. */
const STEP_LENGTH = 16 * 1024;

const inNumber = characterTable("+-.0123456789Ee");
/** The longest whole numbers that surely are exact. */
const PLAIN_DIGITS = 15;

type Container = unknown[] | Record<string, unknown>;

const sources = new WeakMap<object, string>();

/** The text of a parsed object that has lost one of equal keys, or has its keys in another order. */
export function keptSource(parsed: object): string | undefined {
  return sources.get(parsed);
}

/** Containers whose text is too long to visit in one turn of the event loop. */
const longContainers = new WeakSet<object>();

export function isLong(value: unknown): value is object {
  return typeof value === "object" && value !== null && longContainers.has(value);
}

/**
 * Parses JSON that a strict reader has accepted, such as the values of a body. A reviver of
 * `JSON.parse` takes eight times as long, and neither can pause.
 */
class ExactParser {
  readonly #text: string;
  readonly #readNumber: ReadNumber;
  readonly #containers: Container[] = [];
  readonly #keys: string[] = [];
  readonly #starts: number[] = [];
  readonly #changed = new Set<Container>();
  #at = 0;
  value: unknown;

  constructor(text: string, readNumber: ReadNumber) {
    this.#text = text;
    this.#readNumber = readNumber;
    this.#skipSpace();
  }

  /** True if everything is read. Else it has paused after about `length` characters. */
  advance(length: number): boolean {
    const until = this.#at + length;
    do {
      const code = this.#text.charCodeAt(this.#at);
      if (code === OPEN_BRACE || code === OPEN_BRACKET) {
        const start = this.#at++;
        this.#skipSpace();
        const container: Container = code === OPEN_BRACE ? {} : [];
        if (this.#text.charCodeAt(this.#at) === code + 2) {
          this.#at++;
          if (this.#put(container)) return true;
          continue;
        }
        this.#containers.push(container);
        this.#keys.push("");
        this.#starts.push(start);
        if (code === OPEN_BRACE) this.#readKey();
      } else if (this.#put(this.#readScalar(code))) return true;
    } while (this.#at < until);
    return false;
  }

  #skipSpace(): void {
    while (this.#text.charCodeAt(this.#at) <= BLANK) this.#at++;
  }

  #readKey(): void {
    this.#keys[this.#keys.length - 1] = this.#readString();
    this.#skipSpace();
    if (this.#text.charCodeAt(this.#at) !== COLON) throw new SyntaxError("a colon is missing");
    this.#at++;
    this.#skipSpace();
  }

  /** Adds a value to its container and moves on. True if no value follows. */
  #put(read: unknown): boolean {
    let value = read;
    for (;;) {
      const container = this.#containers.at(-1);
      if (container === undefined) {
        this.value = value;
        return true;
      }
      if (Array.isArray(container)) container.push(value);
      else {
        const key = this.#keys.at(-1) ?? "";
        // Keys that are numbers come first.
        if (Object.hasOwn(container, key) || /^\d/.test(key)) this.#changed.add(container);
        setMember(container, key, value);
      }
      this.#skipSpace();
      const code = this.#text.charCodeAt(this.#at);
      this.#at++;
      if (code === COMMA) {
        this.#skipSpace();
        if (!Array.isArray(container)) this.#readKey();
        return false;
      }
      if (code !== CLOSE_BRACE && code !== CLOSE_BRACKET) throw new SyntaxError("no comma");
      this.#containers.pop();
      this.#keys.pop();
      const start = this.#starts.pop() ?? 0;
      if (this.#at - start > STEP_LENGTH) longContainers.add(container);
      if (this.#changed.delete(container)) {
        sources.set(container, this.#text.slice(start, this.#at));
      }
      value = container;
    }
  }

  #readScalar(code: number): unknown {
    switch (code) {
      case QUOTE:
        return this.#readString();
      case LETTER_T:
        this.#at += 4;
        return true;
      case LETTER_F:
        this.#at += 5;
        return false;
      case LETTER_N:
        this.#at += 4;
        return null;
      default:
        return this.#readNumberAt();
    }
  }

  #readString(): string {
    const text = this.#text;
    const start = this.#at;
    let end = text.indexOf('"', start + 1);
    const plain = text.slice(start + 1, end);
    if (!plain.includes("\\")) {
      this.#at = end + 1;
      return plain;
    }
    while (isEscaped(text, end)) end = text.indexOf('"', end + 1);
    this.#at = end + 1;
    return JSON.parse(text.slice(start, end + 1));
  }

  #readNumberAt(): unknown {
    const text = this.#text;
    const start = this.#at;
    let at = start;
    let value = 0;
    let code = text.charCodeAt(at);
    while (code >= ZERO && code <= NINE) {
      value = value * 10 + code - ZERO;
      code = text.charCodeAt(++at);
    }
    const isPlain = at > start && at - start <= PLAIN_DIGITS && inNumber[code] !== 1;
    if (isPlain) {
      this.#at = at;
      return value;
    }
    while (inNumber[text.charCodeAt(at)] === 1) at++;
    if (at === start) throw new SyntaxError("no value");
    this.#at = at;
    const isInArray = Array.isArray(this.#containers.at(-1));
    return this.#readNumber(text.slice(start, at), isInArray ? "" : (this.#keys.at(-1) ?? ""));
  }
}

/** True if an odd number of backslashes precedes. */
function isEscaped(text: string, at: number): boolean {
  let start = at;
  while (text.charCodeAt(start - 1) === BACKSLASH) start--;
  return (at - start) % 2 === 1;
}

/** As `JSON.parse`, which makes an own member also of `__proto__`. */
function setMember(container: Record<string, unknown>, key: string, value: unknown): void {
  if (key !== "__proto__") container[key] = value;
  else {
    Object.defineProperty(container, key, {
      value,
      writable: true,
      enumerable: true,
      configurable: true,
    });
  }
}

export function decodeText(bytes: Buffer): string {
  return isAscii(bytes) ? bytes.toString("latin1") : bytes.toString("utf8");
}

/** A value whose type the caller knows. */
export type Parsed = ReturnType<typeof JSON.parse>;

/**
 * Parses JSON that a strict reader has accepted, in steps if it is long.
 *
 * @param mayHoldObjects true if the source of an object in a cell may be needed (`keptSource`)
 */
export function* parseExactInSteps(
  text: string,
  readNumber: ReadNumber = exactNumber,
  mayHoldObjects = true,
): Steps<Parsed> {
  const isShort = text.length <= SHORT_LENGTH;
  if (isShort && !mayHoldObjects && !inexact.test(text)) return parseAccepted(text);
  const parser = new ExactParser(text, readNumber);
  while (!parser.advance(isShort ? text.length : STEP_LENGTH)) yield;
  return parser.value;
}

export function parseExact(text: string, readNumber: ReadNumber = exactNumber): Parsed {
  const parser = new ExactParser(text, readNumber);
  parser.advance(text.length);
  return parser.value;
}

/**
 * `JSON.parse` of Node 26 can take a key with an escape for a key of an earlier object that is
 * spelled like its beginning: once `{"a":0,"\\n":1}` was read, it reads `{"a":0,"\nx":2}` as if the
 * second key were a backslash and an n. Another server would read it right.
 */
function hasEscape(text: string): boolean {
  return text.includes("\\");
}

/** Parses JSON that a strict reader has accepted, in doubles. */
export function parseAccepted(text: string): Parsed {
  return hasEscape(text) ? parseExact(text, Number) : JSON.parse(text);
}

/** Rows, a list or a long value, which is read once someone needs it. */
export class Deferred {
  readonly #source: Buffer;
  readonly hasObject: boolean;
  #owner: Parsed;
  #name = "";

  constructor(source: Buffer, hasObject: boolean) {
    this.#source = source;
    this.hasObject = hasObject;
  }

  /** Sets the member that holds this object until the value is read. */
  belongTo(owner: Parsed, name: string): void {
    this.#owner = owner;
    this.#name = name;
  }

  *read(): Steps<Parsed> {
    const value = yield* parseExactInSteps(decodeText(this.#source), exactNumber, this.hasObject);
    this.#owner[this.#name] = value;
    return value;
  }

  /** The value. Reads it at once if that was not done. */
  value(): Parsed {
    const value: Parsed = this.#owner[this.#name];
    return value === this ? runAtOnce(this.read()) : value;
  }

  /** True if both are spelled alike. */
  equals(other: Deferred): boolean {
    return this.#source.equals(other.#source);
  }
}

declare global {
  interface JSON {
    /** A value that `JSON.stringify` writes as this exact text. */
    rawJSON(text: string): object;
    isRawJSON(value: unknown): boolean;
  }
}

/** Reads whole numbers beyond 2^53 as bigint. */
export function keepDigits(source: string): number | bigint {
  const value = Number(source);
  return Number.isSafeInteger(value) || !isInteger(source) ? value : BigInt(source);
}

/** A `JSON.stringify` replacer that writes every digit of a bigint. */
export function writeDigits(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? JSON.rawJSON(value.toString()) : value;
}

/** Keeps the spelling of every number, such as 64-bit integers. */
export function keepSpelling(source: string): unknown {
  const value = Number(source);
  return String(value) === source ? value : JSON.rawJSON(source);
}

/** Matches wherever a number may stand that `keepSpelling` would keep. */
const unusualNumber = /[\d.]{16}|\d[eE]|\.\d*0(?!\d)|-0(?![\d.])|0\.0{6}/;

/** As `JSON.parse`, but keeps every digit of a number, as `readNumber` does. @throws SyntaxError */
export function parseUnrounded(text: string, readNumber: ReadNumber = keepSpelling): Parsed {
  const value: Parsed = JSON.parse(text);
  return unusualNumber.test(text) || hasEscape(text) ? parseExact(text, readNumber) : value;
}
