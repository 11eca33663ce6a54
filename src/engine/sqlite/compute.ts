import type { DatabaseSync, SQLInputValue, SQLOutputValue } from "node:sqlite";
import { sql } from "kysely";
import { withCase } from "../letters.ts";
import { EngineRefusal } from "../refusal.ts";
import { refused, require64Bits, requireFinite } from "../remote/failures.ts";
import { type Arithmetic, type ComputeDialect, jsonPath, mostTextBytes } from "../sql/compute.ts";
import type { NumberFamily } from "../sql/conditions.ts";
import type { Fragment } from "../sql/fragment.ts";
import { isDay } from "../sql/values.ts";
import { call, findKind, plainKinds, type SqliteKind } from "./kinds.ts";

const text = (value: Fragment) => sql`(cast(${value} as text) collate binary)`;

/** SQLite has doubles for decimals, and dates as text, so functions of the engine compute. */
export const computing: ComputeDialect<SqliteKind> = {
  kinds: {
    ...plainKinds,
    boolean: { ...plainKinds.boolean, encode: (value) => String(Number(value) !== 0) },
  },
  declaredFamily: (type) => findKind(type)?.family,
  momentKind: (kind) => ({
    ...kind,
    compare: (value) =>
      typeof value === "string" && parseMicroseconds(value) !== null ? value : undefined,
  }),
  number(value, family) {
    if (family === "decimal") return value;
    return family === "integer" ? sql`cast(${value} as integer)` : sql`cast(${value} as real)`;
  },
  arithmetic: (fn, left, right, family) => call(`${fn}_${family}`, left, right),
  round: (value, digits) => call("round", value, sql`${digits}`),
  abs: (value) => call("abs", value),
  trunc: (unit, moment, family) => call(`trunc_${unit}`, moment, sql`${family}`),
  part: (unit, moment) => call(`part_${unit}`, moment),
  microseconds: (first, second) => sql`(${call("moment", first)} - ${call("moment", second)})`,
  letters: (wanted, value) => call(wanted, value),
  trim: (value) => sql`trim(${value})`,
  length: (value) => call("length", value),
  text,
  limited: (value, bytes) =>
    sql`case when ${bytes} > ${mostTextBytes} then ${call("too_long")} else ${value} end`,
  json: (document, path) => sql`nullif(${document} -> ${jsonPath(path)}, 'null')`,
};

type Operand = bigint | number;

export function isNumber(value: SQLOutputValue): value is Operand {
  return typeof value === "number" || typeof value === "bigint";
}

/** A number by its shortest digits: `digits` times 10 to the power of minus `places`. */
interface Decimal {
  readonly digits: bigint;
  readonly places: number;
}

function toDecimal(value: Operand): Decimal {
  if (typeof value === "number") requireFinite(value);
  const [, digits = "0", fraction = "", exponent = "0"] =
    /^(-?\d+)\.?(\d*)(?:e([+-]?\d+))?$/.exec(String(value)) ?? [];
  const places = fraction.length - Number(exponent);
  const whole = BigInt(digits + fraction);
  return places < 0
    ? { digits: whole * 10n ** BigInt(-places), places: 0 }
    : { digits: whole, places };
}

/** With at most so many places, halves away from zero. */
function rounded({ digits, places }: Decimal, most: number): Decimal {
  if (places <= most) return { digits, places };
  return { digits: quotient(digits, 10n ** BigInt(places - most)), places: most };
}

/** To the nearest whole number, halves away from zero. */
function quotient(dividend: bigint, divisor: bigint): bigint {
  const [above, below] = [abs(dividend), abs(divisor)];
  const whole = (2n * above + below) / (2n * below);
  return dividend < 0n === divisor < 0n ? whole : -whole;
}

function abs(value: bigint): bigint {
  return value < 0n ? -value : value;
}

const DIVISION_PLACES = 12;

interface Calculation {
  integer(one: bigint, other: bigint): bigint;
  double(one: number, other: number): number;
}

const calculations: Record<Exclude<Arithmetic, "div">, Calculation> = {
  add: { integer: (one, other) => one + other, double: (one, other) => one + other },
  sub: { integer: (one, other) => one - other, double: (one, other) => one - other },
  mul: { integer: (one, other) => one * other, double: (one, other) => one * other },
};

function calculate(fn: Arithmetic, family: NumberFamily, one: Operand, other: Operand) {
  if (family === "decimal") return calculateExactly(fn, toDecimal(one), toDecimal(other));
  if (fn === "div") return Number(other) === 0 ? null : requireFinite(Number(one) / Number(other));
  const { integer, double } = calculations[fn];
  return family === "integer"
    ? require64Bits(integer(BigInt(one), BigInt(other)))
    : requireFinite(double(Number(one), Number(other)));
}

/** The double nearest to the decimal result: 0.1 and 0.2 make 0.3. */
function calculateExactly(fn: Arithmetic, one: Decimal, other: Decimal): number | null {
  if (fn === "mul") {
    return toNumber({ digits: one.digits * other.digits, places: one.places + other.places });
  }
  if (fn === "div") {
    if (other.digits === 0n) return null;
    const scale = 10n ** BigInt(DIVISION_PLACES + other.places);
    const digits = quotient(one.digits * scale, other.digits * 10n ** BigInt(one.places));
    return toNumber({ digits, places: DIVISION_PLACES });
  }
  const places = Math.max(one.places, other.places);
  const scaled = (value: Decimal) => value.digits * 10n ** BigInt(places - value.places);
  return toNumber({ digits: calculations[fn].integer(scaled(one), scaled(other)), places });
}

function toNumber({ digits, places }: Decimal): number {
  return requireFinite(Number(`${digits}e-${places}`));
}

