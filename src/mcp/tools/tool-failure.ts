import type { CallToolResult } from "@modelcontextprotocol/server";
import { QueryRefused } from "../../query/refusal.ts";
import { Refusal } from "../../refusal.ts";

/** A call that failed, in words for the model that made it. */
export class ToolFailure extends Error {
  override readonly name = "ToolFailure";
}

/** How an argument is written, for a model that has written it otherwise. */
const forms: Readonly<Record<string, string>> = {
  "Select.columns": '["id", "name"], or ["*"] for all',
  "CreateTable.columns": '[{"name": "id", "type": "int", "primary_key": true}]',
  where:
    '{"column": "id", "cmp": "=", "value": 1}, or {"and": [..]}, {"or": [..]}, {"not": {..}} around such, or null',
  join: '{"table": "orders", "on": "users.id = orders.user_id", "join_type": "INNER"}',
  order_by: '{"column": "name", "direction": "ASC"}',
  values: '[{"id": 1, "name": "Ann"}]',
  set: '{"name": "Ann"}',
};

/** What is wrong with a call's arguments: where, what, and how it is written rightly. */
function complaint({ location, problem, code }: QueryRefused): string {
  const [operation = "", ...segments] = location.path.split(".");
  const place = segments.join(".");
  const field = /^\w+/.exec(place)?.[0] ?? "";
  const form = forms[`${operation}.${field}`] ?? forms[field];
  const example = form === undefined ? "" : `; ${field} is written like ${form}`;
  return `Failed: ${place === "" ? "" : `${place}: `}${problem}${example} (${code})`;
}

function failureText(error: unknown): string {
  if (error instanceof ToolFailure) return error.message;
  if (error instanceof QueryRefused) return complaint(error);
  if (error instanceof Refusal) {
    return `${error.status === 403 ? "Denied" : "Failed"}: ${error.message} (${error.code})`;
  }
  return "Failed: internal error (internal_error)";
}

/** A tool's failure, so that the model may mend its call. Anything unexpected tells nothing. */
export function failed(error: unknown): CallToolResult {
  return { isError: true, content: [{ type: "text", text: failureText(error) }] };
}
