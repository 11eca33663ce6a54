import { sql } from "kysely";
import type { CellValue } from "../../core/query/tree.ts";
import { lettersTo } from "../letters.ts";
import type { RemoteColumn } from "../remote/dialect.ts";
import {
  elementBounds as arrayBounds,
  decimalBounds,
  doubleBounds,
  integerBounds,
  momentBounds,
  textBounds,
} from "../sql/bounds.ts";
import type { Fragment } from "../sql/fragment.ts";
import type {
  Bounds,
  ColumnKind,
  ExactComparison,
  Family,
  FoldedLetters,
  PresentValue,
  Table,
} from "../sql/scope.ts";
import {
  cellText,
  decimalPlaces,
  decodeBase64,
  findMeasure,
  isDay,
  isRoundedInteger,
  numberText,
  toInteger,
  withoutSpace,
} from "../sql/values.ts";

interface Codec {
  readonly family?: Family;
  /** Undefined for a value that the type does not take. */
  write(value: PresentValue): string | undefined;
  read(text: string): string;
}

/** Strings in JSON, which has no such numbers. */
const notNumbers = new Set(["NaN", "Infinity", "-Infinity"]);

const integers: Codec = {
  family: "integer",
  write: (value) => toInteger(value)?.toString(),
  read: (text) => text,
};

const decimals: Codec = { family: "decimal", write: writeNumber, read: readNumber };

/** Refuses integers that a double would round. */
const doubles: Codec = {
  family: "double",
  write: (value) => (isRoundedInteger(value) ? undefined : writeNumber(value)),
  // Every database returns the same digits.
  read: (text) => (isNumber(text) ? String(Number(text)) : `"${text}"`),
};

