import { isUtf8 } from "node:buffer";
import { z } from "zod";
import { runAtOnce, runCooperatively, type Steps } from "../../cooperative-scheduling.ts";
import { keepSpelling } from "../../json/document.ts";
import { JsonFault } from "../../json/fault.ts";
import { readMembers, readText } from "../../json/members.ts";
import { JsonReader } from "../../json/reader.ts";
import type { Level } from "../../query/kind.ts";
import { countIn } from "./tool.ts";
import { databaseFailure, ToolFailure } from "./tool-failure.ts";

/** How a model goes on behind a page of rows. */

/** The arguments of a select that say where its pages end. */
export const pageNames = [
  "limit",
  "offset",
  "after",
  "order_by",
  "columns",
  "distinct",
  "aggregate",
];

/** What a result says beside the rows that it shows, where there are more. */
type GoOn = (shown: readonly Buffer[]) => Promise<Readonly<Record<string, unknown>>>;

const order = z.object({ column: z.string() });
const orders = z.union([order.transform((only) => [only]), z.array(order)]);
const columnNames = z.array(z.string());
const literals = z.array(z.union([z.string(), z.number(), z.boolean(), z.null()]));

/** Digits up to which a double gives a number back as it was written. */
const KEPT_DIGITS = 15;

/** A number that is not the same once a JSON reader has read and written it is none to go on by. */
function keptNumber(_key: string, value: unknown, context?: { readonly source?: string }): unknown {
  const { source = "" } = context ?? {};
  if (typeof value !== "number" || String(value) === source) return value;
  const digits = source.replace(/[eE].*$|[-.]/g, "").replace(/^0+/, "");
  return digits.length <= KEPT_DIGITS ? value : {};
}

function bare(name: string): string {
  return name.slice(name.indexOf(".") + 1);
}

/** True if a column of the answer is the one that is ordered by. */
function isOf(selected: string, ordered: string): boolean {
  if (selected === "*" || selected === ordered) return true;
  const areOfTables = selected.includes(".") && ordered.includes(".");
  return !areOfTables && bare(selected) === bare(ordered);
}

function parsed(value: Buffer | undefined): unknown {
  return value === undefined ? undefined : JSON.parse(value.toString("utf8"));
}

/** The columns that rows are ordered by, if every row of the answer has them. */
function orderedBy(found: ReadonlyMap<string, Buffer>): readonly string[] | undefined {
  const isOfRows = !found.has("aggregate") && found.get("distinct")?.toString() !== "true";
  const order = orders.safeParse(parsed(found.get("order_by")));
  const columns = columnNames.safeParse(parsed(found.get("columns")));
  if (!isOfRows || !order.success || !columns.success) return undefined;
  const names = order.data.map(({ column }) => column);
  const isThere = (name: string) => columns.data.some((column) => isOf(column, name));
  return names.every(isThere) && new Set(names).size === names.length ? names : undefined;
}

/** The values of the row by which the next page goes on behind it. */
function cursorAt(row: Buffer, names: readonly string[]): unknown[] | undefined {
  const read: unknown = JSON.parse(row.toString("utf8"), keptNumber);
  const values = new Map(Object.entries(typeof read === "object" && read !== null ? read : {}));
  const cursor = names.map((name) =>
    values.has(name) ? values.get(name) : values.get(bare(name)),
  );
  return literals.safeParse(cursor).success ? cursor : undefined;
}

/**
 * Goes on behind the rows that are shown: by the values of `order_by` in the last one, and by an
 * offset where the call itself did not go on by such values.
 *
 * @param found the `pageNames` among the arguments of a select that was carried out
 * @param isUnique whether no two rows are equal in these columns; asked once, for the first page
 */
