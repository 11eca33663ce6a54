/** Results made of what the database answers. */
import { runAtOnce, runCooperatively } from "../../cooperative-scheduling.ts";
import { keepSpelling } from "../../json/exact-numbers.ts";
import { JsonFault } from "../../json/fault.ts";
import { readMembers, readText } from "../../json/members.ts";
import { listResult, type PageLimits, resultOf, type ToolResult, textBytesOf } from "./result.ts";
import { isRounded, type Rows, rowsIn } from "./rows.ts";
import { databaseFailure, ToolFailure } from "./tool-failure.ts";

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
