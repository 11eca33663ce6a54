import { runAtOnce, type Steps } from "../../core/base/cooperative-scheduling.ts";
import { ExactNumber, isInteger, isLong, keptSource, parseExact } from "../../core/json/exact.ts";
import type { CellValue } from "../../core/query/tree.ts";
import { decimalText } from "../../core/query/values.ts";
import { EngineRefusal, type RefusalCode, RowTooLong } from "../refusal.ts";
import type { RowFormat, RowOutput } from "../spool.ts";
import type { ResultRow } from "./fragment.ts";
import type {
  Column,
  ColumnKind,
  ColumnReference,
  Encoded,
  Family,
  Measure,
  PresentValue,
} from "./scope.ts";

type RowLayout = ReturnType<typeof planLayout>;

/**
 * Builds the layout of these columns. Keys are column names; if two columns share a name, both keys
 * become `table.column`.
 */
function planLayout(columns: readonly ColumnReference[], format: RowFormat) {
  const keys = rowKeys(columns);
  if (format === "csv") {
    return {
      head: `${keys.map(csvText).join(",")}\r\n`,
      separator: "",
      prefixes: keys.map((_, index) => (index === 0 ? "" : ",")),
      end: "\r\n",
      tail: "",
      // In place of null.
      absent: "",
      cell: csvCell,
    };
  }
  const prefixes = keys.map((key, index) => `${index === 0 ? "{" : ","}${JSON.stringify(key)}:`);
  const values = { prefixes, absent: "null", cell: (json: string) => json };
  return format === "json"
    ? { ...values, head: "[", separator: ",", end: "}", tail: "]" }
    : { ...values, head: "", separator: "", end: "}\n", tail: "" };
}

export function rowKeys(columns: readonly ColumnReference[]): string[] {
  const counts = new Map<string, number>();
  for (const { column } of columns) counts.set(column.name, (counts.get(column.name) ?? 0) + 1);
  return columns.map(({ table, column }) =>
    (counts.get(column.name) ?? 0) > 1 ? `${table.name}.${column.name}` : column.name,
  );
}

export function createRowEncoder<Raw>(
  columns: readonly ColumnReference<Column<Encoded<Raw>>>[],
  { prefixes, absent, cell, end }: RowLayout = planLayout(columns, "json"),
): (row: ResultRow<Raw>, more?: string) => string {
  const members = columns.map(({ column }, index) => ({
    index,
    prefix: prefixes[index] ?? "",
    kind: column.kind,
  }));
  return (row, more = "") => {
    let text = "";
    try {
      for (const { index, prefix, kind } of members) {
        const value = row[index] ?? null;
        text += prefix + (value === null ? absent : cell(kind.encode(value)));
      }
      return text + more + end;
    } catch (error) {
      throw isTooLong(error) ? new RowTooLong(error) : error;
    }
  };
}

/** Of strings and their encodings. */
function isTooLong(error: unknown): boolean {
  const isOfString =
    error instanceof Error && "code" in error && error.code === "ERR_STRING_TOO_LONG";
  return isOfString || (error instanceof RangeError && error.message === "Invalid string length");
}

export class RowWriter<Raw> {
  readonly #layout: RowLayout;
  readonly #encode: ReturnType<typeof createRowEncoder<Raw>>;
  readonly #output: RowOutput;
  count = 0;

  constructor(columns: readonly ColumnReference<Column<Encoded<Raw>>>[], output: RowOutput) {
    this.#layout = planLayout(columns, output.format);
    this.#encode = createRowEncoder(columns, this.#layout);
    this.#output = output;
  }

  /** @param more further members of the row's object */
  write(row: ResultRow<Raw>, more?: string): void {
    // Nothing is written before the first row, so that earlier failures are still answered as
    // errors.
    const { head, separator } = this.#layout;
    this.#output.write((this.count === 0 ? head : separator) + this.#encode(row, more));
    this.count += 1;
    this.#output.countRows(1);
  }

  end(): void {
    const { head, tail } = this.#layout;
    this.#output.write((this.count === 0 ? head : "") + tail);
    // So that an empty answer has a count.
    this.#output.countRows(0);
  }
}

/**
 * A CSV cell (RFC 4180) for a value's JSON text: the content of a string, anything else unchanged.
 * Null is an empty cell; the empty text is quoted to tell them apart.
 */
function csvCell(json: string): string {
  if (json === "null") return "";
  if (!json.startsWith('"'))
    return json.startsWith("[") || json.startsWith("{") ? csvText(json) : json;
  if (json.includes("\\")) return csvText(JSON.parse(json));
  // Without escapes, the quoted text is a cell already. Most need no quotes.
  return json.length === 2 || json.includes(",") ? json : json.slice(1, -1);
}

