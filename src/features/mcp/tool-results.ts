import {
  type CallToolResult,
  type InputRequiredResult,
  inputRequired,
} from "@modelcontextprotocol/server";
import { z } from "zod";
import { Refusal } from "../../core/base/refusal.ts";
import type { FilteredAnswer } from "../../core/http/query.ts";
import { keepSpelling, parseUnrounded } from "../../core/json/exact.ts";
import { batchKey } from "../../core/query/grammar.ts";
import type { Level } from "../../core/query/kind.ts";
import { withoutTable } from "../../core/query/names.ts";
import { isOperationName } from "../../core/query/operations.ts";
import { QueryRefused } from "../../core/query/refusal.ts";

/** Its message is the text of the error result. */
export class ToolFailure extends Error {}

const examples: Readonly<Record<string, string>> = {
  "Select.columns": '["id", "name"], or ["*"] for all',
  "CreateTable.columns": '[{"name": "id", "type": "int", "primary_key": true}]',
  where:
    '{"column": "id", "cmp": "=", "value": 1}, {"and": [..]}, {"or": [..]}, {"not": {..}} or null',
  join: '{"table": "orders", "on": "users.id = orders.user_id", "join_type": "INNER"}',
  order_by: '{"column": "name", "direction": "ASC"}',
  group_by: '["country"]',
  aggregate: '[{"fn": "count", "as": "n"}, {"fn": "sum", "column": "total", "as": "revenue"}]',
  having: '{"column": "revenue", "cmp": ">", "value": 100}',
  after: "[17], one value per column of order_by",
  values: '[{"id": 1, "name": "Ann"}]',
  set: '{"name": "Ann"}',
  add: '{"stock": -1}',
  on_conflict: '["id"]',
  update: '["name"], or []',
  returning: '["id"]',
  bind: '{"order_id": {"element": 0, "column": "id"}}',
  Insert: '{"database": "main", "table": "users", "values": [{"id": 1}]}',
  operations: '[{"Delete": {"database": "main", "table": "users", "where": {..}}}]',
};

/** Splits a path such as `Preview.Update.set`, `Batch[2].Insert.values[0]` or `Select.where`. */
function splitPath(path: string): { operation: string; field: string | undefined; place: string } {
  const isBatch = path.startsWith(batchKey);
  const place = isBatch ? path.replace(batchKey, "operations") : path.replace(/^\w*\.?/, "");
  const segments = path.split(".");
  const at = segments.findLastIndex(isOperationName);
  const within = isBatch && at < 0 ? place : segments[at + 1];
  return { operation: segments[at] ?? "", field: /^\w+/.exec(within ?? "")?.[0], place };
}

function grammarErrorText({ location, problem, code }: QueryRefused): string {
  const { operation, place, ...found } = splitPath(location.path);
  const field = found.field ?? location.missing ?? "";
  const example = examples[`${operation}.${field}`] ?? examples[field];
  const advice = example === undefined ? "" : `; write ${field} as ${example}`;
  return `Failed: ${place === "" ? "" : `${place}: `}${problem}${advice} (${code})`;
}

/** Advice for refusals, unless their message contains some. */
const advice: Readonly<Record<string, string>> = {
  no_grant: "whoami lists the databases that you may use",
  role_insufficient: "whoami lists the rights of your role; retrying does not help",
  token_read_only: "this token can only read; retrying does not help",
  token_database: "this token is for another database; whoami names it",
  database_case_mismatch: "spell the name as in list_databases",
  batch_member_denied: "whoami lists your rights; leave out operations without the right",
  schema_not_found: "list_databases and list_tables show what exists",
  database_not_found: "list_databases shows what exists",
  table_not_found: "list_tables shows what exists",
  unknown_column: "describe_table lists the columns",
  constraint_violation: "describe_table lists keys, references and columns that require a value",
  table_exists: "describe_table shows the existing table",
  approval_denied: "retrying does not help; tell the user the reason",
  approval_not_found: "to request an approval, call without approval",
  approval_mismatch:
    "call with exactly the approved arguments, or without approval to request another one",
  approval_expired: "to request another one, call without approval",
  approval_used: "check what that call did; to request another one, call without approval",
  approval_void: "to request another one, call without approval",
  approval_stale:
    "the rows have changed since the approval; read them, then call without approval to request another one",
  expectation_failed: "read the rows before you retry",
  outcome_unknown: "the call may have run; read the rows before you retry",
  query_timeout: "ask for less, with a where on a key or with fewer tables",
  upstream_timeout: "ask for less, with a where on a key or with fewer tables",
};

