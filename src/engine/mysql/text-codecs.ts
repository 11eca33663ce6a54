import type { Codec } from "./codec.ts";
import { documents, formed, strings, unknown } from "./codecs.ts";
import type { TypeDescription } from "./type-description.ts";

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