function csvText(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Texts of long cells, which were written in steps. */
const longTexts = new WeakMap<object, string>();

/** JSON text without white space, with exact numbers. */
export function cellText(value: CellValue): string {
  const known = isLong(value) ? longTexts.get(value) : undefined;
  if (known !== undefined) return known;
  if (typeof value === "bigint") return value.toString();
  if (value instanceof ExactNumber) return value.source;
  if (Array.isArray(value)) return `[${value.map(cellText).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const source = keptSource(value);
    if (source !== undefined) return withoutSpace(source);
    const members = Object.entries(value).map(
      ([key, member]) => `${JSON.stringify(key)}:${cellText(member)}`,
    );
    return `{${members.join(",")}}`;
  }
  return JSON.stringify(value);
}

/** Writes the long cells of an operation, or of a part of one, for `cellText`. */
export function* writeLongCells(part: object): Steps<void> {
  for (const [key, member] of Object.entries(part)) {
    if (!isLong(member)) continue;
    if (key === "value") yield* writeLong(member);
    else if (key === "set") yield* writeLongCellsOf(member);
    else if (key !== "values") yield* writeLongCells(member);
    else yield* visitLong(Object.values(member), writeLongCellsOf);
  }
}

function writeLongCellsOf(row: object): Steps<void> {
  return visitLong(Object.values(row), writeLong);
}

function* visitLong(
  values: readonly unknown[],
  visit: (value: object) => Steps<void>,
): Steps<void> {
  for (const [at, value] of values.entries()) {
    if (at % VALUES_PER_STEP === 0) yield;
    if (isLong(value)) yield* visit(value);
  }
}

const VALUES_PER_STEP = 1024;

function* writeLong(cell: object): Steps<void> {
  const source = keptSource(cell);
  if (source !== undefined) {
    longTexts.set(cell, yield* withoutSpaceInSteps(source));
    return;
  }
  const isList = Array.isArray(cell);
  const keys = isList ? undefined : Object.keys(cell);
  const values = isList ? cell : Object.values(cell);
  let text = "";
  for (let start = 0; start < values.length; start += VALUES_PER_STEP) {
    const end = Math.min(start + VALUES_PER_STEP, values.length);
    const members: string[] = [];
    for (let at = start; at < end; at++) {
      const value = values[at];
      if (isLong(value)) yield* writeLong(value);
      const name = keys === undefined ? "" : `${JSON.stringify(keys[at])}:`;
      members.push(name + cellText(value));
    }
    // Joined at once, since a string of a million pieces takes long to be put together.
    text += `${start === 0 ? "" : ","}${members.join()}`;
    yield;
  }
  longTexts.set(cell, isList ? `[${text}]` : `{${text}}`);
}

export function withoutSpace(json: string): string {
  // The expression exceeds the stack at strings of a few million characters.
  return json.length < LONG_TEXT
    ? json.replace(/("(?:[^"\\]|\\.)*")|\s+/g, "$1")
    : runAtOnce(withoutSpaceInSteps(json));
}

const LONG_TEXT = 256 * 1024;

function* withoutSpaceInSteps(json: string): Steps<string> {
  let isInString = false;
  const replaced = (match: string): string => {
    if (match === '"') isInString = !isInString;
    else if (!isInString) return "";
    return match;
  };
  let text = "";
  for (const [part] of json.matchAll(/(?:[^\\]|\\.){1,16384}/g)) {
    text += part.replace(/"|\\.|\s+/g, replaced);
    yield;
  }
  return text;
}

const SMALLEST_INTEGER = -(2n ** 63n);
const LARGEST_INTEGER = 2n ** 63n - 1n;

export function toInteger(value: PresentValue): bigint | undefined {
  if (typeof value === "number") return Number.isSafeInteger(value) ? BigInt(value) : undefined;
  if (value instanceof ExactNumber) return wholeNumber(value.source);
  if (typeof value !== "bigint") return undefined;
  return has64Bits(value) ? value : undefined;
}

export function has64Bits(integer: bigint): boolean {
  return integer >= SMALLEST_INTEGER && integer <= LARGEST_INTEGER;
}

/** The integer, or the beginning of one that 64 bits cannot hold: reading megabytes takes seconds. */
export function beginningOf(integer: string): bigint {
  return BigInt(integer.slice(0, MAX_INTEGER_LENGTH + 2));
}

function exceeds64Bits(value: PresentValue): boolean {
  const text = numberText(value);
  return text !== undefined && isInteger(text) && !has64Bits(beginningOf(text));
}

export function numberText(value: PresentValue): string | undefined {
  if (typeof value === "number" || typeof value === "bigint") return String(value);
  return value instanceof ExactNumber ? value.source : undefined;
}

/** Decimal places that a number needs; negative for one that ends in zeros. */
export function decimalPlaces(number: string): number {
  const [, whole = "", digits = "", exponent = "0"] =
    /^-?(\d*)\.?(\d*)(?:e([+-]?\d+))?$/i.exec(number) ?? [];
  const fraction = withoutEndingZeros(digits);
  const zeros = fraction === "" ? whole.length - withoutEndingZeros(whole).length : 0;
  if (zeros === whole.length && fraction === "") return Number.NEGATIVE_INFINITY;
  return fraction.length - zeros - Number(exponent);
}

export function isRoundedInteger(value: PresentValue): boolean {
  if (typeof value === "bigint") return isRounded(value.toString());
  return value instanceof ExactNumber && isInteger(value.source) && isRounded(value.source);
}

/** A whole number written like `1e3` or `1.0`, with few enough digits to be exact. */
function wholeNumber(source: string): bigint | undefined {
  const value = Number(source);
  const digits = source.replace(/e.*$/i, "").replace(/\D/g, "");
  const isExact = Number.isSafeInteger(value) && digits.length <= 15;
  return isExact && !isLost(source, value) ? BigInt(value) : undefined;
}

/** True if a number became infinity, or a zero that it is not, when it was stored as a float. */
export function isLost(number: string, stored: number): boolean {
  return !Number.isFinite(stored) || (stored === 0 && /[1-9]/.test(number.replace(/e.*$/i, "")));
}

/** The longest integers that a double can hold have 309 digits. */
function isRounded(digits: string): boolean {
  const double = Number(digits);
  if (String(double) === digits) return false;
  return digits.length > 310 || !Number.isFinite(double) || BigInt(double) !== BigInt(digits);
}

/** In linear time, by the lookbehind. */
export function withoutEndingZeros(digits: string): string {
  return digits.replace(/(?<!0)0+$/, "");
}

export function trimTrailingZeros(digits: string): string {
  return digits.includes(".") ? withoutEndingZeros(digits).replace(/\.$/, "") : digits;
}

/** False for a date such as `2026-02-30`, which `Date` takes for a day of March. */
export function isDay(date: string): boolean {
  return new Date(date).getUTCDate() === Number(date.slice(-2));
}

/** RFC 4648, section 4, with padding. */
export function decodeBase64(value: PresentValue): Buffer | undefined {
  if (typeof value !== "string") return undefined;
  const decoded = Buffer.from(value, "base64");
  return decoded.toString("base64") === value ? decoded : undefined;
}

export const WHOLE_NUMBER = "a whole number of 64 bits";
const A_NUMBER = "a number";

/** Allowed values by declared type, for messages. */
const forms: readonly (readonly [type: RegExp, form: string])[] = [
  [/^(?:enum|set)\(/, "one of its labels"],
  [/\[\]$/, "an array"],
  [/^(?:tinyint\(1\)|bool)/, "true or false"],
  [/^(?:(?:tiny|small|medium|big)?int|(?:big|small)?serial)/, WHOLE_NUMBER],
  [/^year/, "0 or a year from 1901 to 2155"],
  [/^(?:float|double|real|numeric|decimal)/, A_NUMBER],
  [/^date$/, "text such as 2026-01-31"],
  [/^(?:timestamp|datetime)/, "text such as 2026-01-31T13:45:00 with at most 6 digits of a second"],
  [/^time/, "text such as 13:45:00 with at most 6 digits of a second"],
  [/^uuid/, "text such as 5f3d3a1c-7a43-4f57-9a3c-0b9c3bd18f3f"],
  [/^json/, "any JSON"],
  [/^bytea|^bytes|blob|binary/, "bytes as base64 text"],
  [/^"char"/, "one character of ASCII"],
  [/^name$/, "text of at most 63 bytes"],
  [/char|text|^string/, "text"],
];

function formOf(type: string): string | undefined {
  const folded = type.toLowerCase();
  return forms.find(([of]) => of.test(folded))?.[1];
}

export function allowedForm(type: string): string {
  const form = formOf(type);
  return form === undefined ? "" : `; allowed: ${form}`;
}

const MAX_LABELS = 30;

function kindLabels({ kind: { labels } }: { readonly kind: Pick<ColumnKind, "labels"> }) {
  if (labels === undefined) return undefined;
  const more = labels.length > MAX_LABELS ? ", ..." : "";
  return `; allowed: ${labels.slice(0, MAX_LABELS).join(", ")}${more}`;
}

const MAX_INTEGER_LENGTH = 20;

/**
 * Reads a string of digits as an integer beyond 2^53 - 1, if the column takes no strings. Clients
 * whose numbers are doubles write them so.
 */
function integerFromDigits<Taken>(
  value: PresentValue,
  take: (number: PresentValue) => Taken | undefined,
): Taken | undefined {
  if (typeof value !== "string" || value.length > MAX_INTEGER_LENGTH) return undefined;
  const isRounded = /^-?[1-9]\d{15,}$/.test(value) && !Number.isSafeInteger(Number(value));
  return isRounded ? take(BigInt(value)) : undefined;
}

const MAX_DECIMAL_LENGTH = 200;

/** Reads a string such as `12.50` as the number, if the column is a decimal. */
function decimalFromText(
  { family }: Pick<ColumnKind, "family">,
  value: CellValue,
): PresentValue | undefined {
  if (family !== "decimal" || typeof value !== "string") return undefined;
  if (value.length > MAX_DECIMAL_LENGTH || !decimalText.test(value)) return undefined;
  return parseExact(value) ?? undefined;
}

/** How values of a family are aggregated, if dates and times have types of their own. */
export function findMeasure(family: Family | undefined): Measure | undefined {
  switch (family) {
    case "date":
    case "time":
    case "instant":
      return "moment";
    case "boolean":
    case "bytes":
    case "json":
      return undefined;
    default:
      return family;
  }
}

interface Storing<Stored> extends Pick<Column, "name" | "type" | "isComputed"> {
  readonly kind: Pick<ColumnKind, "labels" | "bounds" | "family"> & {
    store(value: PresentValue): Stored | undefined;
  };
}

export function requireSettable({ name, isComputed }: Pick<Column, "name" | "isComputed">): void {
  if (isComputed !== true) return;
  const problem = `Column "${name}" cannot be set, since the database computes it`;
  throw new EngineRefusal("invalid_value", problem);
}

export function storedValue<Stored>(column: Storing<Stored>, given: CellValue): Stored | null {
  requireSettable(column);
  const value = decimalFromText(column.kind, given) ?? given;
  if (value === null) return null;
  const { store, bounds } = column.kind;
  const take = (one: PresentValue) => (bounds?.exceeds(one) === true ? undefined : store(one));
  const stored = take(value) ?? integerFromDigits(value, take);
  if (stored !== undefined) return stored;
  const isTooLarge = formOf(column.type) === WHOLE_NUMBER && exceeds64Bits(value);
  const code = isTooLarge ? "number_out_of_range" : "invalid_value";
  const bounded = bounds && `; allowed: ${bounds.allowed}`;
  // A number that a column of numbers refuses is one that it would round.
  const isInexact = formOf(column.type) === A_NUMBER && numberText(value) !== undefined;
  const form = isInexact ? `${allowedForm(column.type)} that it holds exactly` : undefined;
  throw new EngineRefusal(
    bounds?.exceeds(value) === true ? bounds.code : code,
    `Column "${column.name}" (${column.type}) does not accept ${describe(value)}${kindLabels(column) ?? bounded ?? form ?? allowedForm(column.type)}`,
  );
}

export function comparedValue(column: Column, given: CellValue): unknown {
  const { compare } = column.kind;
  const value = decimalFromText(column.kind, given) ?? given;
  const compared =
    value === null ? undefined : (compare(value) ?? integerFromDigits(value, compare));
  if (compared !== undefined) return compared;
  const form = allowedForm(column.type).replace(WHOLE_NUMBER, A_NUMBER);
  throw new EngineRefusal(
    "invalid_value",
    `Column "${column.name}" (${column.type}) cannot be compared with ${describe(value)} in this way${kindLabels(column) ?? form}`,
  );
}

/**
 * The refusal of a cell by the database itself.
 *
 * @param row its index in `values`; undefined for a cell of `set`
 * @param why words that follow the message
 */
export function cellRefused(
  { name, type }: Pick<Column, "name" | "type">,
  row: number | undefined,
  why: string,
  { code = "invalid_value", cause }: { readonly code?: RefusalCode; readonly cause?: unknown } = {},
): EngineRefusal {
  const problem = `Column "${name}" (${type}) does not accept this value${why}`;
  const refusal = new EngineRefusal(code, problem, { cause });
  return row === undefined ? refusal : refusal.at(`values[${row}]`);
}

function describe(value: PresentValue | null): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "bigint" || value instanceof ExactNumber) return "this number";
  return typeof value === "object" ? "an object" : `this ${typeof value}`;
}
