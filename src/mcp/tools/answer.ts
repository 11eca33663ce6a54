import { inOneGo, inSlices } from "../../slices.ts";
import { JsonRefused, readMembers, readText } from "../strict-json.ts";
import { listResult, type PageLimits, resultOf, type ToolResult } from "./result.ts";
import { rowsIn } from "./rows.ts";
import { ToolFailure } from "./tool-failure.ts";

/** What the database answers to a query. */
export interface QueryAnswer {
  readonly status: number;
  readonly body: Buffer;
  /** True if the answer goes on behind the body. */
  readonly isCut: boolean;
}

/** Bytes of an answer that says what was done, or why not. */
export const LONGEST_MESSAGE = 16 * 1024;

interface Message {
  readonly message?: string | undefined;
  readonly code?: string | undefined;
}

function messageIn(body: Buffer): Message {
  if (body.length > LONGEST_MESSAGE) return {};
  try {
    const members = inOneGo(readMembers(body));
    return { message: readText(members.get("message")), code: readText(members.get("code")) };
  } catch (error) {
    if (error instanceof JsonRefused) return {};
    throw error;
  }
}

function requireSuccess({ status, body }: QueryAnswer): void {
  if (status >= 200 && status < 300) return;
  const { message = "The database gave no reason", code = `status ${status}` } = messageIn(body);
  throw new ToolFailure(`${status === 403 ? "Denied" : "Failed"}: ${message} (${code})`);
}

/** The rows of an answer, as far as they fit. @throws ToolFailure */
export async function rowsOf(answer: QueryAnswer, limits: PageLimits): Promise<ToolResult> {
  requireSuccess(answer);
  const rows = await inSlices(rowsIn(answer.body, answer.isCut));
  if (rows === undefined) {
    throw new ToolFailure("Failed: the database answered without rows that can be passed on");
  }
  return listResult("rows", rows, limits);
}

/** What an answer says was done. @throws ToolFailure */
export function messageOf(answer: QueryAnswer): ToolResult {
  requireSuccess(answer);
  return resultOf({ message: messageIn(answer.body).message ?? "Done" });
}
