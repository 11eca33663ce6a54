import type { DatabaseSync, SQLInputValue, SQLOutputValue } from "node:sqlite";
import { sql } from "kysely";
import { withCase } from "../letters.ts";
import { EngineRefusal } from "../refusal.ts";
import type { Fragment } from "../sql/fragment.ts";
import { typesByWord } from "../sql/new-table.ts";
import type { ColumnKind, ExactComparison, Family } from "../sql/scope.ts";
import {
  cellText,
  decodeBase64,
  has64Bits,
  integerOf,
  type PresentValue,
  placesOf,
} from "../sql/values.ts";

export interface SqliteKind extends ColumnKind {
  readonly storage: "INT" | "INTEGER" | "REAL" | "TEXT" | "BLOB" | "ANY";
  store(value: PresentValue): SQLInputValue | undefined;
  compare(value: PresentValue): SQLInputValue | undefined;
  encode(value: SQLOutputValue): string;
}

/** Bytes become base64 text (RFC 4648, section 4). */
export function encodeStored(value: SQLOutputValue): string {
  if (typeof value === "bigint") return value.toString();
  if (value instanceof Uint8Array) return JSON.stringify(Buffer.from(value).toString("base64"));
  return JSON.stringify(value);
}

/** Ignores affinity and collation: a value equals nothing of another type or spelling. */
const exact: ExactComparison = {
  column: (column, isOrdered) =>
    isOrdered
      ? sql`case when typeof(${column}) in ('integer', 'real') then ${column} end`
      : sql`+${column} collate binary`,
  value: (compared) => compared,
};

/** SQLite's `lower` folds only ASCII letters, and its `like` has no escape character of its own. */
const like: ColumnKind["like"] = (column, pattern, folds) => {
  const text = sql`cast(${column} as text)`;
  const folded = folds === "ascii" ? sql`lower(${column})` : sql`${sql.id(lower)}(${text})`;
  const ends = pattern.includes("\\") ? sql` escape ${"\\"}` : sql``;
  return sql`${folds === undefined ? column : folded} like ${pattern}${ends}`;
};

/** Texts are compared by bytes, and moments by time, whatever their spelling. */
function beside(column: Fragment, family: Family): Fragment {
  switch (family) {
    case "double":
      return sql`cast(${column} as real)`;
    case "text":
    case "json":
      return sql`${column} collate binary`;
    case "time":
    case "instant":
      return sql`${sql.id(moment)}(${column})`;
    case "any":
      return sql`+${column} collate binary`;
    default:
      return column;
  }
}

const common = { like, beside };

const text: SqliteKind = {
  ...common,
  family: "text",
  exact,
  measure: "text",
  storage: "TEXT",
  store: (value) => (typeof value === "string" ? value : undefined),
  compare: (value) => (typeof value === "string" ? value : undefined),
  encode: encodeStored,
};

const plus = (column: Fragment, amount: unknown) => sql`${sql.id(sum)}(${column}, ${amount})`;

const integer: SqliteKind = {
  ...common,
  family: "integer",
  measure: "integer",
  storage: "INT",
  store: integerOf,
  compare: numeric,
  sum: plus,
  encode: encodeStored,
};

/** SQLite generates the values of a single INTEGER primary key. */
const serial: SqliteKind = { ...integer, storage: "INTEGER" };

const real: SqliteKind = {
  ...common,
  family: "double",
  measure: "double",
  storage: "REAL",
  store: exactDouble,
  compare: numeric,
  sum: plus,
  encode: encodeStored,
};

/** Doubles that are added digit for digit. */
const decimal: SqliteKind = {
  ...real,
  family: "decimal",
  sum: (column, amount) => sql`${sql.id(decimalSum)}(${column}, ${amount})`,
};

const boolean: SqliteKind = {
  ...common,
  family: "boolean",
  storage: "INT",
  store: booleanValue,
  compare: booleanValue,
  encode: (value) => (typeof value === "bigint" ? String(value !== 0n) : encodeStored(value)),
};

/** Normalized, so that equal documents are equal texts. */
const json: SqliteKind = {
  ...common,
  family: "json",
  exact,
  storage: "TEXT",
  store: cellText,
  compare: cellText,
  encode: (value) => (typeof value === "string" ? value : encodeStored(value)),
};

const blob: SqliteKind = {
  ...common,
  family: "bytes",
  storage: "BLOB",
  store: decodeBase64,
  compare: decodeBase64,
  encode: encodeStored,
};

/** For tables that were not created here. Every value keeps its own type. */
export const anyKind: SqliteKind = {
  ...common,
  family: "any",
  exact,
  measure: "any",
  storage: "ANY",
  store: scalar,
  compare: scalar,
  sum: plus,
  encode: encodeStored,
};

const kinds = typesByWord<SqliteKind>({
  ...{ integer, serial, double: real, decimal, boolean, json, jsonb: json, bytes: blob },
  ...{ text, uuid: text },
  date: { ...text, family: "date" },
  time: { ...text, family: "time" },
  instant: { ...text, family: "instant" },
});

