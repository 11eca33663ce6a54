import { isAscii } from "node:buffer";
import type { Steps } from "../base/cooperative-scheduling.ts";
import { characterTable } from "./lexical.ts";

/** A JSON number that a double would write differently, kept as received. */
export class ExactNumber {
  readonly source: string;

  constructor(source: string) {
    this.source = source;
  }
}

/** @param key the member whose value it is; empty in an array */
export type ReadNumber = (source: string, key: string) => number | bigint | ExactNumber;

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

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const LETTER_T = 0x74;
const LETTER_F = 0x66;
const LETTER_N = 0x6e;
const BLANK = 0x20;
const inNumber = characterTable("+-.0123456789Ee");
/** The longest whole numbers that surely are exact. */
const PLAIN_DIGITS = 15;

type Container = unknown[] | Record<string, unknown>;

const sources = new WeakMap<object, string>();

/** The text of a parsed object that has lost one of equal keys, or has its keys in another order. */
export function sourceOf(parsed: object): string | undefined {
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

  #readNumberAt(): number | bigint | ExactNumber {
    const text = this.#text;
    const start = this.#at;
    let at = start;
    let value = 0;
    let code = text.charCodeAt(at);
    while (code >= 0x30 && code <= 0x39) {
      value = value * 10 + code - 0x30;
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
  while (text.charCodeAt(start - 1) === 0x5c) start--;
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

export function textOf(bytes: Buffer): string {
  return isAscii(bytes) ? bytes.toString("latin1") : bytes.toString("utf8");
}

/** A value whose type the caller knows. */
export type Parsed = ReturnType<typeof JSON.parse>;

/**
 * Parses JSON that a strict reader has accepted, in steps if it is long.
 *
 * @param mayHoldObjects true if the source of an object in a cell may be needed (`sourceOf`)
 */
export function* parseExactlyInSteps(
  text: string,
  readNumber: ReadNumber = exactNumber,
  mayHoldObjects = true,
): Steps<Parsed> {
  const isShort = text.length <= SHORT_LENGTH;
  if (isShort && !mayHoldObjects && !inexact.test(text)) return JSON.parse(text);
  const parser = new ExactParser(text, readNumber);
  while (!parser.advance(isShort ? text.length : STEP_LENGTH)) yield;
  return parser.value;
}

export function parseExact(text: string): Parsed {
  const parser = new ExactParser(text, exactNumber);
  parser.advance(text.length);
  return parser.value;
}
