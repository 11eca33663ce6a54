import { sql } from "kysely";
import { EngineRefusal } from "../refusal.ts";
import { refused } from "../remote/failures.ts";
import {
  integerOf,
  isRoundedInteger,
  numberText,
  type PresentValue,
  placesOf,
  trimPlaces,
} from "../sql/cell-text.ts";
import type { Fragment } from "../sql/fragment.ts";
import { type Codec, signed, unsigned } from "./codecs.ts";
import type { Bound } from "./statements.ts";

/** What a decimal of MySQL holds: digits in all, and of them behind the point. */
const MOST_DIGITS = 65;
const MOST_PLACES = 30;

const LARGEST_UNSIGNED = 2n ** 64n - 1n;

/** Whole numbers of 64 bits; MySQL compares one with a string as doubles, so none travels as text. */
export function integers(isUnsigned: boolean): Codec {
  return {
    store: (value) => (isUnsigned ? unsignedInteger(value) : signedInteger(value)),
    compare: (value) => unsignedInteger(value) ?? signedInteger(value) ?? anyNumber(value),
    encode: String,
  };
}

function signedInteger(value: PresentValue): Bound | undefined {
  const integer = integerOf(value);
  return integer === undefined ? undefined : signed(integer);
}

function unsignedInteger(value: PresentValue): Bound | undefined {
  const integer = typeof value === "bigint" ? value : integerOf(value);
  if (integer === undefined || integer < 0n || integer > LARGEST_UNSIGNED) return undefined;
  return unsigned(integer);
}

/** Decimals, digit for digit; MySQL would round what has more places than the column. */
export function decimals(scale: number, isTrimmed: boolean): Codec {
  return {
    store(value) {
      const text = numberText(value);
      return text === undefined || placesOf(text) > scale ? undefined : decimalSql(text);
    },
    compare: anyNumber,
    encode: (raw) => (isTrimmed ? trimPlaces(String(raw)) : String(raw)),
  };
}

/** A number to compare with; one that no decimal holds is told from all that are by its double. */
function anyNumber(value: PresentValue): Bound | Fragment | undefined {
  const text = numberText(value);
  return text === undefined ? undefined : (decimalSql(text) ?? finite(text));
}

/** A number as a decimal of exactly its digits; undefined if it has more than a decimal holds. */
function decimalSql(text: string): Fragment | undefined {
  const [, sign = "", whole = "0", fraction = "", exponent = "0"] =
    /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/i.exec(text) ?? [];
  const shift = Number(exponent);
  if (Math.abs(shift) > 2 * MOST_DIGITS) return undefined;
  const digits = whole + fraction;
  const point = whole.length + shift;
  const left = digits
    .slice(0, Math.max(point, 0))
    .padEnd(point, "0")
    .replace(/^0+(?=\d)/, "");
  const right = digits.slice(Math.max(point, 0)).padStart(digits.length - point, "0");
  const places = right.replace(/0+$/, "");
  const size = Math.max(left.length, 1) + places.length;
  if (size > MOST_DIGITS || places.length > MOST_PLACES) return undefined;
  const plain = `${sign}${left || "0"}${places === "" ? "" : `.${places}`}`;
  return sql`cast(${plain} as decimal(${sql.raw(String(size))}, ${sql.raw(String(places.length))}))`;
}

/** Doubles; a whole number that one would round is refused. */
export const doubles: Codec = {
  store: (value) => doubleOf(value),
  compare: (value) => doubleOf(value),
  encode: String,
};

/** Doubles of half the length, written with the digits that tell them apart. */
export const floats: Codec = {
  store: (value) => doubleOf(value),
  compare(value) {
    const double = doubleOf(value);
    return double === undefined ? undefined : Math.fround(double);
  },
  encode: (raw) => shortest(Number(raw)),
};

function doubleOf(value: PresentValue): number | undefined {
  const text = isRoundedInteger(value) ? undefined : numberText(value);
  return text === undefined ? undefined : finite(text);
}

/** @throws EngineRefusal `number_out_of_range` for a number that a double cannot come near */
function finite(text: string): number {
  const double = Number(text);
  const isLost = double === 0 && /[1-9]/.test(text.replace(/e.*$/i, ""));
  if (Number.isFinite(double) && !isLost) return double === 0 ? 0 : double;
  throw new EngineRefusal(...refused.outOfRange);
}

function shortest(float: number): string {
  for (let digits = 6; digits < 9; digits += 1) {
    const rounded = Number(float.toPrecision(digits));
    if (Math.fround(rounded) === float) return String(rounded);
  }
  return String(float);
}

/** Bits as the number that they are. */
export const bits: Codec = {
  store: unsignedInteger,
  encode: (raw) =>
    Buffer.isBuffer(raw) ? String(BigInt(`0x${raw.toString("hex")}`)) : String(raw),
};

/** The server takes numbers of two digits for years of our time. */
export const years: Codec = {
  ...integers(false),
  store(value) {
    const isYear = value === 0 || (typeof value === "number" && value > 1900);
    return isYear ? integers(false).store(value) : undefined;
  },
};