export const typeWords: readonly string[] = [...kinds.keys()];

/** A length or precision, as in `VARCHAR(20)`, limits nothing. */
export function kindOf(type: string): SqliteKind | undefined {
  const word = /^\s*(\w+)\s*(\(\s*\d+\s*(,\s*\d+\s*)?\))?\s*$/.exec(type)?.[1];
  return word === undefined ? undefined : kinds.get(word.toLowerCase());
}

export function isSerial(kind: SqliteKind): boolean {
  return kind === serial;
}

export function constraintOf(kind: SqliteKind): "boolean" | "json" | undefined {
  if (kind === boolean) return "boolean";
  return kind === json ? "json" : undefined;
}

function exactDouble(value: PresentValue): SQLInputValue | undefined {
  if (typeof value === "number") return value;
  if (typeof value !== "bigint") return undefined;
  return BigInt(Number(value)) === value ? Number(value) : undefined;
}

/** SQLite compares integers and doubles exactly. */
function numeric(value: PresentValue): SQLInputValue | undefined {
  return typeof value === "number" ? value : integerOf(value);
}

function booleanValue(value: PresentValue): SQLInputValue | undefined {
  if (value === true || value === 1) return 1;
  return value === false || value === 0 ? 0 : undefined;
}

function scalar(value: PresentValue): SQLInputValue | undefined {
  if (typeof value === "boolean") return value ? 1 : 0;
  if (typeof value === "number") return Number.isSafeInteger(value) ? BigInt(value) : value;
  return typeof value === "object" ? undefined : value;
}

/** SQL functions that add a number to a column: SQLite's `+` turns an overflow into a double. */
const sum = "gatehouse_sum";
const decimalSum = "gatehouse_decimal_sum";
const lower = "gatehouse_lower";
const moment = "gatehouse_moment";

export function defineFunctions(connection: DatabaseSync): void {
  const options = { deterministic: true, directOnly: true, useBigIntArguments: true };
  connection.function(sum, options, (value, amount) => added(value, amount, addDoubles));
  connection.function(decimalSum, options, (value, amount) => added(value, amount, addDecimals));
  connection.function(lower, options, (value) =>
    value === null ? null : withCase(String(value), "lower"),
  );
  connection.function(moment, options, (value) => microsecondsOf(String(value)));
}

const clockForm = String.raw`(\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?`;
const momentForm = new RegExp(
  `^(?=\\d)(?:(\\d{4}-\\d\\d-\\d\\d)(?:$|[T ]))?(?:${clockForm})?(?:Z|([+-]\\d\\d):?(\\d\\d)?)?$`,
);

/** Since 1970, or since midnight for a time without a date. Null for other text. */
export function microsecondsOf(text: string): bigint | null {
  const [found, day = "1970-01-01", hour = "00", minute = "00", second = "00", ...rest] =
    momentForm.exec(text) ?? [];
  const [fraction = "", eastHours = "+00", eastMinutes = "00"] = rest;
  const seconds = Date.parse(`${day}T${hour}:${minute}:${second}Z`) / 1000;
  if (!found || Number.isNaN(seconds)) return null;
  const east = (Number(eastHours) * 60 + Number(`${eastHours[0]}${eastMinutes}`)) * 60;
  return BigInt(seconds - east) * 1_000_000n + BigInt(fraction.padEnd(6, "0").slice(0, 6));
}

function added(
  value: SQLOutputValue,
  amount: SQLOutputValue,
  addNumbers: (one: number, other: number) => number,
): bigint | number | null {
  if (value === null) return null;
  if (typeof value === "bigint" && typeof amount === "bigint") {
    const total = value + amount;
    if (!has64Bits(total)) throw outOfRange();
    return total;
  }
  if (isText(value) || isText(amount)) {
    throw new EngineRefusal(
      "invalid_value",
      "A stored value is not a number, so nothing can be added to it",
    );
  }
  const total = addNumbers(Number(value), Number(amount));
  if (!Number.isFinite(total)) throw outOfRange();
  return total;
}

function isText(value: SQLOutputValue): boolean {
  return typeof value !== "bigint" && typeof value !== "number";
}

function addDoubles(one: number, other: number): number {
  return one + other;
}

/** The double nearest to the decimal sum: 0.1 and 0.2 make 0.3. */
function addDecimals(one: number, other: number): number {
  const places = Math.max(0, placesOf(String(one)), placesOf(String(other)));
  return Number(`${scaled(one, places) + scaled(other, places)}e-${places}`);
}

/** A number times 10 to the power of `places`. */
function scaled(number: number, places: number): bigint {
  const [, digits = "0", fraction = "", exponent = "0"] =
    /^(-?\d+)\.?(\d*)(?:e([+-]?\d+))?$/.exec(String(number)) ?? [];
  const zeros = places + Number(exponent) - fraction.length;
  return BigInt(digits + fraction) * 10n ** BigInt(zeros);
}

function outOfRange(): EngineRefusal {
  return new EngineRefusal("number_out_of_range", "A number is out of its column's range");
}
