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
