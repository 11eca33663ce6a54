import { isUtf8 } from "node:buffer";
import type { Steps } from "../cooperative-scheduling.ts";
import type { ByteText } from "./bytes.ts";
import { DistinctKeys, hashKey, LONGEST_HASHED } from "./distinct-keys.ts";
import { JsonFault, quoteName } from "./fault.ts";
import { JsonReader } from "./reader.ts";
import { type Rest, repeat } from "./rest.ts";

/** A body that holds one JSON value which all parsers read alike. */

/** Refuses bytes that are no UTF-8, or begin with a byte-order mark. @throws JsonFault */
export function requireUtf8(bytes: Buffer): void {
  if (!isUtf8(bytes)) throw new JsonFault("invalid_utf8", "the body is not valid UTF-8", 0);
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) {
    const problem = "the body begins with a byte-order mark; UTF-8 without one is expected";
    throw new JsonFault("byte_order_mark", problem, 0);
  }
}

/** Refuses what follows the body's value. @throws JsonFault */
export function requireEnd(reader: JsonReader): void {
  reader.skipSpace();
  if (reader.position === reader.bytes.length) return;
  const problem = "something follows the end of the object; allowed: white space";
  throw new JsonFault("trailing_data", problem, reader.position);
}

/**
 * Judges a whole body: UTF-8, one value, in whose objects no key stands twice, at most 64 deep.
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

/** Keys of one object that are compared with each other: most objects have no more. */
const FEW = 16;
/** Keys of one object that are held as text: a larger set holds the event loop when it grows. */
const MOST_TEXTS = 1024;

/** The keys of one object, however many. */
export class ObjectKeys {
  readonly #reader: JsonReader;
  readonly #few: ByteText[] = [];
  /** All of them as text, once they are more than a few. */
  #texts: Set<string> | undefined = undefined;
  #others: DistinctKeys | undefined = undefined;

  constructor(reader: JsonReader) {
    this.#reader = reader;
  }

  /** Adds the key whose string token begins at an offset; false if it is there already. */
  add(key: ByteText, start: number): boolean {
    if (this.#texts === undefined) {
      for (const other of this.#few) if (key.equals(other)) return false;
      if (this.#few.push(key) > FEW) this.#texts = new Set(this.#few.map(String));
      return true;
    }
    const text = key.toString();
    if (this.#texts.has(text)) return false;
    // Longer keys than the hash looks at are few in a body of any size.
    if (this.#texts.size < MOST_TEXTS || key.end - key.start > LONGEST_HASHED) {
      this.#texts.add(text);
      return true;
    }
    this.#others ??= new DistinctKeys(this.#reader);
    return this.#others.add(start, hashKey(key));
  }
}

/**
 * Reads past a value in whose objects, at any depth, no key stands twice after unescaping.
 *
 * @throws JsonFault
 */
export function skipUniqueKeys(reader: JsonReader): Rest {
  const kind = reader.kind();
  if (kind === "an object") return skipObject(reader, skipUniqueKeys);
  if (kind === "an array") return skipArray(reader, skipUniqueKeys);
  return reader.skipValue();
}

/** Reads the value of a member, whose key is given. */
export type ReadMember = (reader: JsonReader, key: ByteText) => Rest;

/** Reads an object as `skipUniqueKeys` does, the value of each member by `read`. @throws JsonFault */
export function skipObject(reader: JsonReader, read: ReadMember): Rest {
  if (!reader.openObject()) return undefined;
  const keys = new ObjectKeys(reader);
  do {
    const rest = readMember(reader, keys, read);
    if (rest !== undefined) return restOfObject(rest, reader, keys, read);
  } while (reader.nextMember());
  return undefined;
}

function readMember(reader: JsonReader, keys: ObjectKeys, read: ReadMember): Rest {
  const start = reader.position;
  const key = reader.readKey();
  if (!keys.add(key, start)) {
    const problem = `the key ${quoteName(key.toString())} is given twice; each may stand once`;
    throw new JsonFault("duplicate_key", problem, start);
  }
  return read(reader, key) ?? reader.pause();
}

function* restOfObject(
  rest: Steps<void>,
  reader: JsonReader,
  keys: ObjectKeys,
  read: ReadMember,
): Steps<void> {
  yield* rest;
  while (reader.nextMember()) {
    const more = readMember(reader, keys, read);
    if (more !== undefined) yield* more;
  }
}

/** Reads an array, each element by `read`. @throws JsonFault */
export function skipArray(reader: JsonReader, read: (reader: JsonReader) => Rest): Rest {
  if (!reader.openArray()) return undefined;
  return repeat(
    () => read(reader) ?? reader.pause(),
    () => reader.nextElement(),
  );
}

/** Numbers of JSON that a double cannot hold. */

declare global {
  interface JSON {
    /** A value that `JSON.stringify` writes as this very text (ECMAScript's source text access). */
    rawJSON(text: string): object;
  }
}

/** For `JSON.parse`: reads whole numbers that a double cannot hold as bigint. */
export function keepDigits(
  _key: string,
  value: unknown,
  context?: { readonly source?: string },
): unknown {
  const source = context?.source ?? "";
  const isLarge = typeof value === "number" && !Number.isSafeInteger(value);
  return isLarge && /^-?\d+$/.test(source) ? BigInt(source) : value;
}

/**
 * For `JSON.parse`: has every number written again as it was spelled. One that a double cannot
 * hold, such as an integer of 64 bits, stays its own text.
 */
export function keepSpelling(
  _key: string,
  value: unknown,
  context?: { readonly source?: string },
): unknown {
  const source = context?.source;
  if (typeof value !== "number" || source === undefined || String(value) === source) return value;
  return JSON.rawJSON(source);
}
