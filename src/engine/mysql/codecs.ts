import { sql } from "kysely";
import driver, { type TypedParameterValue } from "mysql2";
import { cellText, decodeBase64, type PresentValue, withoutSpace } from "../sql/cell-text.ts";
import type { Fragment } from "../sql/fragment.ts";
import type { Bound, Raw } from "./session.ts";
import type { TypeDescription } from "./type-words.ts";

/** `true` and `false`, also `1` and `0`; other numbers that a column holds stay numbers. */
export const booleans: Codec = {
  store(value) {
    if (value === true || value === 1) return signed(1n);
    return value === false || value === 0 ? signed(0n) : undefined;
  },
  encode: (raw) => (raw === 0 || raw === 1 ? String(raw === 1) : String(raw)),
};

/** Strings that `takes` allows: MySQL would cut others, or make something else of them. */
function strings(takes: (text: string) => boolean = () => true): Codec {
  return {
    store: (value) => (typeof value === "string" && takes(value) ? value : undefined),
    compare: (value) => (typeof value === "string" ? value : undefined),
    encode: (raw) => JSON.stringify(raw),
  };
}

/** Strings of one form, which `read` turns into MySQL's own, of a type to compare as. */
export function formed(
  read: (text: string) => string | undefined,
  castAs: Fragment | undefined,
  write: (text: string) => string = (text) => text,
): Codec {
  const store = (value: PresentValue): string | undefined =>
    typeof value === "string" ? read(value) : undefined;
  return {
    store,
    compare(value) {
      const text = store(value);
      return text === undefined || castAs === undefined ? text : sql`cast(${text} as ${castAs})`;
    },
    encode: (raw) => JSON.stringify(write(String(raw))),
  };
}

/** Bytes as base64 text; a column of a fixed length would be filled up with zeros. */
export function bytes(fixedLength?: number): Codec {
  return {
    store(value) {
      const decoded = decodeBase64(value);
      const fits = fixedLength === undefined || decoded?.length === fixedLength;
      return fits ? decoded : undefined;
    },
    compare: decodeBase64,
    encode: (raw) => JSON.stringify(Buffer.isBuffer(raw) ? raw.toString("base64") : raw),
  };
}

/** JSON that is held as text, so that it keeps its digits and the order of its keys. */
const documents: Codec = { store: cellText, encode: (raw) => withoutSpace(String(raw)) };

/** MySQL's own JSON. */
export const nativeDocuments: Codec = {
  ...documents,
  compare: (value) => sql`cast(${cellText(value)} as json)`,
};

/** Values that can only be read. */
export const unknown: Codec = {
  store: () => undefined,
  encode: (raw) => JSON.stringify(Buffer.isBuffer(raw) ? raw.toString("base64") : raw),
};

/** How the values of a type travel: bound to a statement on the way there, JSON on the way back. */
export interface Codec {
  /** What is stored for a value, or undefined if the type does not take it. */
  store(value: PresentValue): Bound | Fragment | undefined;
  /** The same to compare with the value, where that differs. */
  compare?(value: PresentValue): Bound | Fragment | undefined;
  /** JSON text of a value. */
  encode(raw: Raw): string;
}

const { LONGLONG } = driver.TypedParameter;

/** A whole number as the server's own, bound with its type; -2^63 to 2^63 - 1. */
export function signed(integer: bigint): TypedParameterValue {
  return LONGLONG(integer);
}

/** The same from 0 to 2^64 - 1. */
export function unsigned(integer: bigint): TypedParameterValue {
  return LONGLONG.unsigned(integer);
}

const uuidForm = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** The codec of a type that travels as text; one that is not known can only be read. */
export function textCodecOf({ dataType, columnType, mark, length }: TypeDescription): Codec {
  switch (dataType) {
    case "char":
      if (mark === "uuid") return uuids;
      // The server cuts the spaces at the end off.
      return strings((text) => !text.endsWith(" ") && lengthOf(text) <= length);
    case "varchar":
      // The server cuts spaces beyond the length off, in silence.
      return strings((text) => lengthOf(text) <= length);
    case "tinytext":
    case "text":
    case "mediumtext":
    case "longtext":
      return mark === "json" ? documents : strings();
    case "enum": {
      // The server takes the number of a member for the member.
      const members = membersOf(columnType);
      return strings((text) => members.includes(text));
    }
    case "set": {
      const members = membersOf(columnType);
      return strings((text) => membersIn(members, text) === text);
    }
    case "uuid":
      return uuids;
    case "inet4":
    case "inet6":
      return strings();
    default:
      return unknown;
  }
}

/** UUIDs in lower case. */
const uuids = formed((text) => (uuidForm.test(text) ? text.toLowerCase() : undefined), undefined);

/** Characters, which MySQL counts by code points. */
function lengthOf(text: string): number {
  let length = 0;
  for (const _ of text) length += 1;
  return length;
}

/** The members of `enum('a','it''s')`. */
function membersOf(columnType: string): string[] {
  return Array.from(columnType.matchAll(/'((?:[^']|'')*)'/g), ([, member = ""]) =>
    member.replaceAll("''", "'"),
  );
}

/** The members that a set's text names, once each and in their order. */
function membersIn(members: readonly string[], text: string): string {
  const named = new Set(text.split(","));
  return members.filter((member) => named.has(member)).join(",");
}
