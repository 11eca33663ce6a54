import { sql } from "kysely";
import type { CellValue } from "../../query/values.ts";
import { foldCase } from "../fold-case.ts";
import { type Fragment, likeBackslash } from "../sql/fragment.ts";
import type { ColumnKind, ExactComparison, Measure } from "../sql/scope.ts";
import {
  cellText,
  decodeBase64,
  integerOf,
  isRoundedInteger,
  numberText,
  type PresentValue,
  placesOf,
  withoutSpace,
} from "../sql/values.ts";
import type { ByteForm } from "./row-bytes.ts";

/** How the values of a type travel: as JSON on one side, as PostgreSQL's text on the other. */
interface Codec {
  /** PostgreSQL's text of a value, or undefined if the type does not take it. */
  write(value: PresentValue): string | undefined;
  /** JSON text of a value that PostgreSQL wrote. */
  read(text: string): string;
  /** The same without a string, where there is such a way. */
  readonly bytes?: ByteForm;
}

/** The values of PostgreSQL's numbers that JSON has no numbers for; they travel as strings. */
const notNumbers = new Set(["NaN", "Infinity", "-Infinity"]);

/** Whole numbers of 64 bits, digit for digit. */
const integers: Codec = {
  write: (value) => integerOf(value)?.toString(),
  read: (text) => text,
  bytes: "integer",
};

/** Decimal numbers of any length, digit for digit. */
const decimals: Codec = { write: writeNumber, read: readNumber, bytes: "decimal" };

/** Doubles; a whole number that one would round is refused. */
const doubles: Codec = {
  write: (value) => (isRoundedInteger(value) ? undefined : writeNumber(value)),
  // Digits as JSON writers of doubles put them, whichever database they come from.
  read: (text) => (notNumbers.has(text) ? JSON.stringify(text) : String(Number(text))),
  bytes: "double",
};

/** Strings; PostgreSQL has no character U+0000. */
const strings: Codec = {
  write: (value) => (typeof value === "string" && !value.includes("\0") ? value : undefined),
  read: (text) => JSON.stringify(text),
  bytes: "text",
};

/** Strings of one form, since PostgreSQL takes others too and makes something else of them. */
function stringsLike(form: RegExp): Codec {
  return {
    write: (value) => (typeof value === "string" && form.test(value) ? value : undefined),
    read: strings.read,
    bytes: "text",
  };
}

/** `true` and `false`, also `1` and `0`. */
const booleans: Codec = {
  write(value) {
    if (value === true || value === 1) return "true";
    return value === false || value === 0 ? "false" : undefined;
  },
  read: (text) => String(text === "t" || text === "true"),
  bytes: "boolean",
};

/** Bytes as base64 text (RFC 4648, section 4). */
const bytes: Codec = {
  write(value) {
    const decoded = decodeBase64(value);
    return decoded === undefined ? undefined : `\\x${decoded.toString("hex")}`;
  },
  read: (text) => JSON.stringify(Buffer.from(text.slice("\\x".length), "hex").toString("base64")),
};

/** JSON as JSON, without white space between its tokens. */
const documents: Codec = {
  write: cellText,
  read: withoutSpace,
};

function writeNumber(value: PresentValue): string | undefined {
  return typeof value === "string" && notNumbers.has(value) ? value : numberText(value);
}

function readNumber(text: string): string {
  return notNumbers.has(text) ? JSON.stringify(text) : text;
}

const day = String.raw`\d{4,6}-\d\d-\d\d`;
const clock = String.raw`\d\d:\d\d(:\d\d(\.\d{1,6})?)?`;
const zone = String.raw`(Z|[+-]\d\d(:?\d\d)?)`;

/** `2026-01-02`, the days before year 1 with ` BC` after them, and the ends of time. */
const dates = stringsLike(new RegExp(`^(${day}( BC)?|-?infinity)$`));

/** `03:04:05` with up to six places of a second. */
const times = stringsLike(new RegExp(`^${clock}$`));

/**
 * Instants, written in UTC (ISO 8601): `2026-01-02T03:04:05Z`. They are taken with any offset;
 * without one they are in UTC.
 */
