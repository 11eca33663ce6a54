import { sql } from "kysely";
import type { TypedParameterValue } from "mysql2";
import driver from "mysql2";
import { foldCase } from "../fold-case.ts";
import { EngineRefusal } from "../refusal.ts";
import { refused } from "../remote/failures.ts";
import { type Fragment, likeBackslash } from "../sql/fragment.ts";
import { readDeclaredType, typesByWord } from "../sql/new-table.ts";
import type { ColumnKind, ExactComparison, Measure } from "../sql/scope.ts";
import {
  cellText,
  decodeBase64,
  integerOf,
  isRoundedInteger,
  numberText,
  type PresentValue,
  placesOf,
  trimPlaces,
  withoutSpace,
} from "../sql/values.ts";
import type { Bound, Raw } from "./session.ts";

/**
 * What MySQL has no type for is remembered in the comment of the column: JSON whose digits are
 * kept, UUIDs, instants beyond the year 2038, and decimals of no declared length.
 */
type Mark = "json" | "uuid" | "timestamp" | "numeric";

/** What the words that name a type in a CreateTable become. */
export interface NewType {
  readonly name: string;
  /** The same where the column is a key or unique, which takes 3,072 bytes: `n` bytes of them. */
  keyName?(binary: number): string;
  readonly mark?: Mark;
  readonly isText?: boolean;
  readonly isSerial?: boolean;
}

/** The bytes of a character in a key. */
const CHARACTER_BYTES = 4;

const integer: NewType = { name: "bigint" };
const serial: NewType = { name: "bigint", isSerial: true };
const double: NewType = { name: "double" };
const decimal: NewType = { name: "decimal(65,30)", mark: "numeric" };
const text: NewType = {
  name: "longtext",
  isText: true,
  keyName: (binary) => `varchar(${Math.floor(binary / CHARACTER_BYTES)})`,
};
const instant: NewType = { name: "datetime(6)", mark: "timestamp" };
const json: NewType = { name: "longtext", mark: "json", isText: true };
const binary: NewType = { name: "longblob", keyName: (binary) => `varbinary(${binary})` };

const types = typesByWord<NewType>({
  ...{ integer, serial, double, decimal, text, instant, json, jsonb: json, bytes: binary },
  uuid: { name: "char(36)", mark: "uuid", isText: true },
  date: { name: "date" },
  time: { name: "time(6)" },
  boolean: { name: "boolean" },
});

/** The words that name a column type, for messages. */
export const typeWords: readonly string[] = [...types.keys()];

/** The type that a word with its length or precision names; undefined if it is not known. */
export function newType(type: string): NewType | undefined {
  const { word, size } = readDeclaredType(type);
  const found = types.get(word);
  if (found === undefined || size === "") return found;
  // MySQL's `char(n)` cuts the spaces at the end off, and its `text` takes no length.
  if (found === text) return { name: `varchar${size}`, isText: true };
  return found === decimal ? { name: `decimal${size}` } : found;
}

/** The same as the catalog will describe it. */
export function descriptionOf({ name, mark }: NewType): TypeDescription {
  const columnType = name === "boolean" ? "tinyint(1)" : name;
  const [, dataType = "", first, scale] = /^(\w+)(?:\((\d+)(?:,(\d+))?\))?$/.exec(columnType) ?? [];
  return {
    dataType,
    columnType,
    mark,
    length: Number(first ?? Number.POSITIVE_INFINITY),
    scale: Number(scale ?? 0),
    precision: Number(first ?? 0),
  };
}

const markPrefix = "gatehouse:";

/** The comment that remembers a mark. */
export function commentOf(mark: Mark): string {
  return markPrefix + mark;
}

/** The mark that a column's comment holds, if it does. */
export function markOf(comment: string): Mark | undefined {
  const marks = ["json", "uuid", "timestamp", "numeric"] as const;
  return marks.find((mark) => comment === commentOf(mark));
}

/** What the catalog says about the type of a column. */
interface TypeDescription {
  /** The word of the type, without length and the like. */
  readonly dataType: string;
  /** The whole type, as in `enum('a','b')`. */
  readonly columnType: string;
  /** What the engine has remembered of the type, if it made the column. */
  readonly mark: Mark | undefined;
  /** Of strings, in characters; of bytes, in bytes. */
  readonly length: number;
  /** Places behind the point of a decimal. */
  readonly scale: number;
  /** Places of a second. */
  readonly precision: number;
}

/** `true` and `false`, also `1` and `0`; other numbers that a column holds stay numbers. */
const booleans: Codec = {
  store(value) {
    if (value === true || value === 1) return signed(1n);
    return value === false || value === 0 ? signed(0n) : undefined;
  },
  encode: (raw) => (raw === 0 || raw === 1 ? String(raw === 1) : String(raw)),
};