export function goOnBehind(
  found: ReadonlyMap<string, Buffer>,
  level: Level,
  isUnique: (order: readonly string[]) => Promise<boolean>,
): GoOn {
  const names = level === "full" ? orderedBy(found) : undefined;
  let isTaken: Promise<boolean> | undefined;
  return async (shown) => {
    const last = shown.at(-1);
    let after = names === undefined || last === undefined ? undefined : cursorAt(last, names);
    if (names !== undefined && after !== undefined) {
      isTaken ??= found.has("after") ? Promise.resolve(true) : isUnique(names);
      if (!(await isTaken)) after = undefined;
    }
    const offset = countIn(found.get("offset")) ?? 0;
    return {
      ...(after === undefined ? {} : { next_after: after }),
      ...(found.has("after") ? {} : { next_offset: offset + shown.length }),
    };
  };
}

/** Rows of an answer, as JSON text without line breaks. */
interface Rows {
  readonly rows: readonly Buffer[];
  /** True if the answer goes on behind these. */
  readonly isCut: boolean;
}

/** Bytes that are read between two chances to interrupt. */
const BYTES_PER_STEP = 32 * 1024;
/** Digits up to which every whole number is one that a double holds. */
const SAFE_DIGITS = 15;
const letterE = 0x65;
const lineFeed = 0x0a;
const carriageReturn = 0x0d;
const space = 0x20;
const quote = Buffer.from('"');

/** True if JSON readers may round the number, or take it for infinite. */
function isRounded(number: string): boolean {
  const value = Number(number);
  return /^-?\d+$/.test(number) ? !Number.isSafeInteger(value) : !Number.isFinite(value);
}

/** Reads JSON and notes the numbers that other readers may take for others. */
class NumberReader extends JsonReader {
  /** Byte offsets of the first digit and of what follows the last one, in turn. */
  rounded: number[] = [];

  override skipNumber(): void {
    const start = this.position;
    super.skipNumber();
    const end = this.position;
    // A short one can only be infinite, by its exponent.
    if (end - start <= SAFE_DIGITS && !this.#hasExponent(start, end)) return;
    if (isRounded(this.bytes.toString("latin1", start, end))) this.rounded.push(start, end);
  }

  #hasExponent(start: number, end: number): boolean {
    for (let at = start; at < end; at++) {
      if (((this.bytes[at] ?? 0) | 0x20) === letterE) return true;
    }
    return false;
  }
}

/** The row's bytes, with the numbers at these offsets as strings of their digits. */
function rowAt(bytes: Buffer, start: number, end: number, rounded: readonly number[]): Buffer {
  if (rounded.length === 0) return bytes.subarray(start, end);
  const pieces: Buffer[] = [];
  let from = start;
  for (const place of rounded) {
    pieces.push(bytes.subarray(from, place), quote);
    from = place;
  }
  return Buffer.concat([...pieces, bytes.subarray(from, end)]);
}

/** Line breaks of JSON stand between its tokens alone; in an event stream they would end a line. */
function eraseLineBreaks(row: Buffer): void {
  if (!row.includes(lineFeed) && !row.includes(carriageReturn)) return;
  for (let at = 0; at < row.length; at++) {
    if (row[at] === lineFeed || row[at] === carriageReturn) row[at] = space;
  }
}

function* readDataRows(reader: NumberReader, rows: Buffer[]): Steps<void> {
  for (let more = reader.openArray(); more; more = reader.nextElement()) {
    reader.expect("an object");
    const start = reader.position;
    reader.rounded = [];
    const rest = reader.skipValue() ?? reader.pause();
    if (rest !== undefined) yield* rest;
    const row = rowAt(reader.bytes, start, reader.position, reader.rounded);
    eraseLineBreaks(row);
    rows.push(row);
  }
}

function* readData(reader: NumberReader, rows: Buffer[]): Steps<boolean> {
  let isThere = false;
  reader.skipSpace();
  for (let more = reader.openObject(); more; more = reader.nextMember()) {
    const isData = reader.readKey().toString() === "data";
    const rest = isData ? readDataRows(reader, rows) : reader.skipValue();
    if (rest !== undefined) yield* rest;
    isThere ||= isData;
  }
  return isThere;
}

