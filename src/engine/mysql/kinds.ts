import { sql } from "kysely";
import driver from "mysql2";
import { memoize } from "../../core/base/memoize.ts";
import { type LetterPairs, longerLetters } from "../letters.ts";
import { EngineRefusal } from "../refusal.ts";
import { refused } from "../remote/failures.ts";
import {
  decimalBounds,
  doubleBounds,
  integerBounds,
  momentBounds,
  textBounds,
} from "../sql/bounds.ts";
import { isNumber } from "../sql/conditions.ts";
import type { Fragment } from "../sql/fragment.ts";
import { readDeclaredType, typesByWord } from "../sql/new-table.ts";
import type {
  Bounds,
  ColumnKind,
  Encoded,
  ExactComparison,
  Family,
  FoldedLetters,
  PresentValue,
} from "../sql/scope.ts";
import {
  cellText,
  decimalPlaces,
  decodeBase64,
  findMeasure,
  isDay,
  isLost,
  isRoundedInteger,
  numberText,
  toInteger,
  trimTrailingZeros,
  withoutEndingZeros,
  withoutSpace,
} from "../sql/values.ts";
import type { Raw } from "./rows.ts";
import type { Bound } from "./session.ts";

/**
 * Types that MySQL lacks are recorded in the column's comment: JSON that keeps its digits, UUIDs,
 * instants beyond 2038, decimals without a declared length, and booleans without other numbers.
 */
type Mark = "json" | "uuid" | "timestamp" | "numeric" | "boolean";

interface NewType {
  readonly name: string;
  /** The type of a column in a key with this many bytes for it. */
  keyName?(bytes: number): string;
  readonly mark?: Mark;
  readonly isText?: boolean;
  readonly isSerial?: boolean;
}

const CHARACTER_BYTES = 4;

const decimal: NewType = { name: "decimal(65,30)", mark: "numeric" };
const text: NewType = {
  name: "longtext",
  isText: true,
  keyName: (bytes) => `varchar(${Math.floor(bytes / CHARACTER_BYTES)})`,
};
const json: NewType = { name: "longtext", mark: "json", isText: true };

const types = typesByWord<NewType>({
  integer: { name: "bigint" },
  serial: { name: "bigint", isSerial: true },
  double: { name: "double" },
  decimal,
  text,
  instant: { name: "datetime(6)", mark: "timestamp" },
  json,
  jsonb: json,
  bytes: { name: "longblob", keyName: (bytes) => `varbinary(${bytes})` },
  uuid: { name: "char(36)", mark: "uuid", isText: true },
  date: { name: "date" },
  time: { name: "time(6)" },
  boolean: { name: "boolean", mark: "boolean" },
});

export const typeWords: readonly string[] = [...types.keys()];

export function newType(type: string): NewType | undefined {
  const { word, size } = readDeclaredType(type);
  const found = types.get(word);
  if (found === undefined || size === "") return found;
  // MySQL's `char(n)` strips trailing spaces, and its `text` takes no length.
  if (found === text) return { name: `varchar${size}`, isText: true };
  return found === decimal ? { name: `decimal${size}` } : found;
}

export function kindOfNew({ name, mark }: NewType): MysqlKind {
  const columnType = name === "boolean" ? "tinyint(1)" : name;
  const [, dataType = "", first, scale] = /^(\w+)(?:\((\d+)(?:,(\d+))?\))?$/.exec(columnType) ?? [];
  return findKind({
    dataType,
    columnType,
    mark,
    length: Number(first ?? Number.POSITIVE_INFINITY),
    scale: Number(scale ?? 0),
    precision: Number(first ?? 0),
    isBytewise: true,
    characterSet: "utf8mb4",
  });
}

const markPrefix = "gatehouse:";

export function writeMark(mark: Mark): string {
  return markPrefix + mark;
}

export function readMark(comment: string): Mark | undefined {
  const marks = ["json", "uuid", "timestamp", "numeric", "boolean"] as const;
  return marks.find((mark) => comment === writeMark(mark));
}