const noTableGrant = /^There is no grant for [^ ]+\./;

function refusalText(status: number, message: string, code: string): string {
  const hint = noTableGrant.test(message)
    ? "list_tables lists the tables that you may use"
    : advice[code];
  const hasHint = hint !== undefined && !message.includes("did you mean");
  return `${status === 403 ? "Denied" : "Failed"}: ${message}${hasHint ? `; ${hint}` : ""} (${code})`;
}

/**
 * Reports that the call needs approval. This is not an error result. A client that can open pages
 * shows the approval page to its user and then repeats the call with the approval id as its state.
 */
function approvalPending(
  { code, members }: Refusal,
  opensUrls: boolean,
): CallToolResult | InputRequiredResult {
  const { approval } = members ?? {};
  const { id, url, expires } = typeof approval === "object" ? approval : {};
  if (opensUrls && id !== undefined && url !== undefined) {
    const message = "Another person must approve this call on this page before it can run.";
    const request = inputRequired.elicitUrl({ message, url });
    return inputRequired({ inputRequests: { approval: request }, requestState: id });
  }
  const place = url === undefined ? "" : ` at ${url}`;
  const text = [
    `Not run yet: this call needs approval before ${expires}.`,
    `Tell the user that approval ${id} is waiting for a decision${place}.`,
    "When it is approved, call this tool again with exactly the same arguments and",
    `"approval": "${id}".`,
  ].join(" ");
  const structuredContent = { status: "pending", code, approval };
  return { content: [{ type: "text", text }], structuredContent };
}

/** @param opensUrls true if the client can open a page and was not yet asked to */
export function failed(error: unknown, opensUrls: boolean): CallToolResult | InputRequiredResult {
  if (error instanceof Refusal && error.code === "approval_required") {
    return approvalPending(error, opensUrls);
  }
  let text = "Failed: internal error (internal_error)";
  if (error instanceof ToolFailure) text = error.message;
  else if (error instanceof QueryRefused) text = grammarErrorText(error);
  else if (error instanceof Refusal) text = refusalText(error.status, error.message, error.code);
  return { isError: true, content: [{ type: "text", text }] };
}

type Content = Readonly<Record<string, unknown>>;

function isContent(value: unknown): value is Content {
  return typeof value === "object" && value !== null && !JSON.isRawJSON(value);
}

type NextPage = (rows: readonly unknown[]) => Promise<Content>;

const order = z.object({ column: z.string() });
const orders = z.union([order.transform((only) => [only]), z.array(order)]);
const columnNames = z.array(z.string());
const literals = z.array(z.union([z.string(), z.number(), z.boolean(), z.null()]));

/** Keeps a number as raw JSON if a double would change it. A cursor needs its exact value. */
function cursorValue(value: unknown): unknown {
  if (typeof value !== "object" || !JSON.isRawJSON(value)) return value;
  const source = JSON.stringify(value);
  const digits = source.replace(/[eE].*$|[-.]/g, "").replace(/^0+/, "");
  // A double preserves 15 decimal digits.
  return digits.length <= 15 ? Number(source) : value;
}

function coversColumn(selected: string, ordered: string): boolean {
  if (selected === "*" || selected === ordered) return true;
  const areOfTables = selected.includes(".") && ordered.includes(".");
  return !areOfTables && withoutTable(selected) === withoutTable(ordered);
}