/**
 * The rows of an answer. A whole number beyond 2^53 - 1 becomes a string of its digits.
 *
 * @param bytes nobody else's: line breaks in them are erased
 * @param isCut true if the answer went on behind these bytes
 * @returns undefined if it is none with rows, or one that not every JSON reader would take
 */
function* rowsIn(bytes: Buffer, isCut: boolean): Steps<Rows | undefined> {
  const reader = new NumberReader(bytes);
  reader.pauseEvery(BYTES_PER_STEP);
  const rows: Buffer[] = [];
  try {
    const isThere = yield* readData(reader, rows);
    return isThere && isUtf8(bytes) ? { rows, isCut } : undefined;
  } catch (error) {
    if (!(error instanceof JsonFault)) throw error;
    return isCut && rows.every(isUtf8) ? { rows, isCut } : undefined;
  }
}

/** What a tool has done, written as it goes out. */
export interface ToolResult {
  /** For clients that show a model the text alone: JSON, as much of it as is short. */
  readonly text: string;
  /** The structured content: one JSON object. */
  readonly structured: Buffer;
}

/** A result that is no page of a list. @param replace as `JSON.stringify` takes it */
export function resultOf(
  content: Readonly<Record<string, unknown>>,
  replace?: (key: string, value: unknown) => unknown,
): ToolResult {
  const text = JSON.stringify(content, replace);
  return { text, structured: Buffer.from(text) };
}

/** How much of a list a result holds. */
interface PageLimits {
  /** Elements. */
  readonly most: number;
  /** Bytes of the whole result. */
  readonly bytes: number;
  /** How to go on; absent if there is no going on. */
  readonly goOn?: GoOn;
  /** What the result says besides. */
  readonly more?: object;
}

/** Bytes of the text at most, of which a model reads every one. */
const LONGEST_TEXT = 16 * 1024;
/** Bytes of the text of a result that has so many at most. */
function textBytesOf(bytes: number): number {
  return Math.min(LONGEST_TEXT, Math.floor(bytes / 8));
}

/** Bytes for all of a result that is neither its text nor its elements. */
const ENVELOPE = 1024;

const comma = Buffer.from(",");

/** How many of the elements, each with a comma, fit. */
function countFitting(elements: readonly Buffer[], bytes: number): number {
  let left = bytes;
  const past = elements.findIndex((element) => {
    left -= element.length + 1;
    return left < 0;
  });
  return past < 0 ? elements.length : past;
}

/** An object that has the elements under `key`, and says whether there are more and how to go on. */
async function pageOf(
  key: string,
  elements: readonly Buffer[],
  isTruncated: boolean,
  { goOn, more }: PageLimits,
): Promise<Buffer> {
  const next = isTruncated ? await goOn?.(elements) : {};
  const rest = JSON.stringify({ truncated: isTruncated, ...next, ...more }).slice(1);
  const separated = elements.flatMap((element, at) => (at === 0 ? element : [comma, element]));
  const start = Buffer.from(`{${JSON.stringify(key)}:[`);
  return Buffer.concat([start, ...separated, Buffer.from(`],${rest}`)]);
}

/** Where not even one element fits into the text. */
function textWithout(key: string): string {
  return `The ${key} are in the structured content; to have them as text, ask for fewer columns.`;
}

/**
 * A list as a result: as many elements as fit, and how to go on. The text has the first of them
 * too, in the same form, so that a model that sees nothing else goes on from there.
 *
 * @throws ToolFailure if not even one fits
 */
