import type { SQLInputValue, SQLOutputValue } from "node:sqlite";
import { sql } from "kysely";
import { ExactNumber, isInteger } from "../../core/json/exact.ts";
import { quoteName } from "../../core/json/fault.ts";
import { EngineRefusal } from "../refusal.ts";
import type { Fragment } from "../sql/fragment.ts";
import { typesByWord } from "../sql/new-table.ts";
import type { ColumnKind, ExactComparison, Family, PresentValue } from "../sql/scope.ts";
import { cellText, decodeBase64, has64Bits, toInteger } from "../sql/values.ts";

export interface SqliteKind extends ColumnKind {
  readonly storage: "INT" | "INTEGER" | "REAL" | "TEXT" | "BLOB" | "ANY";
  store(value: PresentValue): SQLInputValue | undefined;
  compare(value: PresentValue): SQLInputValue | undefined;
  encode(value: SQLOutputValue): string;
}

/** Bytes become base64 text (RFC 4648, section 4), and infinite numbers, which JSON lacks, words. */
export function encodeStored(value: SQLOutputValue): string {
  if (typeof value === "bigint") return value.toString();
  if (typeof value === "number") return Number.isFinite(value) ? String(value) : `"${value}"`;
  if (value instanceof Uint8Array) return JSON.stringify(Buffer.from(value).toString("base64"));
  return JSON.stringify(value);
}

function parseInfinity(value: PresentValue): number | undefined {
  return value === "Infinity" || value === "-Infinity" ? Number(value) : undefined;
}

/** Ignores affinity and collation: a value equals nothing of another type or spelling. */
const exact: ExactComparison = {
  column: (column, isOrdered) =>
    isOrdered
      ? sql`case when typeof(${column}) in ('integer', 'real') then ${column} end`
      : sql`+${column} collate binary`,
  value: (compared) => compared,
};

/** A function that `defineFunctions` gives each connection. */
export function call(name: string, ...values: readonly Fragment[]): Fragment {
  return sql`${sql.id(`gatehouse_${name}`)}(${sql.join(values)})`;
}

/** SQLite's `lower` folds only ASCII letters, and its `like` has no escape character of its own. */
const like: ColumnKind["like"] = (column, pattern, folds) => {
  const text = sql`cast(${column} as text)`;
  const folded = folds === "ascii" ? sql`lower(${column})` : call("lower", text);
  const ends = pattern.includes("\\") ? sql` escape ${"\\"}` : sql``;
  return sql`${folds === undefined ? column : folded} like ${pattern}${ends}`;
};

/** Texts are compared by bytes, and moments by time, whatever their spelling. */
function asFamily(column: Fragment, family: Family): Fragment {
  switch (family) {
    case "double":
      return sql`cast(${column} as real)`;
    case "text":
    case "json":
      return sql`${column} collate binary`;
    case "time":
    case "instant":
      return call("moment", column);
    case "any":
      return sql`+${column} collate binary`;
    default:
      return column;
  }
}

const common = { like, asFamily, encode: encodeStored };

const text: SqliteKind = {
  ...common,
  family: "text",
  exact,
  measure: "text",
  storage: "TEXT",
  store: (value) => (typeof value === "string" ? value : undefined),
  compare: (value) => (typeof value === "string" ? value : undefined),
};

const plus = (column: Fragment, amount: unknown) => call("sum", column, sql`${amount}`);

const integer: SqliteKind = {
  ...common,
  family: "integer",
  measure: "integer",
  storage: "INT",
  store: toInteger,
  compare: numeric,
  sum: plus,
};

/** SQLite generates the values of a single INTEGER primary key. */
const serial: SqliteKind = { ...integer, storage: "INTEGER" };

const real: SqliteKind = {
  ...common,
  family: "double",
  measure: "double",
  storage: "REAL",
  store: (value) => exactDouble(value) ?? parseInfinity(value),
  compare: (value) => numeric(value) ?? parseInfinity(value),
  sum: plus,
};

/** Doubles that are added digit for digit. */
const decimal: SqliteKind = {
  ...real,
  family: "decimal",
  sum: (column, amount) => call("decimal_sum", column, sql`${amount}`),
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
};

