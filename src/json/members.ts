import type { Steps } from "../cooperative-scheduling.ts";
import {
  ObjectKeys,
  type ReadMember,
  requireEnd,
  requireUtf8,
  skipUniqueKeys,
} from "./document.ts";
import { JsonFault } from "./fault.ts";
import { JsonReader } from "./reader.ts";

/** The members of a JSON object, each with the bytes of its value as they were sent. */
export type Members = ReadonlyMap<string, Buffer>;

/** Bytes that are read between two chances to interrupt. */
const BYTES_PER_STEP = 32 * 1024;

/** Takes the members of an object, one after the other; what it throws ends the reading. */
export type VisitMember = (key: string, value: Buffer) => void;

const skipJudged: ReadMember = (reader) => reader.skipValue();

/** @param keys those of the object; undefined if they were judged already */
function* visitAll(
  reader: JsonReader,
  keys: ObjectKeys | undefined,
  visit: VisitMember,
  read: ReadMember,
): Steps<void> {
  for (let more = reader.openObject(); more; more = reader.nextMember()) {
    const keyStart = reader.position;
    const key = reader.readKey();
    if (keys?.add(key, keyStart) === false) {
      throw new JsonFault("duplicate_key", "a key is given twice", keyStart);
    }
    const start = reader.position;
    const rest = read(reader, key) ?? reader.pause();
    if (rest !== undefined) yield* rest;
    visit(key.toString(), reader.bytes.subarray(start, reader.position));
  }
}

function readerOf(bytes: Buffer): JsonReader {
  const reader = new JsonReader(bytes);
  reader.pauseEvery(BYTES_PER_STEP);
  reader.skipSpace();
  return reader;
}

/**
 * Goes over one JSON object, without building its values.
 *
 * @throws JsonFault for invalid UTF-8, a byte-order mark, anything but one object, a key that is
 *   given twice at any depth, a lone surrogate, and nesting over 64
 * @param read reads the values, as strictly
 */
export function* visitMembers(
  bytes: Buffer,
  visit: VisitMember,
  read: ReadMember = skipUniqueKeys,
): Steps<void> {
  requireUtf8(bytes);
  const reader = readerOf(bytes);
  yield* visitObject(reader, visit, read);
  requireEnd(reader);
}

/** As `visitMembers`, the object that begins where a reader is. */
export function visitObject(reader: JsonReader, visit: VisitMember, read: ReadMember): Steps<void> {
  return visitAll(reader, new ObjectKeys(reader), visit, read);
}

/** As `visitMembers`, and quicker, for an object within one that `visitMembers` has gone over. */
export function* visitJudgedMembers(bytes: Buffer, visit: VisitMember): Steps<void> {
  yield* visitAll(readerOf(bytes), undefined, visit, skipJudged);
}

/** The members of one JSON object. @throws JsonFault as `visitMembers` does */
export function* readMembers(bytes: Buffer): Steps<Map<string, Buffer>> {
  const members = new Map<string, Buffer>();
  yield* visitMembers(bytes, (key, value) => members.set(key, value));
  return members;
}

/** An object of these members, their values as they are. */
export function writeMembers(members: Members): Buffer {
  const pieces = Array.from(members, ([key, value], at) => [
    Buffer.from(`${at === 0 ? "" : ","}${JSON.stringify(key)}:`),
    value,
  ]);
  return Buffer.concat([Buffer.from("{"), ...pieces.flat(), Buffer.from("}")]);
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