/** Most texts need none, and `JSON.stringify` takes several times as long to find out. */
const needsEscapes = /["\\\p{Cc}]/u;

/** PostgreSQL has no character U+0000. */
const strings: Codec = {
  write: (value) => (typeof value === "string" && !value.includes("\0") ? value : undefined),
  read: (text) => (needsEscapes.test(text) ? JSON.stringify(text) : `"${text}"`),
};

/** Strings that PostgreSQL would silently cut to what the type holds, also to compare them. */
function stringsWithin(fits: (text: string) => boolean): Codec {
  const write = (value: PresentValue) =>
    typeof value === "string" && fits(value) ? strings.write(value) : undefined;
  return { ...strings, write };
}

const NAME_BYTES = 63;
const names = stringsWithin((text) => Buffer.byteLength(text) <= NAME_BYTES);
/** One character of ASCII, or an octal number for another byte. */
const singleBytes = stringsWithin((text) => /^(?:\p{ASCII}?|\\[23][0-7]{2})$/u.test(text));

/** PostgreSQL would reinterpret strings of another form, and names no column if the day is wrong. */
function stringsLike(form: RegExp, family: Family): Codec {
  const fits = (text: string) => form.test(text) && hasDay(text);
  return {
    family,
    write: (value) => (typeof value === "string" && fits(value) ? value : undefined),
    read: strings.read,
  };
}

/** False for a date of four digits for the year whose month lacks the day. */
function hasDay(text: string): boolean {
  const [day] = /^\d{4}-\d\d-\d\d(?!.*BC$)/.exec(text) ?? [];
  return day === undefined || isDay(day);
}

const booleans: Codec = {
  family: "boolean",
  write(value) {
    if (value === true || value === 1) return "true";
    return value === false || value === 0 ? "false" : undefined;
  },
  read: (text) => String(text === "t" || text === "true"),
};

/** Base64 text (RFC 4648, section 4). */
const bytes: Codec = {
  family: "bytes",
  write(value) {
    const decoded = decodeBase64(value);
    return decoded === undefined ? undefined : `\\x${decoded.toString("hex")}`;
  },
  read: (text) => JSON.stringify(Buffer.from(text.slice("\\x".length), "hex").toString("base64")),
};

const documents: Codec = { family: "json", write: cellText, read: withoutSpace };

function writeNumber(value: PresentValue): string | undefined {
  return typeof value === "string" && notNumbers.has(value) ? value : numberText(value);
}

function readNumber(text: string): string {
  return isNumber(text) ? text : `"${text}"`;
}

/** Numbers end with a digit, unlike `NaN` and `Infinity`. */
function isNumber(text: string): boolean {
  return text.charCodeAt(text.length - 1) <= 0x39;
}

const day = String.raw`\d{4,7}-\d\d-\d\d`;
const clock = String.raw`([01]\d|2[0-4]):[0-5]\d(:([0-5]\d|60)(\.\d{1,6}0*)?)?`;
const zone = String.raw`(Z|[+-]\d\d(:?\d\d)?)`;

/** `2026-01-02`, followed by ` BC` before year 1, or `infinity` or `-infinity`. */
const dates = stringsLike(new RegExp(`^(${day}( BC)?|-?infinity)$`), "date");

const times = stringsLike(new RegExp(`^${clock}$`), "time");

/** `2026-01-02T03:04:05Z` (ISO 8601). Any offset is accepted, and none means UTC. */
const instants: Codec = {
  ...stringsLike(new RegExp(`^(${day}([T ]${clock}${zone}?)?( BC)?|-?infinity)$`), "instant"),
  read(text) {
    if (text[10] === " " && text.endsWith("+00"))
      return `"${text.slice(0, 10)}T${text.slice(11, -3)}Z"`;
    return `"${text.replace(" ", "T").replace(/\+00(?::00)?(?= BC$|$)/, "Z")}"`;
  },
};

/** Without a zone: `2026-01-02T03:04:05`. */
const localTimes: Codec = {
  ...stringsLike(new RegExp(`^(${day}([T ]${clock})?( BC)?|-?infinity)$`), "instant"),
  read: (text) => `"${text.replace(" ", "T")}"`,
};

/** An array whose indexes do not begin at 1, which no JSON array could say. */
const hasBounds = /^(\[-?\d+:-?\d+\])+=\{/;

/** An array of arrays, whose elements could be arrays themselves. */
const hasLevels = /^\{\{/;

function arrayCodec(element: Codec): Codec {
  const isText = (text: string) =>
    hasBounds.test(text) || (element === documents && hasLevels.test(text));
  return {
    write(value) {
      if (typeof value === "string" && isText(value)) return value;
      return Array.isArray(value) ? writeArray(element, value) : undefined;
    },
    read: (text) => (isText(text) ? strings.read(text) : readArray(element, text)),
  };
}

function writeArray(element: Codec, values: readonly CellValue[]): string | undefined {
  const parts = values.map((value) => writeElement(element, value));
  return parts.includes(undefined) ? undefined : `{${parts.join(",")}}`;
}

function writeElement(element: Codec, value: CellValue): string | undefined {
  if (value === null) return "NULL";
  if (Array.isArray(value) && element !== documents) return writeArray(element, value);
  const text = element.write(value);
  return text === undefined ? undefined : `"${text.replace(/["\\]/g, "\\$&")}"`;
}

const token = /"((?:[^"\\]|\\.)*)"|[^{},"]+|[{},]/gs;

/** Parses `{1,NULL,"a b"}`. */
function readArray(element: Codec, text: string): string {
  let json = "";
  for (const [sign, quoted] of text.matchAll(token)) {
    if (quoted !== undefined) json += element.read(quoted.replace(/\\(.)/gs, "$1"));
    else if (sign === "{") json += "[";
    else if (sign === "}") json += "]";
    else if (sign === ",") json += ",";
    else json += sign === "NULL" ? "null" : element.read(sign);
  }
  return json;
}

