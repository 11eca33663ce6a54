import {
  type CallToolResult,
  type InputRequiredResult,
  inputRequired,
} from "@modelcontextprotocol/server";
import { z } from "zod";
import { keepSpelling, parseExactly } from "../json/document.ts";
import { batchKey } from "../query/grammar.ts";
import type { Level } from "../query/kind.ts";
import { isOperationName } from "../query/operations.ts";
import { QueryRefused } from "../query/refusal.ts";
import { Refusal } from "../refusal.ts";

class ToolFailure extends Error {}

const forms: Readonly<Record<string, string>> = {
  "Select.columns": '["id", "name"], or ["*"] for all',
  "CreateTable.columns": '[{"name": "id", "type": "int", "primary_key": true}]',
  where:
    '{"column": "id", "cmp": "=", "value": 1}, or {"and": [..]}, {"or": [..]}, {"not": {..}} around such, or null',
  join: '{"table": "orders", "on": "users.id = orders.user_id", "join_type": "INNER"}',
  order_by: '{"column": "name", "direction": "ASC"}',
  group_by: '["country"]',
  aggregate: '[{"fn": "count", "as": "n"}, {"fn": "sum", "column": "total", "as": "revenue"}]',
  having: '{"column": "revenue", "cmp": ">", "value": 100}',
  after: "[17], a value for each column of order_by",
  values: '[{"id": 1, "name": "Ann"}]',
  set: '{"name": "Ann"}',
  add: '{"stock": -1}',
  on_conflict: '["id"]',
  update: '["name"], or []',
  returning: '["id"]',
  Insert: '{"database": "main", "table": "users", "values": [{"id": 1}]}',
  operations: '[{"Delete": {"database": "main", "table": "users", "where": {..}}}]',
};

/** Splits a path such as `Preview.Update.set`, `Batch[2].Insert.values[0]` or `Select.where`. */
function placeIn(path: string): { operation: string; field: string | undefined; place: string } {
  const isBatch = path.startsWith(batchKey);
  const place = isBatch ? path.replace(batchKey, "operations") : path.replace(/^\w*\.?/, "");
  const segments = path.split(".");
  const at = segments.findLastIndex(isOperationName);
  const within = isBatch && at < 0 ? place : segments[at + 1];
  return { operation: segments[at] ?? "", field: /^\w+/.exec(within ?? "")?.[0], place };
}

function complaint({ location, problem, code }: QueryRefused): string {
  const { operation, place, ...named } = placeIn(location.path);
  const missing = /^the field "(\w+)" is left out/.exec(problem)?.[1];
  const field = named.field ?? missing ?? "";
  const form = forms[`${operation}.${field}`] ?? forms[field];
  const example = form === undefined ? "" : `; ${field} is written like ${form}`;
  return `Failed: ${place === "" ? "" : `${place}: `}${problem}${example} (${code})`;
}

/** Advice for refusals whose message has none. */
const remedies: Readonly<Record<string, string>> = {
  no_grant: "whoami tells which databases you may use",
  role_insufficient: "whoami tells what your role gives; trying again does not help",
  token_read_only: "this token reads only; trying again does not help",
  token_database: "this token is for another database, which whoami names",
  database_case_mismatch: "write the name as list_databases has it",
  batch_member_denied: "whoami tells what you may do; leave out what you may not",
  schema_not_found: "list_databases and list_tables tell what there is",
  database_not_found: "list_databases tells what there is",
  table_not_found: "list_tables tells what there is",
  unknown_column: "describe_table tells the columns",
  constraint_violation:
    "describe_table tells keys, references, and which columns must have a value",
  table_exists: "describe_table tells what it is",
  approval_denied: "trying again does not help; tell the user why",
  approval_not_found: "call it without approval to ask for one",
  approval_mismatch:
    "call it with the very arguments that were approved, or without approval to ask for another one",
  approval_expired: "call it without approval to ask again",
  approval_used: "look at what it has done; call it without approval to ask again",
  approval_void: "call it without approval to ask again",
  approval_stale:
    "the rows have changed since they were approved: look at them, then call it without approval to ask again",
  outcome_unknown: "read the rows before you call it again",
  query_timeout: "ask for less: a where on a key, or fewer tables",
  upstream_timeout: "ask for less: a where on a key, or fewer tables",
};

const noTable = /^There is no grant for [^ ]+\./;

function said(status: number, message: string, code: string): string {
  const remedy = noTable.test(message)
    ? "list_tables tells which tables you may use"
    : remedies[code];
  const isSaid = remedy === undefined || message.includes("did you mean");
  return `${status === 403 ? "Denied" : "Failed"}: ${message}${isSaid ? "" : `; ${remedy}`} (${code})`;
}