const instants: Codec = {
  write: stringsLike(new RegExp(`^(${day}([T ]${clock}${zone}?)?( BC)?|-?infinity)$`)).write,
  read: (text) => strings.read(text.replace(" ", "T").replace(/\+00(?::00)?(?= BC$|$)/, "Z")),
  bytes: "instant",
};

/** Dates with a time of day that belong to no zone: `2026-01-02T03:04:05`; an offset is refused. */
const localTimes: Codec = {
  write: stringsLike(new RegExp(`^(${day}([T ]${clock})?( BC)?|-?infinity)$`)).write,
  read: (text) => strings.read(text.replace(" ", "T")),
  bytes: "local",
};

/** Arrays, of any depth, of what `element` takes; null stands for no element. */
function arraysOf(element: Codec): Codec {
  return {
    write: (value) => (Array.isArray(value) ? writeArray(element, value) : undefined),
    read: (text) => readArray(element, text),
  };
}

function writeArray(element: Codec, values: readonly CellValue[]): string | undefined {
  const parts: string[] = [];
  for (const value of values) {
    const part = writeElement(element, value);
    if (part === undefined) return undefined;
    parts.push(part);
  }
  return `{${parts.join(",")}}`;
}

function writeElement(element: Codec, value: CellValue): string | undefined {
  if (value === null) return "NULL";
  if (Array.isArray(value)) return writeArray(element, value);
  const text = element.write(value);
  return text === undefined ? undefined : `"${text.replace(/["\\]/g, "\\$&")}"`;
}

/** A quoted element, a bare one, or a sign of the structure. */
const token = /"((?:[^"\\]|\\.)*)"|[^{},"]+|[{},]/gs;

/** Reads `{1,NULL,"a b"}`, which bounds may stand before: `[0:2]={...}`. */
function readArray(element: Codec, text: string): string {
  const start = text.startsWith("[") ? text.indexOf("=") + 1 : 0;
  let json = "";
  for (const [sign, quoted] of text.slice(start).matchAll(token)) {
    if (quoted !== undefined) json += element.read(quoted.replace(/\\(.)/gs, "$1"));
    else if (sign === "{") json += "[";
    else if (sign === "}") json += "]";
    else if (sign === ",") json += ",";
    else json += sign === "NULL" ? "null" : element.read(sign);
  }
  return json;
}

/** How the values of a column are stored, compared and written. */
export interface PostgresKind extends ColumnKind {
  store(value: PresentValue): Fragment | undefined;
  compare(value: PresentValue): Fragment | undefined;
  /** JSON text of a value other than null, from PostgreSQL's own text. */
  encode(text: string): string;
  /** True for a type, by its number, whose text is read in the same way. */
  isWrittenAs(type: number): boolean;
  /** The same out of the bytes of that text, where there is such a way. */
  readonly bytes?: ByteForm | undefined;
}

/** What the catalog says about the type of a column. */
export interface TypeDescription {
  /** The number of the type; of a domain, that of the type below it. */
  readonly id: number;
  /** The number of the type of an array's elements; 0 for what is no array. */
  readonly elementId: number;
  /** The type's name as SQL, without the length or precision of the column. */
  readonly sqlName: string;
  /** The labels of an enum. */
  readonly labels?: readonly string[] | undefined;
  /** How many places after the point a decimal column keeps; undefined for any number. */
  readonly scale: number | undefined;
}

const UUID = 2950;

/** The numbers of PostgreSQL's own types, which servers of its protocol share. */
const codecs: ReadonlyMap<number, Codec> = new Map([
  [16, booleans],
  [17, bytes],
  [20, integers],
  [21, integers],
  [23, integers],
  [26, integers],
  [114, documents],
  [700, doubles],
  [701, doubles],
  [1082, dates],
  [1083, times],
  [1114, localTimes],
  [1184, instants],
  [1700, decimals],
  [UUID, stringsLike(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i)],
  [3802, documents],
]);

const moments: ReadonlySet<Codec> = new Set([dates, times, localTimes, instants]);

/** `text`, `varchar`, `char` and `name`, which are compared with a pattern as they are. */
const textTypes = new Set([19, 25, 1042, 1043]);