export interface PostgresKind extends ColumnKind {
  store(value: PresentValue): Fragment | undefined;
  compare(value: PresentValue): Fragment | undefined;
  encode(text: string): string;
  readonly sqlType: Fragment;
  /** True for integers that the server adds as `bigint`, which is faster than `numeric`. */
  readonly isShort?: boolean;
  /** True if the text of the type with this OID is read the same way. */
  isWrittenAs(type: number): boolean;
}

export interface TypeDescription {
  /** OID of the type, or of the base type of a domain. */
  readonly id: number;
  /** OID of the type of an array's elements, or 0 if the type is not an array. */
  readonly elementId: number;
  /** SQL name without the column's length or precision. */
  readonly sqlName: string;
  /**
   * True for a type without operators, and for a row of several values, which is neither null nor not
   * null if only some of them are.
   */
  readonly isUnordered?: boolean;
  /** OID. */
  readonly collation?: string | undefined;
  /** Of an enum, or of an array's elements. */
  readonly labels?: readonly string[] | undefined;
  /** The length of text, or the precision of a `numeric` or time; undefined without a limit. */
  readonly length?: number | undefined;
  /** Decimal places; undefined without a limit. */
  readonly scale: number | undefined;
}

const JSON_TYPE = 114;
const JSONB_TYPE = 3802;

/** By OID, which servers with PostgreSQL's protocol share. */
const codecs: ReadonlyMap<number, Codec> = new Map([
  [16, booleans],
  [17, bytes],
  [18, singleBytes],
  [19, names],
  [20, integers],
  [21, integers],
  [23, integers],
  [26, integers],
  [JSON_TYPE, documents],
  [700, doubles],
  [701, doubles],
  [1082, dates],
  [1083, times],
  [1114, localTimes],
  [1184, instants],
  [1700, decimals],
  // PostgreSQL orders UUIDs but has no `min` of them.
  [2950, stringsLike(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i, "text")],
  [JSONB_TYPE, documents],
]);

/** Types without an order, some without an equality by value: `xml`, `point`, `box`, `xid`, ... */
const unordered = new Set([
  28, 29, 142, 600, 601, 602, 603, 604, 628, 718, 1020, 1033, 2970, 4072, 5038,
]);

/** `name`, `text`, `char` and `varchar`, whose patterns need no cast. */
const textTypes = new Set([19, 25, 1042, 1043]);

export function findKind(type: TypeDescription): PostgresKind {
  const { id, elementId, labels, scale } = type;
  const codec = findCodec(type);
  const sqlType = sql.raw(type.sqlName);
  const compare = (value: PresentValue) => makeCast(codec.write(value), sqlType);
  const store = (value: PresentValue) => (isRounded(value, scale) ? undefined : compare(value));
  const isText = textTypes.has(id);
  const family = isText ? "text" : codec.family;
  const kind: PostgresKind = {
    store,
    compare,
    encode: codec.read,
    sqlType,
    like,
    asFamily,
    family,
    measure: findMeasure(family),
    bounds: findBounds(type),
    isWrittenAs: (other) =>
      other === id ||
      codecs.get(other) === codec ||
      (isString(codec) && isString(codecs.get(other))),
  };
  if (labels !== undefined) {
    // A domain over an enum does not even equal itself.
    const compared = (column: Fragment) => sql`cast(${column} as ${sqlType})`;
    const own = { compared, grouped: compared, exact: exactOther };
    return elementId === 0 ? { ...kind, labels, ...own } : { ...kind, labels };
  }
  if (isText) return { ...kind, ...collated(type), like: likeText, exact: exactText };
  if (unordered.has(elementId || id) || type.isUnordered === true) {
    const compare = (value: PresentValue) => {
      const stored = store(value);
      return stored && bytesOf(stored);
    };
    return { ...kind, compare, compared: bytesOf, grouped: bytesOf, exact: exactOther };
  }
  if ((elementId || id) === JSON_TYPE) {
    // Only the binary form of JSON can be compared.
    const type = elementId === 0 ? jsonb : sql.raw("jsonb[]");
    const compare = (value: PresentValue) => makeCast(codec.write(value), type);
    const operand = elementId === 0 ? presentJson("json") : (column: Fragment) => column;
    const compared = (column: Fragment) => sql`cast(${operand(column)} as ${type})`;
    const grouped = (column: Fragment) => withoutSpaceSql(operand(column));
    const sorted = { grouped, sortsSpellings: true };
    return { ...kind, compare, compared, asFamily: compared, castFails: true, operand, ...sorted };
  }
  if (id === JSONB_TYPE) {
    const present = presentJson("jsonb");
    return { ...kind, compared: present, asFamily: present, grouped: present, operand: present };
  }
  switch (codec) {
    case integers: {
      const amount = (value: PresentValue) => makeCast(codec.write(value), bigint);
      // An index serves a comparison with an integer but not with another number.
      const compare = (value: PresentValue) => {
        const whole = toInteger(value);
        if (whole === undefined) return makeCast(numberText(value), numeric);
        return kind.bounds?.exceeds(whole) === true ? amount(whole) : store(whole);
      };
      return { ...kind, sum, amount, compare, isShort: id === 21 || id === 23 };
    }
    case decimals:
      return { ...kind, sum, castFails: true };
    case doubles:
      return id === 700 ? { ...kind, sum, operand: shortestDouble } : { ...kind, sum };
    case strings:
    case singleBytes:
      return { ...kind, exact: exactOther };
    default:
      return kind;
  }
}

