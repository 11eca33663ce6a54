import type { CallToolResult } from "@modelcontextprotocol/server";
import { z } from "zod";
import { Refusal } from "../../refusal.ts";

/** What the gateway answers to a query: as on `/query`. */
export interface QueryAnswer {
  readonly status: number;
  readonly body: Buffer;
}

/** A call that failed, in words for the model that made it. */
export class ToolFailure extends Error {
  override readonly name = "ToolFailure";
}

const errorBody = z.object({ message: z.string(), code: z.string() }).partial();
const rowsBody = z.object({ data: z.array(z.record(z.string(), z.json())) });
const messageBody = z.object({ message: z.string() });

/**
 * Integers that a double cannot hold stay as their digits, and so do numbers that would become
 * infinite; a column's other values are as they came.
 */
function keepDigits(_key: string, value: unknown, context?: { source?: string }): unknown {
  if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
  const source = context?.source ?? String(value);
  return /^-?\d+$/.test(source) || !Number.isFinite(value) ? source : value;
}

function parseAnswer(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString("utf8"), keepDigits);
  } catch {
    return undefined;
  }
}

function requireSuccess({ status, body }: QueryAnswer): unknown {
  const answer = parseAnswer(body);
  if (status >= 200 && status < 300) return answer;
  const { message = "The database gave no reason", code = `status ${status}` } =
    errorBody.safeParse(answer).data ?? {};
  const verdict = status === 403 ? "Denied" : "Failed";
  throw new ToolFailure(`${verdict}: ${message} (${code})`);
}

/** The rows of an answer, at most `rowLimit`. @throws ToolFailure */
export function rowsOf(answer: QueryAnswer, rowLimit: number): Record<string, unknown> {
  const { data } = rowsBody.safeParse(requireSuccess(answer));
  if (data === undefined) throw new ToolFailure("Failed: the database answered without rows");
  const rows = data.data;
  return { rows: rows.slice(0, rowLimit), truncated: rows.length > rowLimit };
}

/** What an answer says was done. @throws ToolFailure */
export function messageOf(answer: QueryAnswer): Record<string, unknown> {
  const { data } = messageBody.safeParse(requireSuccess(answer));
  return { message: data?.message ?? "Done" };
}

/** A tool's result: structured, and as text for clients that read no structure. */
export function succeeded(content: Record<string, unknown>): CallToolResult {
  return {
    content: [{ type: "text", text: JSON.stringify(content) }],
    structuredContent: content,
  };
}

/** A tool's failure, so that the model may mend its call. Anything unexpected tells nothing. */
export function failed(error: unknown): CallToolResult {
  const text = failureText(error);
  return { isError: true, content: [{ type: "text", text }] };
}

function failureText(error: unknown): string {
  if (error instanceof ToolFailure) return error.message;
  if (error instanceof Refusal) {
    return `${error.status === 403 ? "Denied" : "Failed"}: ${error.message} (${error.code})`;
  }
  return "Failed: internal error (internal_error)";
}