/** Strings that `takes` allows: MySQL would cut others, or make something else of them. */
function strings(takes: (text: string) => boolean = () => true): Codec {
  return {
    store: (value) => (typeof value === "string" && takes(value) ? value : undefined),
    compare: (value) => (typeof value === "string" ? value : undefined),
    encode: (raw) => JSON.stringify(raw),
  };
}

/** Strings of one form, which `read` turns into MySQL's own, of a type to compare as. */
function formed(
  read: (text: string) => string | undefined,
  castAs: Fragment | undefined,
  write: (text: string) => string = (text) => text,
): Codec {
  const store = (value: PresentValue): string | undefined =>
    typeof value === "string" ? read(value) : undefined;
  return {
    store,
    compare(value) {
      const text = store(value);
      return text === undefined || castAs === undefined ? text : sql`cast(${text} as ${castAs})`;
    },
    encode: (raw) => JSON.stringify(write(String(raw))),
  };
}

/** Bytes as base64 text; a column of a fixed length would be filled up with zeros. */
function bytes(fixedLength?: number): Codec {
  return {
    store(value) {
      const decoded = decodeBase64(value);
      const fits = fixedLength === undefined || decoded?.length === fixedLength;
      return fits ? decoded : undefined;
    },
    compare: decodeBase64,
    encode: (raw) => JSON.stringify(Buffer.isBuffer(raw) ? raw.toString("base64") : raw),
  };
}

/** JSON that is held as text, so that it keeps its digits and the order of its keys. */
const documents: Codec = { store: cellText, encode: (raw) => withoutSpace(String(raw)) };

/** MySQL's own JSON. */
const nativeDocuments: Codec = {
  ...documents,
  compare: (value) => sql`cast(${cellText(value)} as json)`,
};

/** Values that can only be read. */
const unknown: Codec = {
  store: () => undefined,
  encode: (raw) => JSON.stringify(Buffer.isBuffer(raw) ? raw.toString("base64") : raw),
};

/** How the values of a type travel: bound to a statement on the way there, JSON on the way back. */
interface Codec {
  /** What is stored for a value, or undefined if the type does not take it. */
  store(value: PresentValue): Bound | Fragment | undefined;
  /** The same to compare with the value, where that differs. */
  compare?(value: PresentValue): Bound | Fragment | undefined;
  /** JSON text of a value. */
  encode(raw: Raw): string;
}

const { LONGLONG } = driver.TypedParameter;

/** A whole number as the server's own, bound with its type; -2^63 to 2^63 - 1. */
function signed(integer: bigint): TypedParameterValue {
  return LONGLONG(integer);
}

/** The same from 0 to 2^64 - 1. */
export function unsigned(integer: bigint): TypedParameterValue {
  return LONGLONG.unsigned(integer);
}