/** The `null` of JSON is returned as null. Groups of `json` are text. */
const presentJson = (type: "json" | "jsonb") => {
  const [typeOf, name] = [sql.raw(`pg_catalog.${type}_typeof`), sql.raw(type)];
  return (column: Fragment) => {
    const document = sql`cast(${column} as ${name})`;
    return sql`case when ${typeOf}(${document}) <> 'null' then ${document} end`;
  };
};

const bytesOf = (text: unknown): Fragment => sql`(cast(${text} as text) collate "C")`;

/** PostgreSQL would round a number, also in an array, with more decimal places than the column. */
function isRounded(value: CellValue, scale: number | undefined): boolean {
  if (scale === undefined) return false;
  if (Array.isArray(value)) return value.some((one) => isRounded(one, scale));
  return value !== null && decimalPlaces(decimals.write(value) ?? "") > scale;
}

const DEFAULT_COLLATION = "100";

/** The database's own collation gives way to any other one. Two others are refused. */
function collated({ collation }: TypeDescription): Pick<PostgresKind, "collation" | "meets"> {
  return { collation, meets: (other: string) => [collation, other].includes(DEFAULT_COLLATION) };
}

/** The double with the digits of a `real`, of which a cast would make more. */
const shortestDouble = (column: Fragment): Fragment =>
  sql`cast(cast(${column} as text) as double precision)`;

/** As `withoutSpace` does. The same text in each place of a statement, since groups must match. */
const withoutSpaceSql = (column: Fragment): Fragment =>
  sql`(pg_catalog.regexp_replace(cast(${column} as text), ${spaces}, E'\\\\1', 'g') collate "C")`;

const spaces = sql.raw(String.raw`E'("(?:[^"\\\\]|\\\\.)*")|\\s+'`);

/** Uses the value as given: a cast to `char(n)` would drop its trailing spaces. */
const exactText: ExactComparison = {
  column: bytesOf,
  value: (_compared, value) => bytesOf(value),
};

/** By the type's own text: case matters in `citext`, and all spellings of an `inet` are equal. */
const exactOther: ExactComparison = { column: bytesOf, value: bytesOf };

/** Types that are not listed are strings. */
function isString(codec: Codec = strings): boolean {
  return codec === strings || codec === singleBytes || codec === names;
}