/** SQLite's own `+` turns an overflow into a double. */
function addTo(family: NumberFamily, value: SQLOutputValue, amount: SQLOutputValue) {
  if (value === null) return null;
  if (!isNumber(value) || !isNumber(amount)) {
    const problem = "A stored value is not a number, so nothing can be added to it";
    throw new EngineRefusal("invalid_value", problem);
  }
  const areIntegers = typeof value === "bigint" && typeof amount === "bigint";
  return calculate("add", areIntegers ? "integer" : family, value, amount);
}

const clockForm = String.raw`(\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?`;
const momentForm = new RegExp(
  `^(?=\\d)(?:(\\d{4}-\\d\\d-\\d\\d)(?:$|[T ]))?(?:${clockForm})?(?:Z|([+-]\\d\\d):?(\\d\\d)?)?$`,
);

/** Since 1970, or since midnight for a time without a date. Null for other text. */
function parseMicroseconds(text: string): bigint | null {
  const [found, day = "1970-01-01", hour = "00", minute = "00", second = "00", ...rest] =
    momentForm.exec(text) ?? [];
  const [fraction = "", eastHours = "+00", eastMinutes = "00"] = rest;
  const seconds = Date.parse(`${day}T${hour}:${minute}:${second}Z`) / 1000;
  if (!found || !isDay(day) || Number.isNaN(seconds)) return null;
  const east = (Number(eastHours) * 60 + Number(`${eastHours[0]}${eastMinutes}`)) * 60;
  return BigInt(seconds - east) * 1_000_000n + BigInt(fraction.padEnd(6, "0").slice(0, 6));
}

const parts: Record<string, (date: Date) => number> = {
  year: (date) => date.getUTCFullYear(),
  quarter: (date) => Math.floor(date.getUTCMonth() / 3) + 1,
  month: (date) => date.getUTCMonth() + 1,
  week: isoWeek,
  day: (date) => date.getUTCDate(),
  hour: (date) => date.getUTCHours(),
  minute: (date) => date.getUTCMinutes(),
  weekday: isoWeekday,
};

/** 1 is Monday. */
function isoWeekday(date: Date): number {
  return date.getUTCDay() || 7;
}

const DAY_MS = 86_400_000;

/** ISO 8601: the week of the year that has the week's Thursday. */
function isoWeek(date: Date): number {
  const thursday = new Date(date.getTime() + (4 - isoWeekday(date)) * DAY_MS);
  // `Date.UTC` takes the years before 100 for those after 1900.
  const first = new Date(thursday).setUTCMonth(0, 1);
  return 1 + Math.floor((thursday.getTime() - first) / (7 * DAY_MS));
}

function truncate(unit: string, date: Date): void {
  date.setUTCSeconds(0, 0);
  if (unit === "minute") return;
  date.setUTCMinutes(0);
  if (unit === "hour") return;
  date.setUTCHours(0);
  const [month, day] = [date.getUTCMonth(), date.getUTCDate()];
  if (unit === "week") date.setUTCDate(day + 1 - isoWeekday(date));
  if (unit === "month") date.setUTCDate(1);
  if (unit === "quarter") date.setUTCMonth(month - (month % 3), 1);
  if (unit === "year") date.setUTCMonth(0, 1);
}

/** Gives a connection the functions of `call`. Null and what is not of the wanted type gives null. */
export function defineFunctions(connection: DatabaseSync): void {
  const options = {
    deterministic: true,
    directOnly: true,
    useBigIntArguments: true,
    varargs: true,
  };
  const define = (name: string, run: (...values: SQLOutputValue[]) => SQLInputValue) =>
    connection.function(`gatehouse_${name}`, options, run);
  const ofText = (name: string, run: (text: string) => SQLInputValue) =>
    define(name, (value = null) => (value === null ? null : run(String(value))));
  const ofMoment = (name: string, run: (date: Date, family: SQLOutputValue) => SQLInputValue) =>
    define(name, (value = null, family = null) => {
      const moment = parseMicroseconds(String(value));
      if (moment === null) return null;
      const below = ((moment % 1000n) + 1000n) % 1000n;
      return run(new Date(Number((moment - below) / 1000n)), family);
    });
  // Not deterministic, so that it is called only where it stands.
  connection.function("gatehouse_too_long", { directOnly: true }, () => {
    throw new EngineRefusal(...refused.textTooLong);
  });
  define("sum", (value = null, amount = null) => addTo("double", value, amount));
  define("decimal_sum", (value = null, amount = null) => addTo("decimal", value, amount));
  for (const fn of ["add", "sub", "mul", "div"] as const) {
    for (const family of ["integer", "decimal", "double"] as const) {
      define(`${fn}_${family}`, (one = null, other = null) =>
        isNumber(one) && isNumber(other) ? calculate(fn, family, one, other) : null,
      );
    }
  }
  define("round", (value = null, digits = 0) =>
    isNumber(value) ? toNumber(rounded(toDecimal(value), Number(digits))) : null,
  );
  define("abs", (value = null) => {
    if (typeof value === "bigint") return require64Bits(abs(value));
    return typeof value === "number" ? Math.abs(value) : null;
  });
  define("same", (value = null) => value);
  ofText("lower", (text) => withCase(text, "lower"));
  ofText("upper", (text) => withCase(text, "upper"));
  ofText("length", (text) => BigInt([...text].length));
  ofText("moment", parseMicroseconds);
  for (const [unit, part] of Object.entries(parts)) {
    ofMoment(`part_${unit}`, (date) => BigInt(part(date)));
    ofMoment(`trunc_${unit}`, (date, family) => {
      truncate(unit, date);
      const text = date.toISOString();
      return family === "date" ? text.slice(0, 10) : `${text.slice(0, 19)}Z`;
    });
  }
}