export async function listResult(
  key: string,
  { rows, isCut }: Rows,
  limits: PageLimits,
): Promise<ToolResult> {
  const { most, bytes } = limits;
  const textBytes = textBytesOf(bytes);
  const listed = rows.slice(0, most);
  // In the text, every quote takes an escape.
  const shown = listed.slice(0, countFitting(listed, bytes - 2 * textBytes - ENVELOPE));
  if (shown.length === 0 && (listed.length > 0 || (isCut && most > 0))) {
    const mend = "ask for fewer columns";
    throw new ToolFailure(
      `Failed: one of the ${key} alone is larger than a result may be, which is ${bytes} bytes: ${mend} (result_too_large)`,
    );
  }
  const isTruncated = isCut || shown.length < rows.length;
  const read = shown.slice(0, countFitting(shown, textBytes));
  const text =
    read.length === 0 && shown.length > 0
      ? textWithout(key)
      : (await pageOf(key, read, isTruncated || read.length < shown.length, limits)).toString();
  return { text, structured: await pageOf(key, shown, isTruncated, limits) };
}

/** Results made of what the database answers. */

/** What the database answers to a query. */
export interface QueryAnswer {
  readonly status: number;
  readonly body: Buffer;
  /** True if the answer goes on behind the body. */
  readonly isCut: boolean;
  /** The conditions of row filters that were added to the query, as JSON. */
  readonly filters?: readonly string[];
}

/** Characters of the filters that a result tells at most. */
const LONGEST_FILTERS = 300;

/** For the model: to which rows the caller's row filters have limited the answer. */
function narrowedIn({ filters = [] }: QueryAnswer): { readonly narrowed?: string } {
  if (filters.length === 0) return {};
  const words = filters.map((filter) => {
    const { column, cmp, value } = parsedObject(Buffer.from(filter));
    return `${column} ${cmp} ${Array.isArray(value) ? `(${value.join(", ")})` : value}`;
  });
  const text = [...new Set(words)].join(" and ");
  const isLong = text.length > LONGEST_FILTERS;
  return { narrowed: `only rows where ${isLong ? `${text.slice(0, LONGEST_FILTERS)}...` : text}` };
}

/** Bytes of an answer that says what was done, or why not. */
const LONGEST_MESSAGE = 16 * 1024;

function messageIn(body: Buffer): { message?: string | undefined; code?: string | undefined } {
  if (body.length > LONGEST_MESSAGE) return {};
  try {
    const members = runAtOnce(readMembers(body));
    return { message: readText(members.get("message")), code: readText(members.get("code")) };
  } catch (error) {
    if (error instanceof JsonFault) return {};
    throw error;
  }
}

function requireSuccess({ status, body }: QueryAnswer): void {
  if (status >= 200 && status < 300) return;
  const { message = "The database gave no reason", code = `status ${status}` } = messageIn(body);
  throw databaseFailure(status, message, code);
}

async function readRows(answer: QueryAnswer): Promise<Rows> {
  requireSuccess(answer);
  const rows = await runCooperatively(rowsIn(answer.body, answer.isCut));
  if (rows !== undefined) return rows;
  throw withoutRows();
}

function withoutRows(): ToolFailure {
  return new ToolFailure("Failed: the database answered without rows that can be passed on");
}

/** The rows of an answer, as far as they fit. @throws ToolFailure */
export async function rowsOf(
  answer: QueryAnswer,
  limits: PageLimits & { readonly isCapped: boolean },
): Promise<ToolResult> {
  const { rows, isCut } = await readRows(answer);
  const mayBeMore = limits.isCapped && rows.length === limits.most;
  const more = narrowedIn(answer);
  return listResult("rows", { rows, isCut: isCut || mayBeMore }, { ...limits, more });
}

/** The number that an answer of one row has under a name. @throws ToolFailure */
export async function countResult(answer: QueryAnswer, name: string): Promise<ToolResult> {
  const { rows } = await readRows(answer);
  const count = rows[0] && parsedObject(rows[0])[name];
  if (typeof count !== "number") throw withoutRows();
  return resultOf({ count, ...narrowedIn(answer) });
}

/** Rows of an answer to a change by the names that a result has for them. */
const rowNames = { data: "rows", before: "before", after: "after" } as const;

/** As in rows of a select: an integer beyond 2^53 - 1 becomes a string, a decimal keeps its digits. */
function keepDigits(key: string, value: unknown, context?: { readonly source?: string }): unknown {
  const { source = "" } = context ?? {};
  return typeof value === "number" && isRounded(source)
    ? source
    : keepSpelling(key, value, context);
}

