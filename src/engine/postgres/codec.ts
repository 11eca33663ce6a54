import { ExactNumber } from "../exact-number.ts";
import { cellText } from "../sql/cell-text.ts";
import type { PresentValue } from "../sql/scope.ts";

/** How the values of a type travel: as JSON on one side, as PostgreSQL's text on the other. */
export interface Codec {
  /** PostgreSQL's text of a value, or undefined if the type does not take it. */
  write(value: PresentValue): string | undefined;
  /** JSON text of a value that PostgreSQL wrote. */
  read(text: string): string;
}

const smallestInteger = -(2n ** 63n);
const largestInteger = 2n ** 63n - 1n;

/** The values of PostgreSQL's numbers that JSON has no numbers for; they travel as strings. */
const notNumbers = new Set(["NaN", "Infinity", "-Infinity"]);

/** Whole numbers of 64 bits, digit for digit. */
export const integers: Codec = {
  write(value) {
    if (typeof value === "number") return Number.isSafeInteger(value) ? String(value) : undefined;
    if (value instanceof ExactNumber) return wholeNumber(value.source);
    if (typeof value !== "bigint") return undefined;
    return value >= smallestInteger && value <= largestInteger ? value.toString() : undefined;
  },
  read: (text) => text,
};

/** Decimal numbers of any length, digit for digit. */
export const decimals: Codec = { write: numberText, read: readNumber };

/** Doubles; a whole number that one would round is refused. */
export const doubles: Codec = {
  write: (value) => (isRoundedInteger(value) ? undefined : numberText(value)),
  read: readNumber,
};

/** Strings; PostgreSQL has no character U+0000. */
export const strings: Codec = {
  write: (value) => (typeof value === "string" && !value.includes("\0") ? value : undefined),
  read: (text) => JSON.stringify(text),
};

/** Strings of one form, since PostgreSQL takes others too and makes something else of them. */
export function stringsLike(form: RegExp): Codec {
  return {
    write: (value) => (typeof value === "string" && form.test(value) ? value : undefined),
    read: strings.read,
  };
}

/** `true` and `false`, also `1` and `0`. */
export const booleans: Codec = {
  write(value) {
    if (value === true || value === 1) return "true";
    return value === false || value === 0 ? "false" : undefined;
  },
  read: (text) => String(text === "t" || text === "true"),
};

/** Bytes as base64 text (RFC 4648, section 4). */
export const bytes: Codec = {
  write(value) {
    if (typeof value !== "string") return undefined;
    const decoded = Buffer.from(value, "base64");
    return decoded.toString("base64") === value ? `\\x${decoded.toString("hex")}` : undefined;
  },
  read: (text) => JSON.stringify(Buffer.from(text.slice("\\x".length), "hex").toString("base64")),
};

/** JSON as JSON, without white space between its tokens. */
export const documents: Codec = {
  write: cellText,
  read: (text) => text.replace(/("(?:[^"\\]|\\.)*")|\s+/g, "$1"),
};

function numberText(value: PresentValue): string | undefined {
  if (typeof value === "number" || typeof value === "bigint") return String(value);
  if (value instanceof ExactNumber) return value.source;
  return typeof value === "string" && notNumbers.has(value) ? value : undefined;
}

function readNumber(text: string): string {
  return notNumbers.has(text) ? JSON.stringify(text) : text;
}

/** The digits of a whole number that was written like `1e3` or `1.0`, few enough to be exact. */
function wholeNumber(source: string): string | undefined {
  const value = Number(source);
  const digits = source.replace(/e.*$/i, "").replace(/\D/g, "");
  const isTiny = value === 0 && /[1-9]/.test(digits);
  return Number.isSafeInteger(value) && digits.length <= 15 && !isTiny ? String(value) : undefined;
}

/** True for a whole number that a double would give back with other digits. */
function isRoundedInteger(value: PresentValue): boolean {
  if (typeof value === "bigint") return isRounded(value.toString());
  return value instanceof ExactNumber && /^-?\d+$/.test(value.source) && isRounded(value.source);
}

/** The longest integers that a double can hold have 309 digits. */
function isRounded(digits: string): boolean {
  const double = Number(digits);
  if (String(double) === digits) return false;
  return digits.length > 310 || !Number.isFinite(double) || BigInt(double) !== BigInt(digits);
}