interface TypeDescription {
  readonly dataType: string;
  /** The whole type, such as `enum('a','b')`. */
  readonly columnType: string;
  /** From the column's comment, or `json` for MariaDB's JSON. */
  readonly mark: Mark | undefined;
  /** In characters for strings, in bytes for bytes. */
  readonly length: number;
  readonly scale: number;
  /** Decimal places of seconds. */
  readonly precision: number;
  /** True if texts are equal only if their bytes are. */
  readonly isBytewise: boolean;
  readonly characterSet: string;
  readonly collation?: string | undefined;
}

const booleans: Codec = {
  family: "boolean",
  store(value) {
    if (value === true || value === 1) return LONGLONG(1n);
    return value === false || value === 0 ? LONGLONG(0n) : undefined;
  },
  encode: (raw) => (raw === 0 || raw === 1 ? String(raw === 1) : String(raw)),
};

/** A `tinyint(1)` of another program, which may hold other numbers than 1 and 0. */
const flags: Codec = {
  ...booleans,
  store: (value) => booleans.store(value) ?? signedInteger(value),
};

const flagBounds: Bounds = {
  ...integerBounds(8),
  allowed: "true, false or a whole number from -128 to 127",
};

/** MySQL would truncate or reinterpret strings that are not allowed. */
function strings(
  family: Family | undefined,
  isAllowed: (text: string) => boolean = () => true,
): Codec {
  return {
    family,
    store: (value) => (typeof value === "string" && isAllowed(value) ? value : undefined),
    compare: (value) => (typeof value === "string" ? value : undefined),
    encode: (raw) => JSON.stringify(raw),
  };
}

/** Strings of one form, which `read` converts to MySQL's own, compared as `castAs`. */
function formed(
  family: Family,
  read: (text: string) => string | undefined,
  castAs?: Fragment,
  write: (text: string) => string = (text) => text,
): Codec {
  const store = (value: PresentValue): string | undefined =>
    typeof value === "string" ? read(value) : undefined;
  return {
    family,
    store,
    compare(value) {
      const text = store(value);
      if (text === undefined || castAs === undefined) return text;
      // MySQL misreads a parameter that it casts to a time.
      return sql`cast(cast(${text} as char) as ${castAs})`;
    },
    encode: (raw) => JSON.stringify(write(String(raw))),
  };
}

/** Base64 text. MySQL would pad a column of fixed length with zeros. */
function bytes(fixedLength?: number): Codec {
  return {
    family: "bytes",
    store(value) {
      const decoded = decodeBase64(value);
      const fits = fixedLength === undefined || decoded?.length === fixedLength;
      return fits ? decoded : undefined;
    },
    compare: decodeBase64,
    encode: encodeBytes,
  };
}

function encodeBytes(raw: Raw): string {
  return JSON.stringify(Buffer.isBuffer(raw) ? raw.toString("base64") : raw);
}

/** Without the spaces of other programs, which reads leave out. MySQL has no such function. */
export function compactSql(document: Fragment): Fragment {
  return sql`/*M!100203 json_compact( */${document}/*M!100203 ) */`;
}

/** JSON as text, which keeps digits and the order of keys. */
const documents: Codec = {
  family: "json",
  store: cellText,
  encode: (raw) => withoutSpace(String(raw)),
};

/** The `null` of JSON is null. */
function comparingDocuments(text: (document: Fragment) => Fragment): Partial<MysqlKind> {
  const present = (document: Fragment) => sql`nullif(${text(document)}, 'null')`;
  return {
    compared: present,
    grouped: present,
    asFamily: (document) => exactText.column(present(document), false),
    operand: present,
  };
}

/** MySQL's own type, which is compared by the text that the server makes of it. */
const nativeDocuments: Codec = {
  ...documents,
  compare: (value) => serverText(sql`cast(${cellText(value)} as json)`),
};

const serverText = (document: Fragment) =>
  sql`convert(${document} using utf8mb4) collate utf8mb4_bin`;

const unknown: Codec = { store: () => undefined, encode: encodeBytes };

interface Codec {
  readonly family?: Family | undefined;
  /** Undefined for a value that the type does not take. */
  store(value: PresentValue): Bound | Fragment | undefined;
  /** If it differs from the stored value. */
  compare?(value: PresentValue): Bound | Fragment | undefined;
  encode(raw: Raw): string;
}

