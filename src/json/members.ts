import type { Steps } from "../cooperative-scheduling.ts";
import { ObjectKeys, requireEnd, requireUtf8, skipUniqueKeys } from "./document.ts";
import { JsonFault } from "./fault.ts";
import { JsonReader } from "./reader.ts";

/** The members of a JSON object, each with the bytes of its value as sent. */
export type Members = ReadonlyMap<string, Buffer>;

const BYTES_PER_STEP = 32 * 1024;

export type VisitMember = (key: string, value: Buffer) => void;

/** @param areChecked true if keys and values were checked before */
function* visitAll(reader: JsonReader, visit: VisitMember, areChecked: boolean): Steps<void> {
  const keys = areChecked ? undefined : new ObjectKeys();
  for (let more = reader.openObject(); more; more = reader.nextMember()) {
    const keyStart = reader.position;
    const key = reader.readKey();
    if (keys?.add(key) === false) {
      throw new JsonFault("duplicate_key", "a key is given twice", keyStart);
    }
    const start = reader.position;
    const rest = (areChecked ? reader.skipValue() : skipUniqueKeys(reader)) ?? reader.pause();
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
 * Visits the members of one JSON object without building their values.
 *
 * @throws JsonFault for invalid UTF-8, a byte-order mark, anything but one object, a duplicate key
 *   at any depth, a lone surrogate, and nesting over 64
 */
export function* visitMembers(bytes: Buffer, visit: VisitMember): Steps<void> {
  requireUtf8(bytes);
  const reader = readerOf(bytes);
  yield* visitAll(reader, visit, false);
  requireEnd(reader);
}

/**
 * As `visitMembers` but faster, for an object inside one that `visitMembers` has already checked.
 */
export function* visitCheckedMembers(bytes: Buffer, visit: VisitMember): Steps<void> {
  yield* visitAll(readerOf(bytes), visit, true);
}

export function writeMembers(members: Members): Buffer {
  const pieces = Array.from(members, ([key, value], at) => [
    Buffer.from(`${at === 0 ? "" : ","}${JSON.stringify(key)}:`),
    value,
  ]);
  return Buffer.concat([Buffer.from("{"), ...pieces.flat(), Buffer.from("}")]);
}

export function beginsWith(value: Buffer, mark: "{" | "[" | '"'): boolean {
  return value[0] === mark.charCodeAt(0);
}

/** The text of a string value. Undefined for any other value. */
export function readText(value: Buffer | undefined): string | undefined {
  if (value === undefined || !beginsWith(value, '"')) return undefined;
  const text: unknown = JSON.parse(value.toString("utf8"));
  return typeof text === "string" ? text : undefined;
}
