import * as z from "zod";
import { type Colors, type LogLine, visible } from "./terminal-event.ts";

/** Characters of a path that are shown. */
const LONGEST_PATH = 80;
const SERVER_ERROR = 500;

/** What a person is shown of the audit's line of a request. */
const requestShape = z.object({
  audit: z.literal(true),
  msg: z.literal("request"),
  method: z.string(),
  path: z.string().optional(),
  user: z.string().optional(),
  operations: z.array(
    z.object({ operation: z.string(), database: z.string(), tables: z.array(z.string()) }),
  ),
  operationCount: z.number(),
  decision: z.enum(["allow", "deny"]).optional(),
  reason: z.string().optional(),
  status: z.number(),
  ms: z.number(),
});
type AuditedRequest = z.infer<typeof requestShape>;

/** `Delete main.users`, the first of several with a count of the rest, or else the path. */
function whatWasAsked({ operations, operationCount, method, path }: AuditedRequest): string {
  const [first] = operations;
  if (first === undefined) return `${method} ${path?.slice(0, LONGEST_PATH) ?? "unknown path"}`;
  const { operation, database, tables } = first;
  const objects = tables.length === 0 ? [database] : tables.map((table) => `${database}.${table}`);
  const rest = operationCount > 1 ? `and ${operationCount - 1} more` : "";
  return [operation, objects.join(","), rest].filter(Boolean).join(" ");
}

function decisionOf({ decision }: AuditedRequest, colors: Colors): string | undefined {
  return decision === "deny" ? colors.red(decision) : decision && colors.green(decision);
}

/**
 * One short line for the audit of a request, such as
 * `rita Delete main.users deny role_insufficient 403 2ms`; undefined for any other line.
 */
export function requestLine(line: LogLine, colors: Colors): string | undefined {
  const request = requestShape.safeParse(line).data;
  if (request === undefined) return undefined;
  const { user, reason, status, ms } = request;
  const parts = [
    colors.bold(visible(user ?? "-")),
    visible(whatWasAsked(request)),
    decisionOf(request, colors),
    reason === undefined ? undefined : visible(reason),
    status >= SERVER_ERROR ? colors.red(String(status)) : String(status),
    colors.dim(`${Math.ceil(ms)}ms`),
  ];
  return parts.filter((part) => part !== undefined).join(" ");
}
