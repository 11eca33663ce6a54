import type { DatabaseSync, SQLInputValue, SQLOutputValue } from "node:sqlite";
import { sql } from "kysely";
import { withCase } from "../letters.ts";
import { EngineRefusal } from "../refusal.ts";
import { refused } from "../remote/failures.ts";
import type { Arithmetic, ComputeDialect, NumberFamily } from "../sql/compute.ts";
import type { Fragment } from "../sql/fragment.ts";
import { jsonPath } from "../sql/json-path.ts";
import { has64Bits } from "../sql/values.ts";
import { kindOf, microsecondsOf, type SqliteKind } from "./kinds.ts";

function kindNamed(word: string): SqliteKind {
  const kind = kindOf(word);
  if (kind === undefined) throw new Error(`There is no column type ${word}`);
  return kind;
}

const call = (name: string, ...values: readonly Fragment[]) =>
  sql`${sql.id(`gatehouse_${name}`)}(${sql.join(values)})`;

const text = (value: Fragment) => sql`(cast(${value} as text) collate binary)`;

/** SQLite has doubles for decimals, and dates as text, so functions of the engine compute. */
export const computing: ComputeDialect<SqliteKind> = {
  kinds: {
    integer: kindNamed("int"),
    decimal: kindNamed("decimal"),
    double: kindNamed("double"),
    text: kindNamed("text"),
    boolean: { ...kindNamed("boolean"), encode: (value) => String(Number(value) !== 0) },
    json: kindNamed("json"),
  },
  declaredFamily: (type) => kindOf(type)?.family,
  number(value, family) {
    if (family === "decimal") return value;
    return family === "integer" ? sql`cast(${value} as integer)` : sql`cast(${value} as real)`;
  },
  arithmetic: (fn, left, right, family) => call(`${fn}_${family}`, left, right),
  round: (value, digits) => call("round", value, sql`${digits}`),
  abs: (value) => call("abs", value),
  trunc: (unit, moment, family) => call("trunc", sql`${unit}`, moment, sql`${family}`),
  part: (unit, moment) => call("part", sql`${unit}`, moment),
  microseconds: (first, second) => sql`(${call("moment", first)} - ${call("moment", second)})`,
  letters: (wanted, value) => call(wanted, value),
  trim: (value) => sql`trim(${value})`,
  length: (value) => call("length", value),
  text,
  concat: (texts) =>
    sql.join(
      texts.map((one) => sql`coalesce(${one}, '')`),
      sql` || `,
    ),
  json: (document, path) => sql`nullif(${document} -> ${jsonPath(path)}, 'null')`,
};

/** A number by its shortest digits: `digits` times 10 to the power of minus `places`. */
interface Decimal {
  readonly digits: bigint;
  readonly places: number;
}