/** From -2^63 to 2^63 - 1, or with `unsigned` from 0 to 2^64 - 1. */
export const { LONGLONG } = driver.TypedParameter;

const uuidForm = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

const uuids = formed("text", (text) => (uuidForm.test(text) ? text.toLowerCase() : undefined));

function enumMembers(columnType: string): string[] {
  return Array.from(columnType.matchAll(/'((?:[^']|'')*)'/g), ([, member = ""]) =>
    member.replaceAll("''", "'"),
  );
}

/** Words are sorted by their places, but compared as texts. */
function placesOf({ dataType, columnType }: TypeDescription): ColumnKind["sorted"] {
  const members = enumMembers(columnType);
  const bit = (word: string) => (members.includes(word) ? 1n << BigInt(members.indexOf(word)) : 0n);
  return {
    column: (column) => sql`cast(${column} as unsigned)`,
    value(compared) {
      const words = String(compared);
      if (dataType === "enum") return LONGLONG(BigInt(members.indexOf(words) + 1));
      return LONGLONG.unsigned(words.split(",").reduce((sum, word) => sum | bit(word), 0n));
    },
  };
}

/** Of a MySQL decimal: all digits, and those after the point. */
const MAX_DIGITS = 65;
const MAX_PLACES = 30;

const LARGEST_UNSIGNED = 2n ** 64n - 1n;

/** Not sent as text: MySQL compares an integer with a string as doubles. */
function integers(isUnsigned: boolean): Codec {
  return {
    family: "integer",
    store: isUnsigned ? unsignedInteger : signedInteger,
    compare: (value) => unsignedInteger(value) ?? signedInteger(value) ?? anyNumber(value),
    encode: String,
  };
}

function signedInteger(value: PresentValue): Bound | undefined {
  const integer = toInteger(value);
  return integer === undefined ? undefined : LONGLONG(integer);
}

function unsignedInteger(value: PresentValue): Bound | undefined {
  const integer = typeof value === "bigint" ? value : toInteger(value);
  if (integer === undefined || integer < 0n || integer > LARGEST_UNSIGNED) return undefined;
  return LONGLONG.unsigned(integer);
}

/** MySQL would round a value with more decimal places than the column. */
function decimals({ scale, columnType }: TypeDescription, isTrimmed: boolean): Codec {
  const isPadded = columnType.includes("zerofill");
  return {
    family: "decimal",
    store(value) {
      const text = numberText(value);
      return text === undefined || decimalPlaces(text) > scale ? undefined : decimalSql(text);
    },
    compare: anyNumber,
    encode(raw) {
      // JSON has no numbers with leading zeros.
      if (isPadded) return String(raw).replace(/^0+(?=\d)/, "");
      return isTrimmed ? trimTrailingZeros(String(raw)) : String(raw);
    },
  };
}

/** A number that no decimal can hold becomes a double, which differs from every decimal. */
function anyNumber(value: PresentValue): Bound | Fragment | undefined {
  const text = numberText(value);
  return text === undefined ? undefined : (decimalSql(text) ?? finite(text));
}

/** Undefined if a decimal cannot hold the number's digits. */
function decimalSql(text: string): Fragment | undefined {
  const [, sign = "", whole = "0", fraction = "", exponent = "0"] =
    /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/i.exec(text) ?? [];
  const shift = Number(exponent);
  if (Math.abs(shift) > 2 * MAX_DIGITS) return undefined;
  const digits = whole + fraction;
  const point = whole.length + shift;
  const left = digits
    .slice(0, Math.max(point, 0))
    .padEnd(point, "0")
    .replace(/^0+(?=\d)/, "");
  const right = digits.slice(Math.max(point, 0)).padStart(digits.length - point, "0");
  const places = withoutEndingZeros(right);
  const size = Math.max(left.length, 1) + places.length;
  if (size > MAX_DIGITS || places.length > MAX_PLACES) return undefined;
  const plain = `${sign}${left || "0"}${places === "" ? "" : `.${places}`}`;
  return sql`cast(${plain} as decimal(${sql.raw(String(size))}, ${sql.raw(String(places.length))}))`;
}