/**
 * Asks for an approval, in words for a model and as data, which is not an error result. A client
 * that opens pages shows the page to its user and repeats the call by itself. The state that it
 * then returns is an approval id, and counts no more than one in the arguments.
 */
function askForApproval(
  { code, members }: Refusal,
  opensUrls: boolean,
): CallToolResult | InputRequiredResult {
  const { approval } = members ?? {};
  const { id, url, expires } = typeof approval === "object" ? approval : {};
  if (opensUrls && id !== undefined && url !== undefined) {
    const message =
      "Somebody other than you has to approve this call on this page, before you go on.";
    const request = inputRequired.elicitUrl({ message, url });
    return inputRequired({ inputRequests: { approval: request }, requestState: id });
  }
  const place = url === undefined ? "" : ` at ${url}`;
  const text = [
    `Not done yet: somebody has to approve this call until ${expires}.`,
    `Tell the user that approval ${id} waits to be decided${place}.`,
    "Once it is given, call this tool again with the very same arguments and one more,",
    `"approval": "${id}". Without that nothing is done.`,
  ].join(" ");
  const structuredContent = { status: "pending", code, approval };
  return { content: [{ type: "text", text }], structuredContent };
}

/** @param opensUrls true if the client can open a page and has not been asked to yet */
export function failed(error: unknown, opensUrls: boolean): CallToolResult | InputRequiredResult {
  if (error instanceof Refusal && error.code === "approval_required") {
    return askForApproval(error, opensUrls);
  }
  let text = "Failed: internal error (internal_error)";
  if (error instanceof ToolFailure) text = error.message;
  else if (error instanceof QueryRefused) text = complaint(error);
  else if (error instanceof Refusal) text = said(error.status, error.message, error.code);
  return { isError: true, content: [{ type: "text", text }] };
}

type Content = Readonly<Record<string, unknown>>;

function isContent(value: unknown): value is Content {
  return typeof value === "object" && value !== null && !JSON.isRawJSON(value);
}

type GoOn = (shown: readonly unknown[]) => Promise<Content>;

const order = z.object({ column: z.string() });
const orders = z.union([order.transform((only) => [only]), z.array(order)]);
const columnNames = z.array(z.string());
const literals = z.array(z.union([z.string(), z.number(), z.boolean(), z.null()]));

/** A number that JSON readers would change stays raw JSON, because a cursor needs its exact value. */
function cursorValue(value: unknown): unknown {
  if (typeof value !== "object" || !JSON.isRawJSON(value)) return value;
  const source = JSON.stringify(value);
  const digits = source.replace(/[eE].*$|[-.]/g, "").replace(/^0+/, "");
  // A double preserves 15 decimal digits.
  return digits.length <= 15 ? Number(source) : value;
}

function bare(name: string): string {
  return name.slice(name.indexOf(".") + 1);
}

function isOf(selected: string, ordered: string): boolean {
  if (selected === "*" || selected === ordered) return true;
  const areOfTables = selected.includes(".") && ordered.includes(".");
  return !areOfTables && bare(selected) === bare(ordered);
}

function parsed(value: Buffer | undefined): unknown {
  return value === undefined ? undefined : JSON.parse(value.toString("utf8"));
}

/** The `order_by` columns, if every row of the answer contains them. */
function orderedBy(found: ReadonlyMap<string, Buffer>): readonly string[] | undefined {
  const isOfRows = !found.has("aggregate") && found.get("distinct")?.toString() !== "true";
  const order = orders.safeParse(parsed(found.get("order_by")));
  const columns = columnNames.safeParse(parsed(found.get("columns")));
  if (!isOfRows || !order.success || !columns.success) return undefined;
  const names = order.data.map(({ column }) => column);
  const isThere = (name: string) => columns.data.some((column) => isOf(column, name));
  return names.every(isThere) && new Set(names).size === names.length ? names : undefined;
}

function cursorAt(row: unknown, names: readonly string[]): unknown[] | undefined {
  const values = new Map(Object.entries(isContent(row) ? row : {}));
  const cursor = names.map((name) =>
    cursorValue(values.has(name) ? values.get(name) : values.get(bare(name))),
  );
  return literals.safeParse(cursor).success ? cursor : undefined;
}

/** A row count among the arguments. Undefined if it is missing or the grammar will refuse it. */
export function countIn(value: Buffer | undefined): number | undefined {
  const digits = value === undefined || value.length > 16 ? "" : value.toString("latin1");
  return /^[0-9]+$/.test(digits) ? Number(digits) : undefined;
}

