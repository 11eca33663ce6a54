import type { ServerResponse } from "node:http";
import type { Logger } from "pino";
import { QueryRefused } from "../query/refusal.ts";
import { EngineRefusal } from "./refusal.ts";

/** Says that the database answers. */
export function answerHealth(response: ServerResponse): void {
  answer(response, 200, { status: "success" });
}

/**
 * Answers an error: a refusal in its own words, anything else as a 500 whose cause is for the
 * log alone. A client that is gone, or has part of its answer already, gets nothing more.
 *
 * @param isPlain whether nothing of the schema is named that the query does not name
 */
export function answerError(
  response: ServerResponse,
  error: unknown,
  log: Logger,
  isPlain = false,
): void {
  if (response.destroyed) return;
  if (response.headersSent) {
    log.error({ err: error }, "an answer broke off");
    response.destroy();
    return;
  }
  const { status, code, message } = describe(error, log, isPlain);
  if (code === "body_too_large") response.setHeader("Connection", "close");
  answer(response, status, { status: "error", message, code });
}

function describe(
  error: unknown,
  log: Logger,
  isPlain: boolean,
): { status: number; code: string; message: string } {
  if (error instanceof EngineRefusal) {
    if (error.code === "storage_failed") log.error({ code: error.code }, error.message);
    const { status, code, message, plain } = error;
    return { status, code, message: isPlain ? plain : message };
  }
  if (error instanceof QueryRefused) {
    return { status: 400, code: error.code, message: error.message };
  }
  log.error({ err: error }, "a query failed");
  return { status: 500, code: "internal_error", message: "The engine failed on this query" };
}

function answer(response: ServerResponse, status: number, body: object): void {
  const bytes = Buffer.from(JSON.stringify(body));
  response.writeHead(status, {
    "Content-Type": "application/json",
    "Content-Length": bytes.length,
  });
  response.end(bytes);
}
