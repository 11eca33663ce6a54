import type { ServerResponse } from "node:http";
import type { McpRefused } from "./json-rpc.ts";

/** What the gateway adds to the answer of a request, and is told of it. */
export interface Answering {
  /**
   * Headers that the gateway adds, names and values in turn. Asked for when the answer begins, and
   * no earlier: they tell what was decided.
   */
  readonly answerHeaders: () => readonly string[];
  /** Told, before the answer begins, that the protocol refuses the request: the stable code why. */
  readonly onRefused: (reason: string) => void;
}

/** Sets headers that are given as names and values in turn. */
export function setHeaders(response: ServerResponse, headers: readonly string[]): void {
  for (let at = 0; at + 1 < headers.length; at += 2) {
    response.setHeader(headers[at] ?? "", headers[at + 1] ?? "");
  }
}

/** The status of a notification that was taken: it has no answer, so a refusal has none either. */
const ACCEPTED = 202;

/**
 * Answers a refusal as a JSON-RPC error, whose id is null if the request's could not be read
 * (JSON-RPC 2.0, section 5).
 */
export function sendMcpRefusal(
  response: ServerResponse,
  refused: McpRefused,
  { answerHeaders, onRefused }: Answering,
): void {
  onRefused(refused.reason);
  if (response.headersSent || response.destroyed) return;
  const { id = null, code, message, data, status } = refused;
  const error = data === undefined ? { code, message } : { code, message, data };
  const isAnswered = status !== ACCEPTED;
  const bytes = Buffer.from(isAnswered ? JSON.stringify({ jsonrpc: "2.0", id, error }) : "");
  setHeaders(response, answerHeaders());
  if (isAnswered) response.setHeader("Content-Type", "application/json");
  response.setHeader("Content-Length", bytes.length);
  response.setHeader("Cache-Control", "no-store");
  response.setHeader("X-Content-Type-Options", "nosniff");
  response.writeHead(status);
  response.end(bytes);
}