function parsed(value: Buffer | undefined): unknown {
  return value === undefined ? undefined : JSON.parse(value.toString("utf8"));
}

/** The `order_by` columns, if every row of the answer contains them. */
function orderedBy(args: ReadonlyMap<string, Buffer>): readonly string[] | undefined {
  const returnsRows = !args.has("aggregate") && args.get("distinct")?.toString() !== "true";
  const order = orders.safeParse(parsed(args.get("order_by")));
  const columns = columnNames.safeParse(parsed(args.get("columns")));
  if (!returnsRows || !order.success || !columns.success) return undefined;
  const names = order.data.map(({ column }) => column);
  const isReturned = (name: string) => columns.data.some((column) => coversColumn(column, name));
  return names.every(isReturned) && new Set(names).size === names.length ? names : undefined;
}

function cursorAt(row: unknown, names: readonly string[]): unknown[] | undefined {
  const values = new Map(Object.entries(isContent(row) ? row : {}));
  const cursor = names.map((name) =>
    cursorValue(values.has(name) ? values.get(name) : values.get(withoutTable(name))),
  );
  return literals.safeParse(cursor).success ? cursor : undefined;
}

/** A row count among the arguments. Undefined if it is missing or the grammar will refuse it. */
export function countIn(value: Buffer | undefined): number | undefined {
  const digits = value === undefined || value.length > 16 ? "" : value.toString("latin1");
  return /^[0-9]+$/.test(digits) ? Number(digits) : undefined;
}

/**
 * How to continue a select: by the `order_by` values of the last row, if those are unique, and by
 * an offset unless the call used `after`.
 */
export function findNextPage(
  args: ReadonlyMap<string, Buffer>,
  level: Level,
  isUnique: (order: readonly string[]) => Promise<boolean>,
): NextPage {
  const names = level === "full" ? orderedBy(args) : undefined;
  const isContinued = args.has("after");
  const offset = countIn(args.get("offset")) ?? 0;
  let mayContinue: Promise<boolean> | undefined;
  return async (rows) => {
    const after = names && rows.length > 0 ? cursorAt(rows.at(-1), names) : undefined;
    if (names !== undefined && after !== undefined && !isContinued) mayContinue ??= isUnique(names);
    const isAfter = after !== undefined && (isContinued || (await mayContinue) === true);
    return {
      ...(isAfter ? { next_after: after } : {}),
      ...(isContinued ? {} : { next_offset: offset + rows.length }),
    };
  };
}

export interface ToolResult {
  /** For clients that show a model only the text: JSON, shortened if it is long. */
  readonly text: string;
  readonly structured: Content;
}

export function toToolResult(structured: Content): ToolResult {
  return { text: JSON.stringify(structured), structured };
}

/** A model reads the whole text, so it is short. */
function textBudget(bytes: number): number {
  return Math.min(16 * 1024, Math.floor(bytes / 8));
}

const ENVELOPE_BYTES = 1024;

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
  readonly nextPage?: NextPage;
  readonly more?: object;
}

/**
 * A page with as many elements as fit. Its text has the first of them and its own way to continue,
 * for models that see only the text. @param isCut true if there are more elements than these
 */
export async function listResult(
  key: string,
  elements: readonly unknown[],
  isCut: boolean,
  { most, bytes, nextPage, more }: PageLimits,
): Promise<ToolResult> {
  const textBytes = textBudget(bytes);
  const listed = elements.slice(0, most);
  // Every quote in the text needs an escape, so it may double in size.
  const shown = fitting(listed, bytes - 2 * textBytes - ENVELOPE_BYTES);
  if (shown.length === 0 && (listed.length > 0 || (isCut && most > 0))) {
    const problem = `one of the ${key} is larger than the result limit of ${bytes} bytes`;
    throw new ToolFailure(`Failed: ${problem}; select fewer columns (result_too_large)`);
  }
  const pageContent = async (page: readonly unknown[]): Promise<Content> => {
    const truncated = isCut || page.length < elements.length;
    return { [key]: page, truncated, ...(truncated ? await nextPage?.(page) : {}), ...more };
  };
  const structured = await pageContent(shown);
  const read = fitting(shown, textBytes);
  if (read.length === 0 && shown.length > 0) {
    const text = `The ${key} are only in the structured content. For text, select fewer columns.`;
    return { text, structured };
  }
  return { text: JSON.stringify(await pageContent(read)), structured };
}

