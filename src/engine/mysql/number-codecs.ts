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
import type { Bound } from "./session.ts";

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

/** Dates and times, between how they are written in JSON (ISO 8601) and how MySQL writes them. */

const dayForm = /^(\d{4})-(\d\d)-(\d\d)$/;
const clockForm = /^(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?$/;
const spanForm = /^-?\d{2,3}:[0-5]\d(?::[0-5]\d(?:\.(\d{1,6}))?)?$/;
const momentForm = /^(\d{4}-\d\d-\d\d)(?:[T ]([\d:.]+)(Z|[+-]\d\d(?::?\d\d)?)?)?$/;

/** A day that is in the calendar, as it is written; undefined for any other text. */
export function readDay(text: string): string | undefined {
  const [, year = "", month, day] = dayForm.exec(text) ?? [];
  if (year === "" || year === "0000") return undefined;
  const date = new Date(`${year}-${month}-${day}T00:00:00Z`);
  // The 30th of February would be read as a day of March.
  return Number.isNaN(date.getTime()) || !date.toISOString().startsWith(text) ? undefined : text;
}

/** A time, or a span of hours, of at most `places` places of a second. */
export function readSpan(text: string, places: number): string | undefined {
  const [whole, fraction = ""] = spanForm.exec(text) ?? [];
  return whole === undefined || isFiner(fraction, places) ? undefined : whole;
}

/** A moment of the calendar with no zone of its own; one with an offset is undefined. */
export function readLocal(text: string, places: number): string | undefined {
  return momentForm.exec(text)?.[3] === undefined ? readInstant(text, places) : undefined;
}

/** A moment with any offset, or none for UTC, as MySQL writes it in UTC. */
export function readInstant(text: string, places: number): string | undefined {
  const [, day = "", clock = "00:00:00", zone = "Z"] = momentForm.exec(text) ?? [];
  const [, hour, minute, second = "00", fraction = ""] = clockForm.exec(clock) ?? [];
  const offset = offsetOf(zone);
  if (readDay(day) === undefined || hour === undefined || offset === undefined) return undefined;
  if (isFiner(fraction, places)) return undefined;
  const local = Date.parse(`${day}T${hour}:${minute}:${second}Z`);
  if (Number.isNaN(local) || hour === "24") return undefined;
  const moment = new Date(local - offset * 60_000).toISOString();
  // Years before the first and after 9999 have a sign there, or are all zeros.
  if (!/^(?!0000)\d{4}-/.test(moment)) return undefined;
  return `${moment.slice(0, 10)} ${moment.slice(11, 19)}${fraction === "" ? "" : `.${fraction}`}`;
}

/** MySQL's date or time as JSON has it, without the zeros at the end of a second. */
export function writeTime(text: string): string {
  return trimPlaces(text.replace(" ", "T"));
}

/** Minutes east of Greenwich. */
function offsetOf(zone: string): number | undefined {
  if (zone === "Z") return 0;
  const [, sign, hours, minutes = "0"] = /^([+-])(\d\d):?(\d\d)?$/.exec(zone) ?? [];
  const offset = Number(hours) * 60 + Number(minutes);
  if (Number(hours) > 15 || Number(minutes) > 59) return undefined;
  return sign === "-" ? -offset : offset;
}

function isFiner(fraction: string, places: number): boolean {
  return fraction.replace(/0+$/, "").length > places;
}