/** The kind of a column. A type that is not known here travels as PostgreSQL's own text. */
export function kindOf(type: TypeDescription): PostgresKind {
  const codec = codecOf(type);
  const sqlType = sql.raw(type.sqlName);
  const plain = (value: PresentValue): Fragment | undefined => castOf(codec.write(value), sqlType);
  const measure = measureOf(codec, type);
  const { read: encode, bytes } = codec;
  const isWrittenAs = (id: number) =>
    id === type.id || codecs.get(id) === codec || (codec === strings && !codecs.has(id));
  const values = { store: plain, compare: plain, encode, bytes, isWrittenAs };
  const kind: PostgresKind = { ...values, like, measure };
  const { labels } = type;
  if (labels !== undefined) {
    const ofLabel = (value: PresentValue) =>
      labels.some((label) => label === value) ? plain(value) : undefined;
    return { ...kind, labels, store: ofLabel, compare: ofLabel, exact: exactOther };
  }
  if (textTypes.has(type.id)) return { ...kind, like: likeText, exact: exactText };
  if (codec === integers) return { ...kind, sum, compare: (value) => compareInteger(plain, value) };
  if (codec === doubles) return { ...kind, sum };
  if (codec === documents) return comparedAsBinary(kind, codec);
  if (codec === decimals)
    return { ...kind, sum, store: (value) => storeDecimal(type, plain, value) };
  return codec === strings ? { ...kind, exact: exactOther } : kind;
}

const bytesOf = (text: unknown): Fragment => sql`cast(${text} as text) collate "C"`;

/** `char(n)` loses the spaces at the end of what it is compared with; the value itself keeps them. */
const exactText: ExactComparison = {
  column: bytesOf,
  value: (_compared, value) => bytesOf(value),
};

/** What the type makes of a spelling: case counts to `citext`, and one address is one `inet`. */
const exactOther: ExactComparison = { column: bytesOf, value: bytesOf };

function codecOf({ id, elementId }: TypeDescription): Codec {
  if (elementId !== 0) return arraysOf(codecs.get(elementId) ?? strings);
  return codecs.get(id) ?? strings;
}

/** The name is the server's own, which quotes it where that is needed. */
function castOf(text: string | undefined, type: Fragment): Fragment | undefined {
  return text === undefined ? undefined : sql`cast(${text} as ${type})`;
}

const numeric = sql.raw("numeric");
const jsonb = sql.raw("jsonb");

/** An index serves a comparison with an integer; with another number there is none to serve it. */
function compareInteger(
  plain: (value: PresentValue) => Fragment | undefined,
  value: PresentValue,
): Fragment | undefined {
  const integer = plain(value);
  if (integer !== undefined) return integer;
  return castOf(numberText(value), numeric);
}

/** Only the binary form of JSON can be compared. */
function comparedAsBinary(kind: PostgresKind, codec: Codec): PostgresKind {
  return {
    ...kind,
    compare: (value) => castOf(codec.write(value), jsonb),
    compared: (column) => sql`cast(${column} as jsonb)`,
  };
}

/** PostgreSQL would round what has more places than the column. */
function storeDecimal(
  { scale }: TypeDescription,
  plain: (value: PresentValue) => Fragment | undefined,
  value: PresentValue,
): Fragment | undefined {
  if (scale !== undefined && placesOf(decimals.write(value) ?? "") > scale) return undefined;
  return plain(value);
}

function like(column: Fragment, pattern: string, foldsCase: boolean): Fragment {
  return likeText(sql`cast(${column} as text)`, pattern, foldsCase);
}

const upperCase = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/** `lower` would fold by the column's collation. */
function likeText(text: Fragment, pattern: string, foldsCase: boolean): Fragment {
  if (!foldsCase) return likeBackslash(text, pattern);
  const folded = sql`pg_catalog.translate(${text}, ${upperCase}, ${upperCase.toLowerCase()})`;
  return likeBackslash(folded, foldCase(pattern));
}

/** What values of a type amount to. PostgreSQL orders UUIDs, and has no smallest one of them. */
function measureOf(codec: Codec, { id }: TypeDescription): Measure | undefined {
  if (codec === integers) return "integer";
  if (codec === decimals) return "decimal";
  if (codec === doubles) return "double";
  if (textTypes.has(id) || id === UUID) return "text";
  return moments.has(codec) ? "moment" : undefined;
}

function sum(column: Fragment, amount: unknown): Fragment {
  return sql`${column} + ${amount}`;
}
