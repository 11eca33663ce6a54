import { isUtf8 } from "node:buffer";
import { JsonFault, quoteName } from "./fault.ts";
import { type ByteText, JsonReader, type Rest, repeat } from "./reader.ts";

/** Refuses invalid UTF-8 and a byte-order mark. @throws JsonFault */
export function requireUtf8(bytes: Buffer): void {
  if (!isUtf8(bytes)) throw new JsonFault("invalid_utf8", "the body is not valid UTF-8", 0);
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) {
    const problem = "the body begins with a byte-order mark; UTF-8 without one is expected";
    throw new JsonFault("byte_order_mark", problem, 0);
  }
}

/** Refuses anything after the body's value. @throws JsonFault */
export function requireEnd(reader: JsonReader): void {
  reader.skipSpace();
  if (reader.position === reader.bytes.length) return;
  const problem = "something follows the end of the object; allowed: white space";
  throw new JsonFault("trailing_data", problem, reader.position);
}

/**
 * Checks that a body is UTF-8 and one JSON value, with unique keys in all objects and at most 64
 * levels deep. All parsers read such a body alike.
 *
 * @throws JsonFault
 */
export function requireOneReading(bytes: Buffer): void {
  requireUtf8(bytes);
  const reader = new JsonReader(bytes);
  reader.skipSpace();
  skipUniqueKeys(reader);
  requireEnd(reader);
}

/** Most objects have no more keys, for which comparing is faster than a set. */
const FEW = 16;

export class ObjectKeys {
  readonly #few: ByteText[] = [];
  #all: Set<string> | undefined = undefined;

  /** False if the object has the key already. */
  add(key: ByteText): boolean {
    if (this.#all === undefined) {
      for (const other of this.#few) if (key.equals(other)) return false;
      if (this.#few.push(key) > FEW) this.#all = new Set(this.#few.map(String));
      return true;
    }
    const { size } = this.#all;
    return this.#all.add(key.toString()).size > size;
  }
}

/** Skips a value and checks that the unescaped keys of each object are unique. @throws JsonFault */
export function skipUniqueKeys(reader: JsonReader): Rest {
  const kind = reader.kind();
  if (kind === "an array") {
    if (!reader.openArray()) return undefined;
    return repeat(
      () => skipUniqueKeys(reader) ?? reader.pause(),
      () => reader.nextElement(),
    );
  }
  if (kind !== "an object") return reader.skipValue();
  if (!reader.openObject()) return undefined;
  const keys = new ObjectKeys();
  return repeat(
    () => skipMember(reader, keys),
    () => reader.nextMember(),
  );
}

function skipMember(reader: JsonReader, keys: ObjectKeys): Rest {
  const start = reader.position;
  const key = reader.readKey();
  if (!keys.add(key)) {
    const problem = `the key ${quoteName(key.toString())} is given twice; each key is allowed once`;
    throw new JsonFault("duplicate_key", problem, start);
  }
  return skipUniqueKeys(reader) ?? reader.pause();
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