/** The rows of a result, in the lists that tools have. Undefined if it has no list of rows. */
export function countRowsIn(structured: unknown): number | undefined {
  if (!isContent(structured)) return undefined;
  const { rows, before, after, results, data } = structured;
  if (Array.isArray(results)) {
    return results.reduce<number>(
      (sum, one) => sum + (Array.isArray(one) ? one.length : (countRowsIn(one) ?? 0)),
      0,
    );
  }
  const lists = [rows, data, before, after].filter((list) => Array.isArray(list));
  const lengths = lists.map(({ length }) => length).sort((one, other) => other - one);
  return lengths[0];
}

const MAX_FILTER_TEXT_LENGTH = 300;

function narrowedIn({ filters }: FilteredAnswer): { readonly narrowed?: string } {
  if (filters.length === 0) return {};
  const toText = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));
  const conditions = filters.map(({ table, condition }) => {
    const { column, cmp, value } = parseContent(condition);
    // In a join, the condition itself names the table.
    const name =
      table === undefined || String(column).includes(".") ? column : `${table}.${column}`;
    return `${name} ${cmp} ${Array.isArray(value) ? `(${value.map(toText).join(", ")})` : toText(value)}`;
  });
  const text = [...new Set(conditions)].join(" and ");
  const isLong = text.length > MAX_FILTER_TEXT_LENGTH;
  return {
    narrowed: `only rows where ${isLong ? `${text.slice(0, MAX_FILTER_TEXT_LENGTH)}...` : text}`,
  };
}

/** An integer beyond 2^53 - 1 becomes a string, and decimals keep their digits. */
function keepDigits(source: string): unknown {
  const isKept = /^-?\d+$/.test(source) ? Number.isSafeInteger : Number.isFinite;
  return isKept(Number(source)) ? keepSpelling(source) : source;
}