function parsedObject(body: Buffer): Readonly<Record<string, unknown>> {
  try {
    const parsed: unknown = JSON.parse(body.toString("utf8"), keepDigits);
    return typeof parsed === "object" && parsed !== null ? { ...parsed } : {};
  } catch {
    return {};
  }
}

/** Lists that a result has beside what it says. */
type Lists = Readonly<Record<string, readonly unknown[]>>;

/** As many of the elements as so many bytes hold. */
function fitting(elements: readonly unknown[], bytes: number): readonly unknown[] {
  let left = bytes;
  const past = elements.findIndex((element) => {
    left -= Buffer.byteLength(JSON.stringify(element)) + 1;
    return left < 0;
  });
  return past < 0 ? elements : elements.slice(0, past);
}

/** A result with all of its lists, of which the text has what is short. */
function resultWith(said: object, lists: Lists, bytes: number): ToolResult {
  const whole = resultOf({ ...said, ...lists });
  const textBytes = textBytesOf(bytes);
  if (whole.text.length <= textBytes) return whole;
  const share = textBytes / Object.keys(lists).length;
  const short = Object.entries(lists).map(([name, list]) => [name, fitting(list, share)] as const);
  const { text } = resultOf({ ...said, ...Object.fromEntries(short), truncated: true });
  return { ...whole, text };
}

/** What the beginning of an answer says was done; its rows come behind. */
const beginning = /^\s*\{"status":"success",(?:"message":("(?:[^"\\]|\\.)*"),)?"affected":(\d+),/;

/** What was done, of an answer that is too large for its rows to be shown. */
function cutResult(answer: QueryAnswer, done: string): ToolResult {
  const [, message = JSON.stringify(done), affected] =
    beginning.exec(answer.body.toString("utf8", 0, 512)) ?? [];
  return resultOf({
    message: `${JSON.parse(message)}; the rows are too large to be shown`,
    ...(affected === undefined ? {} : { affected: Number(affected) }),
    truncated: true,
    ...narrowedIn(answer),
  });
}

/**
 * What an answer says was done, and the rows that it shows.
 *
 * @param done what was done, where the answer does not say it
 * @throws ToolFailure
 */
export function changeOf(answer: QueryAnswer, bytes: number, done: string): ToolResult {
  requireSuccess(answer);
  const { body, isCut } = answer;
  if (isCut) return cutResult(answer, done);
  const found = parsedObject(body);
  const { message, affected } = found;
  const lists = Object.entries(rowNames).flatMap(([key, name]) => {
    const rows: unknown = found[key];
    return Array.isArray(rows) ? [[name, rows] as const] : [];
  });
  const shown = Math.max(...lists.map(([, rows]) => rows.length));
  const isMore = typeof affected === "number" && lists.length > 0 && affected > shown;
  const said = {
    ...(typeof message === "string" ? { message } : lists.length === 0 ? { message: done } : {}),
    ...(typeof affected === "number" ? { affected } : {}),
    ...(isMore ? { truncated: true } : {}),
    ...narrowedIn(answer),
  };
  return resultWith(said, Object.fromEntries(lists), bytes);
}

/** What each operation of a Batch has answered. @throws ToolFailure */
export function batchResult(
  answer: QueryAnswer,
  { most, bytes }: { readonly most: number; readonly bytes: number },
): ToolResult {
  requireSuccess(answer);
  if (answer.isCut) return cutResult(answer, "Done");
  const { data } = parsedObject(answer.body);
  const elements: readonly unknown[] = Array.isArray(data) ? data : [];
  const isLong = (element: unknown) => Array.isArray(element) && element.length > most;
  const results = elements.map((element) =>
    Array.isArray(element) ? element.slice(0, most) : element,
  );
  const said = { ...(elements.some(isLong) ? { truncated: true } : {}), ...narrowedIn(answer) };
  return resultWith(said, { results }, bytes);
}