function findCodec({ id, elementId, labels }: TypeDescription): Codec {
  const codec = labels ? labeled(labels) : (codecs.get(elementId || id) ?? strings);
  return elementId === 0 ? codec : arrayCodec(codec);
}

function labeled(labels: readonly string[]): Codec {
  const write = (value: PresentValue) => labels.find((label) => label === value);
  return { write, read: strings.read };
}

const OID_TYPE = 26;

const integerBits: ReadonlyMap<number, number> = new Map([
  [OID_TYPE, 32],
  [20, 64],
  [21, 16],
  [23, 32],
]);

const MICROSECONDS = 6;

/** `time` and `timestamp`, without and with a time zone. */
const momentExamples: ReadonlyMap<number, string> = new Map([
  [1083, "13:45:00"],
  [1114, "2026-01-31T13:45:00"],
  [1184, "2026-01-31T13:45:00Z"],
  [1266, "13:45:00+02"],
]);

function findBounds({ id, elementId, length, scale }: TypeDescription): Bounds | undefined {
  if (elementId !== 0) {
    const bounds = findBounds({ id: elementId, elementId: 0, sqlName: "", length, scale });
    return bounds && arrayBounds(bounds);
  }
  const bits = integerBits.get(id);
  if (bits !== undefined) return integerBounds(bits, id === OID_TYPE);
  const moment = momentExamples.get(id);
  if (moment !== undefined) return momentBounds(length ?? MICROSECONDS, moment);
  if (id === 700 || id === 701) return doubleBounds(id === 700 ? 32 : 64);
  if (length === undefined) return undefined;
  if (id === 1700) return decimalBounds(length, scale ?? 0);
  return id === 1042 || id === 1043 ? textBounds(length) : undefined;
}

/** `type` is the server's own name, which it has quoted where needed. */
function makeCast(text: string | undefined, type: Fragment): Fragment | undefined {
  return text === undefined ? undefined : sql`cast(${text} as ${type})`;
}

const bigint = sql.raw("bigint");
const numeric = sql.raw("numeric");
const jsonb = sql.raw("jsonb");

const like: NonNullable<ColumnKind["like"]> = (column, pattern, folds) =>
  likeText(sql`cast(${column} as text)`, pattern, folds);

const upperCase = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/** `lower` would depend on the column's collation. */
function likeText(text: Fragment, pattern: string, folds?: FoldedLetters): Fragment {
  if (folds === undefined) return sql`${text} like ${pattern}`;
  if (folds === "unicode") return sql`${caseSql(text, "lower")} like ${pattern}`;
  const folded = sql`pg_catalog.translate(${text}, ${upperCase}, ${upperCase.toLowerCase()})`;
  return sql`${folded} like ${pattern}`;
}

/** `translate` compares each character with all letters, so texts of ASCII only avoid it. */
export function caseSql(text: Fragment, wanted: "lower" | "upper"): Fragment {
  const [from, to] = lettersTo(wanted);
  const ofAscii = sql`pg_catalog.${sql.raw(wanted)}(${text} collate "C")`;
  return sql`case when pg_catalog.octet_length(${text}) = pg_catalog.char_length(${text})
    then ${ofAscii} else pg_catalog.translate(${text}, ${from}, ${to}) end`;
}

/** Texts are compared by bytes, whatever their collations. */
function asFamily(column: Fragment, family: Family): Fragment {
  switch (family) {
    case "double":
      return sql`cast(${column} as double precision)`;
    case "text":
      return bytesOf(column);
    default:
      return column;
  }
}

function sum(column: Fragment, amount: unknown): Fragment {
  return sql`${column} + ${amount}`;
}

export interface PostgresColumn extends RemoteColumn {
  /** Of a domain, its base type. */
  readonly valueType: string | undefined;
  readonly kind: PostgresKind;
}

export interface PostgresTable extends Table<PostgresColumn> {
  /** False for a view, which DropTable must not drop. */
  readonly isTable: boolean;
}
