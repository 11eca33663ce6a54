import type { Steps } from "../cooperative-scheduling.ts";
import { ByteText } from "./bytes.ts";
import { ObjectKeys, requireEnd, requireUtf8, skipUniqueKeys } from "./document.ts";
import { JsonFault } from "./fault.ts";
import { JsonReader } from "./reader.ts";
import type { Rest } from "./rest.ts";

/** The members of a JSON object, each with the bytes of its value as they were sent. */
export type Members = ReadonlyMap<string, Buffer>;

/** Bytes that are read between two chances to interrupt. */
const BYTES_PER_STEP = 32 * 1024;

/** Takes the members of an object, one after the other; what it throws ends the reading. */
export type VisitMember = (key: string, value: Buffer) => void;

/** How a value is read past, and how a key is found to be fit. */
interface Strictness {
  readonly skip: (reader: JsonReader) => Rest;
  readonly keys: ObjectKeys | undefined;
}

function* visitAll(
  reader: JsonReader,
  { skip, keys }: Strictness,
  visit: VisitMember,
): Steps<void> {
  for (let more = reader.openObject(); more; more = reader.nextMember()) {
    const keyStart = reader.position;
    const key = reader.readKey();
    if (keys?.add(key, keyStart) === false) {
      throw new JsonFault("duplicate_key", "a key is given twice", keyStart);
    }
    const start = reader.position;
    const rest = skip(reader) ?? reader.pause();
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
 */
export function* visitMembers(bytes: Buffer, visit: VisitMember): Steps<void> {
  requireUtf8(bytes);
  const reader = readerOf(bytes);
  yield* visitAll(reader, { skip: skipUniqueKeys, keys: new ObjectKeys(reader) }, visit);
  requireEnd(reader);
}

/** As `visitMembers`, and quicker, for an object within one that `visitMembers` has gone over. */
export function* visitJudgedMembers(bytes: Buffer, visit: VisitMember): Steps<void> {
  const skip = (reader: JsonReader) => reader.skipValue();
  yield* visitAll(readerOf(bytes), { skip, keys: undefined }, visit);
}

/** The members of one JSON object. @throws JsonFault as `visitMembers` does */
export function* readMembers(bytes: Buffer): Steps<Map<string, Buffer>> {
  const members = new Map<string, Buffer>();
  yield* visitMembers(bytes, (key, value) => members.set(key, value));
  return members;
}

/** The members of an object within one that was gone over already. */
export function* readJudgedMembers(bytes: Buffer): Steps<Map<string, Buffer>> {
  const members = new Map<string, Buffer>();
  yield* visitJudgedMembers(bytes, (key, value) => members.set(key, value));
  return members;
}

/** An element of an array. */
export interface Element {
  /** As it was sent. */
  readonly bytes: Buffer;
  /** The value of the member that was asked for, if it is an object that has it. */
  readonly value: Buffer | undefined;
}

/**
 * The elements of an array that `visitMembers` has gone over, each with the value of one member.
 *
 * @throws JsonFault if it is no array
 */
export function* readElements(bytes: Buffer, member: string): Steps<Element[]> {
  const elements: Element[] = [];
  const wanted = ByteText.from(member);
  const reader = readerOf(bytes);
  for (let more = reader.openArray(); more; more = reader.nextElement()) {
    const start = reader.position;
    let value: Buffer | undefined;
    if (reader.kind() === "an object") {
      for (let next = reader.openObject(); next; next = reader.nextMember()) {
        const isWanted = reader.readKey().equals(wanted);
        const from = reader.position;
        const rest = reader.skipValue() ?? reader.pause();
        if (rest !== undefined) yield* rest;
        if (isWanted) value = bytes.subarray(from, reader.position);
      }
    } else {
      const rest = reader.skipValue() ?? reader.pause();
      if (rest !== undefined) yield* rest;
    }
    elements.push({ bytes: bytes.subarray(start, reader.position), value });
  }
  return elements;
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
