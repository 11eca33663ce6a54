import {
  type CallToolResult,
  type InputRequiredResult,
  inputRequired,
} from "@modelcontextprotocol/server";
import { batchKey } from "../../query/grammar.ts";
import { isOperationName } from "../../query/operations.ts";
import { QueryRefused } from "../../query/refusal.ts";
import { Refusal } from "../../refusal.ts";

/** A failed call, with a message for the model. */
export class ToolFailure extends Error {
  override readonly name = "ToolFailure";
}

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

export function databaseFailure(status: number, message: string, code: string): ToolFailure {
  return new ToolFailure(said(status, message.replace(/^Batch(?=\[)/, "operations"), code));
}

function failureText(error: unknown): string {
  if (error instanceof ToolFailure) return error.message;
  if (error instanceof QueryRefused) return complaint(error);
  if (error instanceof Refusal) return said(error.status, error.message, error.code);
  return "Failed: internal error (internal_error)";
}

/** Asks for an approval, in words for a model and as data. This is not an error result. */
function pending({ code, members }: Refusal): CallToolResult {
  const { approval } = members ?? {};
  const { id, url, expires } = typeof approval === "object" ? approval : {};
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

/**
 * Asks the client to show the approval page to its user and to repeat the call by itself. Undefined
 * if there is no page. The returned state is an approval id and counts no more than one in the
 * arguments.
 */
function shown({ members }: Refusal): InputRequiredResult | undefined {
  const { approval } = members ?? {};
  const { id, url } = typeof approval === "object" ? approval : {};
  if (id === undefined || url === undefined) return undefined;
  const message =
    "Somebody other than you has to approve this call on this page, before you go on.";
  const request = inputRequired.elicitUrl({ message, url });
  return inputRequired({ inputRequests: { approval: request }, requestState: id });
}

/**
 * Describes a failure so that the model can fix its call. Unexpected errors reveal nothing.
 *
 * @param opensUrls true if the client can open a page and has not been asked to yet
 */
export function failed(error: unknown, opensUrls: boolean): CallToolResult | InputRequiredResult {
  if (error instanceof Refusal && error.code === "approval_required") {
    return (opensUrls ? shown(error) : undefined) ?? pending(error);
  }
  return { isError: true, content: [{ type: "text", text: failureText(error) }] };
}