const uuidForm = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** The codec of a type that travels as text; one that is not known can only be read. */
function textCodecOf({ dataType, columnType, mark, length }: TypeDescription): Codec {
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

/** What a decimal of MySQL holds: digits in all, and of them behind the point. */
const MOST_DIGITS = 65;
const MOST_PLACES = 30;

const LARGEST_UNSIGNED = 2n ** 64n - 1n;

/** Whole numbers of 64 bits; MySQL compares one with a string as doubles, so none travels as text. */
function integers(isUnsigned: boolean): Codec {
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
function decimals(scale: number, isTrimmed: boolean): Codec {
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
const doubles: Codec = {
  store: (value) => doubleOf(value),
  compare: (value) => doubleOf(value),
  encode: String,
};

/** Doubles of half the length, written with the digits that tell them apart. */
const floats: Codec = {
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
const bits: Codec = {
  store: unsignedInteger,
  encode: (raw) =>
    Buffer.isBuffer(raw) ? String(BigInt(`0x${raw.toString("hex")}`)) : String(raw),
};

/** The server takes numbers of two digits for years of our time. */
const years: Codec = {
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
function readDay(text: string): string | undefined {
  const [, year = "", month, day] = dayForm.exec(text) ?? [];
  if (year === "" || year === "0000") return undefined;
  const date = new Date(`${year}-${month}-${day}T00:00:00Z`);
  // The 30th of February would be read as a day of March.
  return Number.isNaN(date.getTime()) || !date.toISOString().startsWith(text) ? undefined : text;
}

/** A time, or a span of hours, of at most `places` places of a second. */
function readSpan(text: string, places: number): string | undefined {
  const [whole, fraction = ""] = spanForm.exec(text) ?? [];
  return whole === undefined || isFiner(fraction, places) ? undefined : whole;
}

/** A moment of the calendar with no zone of its own; one with an offset is undefined. */
function readLocal(text: string, places: number): string | undefined {
  return momentForm.exec(text)?.[3] === undefined ? readInstant(text, places) : undefined;
}

/** A moment with any offset, or none for UTC, as MySQL writes it in UTC. */
function readInstant(text: string, places: number): string | undefined {
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
function writeTime(text: string): string {
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

/** How the values of a column are stored, compared and written. */
export interface MysqlKind extends ColumnKind {
  /** JSON text of a value other than null. */
  encode(raw: Raw): string;
}

/** The types whose name says all. */
const plainCodecs: ReadonlyMap<string, Codec> = new Map([
  ["float", floats],
  ["double", doubles],
  ["bit", bits],
  ["year", years],
  ["json", nativeDocuments],
  ["varbinary", bytes()],
  ["tinyblob", bytes()],
  ["blob", bytes()],
  ["mediumblob", bytes()],
  ["longblob", bytes()],
]);

/** The kind of a column. A type that is not known here travels as MySQL's own text. */
export function kindOf(type: TypeDescription): MysqlKind {
  const codec = codecOf(type);
  return {
    store: codec.store,
    compare: codec.compare ?? codec.store,
    encode: codec.encode,
    like: isText(type.dataType) ? likeText : like,
    exact: /^(enum|set)$/.test(type.dataType) || isText(type.dataType) ? exactText : undefined,
    measure: isMeasured(codec, type) ? measures.get(type.dataType) : undefined,
    ...(isNumber(type.dataType) && codec !== booleans ? { sum } : {}),
  };
}

/** Bytes are compared without regard to any collation, blanks at the end included. */
const exactText: ExactComparison = {
  column: (column) => sql`cast(convert(${column} using utf8mb4) as binary)`,
  value: (compared) => (typeof compared === "string" ? Buffer.from(compared) : compared),
};

/** Neither booleans nor JSON, which MySQL has as numbers and text, amount to anything. */
function isMeasured(codec: Codec, { mark }: TypeDescription): boolean {
  return codec !== booleans && mark !== "json";
}

/** What values of a type amount to; `char` and its like also those of a mark, such as UUIDs. */
const measures: ReadonlyMap<string, Measure> = new Map([
  ...["tinyint", "smallint", "mediumint", "int", "bigint", "year"].map(
    (name) => [name, "integer"] as const,
  ),
  ["decimal", "decimal"],
  ...["float", "double"].map((name) => [name, "double"] as const),
  ...["date", "time", "datetime", "timestamp"].map((name) => [name, "moment"] as const),
  ...["char", "varchar", "tinytext", "text", "mediumtext", "longtext"].map(
    (name) => [name, "text"] as const,
  ),
]);

function isNumber(dataType: string): boolean {
  return /int$|^(decimal|double|float)$/.test(dataType);
}

function sum(column: Fragment, amount: unknown): Fragment {
  return sql`${column} + ${amount}`;
}

/** A pattern meets other values as MySQL writes them. */
function like(column: Fragment, pattern: string, foldsCase: boolean): Fragment {
  return likeText(sql`cast(${column} as char)`, pattern, foldsCase);
}

/** MySQL's `lower` folds more than ASCII; `replace` looks at each letter exactly. */
function likeText(text: Fragment, pattern: string, foldsCase: boolean): Fragment {
  if (!foldsCase) return likeBackslash(text, pattern);
  const exact = sql`convert(${text} using utf8mb4) collate utf8mb4_bin`;
  const folded = [..."ABCDEFGHIJKLMNOPQRSTUVWXYZ"].reduce<Fragment>(
    (folding, letter) =>
      sql`replace(${folding}, ${sql.lit(letter)}, ${sql.lit(letter.toLowerCase())})`,
    exact,
  );
  return likeBackslash(folded, foldCase(pattern));
}

function isText(dataType: string): boolean {
  return /^(var)?char$|text$/.test(dataType);
}

function codecOf(type: TypeDescription): Codec {
  const { dataType, columnType, mark, precision } = type;
  const moments = sql`datetime(6)`;
  switch (dataType) {
    case "tinyint":
    case "smallint":
    case "mediumint":
    case "int":
    case "bigint":
      if (/^tinyint\(1\)(?! unsigned)/.test(columnType)) return booleans;
      return integers(/unsigned/.test(columnType));
    case "decimal":
      return decimals(type.scale, mark === "numeric");
    case "date":
      return formed(readDay, sql`date`);
    case "time":
      return formed((text) => readSpan(text, precision), sql`time(6)`, writeTime);
    case "timestamp":
      return formed((text) => readInstant(text, precision), moments, writeInstant);
    case "datetime":
      if (mark === "timestamp") {
        return formed((text) => readInstant(text, precision), moments, writeInstant);
      }
      return formed((text) => readLocal(text, precision), moments, writeTime);
    case "binary":
      return bytes(type.length);
    default:
      return plainCodecs.get(dataType) ?? textCodecOf(type);
  }
}

function writeInstant(text: string): string {
  return `${writeTime(text)}Z`;
}