function parseContent(text: string): Content {
  try {
    const value = parseUnrounded(text, keepDigits);
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

/** The members of a JSON answer. One that is not UTF-8 has none. */
function answerMembers({ body, isCut }: FilteredAnswer): Content {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(body, { stream: isCut });
    return parseContent(isCut ? closeAfterLastRow(text) : text);
  } catch {
    return {};
  }
}

const MAX_MESSAGE_BYTES = 16 * 1024;

function requireSuccess({ status, body }: FilteredAnswer): void {
  if (status >= 200 && status < 300) return;
  const answer = body.length > MAX_MESSAGE_BYTES ? {} : parseContent(body.toString("utf8"));
  const { message: reason } = answer;
  const message = typeof reason === "string" ? reason : "The database gave no reason";
  const code = typeof answer.code === "string" ? answer.code : `status ${status}`;
  throw new ToolFailure(refusalText(status, message.replace(/^Batch(?=\[)/, "operations"), code));
}

const noRows = "Failed: the database returned no readable rows";

function rowsIn(answer: FilteredAnswer): readonly Content[] {
  requireSuccess(answer);
  const { data } = answerMembers(answer);
  if (Array.isArray(data) && data.every(isContent)) return data;
  throw new ToolFailure(noRows);
}

export async function rowsResult(
  answer: FilteredAnswer,
  limits: PageLimits & { readonly isCapped: boolean },
): Promise<ToolResult> {
  const rows = rowsIn(answer);
  const mayBeMore = limits.isCapped && rows.length === limits.most;
  const more = narrowedIn(answer);
  return listResult("rows", rows, answer.isCut || mayBeMore, { ...limits, more });
}

export function countResult(answer: FilteredAnswer, name: string): ToolResult {
  const count = rowsIn(answer)[0]?.[name];
  if (typeof count !== "number") throw new ToolFailure(noRows);
  return toToolResult({ count, ...narrowedIn(answer) });
}

/** Row lists of a change's answer, and their names in the result. */
const rowNames = { data: "rows", before: "before", after: "after" } as const;

/** A result with complete lists. Its text holds them shortened if they are long. */
function resultWith(
  summary: object,
  lists: Readonly<Record<string, readonly unknown[]>>,
  bytes: number,
): ToolResult {
  const whole = toToolResult({ ...summary, ...lists });
  const textBytes = textBudget(bytes);
  if (whole.text.length <= textBytes) return whole;
  const share = textBytes / Object.keys(lists).length;
  const short = Object.entries(lists).map(([name, list]) => [name, fitting(list, share)] as const);
  const { text } = toToolResult({ ...summary, ...Object.fromEntries(short), truncated: true });
  return { ...whole, text };
}

/** Start of the answer to a change, before its rows. */
const answerStart = /^\s*\{"status":"success",(?:"message":("(?:[^"\\]|\\.)*"),)?"affected":(\d+),/;

function cutResult(answer: FilteredAnswer, done: string): ToolResult {
  const [, message = JSON.stringify(done), affected] =
    answerStart.exec(answer.body.toString("utf8", 0, 512)) ?? [];
  return toToolResult({
    message: `${JSON.parse(message)}; the rows are too large for the result`,
    ...(affected === undefined ? {} : { affected: Number(affected) }),
    truncated: true,
    ...narrowedIn(answer),
  });
}

type RowLists = readonly (readonly [name: string, rows: readonly unknown[]])[];

function listsIn(found: Content): RowLists {
  return Object.entries(rowNames).flatMap(([key, name]) => {
    const rows: unknown = found[key];
    return Array.isArray(rows) ? [[name, rows] as const] : [];
  });
}

/** True if fewer rows are shown than were affected. */
function isShortened(affected: unknown, lists: RowLists): boolean {
  const returned = lists.reduce((most, [, rows]) => Math.max(most, rows.length), 0);
  return typeof affected === "number" && lists.length > 0 && affected > returned;
}

/** @param done used if the answer has no message */
export function changeResult(answer: FilteredAnswer, bytes: number, done: string): ToolResult {
  requireSuccess(answer);
  if (answer.isCut) return cutResult(answer, done);
  const found = answerMembers(answer);
  const { message, affected } = found;
  // Only a Preview of a Batch has neither.
  if (message === undefined && affected === undefined && Array.isArray(found.data)) {
    const isCut = found.data.some(
      (one) => isContent(one) && isShortened(one.affected, listsIn(one)),
    );
    const summary = { ...(isCut ? { truncated: true } : {}), ...narrowedIn(answer) };
    return resultWith(summary, { results: found.data }, bytes);
  }
  const lists = listsIn(found);
  const isMore = isShortened(affected, lists);
  const isSilent = typeof message !== "string" && lists.length > 0;
  const summary = {
    ...(isSilent ? {} : { message: typeof message === "string" ? message : done }),
    ...(typeof affected === "number" ? { affected } : {}),
    ...(isMore ? { truncated: true } : {}),
    ...narrowedIn(answer),
  };
  return resultWith(summary, Object.fromEntries(lists), bytes);
}

export function batchResult(
  answer: FilteredAnswer,
  { most, bytes }: { readonly most: number; readonly bytes: number },
): ToolResult {
  requireSuccess(answer);
  if (answer.isCut) return cutResult(answer, "Done");
  const { data } = answerMembers(answer);
  let isLong = false;
  const results = (Array.isArray(data) ? data : []).map((element: unknown) => {
    if (!Array.isArray(element)) return element;
    isLong ||= element.length > most;
    return element.slice(0, most);
  });
  const summary = { ...(isLong ? { truncated: true } : {}), ...narrowedIn(answer) };
  return resultWith(summary, { results }, bytes);
}