/** Refuses integers that a double would round. */
const doubles: Codec = { family: "double", store: toDouble, encode: String };

/** 32-bit floats, written with the fewest digits that distinguish them. */
const floats: Codec = {
  family: "double",
  store: toDouble,
  compare(value) {
    const double = toDouble(value);
    return double === undefined ? undefined : Math.fround(double);
  },
  encode(raw) {
    const float = Number(raw);
    for (let digits = 6; digits < 9; digits += 1) {
      const rounded = Number(float.toPrecision(digits));
      if (Math.fround(rounded) === float) return String(rounded);
    }
    return String(float);
  },
};

function toDouble(value: PresentValue): number | undefined {
  const text = isRoundedInteger(value) ? undefined : numberText(value);
  return text === undefined ? undefined : finite(text);
}

function finite(text: string): number {
  const double = Number(text);
  if (isLost(text, double)) throw new EngineRefusal(...refused.outOfRange);
  return double === 0 ? 0 : double;
}

const bits: Codec = {
  store: unsignedInteger,
  encode: (raw) =>
    Buffer.isBuffer(raw) ? String(BigInt(`0x${raw.toString("hex")}`)) : String(raw),
};

/** The server would read a two-digit number as a recent year. */
const years: Codec = {
  ...integers(false),
  store(value) {
    const isYear = value === 0 || (typeof value === "number" && value > 1900);
    return isYear ? integers(false).store(value) : undefined;
  },
  // As decimals: MySQL would convert whole numbers to years, and those too small or large to zero.
  // None of the numbers from 1 to 99 is a year, and no year is between them.
  compare(value) {
    const number = Number(numberText(value));
    return anyNumber(number > 0 && number < 100 ? 100 : value);
  },
};

const dayForm = /^\d{4}-(?:0\d|1[0-2])-(?:[0-2]\d|3[01])$/;
const clockForm = /^(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6})0*)?)?$/;
const spanForm = /^(-?\d{2,3}:[0-5]\d(?::[0-5]\d(?:\.\d{1,6})?)?)0*$/;
const momentForm = /^(\d{4}-\d\d-\d\d)(?:[T ]([\d:.]+)(Z|[+-]\d\d(?::?\d\d)?)?)?$/;

/** Dates of MySQL may have zeros, such as `0000-00-00` and `2013-03-00`. */
function isPartial(day: string): boolean {
  return /^0000-|-00/.test(day);
}

function readDay(text: string): string | undefined {
  return dayForm.test(text) && (isPartial(text) || isDay(text)) ? text : undefined;
}

/** A date and time without a zone. */
function readLocal(text: string): string | undefined {
  return momentForm.exec(text)?.[3] === undefined ? readInstant(text) : undefined;
}

/** Converts ISO 8601 with any offset, or none for UTC, to MySQL's form in UTC. */
function readInstant(text: string): string | undefined {
  const [, day = "", clock = "00:00:00", zone = "Z"] = momentForm.exec(text) ?? [];
  const [, hour, minute, second = "00", fraction = ""] = clockForm.exec(clock) ?? [];
  const offset = zoneOffset(zone);
  if (readDay(day) === undefined || hour === undefined || offset === undefined) return undefined;
  // A date with zeros has no moment that an offset could move.
  if (isPartial(day) && offset !== 0) return undefined;
  const local = Date.parse(`${isPartial(day) ? "2000-01-01" : day}T${hour}:${minute}:${second}Z`);
  if (Number.isNaN(local) || hour === "24") return undefined;
  const moment = new Date(local - offset * 60_000).toISOString();
  // Years before 1 and after 9999 start with a sign or are all zeros.
  if (!/^(?!0000)\d{4}-/.test(moment)) return undefined;
  const date = isPartial(day) ? day : moment.slice(0, 10);
  return `${date} ${moment.slice(11, 19)}${fraction === "" ? "" : `.${fraction}`}`;
}

function writeTime(text: string): string {
  return trimTrailingZeros(text.replace(" ", "T"));
}