/**
 * Continues after the shown rows: by the `order_by` values of the last one, and by an offset unless
 * the call itself used `after`.
 *
 * @param args the arguments of a select that has run
 * @param isUnique whether no two rows are equal in these columns. Called once, for the first page.
 */
export function goOnBehind(
  args: ReadonlyMap<string, Buffer>,
  level: Level,
  isUnique: (order: readonly string[]) => Promise<boolean>,
): GoOn {
  const names = level === "full" ? orderedBy(args) : undefined;
  const isContinued = args.has("after");
  const offset = countIn(args.get("offset")) ?? 0;
  let mayContinue: Promise<boolean> | undefined;
  return async (shown) => {
    const after = names && shown.length > 0 ? cursorAt(shown.at(-1), names) : undefined;
    if (names !== undefined && after !== undefined && !isContinued) mayContinue ??= isUnique(names);
    const isAfter = after !== undefined && (isContinued || (await mayContinue) === true);
    return {
      ...(isAfter ? { next_after: after } : {}),
      ...(isContinued ? {} : { next_offset: offset + shown.length }),
    };
  };
}

export interface ToolResult {
  /** For clients that show a model only the text: JSON, shortened if it is long. */
  readonly text: string;
  readonly structured: Content;
}

export function resultOf(structured: Content): ToolResult {
  return { text: JSON.stringify(structured), structured };
}

/** The text is short, because a model reads all of it. */
function textBytesOf(bytes: number): number {
  return Math.min(16 * 1024, Math.floor(bytes / 8));
}

const ENVELOPE = 1024;

function fitting(elements: readonly unknown[], bytes: number): readonly unknown[] {
  let left = bytes;
  const past = elements.findIndex((element) => {
    left -= Buffer.byteLength(JSON.stringify(element)) + 1;
    return left < 0;
  });
  return past < 0 ? elements : elements.slice(0, past);
}

interface PageLimits {
  readonly most: number;
  readonly bytes: number;
  readonly goOn?: GoOn;
  readonly more?: object;
}

/**
 * A page with as many elements as fit, and how to continue. The text holds the first of them in the
 * same form, so that a model that sees only the text can continue from there.
 *
 * @param isCut true if there are more elements than these
 * @throws ToolFailure if not even one element fits
 */
export async function listResult(
  key: string,
  elements: readonly unknown[],
  isCut: boolean,
  { most, bytes, goOn, more }: PageLimits,
): Promise<ToolResult> {
  const textBytes = textBytesOf(bytes);
  const listed = elements.slice(0, most);
  // Every quote in the text needs an escape, so it may double in size.
  const shown = fitting(listed, bytes - 2 * textBytes - ENVELOPE);
  if (shown.length === 0 && (listed.length > 0 || (isCut && most > 0))) {
    const problem = `one of the ${key} alone is larger than a result may be, which is ${bytes} bytes`;
    throw new ToolFailure(`Failed: ${problem}: ask for fewer columns (result_too_large)`);
  }
  const pageOf = async (page: readonly unknown[]): Promise<Content> => {
    const truncated = isCut || page.length < elements.length;
    return { [key]: page, truncated, ...(truncated ? await goOn?.(page) : {}), ...more };
  };
  const structured = await pageOf(shown);
  const read = fitting(shown, textBytes);
  if (read.length === 0 && shown.length > 0) {
    const text = `The ${key} are in the structured content; to have them as text, ask for fewer columns.`;
    return { text, structured };
  }
  return { text: JSON.stringify(await pageOf(read)), structured };
}

export interface QueryAnswer {
  readonly status: number;
  readonly body: Buffer;
  /** True if the answer continues after the body. */
  readonly isCut: boolean;
  /** Row filter conditions that were added to the query, as JSON. */
  readonly filters?: readonly string[];
}

const LONGEST_FILTERS = 300;

function narrowedIn({ filters = [] }: QueryAnswer): { readonly narrowed?: string } {
  if (filters.length === 0) return {};
  const said = (one: unknown) => (typeof one === "string" ? one : JSON.stringify(one));
  const words = filters.map((filter) => {
    const { column, cmp, value } = contentOf(filter);
    return `${column} ${cmp} ${Array.isArray(value) ? `(${value.map(said).join(", ")})` : said(value)}`;
  });
  const text = [...new Set(words)].join(" and ");
  const isLong = text.length > LONGEST_FILTERS;
  return { narrowed: `only rows where ${isLong ? `${text.slice(0, LONGEST_FILTERS)}...` : text}` };
}

