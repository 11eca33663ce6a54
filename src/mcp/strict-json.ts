import { isUtf8 } from "node:buffer";
import { JsonReader } from "../query/json-reader.ts";
import { QueryRefused } from "../query/refusal.ts";
import { skipUniqueKeys } from "../query/unique-keys.ts";

/** The members of a JSON object, each with the bytes of its value as they were sent. */
export type Members = ReadonlyMap<string, Buffer>;

/** The bytes are no JSON object, or one that two parsers could read differently. */
export class JsonRefused extends Error {
  override readonly name = "JsonRefused";
  /** True if they are not JSON at all (RFC 8259). */
  readonly isSyntax: boolean;

  constructor(problem: string, isSyntax: boolean, options?: ErrorOptions) {
    super(problem, options);
    this.isSyntax = isSyntax;
  }
}

const syntaxCodes: ReadonlySet<string> = new Set(["invalid_json", "lone_surrogate"]);
const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf]);

function readStrictly(reader: JsonReader, note: (key: string, value: Buffer) => void): void {
  const keys = new Set<string>();
  for (let more = reader.openObject(); more; more = reader.nextMember()) {
    const keyStart = reader.position;
    const key = reader.readKey().toString();
    if (keys.has(key)) throw reader.refusal("duplicate_key", "a key is given twice", keyStart);
    keys.add(key);
    const start = reader.position;
    skipUniqueKeys(reader);
    note(key, reader.bytes.subarray(start, reader.position));
  }
}

function readObject(bytes: Buffer): Members {
  const members = new Map<string, Buffer>();
  const reader = new JsonReader(bytes);
  reader.path.push("message");
  reader.skipSpace();
  readStrictly(reader, (key, value) => members.set(key, value));
  reader.skipSpace();
  if (reader.position < bytes.length) {
    throw reader.refusal("trailing_data", "something follows the end of the object");
  }
  return members;
}

function asRefused(error: unknown): unknown {
  if (!(error instanceof QueryRefused)) return error;
  return new JsonRefused(error.message, syntaxCodes.has(error.code), { cause: error });
}

/**
 * Reads one JSON object from bytes, without building its values.
 *
 * @throws JsonRefused for invalid UTF-8, a byte-order mark, anything but one object, a key that is
 *   given twice at any depth, a lone surrogate, and nesting over 64
 */
export function readMembers(bytes: Buffer): Members {
  if (!isUtf8(bytes)) throw new JsonRefused("the message is not valid UTF-8", true);
  if (bytes.subarray(0, 3).equals(byteOrderMark)) {
    throw new JsonRefused("the message begins with a byte-order mark", true);
  }
  try {
    return readObject(bytes);
  } catch (error) {
    throw asRefused(error);
  }
}

/**
 * The elements of an array that `readMembers` has gone over, each as its bytes.
 *
 * @throws JsonRefused if it is no array
 */
export function readElements(bytes: Buffer): Buffer[] {
  const elements: Buffer[] = [];
  const reader = new JsonReader(bytes);
  try {
    for (let more = reader.openArray(); more; more = reader.nextElement()) {
      const start = reader.position;
      reader.skipValue();
      elements.push(bytes.subarray(start, reader.position));
    }
  } catch (error) {
    throw asRefused(error);
  }
  return elements;
}

/** An object of these members, their values as they are. */
export function writeMembers(members: Members): Buffer {
  const texts = Array.from(members, ([key, value]) => `${JSON.stringify(key)}:${value.toString()}`);
  return Buffer.from(`{${texts.join(",")}}`);
}

/** True if the value is of the kind that `mark` begins: `{`, `[` or `"`. */
export function beginsWith(value: Buffer, mark: "{" | "[" | '"'): boolean {
  return value[0] === mark.charCodeAt(0);
}

/** The text of a value that is a string; undefined for any other. */
export function readText(value: Buffer | undefined): string | undefined {
  if (value === undefined || !beginsWith(value, '"')) return undefined;
  const text: unknown = JSON.parse(value.toString("utf8"));
  return typeof text === "string" ? text : undefined;
}