/** Minutes east of Greenwich. */
function zoneOffset(zone: string): number | undefined {
  if (zone === "Z") return 0;
  const [, sign, hours, minutes = "0"] = /^([+-])(\d\d):?(\d\d)?$/.exec(zone) ?? [];
  const offset = Number(hours) * 60 + Number(minutes);
  if (Number(hours) > 15 || Number(minutes) > 59) return undefined;
  return sign === "-" ? -offset : offset;
}

export interface MysqlKind extends Encoded<Raw> {
  /** The type of the column's values in a list, if the server converts no parameter to it. */
  readonly listedAs?: Fragment | undefined;
}

const noMoment = (moment: Fragment) => sql`(${moment} <=> null)`;

export function findKind(type: TypeDescription): MysqlKind {
  const { dataType } = type;
  const codec = findCodec(type);
  const { family } = codec;
  const isText = /^(var)?char$|text$/.test(dataType);
  const { compare = codec.store } = codec;
  return {
    ...codec,
    compare,
    like: isText ? likeText : like,
    ...(isText ? comparingTexts(type.characterSet, compare) : {}),
    ...(isText ? collated(type.collation) : {}),
    exact: isText || /^(enum|set)$/.test(dataType) ? exactText : undefined,
    listedAs: listedType(type),
    measure: findMeasure(family),
    ...(type.isBytewise && family === "text" && dataType.endsWith("text") ? { digest } : {}),
    asFamily,
    ...(isNumber(family) && dataType !== "year" ? { sum: plus } : {}),
    // A `set` combines its members, so they are not all of its values.
    labels: dataType === "enum" ? enumMembers(type.columnType) : undefined,
    sorted: /^(enum|set)$/.test(dataType) ? placesOf(type) : undefined,
    // With `is null`, the server finds the date `0000-00-00` of a column that is never null.
    ...(family === "date" || family === "instant" ? { isNull: noMoment } : {}),
    isFloat: codec === floats,
    ...(codec === documents ? { ...comparingDocuments(compactSql), sortsSpellings: true } : {}),
    ...(codec === nativeDocuments ? comparingDocuments(serverText) : {}),
    bounds: family === "boolean" ? (codec === flags ? flagBounds : undefined) : findBounds(type),
    ...(/int.* unsigned/.test(type.columnType) ? { amount } : {}),
    ...(/^bigint.* unsigned/.test(type.columnType) ? { operand } : {}),
  };
}

/** MySQL 8 converts parameters in a list only to Unicode. */
function listedType({ characterSet, collation }: TypeDescription): Fragment | undefined {
  if (collation === undefined || /^(utf|ucs)/.test(characterSet)) return undefined;
  return sql.raw(`longtext character set ${characterSet} collate ${collation}`);
}

/**
 * Compares texts with a character that the column's set lacks by bytes, since the server would refuse
 * to. No stored text equals one.
 */
function comparingTexts(
  characterSet: string,
  compare: MysqlKind["compare"],
): Pick<MysqlKind, "compare" | "forms" | "like"> {
  const isLacking = lackingIn(characterSet);
  if (isLacking === undefined) return { compare };
  const lacks = (value: unknown) => typeof value === "string" && isLacking(value);
  const bytewise = (text: unknown) => sql`convert(${text} using utf8mb4) collate utf8mb4_bin`;
  return {
    compare: (value) => (lacks(value) ? bytewise(value) : compare(value)),
    forms: (value) => (lacks(value) ? [] : undefined),
    like: (text, pattern, folds) =>
      folds === undefined && lacks(pattern)
        ? sql`${text} like ${bytewise(pattern)}`
        : likeText(text, pattern, folds),
  };
}

/** Character sets whose texts the server converts to no other one. */
const unconverted = /^(?:utf16|utf16le|utf32|ucs2|gb18030)$/;

/** As the server compares columns. It refuses what could differ by the direction of a conversion. */
export function collated(collation = ""): Pick<MysqlKind, "collation" | "meets"> {
  return {
    collation,
    meets(other) {
      const all = [collation, other];
      const [first = "", second = first] = all.map((name) => name.replace(/_.*/, ""));
      if (first !== second) {
        const sets = [first, second];
        return sets.some((set) => /^utf8/.test(set)) && !sets.some((set) => unconverted.test(set));
      }
      const bytewise = all.filter((name) => name.endsWith("_bin"));
      return bytewise.length === 1 || (bytewise.length === 2 && !/nopad|0900/.test(all.join()));
    },
  };
}

