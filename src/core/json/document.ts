import { Tape, UNIQUE } from "./tape.ts";

/**
 * Checks that a body is UTF-8 and one JSON value, with unique keys in all objects and at most 64
 * levels deep. All parsers read such a body alike.
 *
 * @throws JsonFault
 */
export function requireOneReading(bytes: Buffer): void {
  new Tape(bytes, true, UNIQUE).run();
}

declare global {
  interface JSON {
    /** A value that `JSON.stringify` writes as this exact text. */
    rawJSON(text: string): object;
    isRawJSON(value: unknown): boolean;
  }
}

/** A `JSON.parse` reviver that reads whole numbers beyond 2^53 as bigint. */
export function keepDigits(
  _key: string,
  value: unknown,
  context?: { readonly source?: string },
): unknown {
  const source = context?.source ?? "";
  const isLarge = typeof value === "number" && !Number.isSafeInteger(value);
  return isLarge && /^-?\d+$/.test(source) ? BigInt(source) : value;
}

/** A `JSON.stringify` replacer that writes every digit of a bigint. */
export function writeDigits(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? JSON.rawJSON(value.toString()) : value;
}

/** A `JSON.parse` reviver that keeps the spelling of every number, such as 64-bit integers. */
export function keepSpelling(
  _key: string,
  value: unknown,
  context?: { readonly source?: string },
): unknown {
  const source = context?.source;
  if (typeof value !== "number" || source === undefined || String(value) === source) return value;
  return JSON.rawJSON(source);
}

/** Matches wherever a number may stand that `keepSpelling` would keep. */
const unusualNumber = /[\d.]{16}|\d[eE]|\.\d*0(?!\d)|-0(?![\d.])|0\.0{6}/;

/**
 * Parses JSON without changing any number. Reviving takes eight times as long as parsing, so it is
 * done only where a number needs it.
 */
export function parseExactly(text: string, revive = keepSpelling): unknown {
  return unusualNumber.test(text) ? JSON.parse(text, revive) : JSON.parse(text);
}