function decimalOf(value: number | bigint): Decimal {
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

function divide(one: Decimal, other: Decimal): Decimal | null {
  if (other.digits === 0n) return null;
  const scale = 10n ** BigInt(DIVISION_PLACES + other.places);
  const digits = quotient(one.digits * scale, other.digits * 10n ** BigInt(one.places));
  return { digits, places: DIVISION_PLACES };
}

const ofDecimals: Record<Arithmetic, (one: Decimal, other: Decimal) => Decimal | null> = {
  add: (one, other) => sum(one, other, 1n),
  sub: (one, other) => sum(one, other, -1n),
  mul: (one, other) => ({
    digits: one.digits * other.digits,
    places: one.places + other.places,
  }),
  div: divide,
};

function sum(one: Decimal, other: Decimal, sign: bigint): Decimal {
  const places = Math.max(one.places, other.places);
  const scaled = (value: Decimal) => value.digits * 10n ** BigInt(places - value.places);
  return { digits: scaled(one) + sign * scaled(other), places };
}

const ofIntegers: Record<Arithmetic, (one: bigint, other: bigint) => bigint> = {
  add: (one, other) => one + other,
  sub: (one, other) => one - other,
  mul: (one, other) => one * other,
  div: (one) => one,
};

const ofDoubles: Record<Arithmetic, (one: number, other: number) => number | null> = {
  add: (one, other) => one + other,
  sub: (one, other) => one - other,
  mul: (one, other) => one * other,
  div: (one, other) => (other === 0 ? null : one / other),
};

function numberOf(decimal: Decimal): number {
  return finite(Number(`${decimal.digits}e-${decimal.places}`));
}

function finite(value: number): number {
  if (Number.isFinite(value)) return value;
  throw new EngineRefusal(...refused.outOfRange);
}

function whole(value: bigint): bigint {
  if (has64Bits(value)) return value;
  throw new EngineRefusal(...refused.outOfRange);
}

type Operand = bigint | number;

const arithmetic: Record<
  NumberFamily,
  (fn: Arithmetic, one: Operand, other: Operand) => Operand | null
> = {
  integer: (fn, one, other) => whole(ofIntegers[fn](BigInt(one), BigInt(other))),
  decimal(fn, one, other) {
    const result = ofDecimals[fn](decimalOf(one), decimalOf(other));
    return result && numberOf(result);
  },
  double(fn, one, other) {
    const result = ofDoubles[fn](Number(one), Number(other));
    return result === null ? null : finite(result);
  },
};

function partOf(unit: string, microseconds: bigint): bigint {
  const date = dateOf(microseconds);
  const month = date.getUTCMonth();
  switch (unit) {
    case "year":
      return BigInt(date.getUTCFullYear());
    case "quarter":
      return BigInt(Math.floor(month / 3) + 1);
    case "month":
      return BigInt(month + 1);
    case "week":
      return BigInt(weekOf(date));
    case "day":
      return BigInt(date.getUTCDate());
    case "hour":
      return BigInt(date.getUTCHours());
    case "minute":
      return BigInt(date.getUTCMinutes());
    default:
      return BigInt(weekdayOf(date));
  }
}

/** Of the millisecond. */
function dateOf(microseconds: bigint): Date {
  const below = ((microseconds % 1000n) + 1000n) % 1000n;
  return new Date(Number((microseconds - below) / 1000n));
}

/** 1 is Monday. */
function weekdayOf(date: Date): number {
  return date.getUTCDay() || 7;
}

const DAY_MS = 86_400_000;

/** ISO 8601: the week of the year that has the week's Thursday. */
function weekOf(date: Date): number {
  const thursday = new Date(date.getTime() + (4 - weekdayOf(date)) * DAY_MS);
  const first = Date.UTC(thursday.getUTCFullYear(), 0, 1);
  return 1 + Math.floor((thursday.getTime() - first) / (7 * DAY_MS));
}

function truncated(unit: string, microseconds: bigint): Date {
  const date = dateOf(microseconds);
  const [year, month, day] = [date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate()];
  const start = (...parts: [number, number, number, number?, number?]) => {
    const found = new Date(0);
    found.setUTCFullYear(parts[0], parts[1], parts[2]);
    found.setUTCHours(parts[3] ?? 0, parts[4] ?? 0);
    return found;
  };
  switch (unit) {
    case "year":
      return start(year, 0, 1);
    case "quarter":
      return start(year, month - (month % 3), 1);
    case "month":
      return start(year, month, 1);
    case "week":
      return start(year, month, day + 1 - weekdayOf(date));
    case "hour":
      return start(year, month, day, date.getUTCHours());
    case "minute":
      return start(year, month, day, date.getUTCHours(), date.getUTCMinutes());
    default:
      return start(year, month, day);
  }
}

function isNumeric(value: SQLOutputValue): value is Operand {
  return typeof value === "number" || typeof value === "bigint";
}

/** Defines the functions. Null and what is not of the wanted type gives null. */
export function defineComputing(connection: DatabaseSync): void {
  const options = {
    ...{ deterministic: true, directOnly: true, useBigIntArguments: true },
    varargs: true,
  };
  const define = (name: string, run: (...values: SQLOutputValue[]) => SQLInputValue) =>
    connection.function(`gatehouse_${name}`, options, run);
  const ofText = (name: string, run: (text: string) => SQLInputValue) =>
    define(name, (value = null) => (value === null ? null : run(String(value))));
  for (const fn of ["add", "sub", "mul", "div"] as const) {
    for (const family of ["integer", "decimal", "double"] as const) {
      define(`${fn}_${family}`, (one = null, other = null) =>
        isNumeric(one) && isNumeric(other) ? arithmetic[family](fn, one, other) : null,
      );
    }
  }
  define("round", (value = null, digits = 0) =>
    isNumeric(value) ? numberOf(rounded(decimalOf(value), Number(digits))) : null,
  );
  define("abs", (value = null) => {
    if (typeof value === "bigint") return whole(abs(value));
    return typeof value === "number" ? Math.abs(value) : null;
  });
  ofText("upper", (text) => withCase(text, "upper"));
  ofText("length", (text) => BigInt([...text].length));
  define("part", (unit = null, value = null) => {
    const moment = value === null ? null : microsecondsOf(String(value));
    return moment === null ? null : partOf(String(unit), moment);
  });
  define("trunc", (unit = null, value = null, family = null) => {
    const moment = value === null ? null : microsecondsOf(String(value));
    if (moment === null) return null;
    const text = truncated(String(unit), moment).toISOString();
    return family === "date" ? text.slice(0, 10) : `${text.slice(0, 19)}Z`;
  });
}