/** Character sets of one byte each, with the name of the same encoding in JavaScript. */
const encodings: Readonly<Record<string, string>> = {
  latin1: "windows-1252",
  latin2: "latin2",
  latin5: "latin5",
  latin7: "iso-8859-13",
  cp1250: "cp1250",
  cp1251: "cp1251",
  cp1256: "cp1256",
  cp1257: "cp1257",
  cp866: "cp866",
  greek: "greek",
  hebrew: "hebrew",
  koi8r: "koi8-r",
  koi8u: "koi8-u",
  tis620: "tis-620",
  macroman: "macintosh",
};

/** Sets that hold characters beyond U+FFFF. */
const wholeUnicode = new Set(["utf8mb4", "utf16", "utf16le", "utf32", "gb18030"]);

const encodingCharacters = memoize((encoding: string): ReadonlySet<string> => {
  const bytes = Uint8Array.from({ length: 256 }, (_, byte) => byte);
  return new Set(new TextDecoder(encoding).decode(bytes));
});

/** Finds the texts with a character that a column cannot hold. Undefined if it holds all. */
function lackingIn(set: string): ((text: string) => boolean) | undefined {
  if (wholeUnicode.has(set)) return undefined;
  if (set === "ascii") return (text) => /[^\0-\x7f]/.test(text);
  const encoding = encodings[set];
  if (encoding === undefined) return (text) => /[\u{10000}-\u{10ffff}]/u.test(text);
  return (text) => !new Set(text).isSubsetOf(encodingCharacters(encoding));
}

const integerBits: Readonly<Record<string, number>> = {
  tinyint: 8,
  smallint: 16,
  mediumint: 24,
  int: 32,
  bigint: 64,
};

function findBounds(type: TypeDescription): Bounds | undefined {
  const { dataType, columnType, length, precision: places, mark } = type;
  const bits = integerBits[dataType];
  if (bits !== undefined) return integerBounds(bits, columnType.includes("unsigned"));
  if (dataType === "float" || dataType === "double")
    return doubleBounds(dataType === "float" ? 32 : 64);
  if (dataType === "time") return momentBounds(places, "13:45:00");
  if (/^(datetime|timestamp)$/.test(dataType)) return momentBounds(places, "2026-01-31T13:45:00");
  const [, precision, scale] = /^decimal\((\d+),(\d+)\)/.exec(columnType) ?? [];
  if (precision !== undefined) return decimalBounds(Number(precision), Number(scale));
  return /^(var)?char$/.test(dataType) && mark === undefined ? textBounds(length) : undefined;
}

/** For an unsigned column, also a negative number. */
function amount(value: PresentValue): Bound | undefined {
  return signedInteger(value) ?? unsignedInteger(value);
}

/** Computed whole numbers have a sign. A cast would wrap, but a negation fails. */
function operand(column: Fragment): Fragment {
  return sql`(-(-${column}))`;
}

/** Compares bytes, whatever the collation, including trailing spaces. */
const exactText: ExactComparison = {
  column: (column) => sql`cast(convert(${column} using utf8mb4) as binary)`,
  value: (compared) => (typeof compared === "string" ? Buffer.from(compared) : compared),
};

/** The server stores a `text` without an index, and would compare it with each value. */
const digest = (column: Fragment) => sql`unhex(sha2(${column}, 256))`;

const plus = (column: Fragment, amount: unknown) => sql`${column} + ${amount}`;

const like: NonNullable<ColumnKind["like"]> = (column, pattern, folds) =>
  likeText(sql`cast(${column} as char)`, pattern, folds);

function likeText(text: Fragment, pattern: string, folds?: FoldedLetters): Fragment {
  if (folds === undefined) return sql`${text} like ${pattern}`;
  if (folds === "ascii") return sql`${foldedAscii(text)} like ${pattern}`;
  const lower = (folded: unknown) => sql`${caseSql(folded, "lower")} collate utf8mb4_bin`;
  return sql`${lower(text)} like ${lower(pattern)}`;
}