/** For tables that were not created here. Every value keeps its own type. */
const anyKind: SqliteKind = {
  ...common,
  family: "any",
  exact,
  measure: "any",
  storage: "ANY",
  store: scalar,
  compare: scalar,
  sum: plus,
};

function anyOf(read: (value: PresentValue) => SQLInputValue | undefined): SqliteKind {
  const store = (value: PresentValue) => read(value) ?? scalar(value);
  const forms = (value: PresentValue) => {
    if (typeof value !== "string") return undefined;
    const all = [store(value), scalar(value), decodeBase64(value), parseInfinity(value)];
    return [...new Set(all)].filter((form) => form !== undefined);
  };
  return { ...anyKind, store, compare: store, forms };
}

const untyped = anyOf(() => undefined);
const anyBlob = anyOf(decodeBase64);
const anyNumber = anyOf(parseInfinity);

/** By the declared type (SQLite, "Determination Of Column Affinity"). */
export function legacyKind(type: string): SqliteKind {
  if (type === "") return untyped;
  if (/int/i.test(type)) return anyNumber;
  if (/char|clob|text/i.test(type)) return anyKind;
  return /blob/i.test(type) ? anyBlob : anyNumber;
}

export const plainKinds = { integer, decimal, double: real, text, boolean, json };

const kinds = typesByWord<SqliteKind>({
  ...plainKinds,
  serial,
  jsonb: json,
  bytes: blob,
  uuid: text,
  date: { ...text, family: "date" },
  time: { ...text, family: "time" },
  instant: { ...text, family: "instant" },
});

export const typeWords: readonly string[] = [...kinds.keys()];

/** A length or precision, as in `VARCHAR(20)`, limits nothing. */
export function findKind(type: string): SqliteKind | undefined {
  const word = /^\s*(\w+)\s*(\(\s*\d+\s*(,\s*\d+\s*)?\))?\s*$/.exec(type)?.[1];
  return word === undefined ? undefined : kinds.get(word.toLowerCase());
}

export function isSerial(kind: SqliteKind): boolean {
  return kind === serial;
}

/** The database enforces what the storage class leaves open, since others may write to the file. */
export function checkSql(column: string, kind: SqliteKind): Fragment | undefined {
  if (kind === boolean) return sql`check (${sql.id(column)} in (0, 1))`;
  return kind === json ? sql`check (json_valid(${sql.id(column)}))` : undefined;
}

function exactDouble(value: PresentValue): SQLInputValue | undefined {
  if (typeof value === "number") return value;
  if (value instanceof ExactNumber) return Number(value.source);
  if (typeof value !== "bigint") return undefined;
  return BigInt(Number(value)) === value ? Number(value) : undefined;
}

/** SQLite compares integers and doubles exactly. */
function numeric(value: PresentValue): SQLInputValue | undefined {
  return typeof value === "number" ? value : (toInteger(value) ?? exactDouble(value));
}

function booleanValue(value: PresentValue): SQLInputValue | undefined {
  if (value === true || value === 1) return 1;
  return value === false || value === 0 ? 0 : undefined;
}

function scalar(value: PresentValue): SQLInputValue | undefined {
  if (typeof value === "boolean") return value ? 1 : 0;
  return typeof value === "string" ? value : (toInteger(value) ?? exactDouble(value));
}

/**
 * SQLite has integers of 64 bits and doubles. Integers that a double cannot hold become BigInt.
 *
 * @throws EngineRefusal `number_out_of_range`
 */
export function doubleOrInteger(source: string, key: string): number | bigint {
  const value = Number(source);
  if (!isInteger(source)) {
    if (!Number.isFinite(value)) throw outOfRange("a number", key);
    return value;
  }
  if (Number.isSafeInteger(value)) return value;
  const integer = source.length > 20 ? undefined : BigInt(source);
  if (integer !== undefined && has64Bits(integer)) return integer;
  // As answers spell a double.
  if (String(value) === source) return value;
  throw outOfRange("an integer", key);
}

function outOfRange(what: string, key: string): EngineRefusal {
  const path = key === "" ? "" : ` under ${quoteName(key)}`;
  return new EngineRefusal(
    "number_out_of_range",
    `The body contains ${what} out of range${path}: integers have 64 bits, other numbers are doubles`,
  );
}
