import type { CellValue } from "../../query/operation-types.ts";
import {
  cellText,
  decodeBase64,
  integerOf,
  isRoundedInteger,
  numberText,
  type PresentValue,
  withoutSpace,
} from "../sql/cell-text.ts";
import type { ByteForm } from "./cell-bytes.ts";

/** How the values of a type travel: as JSON on one side, as PostgreSQL's text on the other. */
export interface Codec {
  /** PostgreSQL's text of a value, or undefined if the type does not take it. */
  write(value: PresentValue): string | undefined;
  /** JSON text of a value that PostgreSQL wrote. */
  read(text: string): string;
  /** The same without a string, where there is such a way. */
  readonly bytes?: ByteForm;
}

/** The values of PostgreSQL's numbers that JSON has no numbers for; they travel as strings. */
const notNumbers = new Set(["NaN", "Infinity", "-Infinity"]);

/** Whole numbers of 64 bits, digit for digit. */
export const integers: Codec = {
  write: (value) => integerOf(value)?.toString(),
  read: (text) => text,
  bytes: "integer",
};

/** Decimal numbers of any length, digit for digit. */
export const decimals: Codec = { write: writeNumber, read: readNumber, bytes: "decimal" };

/** Doubles; a whole number that one would round is refused. */
export const doubles: Codec = {
  write: (value) => (isRoundedInteger(value) ? undefined : writeNumber(value)),
  // Digits as JSON writers of doubles put them, whichever database they come from.
  read: (text) => (notNumbers.has(text) ? JSON.stringify(text) : String(Number(text))),
  bytes: "double",
};

/** Strings; PostgreSQL has no character U+0000. */
export const strings: Codec = {
  write: (value) => (typeof value === "string" && !value.includes("\0") ? value : undefined),
  read: (text) => JSON.stringify(text),
  bytes: "text",
};

/** Strings of one form, since PostgreSQL takes others too and makes something else of them. */
export function stringsLike(form: RegExp): Codec {
  return {
    write: (value) => (typeof value === "string" && form.test(value) ? value : undefined),
    read: strings.read,
    bytes: "text",
  };
}

/** `true` and `false`, also `1` and `0`. */
export const booleans: Codec = {
  write(value) {
    if (value === true || value === 1) return "true";
    return value === false || value === 0 ? "false" : undefined;
  },
  read: (text) => String(text === "t" || text === "true"),
  bytes: "boolean",
};

/** Bytes as base64 text (RFC 4648, section 4). */
export const bytes: Codec = {
  write(value) {
    const decoded = decodeBase64(value);
    return decoded === undefined ? undefined : `\\x${decoded.toString("hex")}`;
  },
  read: (text) => JSON.stringify(Buffer.from(text.slice("\\x".length), "hex").toString("base64")),
};

/** JSON as JSON, without white space between its tokens. */
export const documents: Codec = {
  write: cellText,
  read: withoutSpace,
};

function writeNumber(value: PresentValue): string | undefined {
  return typeof value === "string" && notNumbers.has(value) ? value : numberText(value);
}

function readNumber(text: string): string {
  return notNumbers.has(text) ? JSON.stringify(text) : text;
}

const day = String.raw`\d{4,6}-\d\d-\d\d`;
const clock = String.raw`\d\d:\d\d(:\d\d(\.\d{1,6})?)?`;
const zone = String.raw`(Z|[+-]\d\d(:?\d\d)?)`;

/** `2026-01-02`, the days before year 1 with ` BC` after them, and the ends of time. */
export const dates = stringsLike(new RegExp(`^(${day}( BC)?|-?infinity)$`));

/** `03:04:05` with up to six places of a second. */
export const times = stringsLike(new RegExp(`^${clock}$`));

/**
 * Instants, written in UTC (ISO 8601): `2026-01-02T03:04:05Z`. They are taken with any offset;
 * without one they are in UTC.
 */
export const instants: Codec = {
  write: stringsLike(new RegExp(`^(${day}([T ]${clock}${zone}?)?( BC)?|-?infinity)$`)).write,
  read: (text) => strings.read(text.replace(" ", "T").replace(/\+00(?::00)?(?= BC$|$)/, "Z")),
  bytes: "instant",
};

/** Dates with a time of day that belong to no zone: `2026-01-02T03:04:05`; an offset is refused. */
export const localTimes: Codec = {
  write: stringsLike(new RegExp(`^(${day}([T ]${clock})?( BC)?|-?infinity)$`)).write,
  read: (text) => strings.read(text.replace(" ", "T")),
  bytes: "local",
};

/** Arrays, of any depth, of what `element` takes; null stands for no element. */
export function arraysOf(element: Codec): Codec {
  return {
    write: (value) => (Array.isArray(value) ? writeArray(element, value) : undefined),
    read: (text) => readArray(element, text),
  };
}

function writeArray(element: Codec, values: readonly CellValue[]): string | undefined {
  const parts: string[] = [];
  for (const value of values) {
    const part = writeElement(element, value);
    if (part === undefined) return undefined;
    parts.push(part);
  }
  return `{${parts.join(",")}}`;
}

function writeElement(element: Codec, value: CellValue): string | undefined {
  if (value === null) return "NULL";
  if (Array.isArray(value)) return writeArray(element, value);
  const text = element.write(value);
  return text === undefined ? undefined : `"${text.replace(/["\\]/g, "\\$&")}"`;
}

/** A quoted element, a bare one, or a sign of the structure. */
const token = /"((?:[^"\\]|\\.)*)"|[^{},"]+|[{},]/gs;

/** Reads `{1,NULL,"a b"}`, which bounds may stand before: `[0:2]={...}`. */
function readArray(element: Codec, text: string): string {
  const start = text.startsWith("[") ? text.indexOf("=") + 1 : 0;
  let json = "";
  for (const [sign, quoted] of text.slice(start).matchAll(token)) {
    if (quoted !== undefined) json += element.read(quoted.replace(/\\(.)/gs, "$1"));
    else if (sign === "{") json += "[";
    else if (sign === "}") json += "]";
    else if (sign === ",") json += ",";
    else json += sign === "NULL" ? "null" : element.read(sign);
  }
  return json;
}
