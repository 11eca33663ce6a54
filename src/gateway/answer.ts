import { challengeOf, isChallenged } from "./challenge.ts";
import type { Exchange } from "./exchange.ts";

/** The headers that every answer carries: names and values in turn. */
export function commonHeaders(exchange: Exchange): string[] {
  const headers = ["X-Request-Id", exchange.requestId];
  if (exchange.decision !== undefined) headers.push("X-Gatehouse-Decision", exchange.decision);
  headers.push(...exchange.extraHeaders);
  return headers;
}

/** Sends `body` as JSON. */
export function sendJson(
  exchange: Exchange,
  status: number,
  body: unknown,
  headers: readonly string[] = [],
): void {
  const bytes = Buffer.from(JSON.stringify(body));
  const { response } = exchange;
  response.writeHead(status, [
    ...["Content-Type", "application/json; charset=utf-8"],
    ...["Content-Length", String(bytes.length)],
    ...["Cache-Control", "no-store"],
    ...["X-Content-Type-Options", "nosniff"],
    ...commonHeaders(exchange),
    ...headers,
  ]);
  response.end(exchange.request.method === "HEAD" ? undefined : bytes);
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

/** Sends a refusal in the documented shape: the only place where errors become answers. */
export function sendRejection(exchange: Exchange, rejection: Rejection): void {
  const { code, status, message, retryAfter, allow } = rejection;
  const headers: string[] = [];
  if (isChallenged(code, status)) {
    headers.push("WWW-Authenticate", challengeOf(code, exchange.resource, rejection.scope));
  }
  if (retryAfter !== undefined) headers.push("Retry-After", String(retryAfter));
  if (allow !== undefined) headers.push("Allow", allow);
  sendJson(exchange, status, refusalBody(exchange, { code, message }), headers);
}