/** `replace` matches each letter exactly. */
function replaceLetters(text: Fragment, letters: LetterPairs): Fragment {
  return letters.reduce<Fragment>(
    (replaced, [letter, other]) => sql`replace(${replaced}, ${sql.lit(letter)}, ${sql.lit(other)})`,
    text,
  );
}

/** MySQL's `lower` folds more than ASCII. */
function foldedAscii(text: Fragment): Fragment {
  const letters = [..."ABCDEFGHIJKLMNOPQRSTUVWXYZ"];
  const pairs = letters.map((letter) => [letter, letter.toLowerCase()] as const);
  return replaceLetters(sql`convert(${text} using utf8mb4) collate utf8mb4_bin`, pairs);
}

/** The collation with the most letters, by version comments that only MySQL or MariaDB reads. */
const mostLetters = sql.raw(
  "/*!80017 collate utf8mb4_0900_as_cs */ /*M!101001 collate utf8mb4_uca1400_as_cs */",
);

/** MySQL cuts a text whose letters get longer. */
export function caseSql(text: unknown, wanted: "lower" | "upper"): Fragment {
  const exact = sql`convert(${text} using utf8mb4) ${mostLetters}`;
  return sql`${sql.raw(wanted)}(${replaceLetters(exact, longerLetters(wanted))})`;
}

/** Texts are compared by bytes, whatever their collations. */
function asFamily(column: Fragment, family: Family): Fragment {
  switch (family) {
    case "double":
      // A cast would turn infinity into the largest double.
      return sql`(0e0 + ${column})`;
    case "text":
    case "json":
      return exactText.column(column, false);
    case "instant":
      return sql`cast(${column} as datetime(6))`;
    default:
      return column;
  }
}

/** Undefined if the type's name says how values are written. */
export function findValueType(type: TypeDescription): string | undefined {
  if (type.mark !== undefined) return type.mark;
  if (type.dataType === "bit") return "bigint";
  return findCodec(type).family === "boolean" ? "boolean" : undefined;
}

function findCodec(type: TypeDescription): Codec {
  const { dataType, columnType, mark, length } = type;
  if (integerBits[dataType] !== undefined) {
    if (/^tinyint\(1\)(?! unsigned)/.test(columnType)) {
      return mark === "boolean" ? booleans : flags;
    }
    return integers(/unsigned/.test(columnType));
  }
  if (/^varbinary$|blob$/.test(dataType)) return bytes();
  if (/^varchar$|text$/.test(dataType)) return mark === "json" ? documents : strings("text");
  switch (dataType) {
    case "decimal":
      return decimals(type, mark === "numeric");
    case "float":
      return floats;
    case "double":
      return doubles;
    case "bit":
      return bits;
    case "year":
      return years;
    case "date":
      return formed("date", readDay, sql`date`);
    case "time":
      return formed("time", (text) => spanForm.exec(text)?.[1], sql`time(6)`, writeTime);
    case "timestamp":
    case "datetime": {
      const hasZone = dataType === "timestamp" || mark === "timestamp";
      const read = hasZone ? readInstant : readLocal;
      const write = (text: string) => writeTime(text) + (hasZone ? "Z" : "");
      return formed("instant", read, sql`datetime(6)`, write);
    }
    case "json":
      return nativeDocuments;
    case "binary":
      return bytes(length);
    case "char":
      // The server strips trailing spaces.
      return mark === "uuid" ? uuids : strings("text", (text) => !text.endsWith(" "));
    case "enum": {
      // The server would take a member's number for the member.
      const members = enumMembers(columnType);
      return strings(undefined, (text) => members.includes(text));
    }
    case "set": {
      const members = enumMembers(columnType);
      return strings(undefined, (text) => {
        const named = new Set(text.split(","));
        return members.filter((member) => named.has(member)).join(",") === text;
      });
    }
    case "uuid":
      return { ...uuids, family: undefined };
    case "inet4":
    case "inet6":
      return strings(undefined);
    default:
      return unknown;
  }
}
