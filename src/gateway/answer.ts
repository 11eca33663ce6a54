import { challengeOf, isChallenged } from "./challenge.ts";
import type { Exchange } from "./exchange.ts";
import { endBeforeBody, leavesBodyUnread } from "./unread-body.ts";

/** The headers that every answer carries: names and values in turn. */
export function commonHeaders(exchange: Exchange): string[] {
  const { decision } = exchange.verdict;
  const headers = ["X-Request-Id", exchange.requestId];
  if (decision !== undefined) headers.push("X-Gatehouse-Decision", decision);
  headers.push(...exchange.extraHeaders);
  return headers;
}

/**
 * Writes the head of an answer in JSON; `endJson` is to follow.
 *
 * @param headers of its own: names and values in turn
 */
export function beginJson(
  exchange: Exchange,
  status: number,
  headers: readonly string[] = [],
): void {
  const { response } = exchange;
  if (leavesBodyUnread(exchange)) response.shouldKeepAlive = false;
  response.writeHead(status, [
    ...["Content-Type", "application/json; charset=utf-8"],
    ...["Cache-Control", "no-store"],
    ...["X-Content-Type-Options", "nosniff"],
    ...commonHeaders(exchange),
    ...headers,
  ]);
}

/** Ends such an answer, perhaps with the last of its body. */
export function endJson(exchange: Exchange, last: string | Buffer | undefined): void {
  const { response } = exchange;
  if (leavesBodyUnread(exchange)) endBeforeBody(exchange, last);
  else response.end(last);
}

/** Sends a text that is JSON. */
export function sendText(
  exchange: Exchange,
  status: number,
  text: string,
  headers: readonly string[] = [],
): void {
  const bytes = Buffer.from(text);
  beginJson(exchange, status, ["Content-Length", String(bytes.length), ...headers]);
  endJson(exchange, exchange.request.method === "HEAD" ? undefined : bytes);
}

/** Sends `body` as JSON. */
export function sendJson(
  exchange: Exchange,
  status: number,
  body: unknown,
  headers: readonly string[] = [],
): void {
  sendText(exchange, status, JSON.stringify(body), headers);
}

/** Sends a success in the documented shape. */
export function sendSuccess(exchange: Exchange, status: number, fields: object): void {
  sendJson(exchange, status, { status: "success", ...fields });
}

/** What a caller is told when it is refused. */
export interface Rejection {
  readonly code: string;
  readonly status: number;
  readonly message: string;
  /** Seconds. */
  readonly retryAfter?: number | undefined;
  readonly allow?: string | undefined;
  /** The scopes that the request needs, separated by spaces. */
  readonly scope?: string | undefined;
}

/** The body of a refusal, in the documented shape. */
export function refusalBody(
  { requestId }: Exchange,
  { code, message }: Pick<Rejection, "code" | "message">,
): object {
  return { status: "error", message, code, request_id: requestId };
}

/**
 * What a client is to ask for when a scope is missing: also what it holds already, since some ask
 * for what the challenge names and no more, and would lose the rest by the step up.
 */
function scopeToAskFor(
  { authenticated: { principal } }: Exchange,
  missing: string | undefined,
): string | undefined {
  if (missing === undefined) return undefined;
  return [...new Set([...(principal?.scopes ?? []), ...missing.split(" ")])].sort().join(" ");
}

/** Sends a refusal in the documented shape: the only place where errors become answers. */
export function sendRejection(exchange: Exchange, rejection: Rejection): void {
  const { code, status, message, retryAfter, allow } = rejection;
  const headers: string[] = [];
  if (isChallenged(code, status)) {
    const scope = scopeToAskFor(exchange, rejection.scope);
    headers.push("WWW-Authenticate", challengeOf(code, exchange.routed.resource, scope));
  }
  if (retryAfter !== undefined) headers.push("Retry-After", String(retryAfter));
  if (allow !== undefined) headers.push("Allow", allow);
  sendJson(exchange, status, refusalBody(exchange, { code, message }), headers);
}