/** An integer beyond 2^53 - 1 becomes a string, and decimals keep their digits. */
function keepDigits(key: string, value: unknown, context?: { readonly source?: string }): unknown {
  const { source = "" } = context ?? {};
  const isKept = /^-?\d+$/.test(source) ? Number.isSafeInteger : Number.isFinite;
  return typeof value === "number" && !isKept(Number(source))
    ? source
    : keepSpelling(key, value, context);
}

function contentOf(text: string): Content {
  try {
    const value = parseExactly(text, keepDigits);
    return isContent(value) ? value : {};
  } catch {
    return {};
  }
}

/** Ends an answer that was cut off after its last whole row. */
function closeAfterLastRow(text: string): string {
  let depth = 0;
  let end = 0;
  for (const { 0: token, index } of text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"?|[{}[\]]/gs)) {
    if (token === "{" || token === "[") depth++;
    if (token !== "}" && token !== "]") continue;
    depth--;
    if (depth === 2) end = index + 1;
  }
  return end === 0 ? '{"data":[]}' : `${text.slice(0, end)}]}`;
}

/** An answer that is not UTF-8 has no members. */
function answered({ body, isCut }: QueryAnswer): Content {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(body, { stream: isCut });
    return contentOf(isCut ? closeAfterLastRow(text) : text);
  } catch {
    return {};
  }
}

const LONGEST_MESSAGE = 16 * 1024;

function requireSuccess({ status, body }: QueryAnswer): void {
  if (status >= 200 && status < 300) return;
  const answer = body.length > LONGEST_MESSAGE ? {} : contentOf(body.toString("utf8"));
  const { message: reason } = answer;
  const message = typeof reason === "string" ? reason : "The database gave no reason";
  const code = typeof answer.code === "string" ? answer.code : `status ${status}`;
  throw new ToolFailure(said(status, message.replace(/^Batch(?=\[)/, "operations"), code));
}

const noRows = "Failed: the database answered without rows that can be passed on";

function rowsIn(answer: QueryAnswer): readonly Content[] {
  requireSuccess(answer);
  const { data } = answered(answer);
  if (Array.isArray(data) && data.every(isContent)) return data;
  throw new ToolFailure(noRows);
}

export async function rowsOf(
  answer: QueryAnswer,
  limits: PageLimits & { readonly isCapped: boolean },
): Promise<ToolResult> {
  const rows = rowsIn(answer);
  const mayBeMore = limits.isCapped && rows.length === limits.most;
  const more = narrowedIn(answer);
  return listResult("rows", rows, answer.isCut || mayBeMore, { ...limits, more });
}

/** @throws ToolFailure */
export function countResult(answer: QueryAnswer, name: string): ToolResult {
  const count = rowsIn(answer)[0]?.[name];
  if (typeof count !== "number") throw new ToolFailure(noRows);
  return resultOf({ count, ...narrowedIn(answer) });
}

/** Row lists of a change's answer, and their names in the result. */
const rowNames = { data: "rows", before: "before", after: "after" } as const;

/** A result with complete lists. Its text holds them shortened if they are long. */
function resultWith(
  said: object,
  lists: Readonly<Record<string, readonly unknown[]>>,
  bytes: number,
): ToolResult {
  const whole = resultOf({ ...said, ...lists });
  const textBytes = textBytesOf(bytes);
  if (whole.text.length <= textBytes) return whole;
  const share = textBytes / Object.keys(lists).length;
  const short = Object.entries(lists).map(([name, list]) => [name, fitting(list, share)] as const);
  const { text } = resultOf({ ...said, ...Object.fromEntries(short), truncated: true });
  return { ...whole, text };
}

/** Start of an answer to a change. Its rows follow. */
const beginning = /^\s*\{"status":"success",(?:"message":("(?:[^"\\]|\\.)*"),)?"affected":(\d+),/;

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

/** @param done the message if the answer has none. @throws ToolFailure */
export function changeOf(answer: QueryAnswer, bytes: number, done: string): ToolResult {
  requireSuccess(answer);
  if (answer.isCut) return cutResult(answer, done);
  const found = answered(answer);
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

/** @throws ToolFailure */
export function batchResult(
  answer: QueryAnswer,
  { most, bytes }: { readonly most: number; readonly bytes: number },
): ToolResult {
  requireSuccess(answer);
  if (answer.isCut) return cutResult(answer, "Done");
  const { data } = answered(answer);
  let isLong = false;
  const results = (Array.isArray(data) ? data : []).map((element: unknown) => {
    if (!Array.isArray(element)) return element;
    isLong ||= element.length > most;
    return element.slice(0, most);
  });
  const said = { ...(isLong ? { truncated: true } : {}), ...narrowedIn(answer) };
  return resultWith(said, { results }, bytes);
}
