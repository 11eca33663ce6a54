import type { ServerResponse } from "node:http";
import { runCooperatively, type Steps } from "../cooperative-scheduling.ts";
import { JsonFault } from "../json/fault.ts";
import { QueryRefused } from "../query/refusal.ts";
import { type Members, Refusal, type RefusalCode } from "../refusal.ts";
import { endBeforeBody, leavesBodyUnread } from "./body.ts";
import type { Exchange, ResourceChallenge } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";

/** The headers that every answer carries: names and values in turn. */
export function commonHeaders(exchange: Exchange): string[] {
  const { decision, filters } = exchange.verdict;
  const headers = ["X-Request-Id", exchange.requestId];
  if (decision !== undefined) headers.push("X-Gatehouse-Decision", decision);
  if (filters.length > 0) headers.push("X-Gatehouse-Narrowed", "rows");
  headers.push(...exchange.extraHeaders);
  return headers;
}

/**
 * Writes the head of an answer in JSON; `endJson` is to follow.
 *
 * @param headers of its own: names and values in turn
 */
function beginJson(exchange: Exchange, status: number, headers: readonly string[] = []): void {
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
function endJson(exchange: Exchange, last: string | Buffer | undefined): void {
  const { response } = exchange;
  if (leavesBodyUnread(exchange)) endBeforeBody(exchange, last);
  else response.end(last);
}

/** Sends a text that is JSON. */
function sendText(
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

/** Characters that are written at a time. */
const PIECE_LENGTH = 1 << 16;

/** Some items as JSON, and whether they are the last ones. */
interface Piece {
  readonly text: string;
  readonly isLast: boolean;
}

function* pieceSteps(items: Iterator<object | undefined>, isFirst: boolean): Steps<Piece> {
  let text = "";
  while (text.length < PIECE_LENGTH) {
    const { value, done } = items.next();
    if (done === true) return { text, isLast: true };
    if (value !== undefined) {
      text += isFirst && text === "" ? JSON.stringify(value) : `,${JSON.stringify(value)}`;
    }
    yield;
  }
  return { text, isLast: false };
}

function field([name, value]: [string, unknown]): string {
  return `${JSON.stringify(name)}:${JSON.stringify(value)}`;
}

/** Resolves when more can be written, or the client is gone. */
async function whenWritable(response: ServerResponse): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  response.once("drain", resolve).once("close", resolve);
  await promise;
  response.off("drain", resolve).off("close", resolve);
}

/**
 * Sends a success with a list, which may be long: made in slices between which others are served,
 * and no faster than the client takes it.
 *
 * @param items undefined stands for nothing, where the next one takes some looking for
 * @param rest further fields
 */
export async function sendList(
  exchange: Exchange,
  name: string,
  items: Iterable<object | undefined>,
  rest: object = {},
): Promise<void> {
  const { request, response } = exchange;
  const iterator = items[Symbol.iterator]();
  const head = `{"status":"success","${name}":[`;
  const tail = `]${["", ...Object.entries(rest).map(field)].join(",")}}`;
  let piece = await runCooperatively(pieceSteps(iterator, true));
  if (piece.isLast) {
    sendText(exchange, 200, `${head}${piece.text}${tail}`);
    return;
  }
  beginJson(exchange, 200);
  if (request.method === "HEAD") {
    endJson(exchange, undefined);
    return;
  }
  response.write(head);
  while (!response.destroyed) {
    if (!response.write(piece.text)) await whenWritable(response);
    if (piece.isLast) break;
    piece = await runCooperatively(pieceSteps(iterator, false));
  }
  endJson(exchange, tail);
}

/** Refusals that say by their challenge what is wrong with the token (RFC 6750, section 3.1). */
const errors: ReadonlyMap<string, string> = new Map<RefusalCode, string>([
  ["token_invalid", "invalid_token"],
  ["token_expired", "invalid_token"],
  ["token_revoked", "invalid_token"],
  ["user_gone", "invalid_token"],
  ["insufficient_scope", "insufficient_scope"],
]);

/**
 * The value of `WWW-Authenticate` for a refusal.
 *
 * @param scope what the refusal says is needed, in the place of all that the resource has
 */
function challengeOf(
  code: string,
  resource: ResourceChallenge | undefined,
  scope = resource?.scope,
): string {
  const parameters = [resource === undefined ? 'realm="gatehouse"' : 'realm="mcp"'];
  if (resource !== undefined) parameters.push(`resource_metadata="${resource.metadata}"`);
  const error = errors.get(code);
  if (error !== undefined) parameters.push(`error="${error}"`);
  if (resource !== undefined) parameters.push(`scope="${scope}"`);
  return `Bearer ${parameters.join(", ")}`;
}

/** What a caller is told when it is refused. */
interface Rejection {
  readonly code: string;
  readonly status: number;
  readonly message: string;
  /** Further members of the body. */
  readonly members?: Members | undefined;
  /** Seconds. */
  readonly retryAfter?: number | undefined;
  readonly allow?: string | undefined;
  /** The scopes that the request needs, separated by spaces. */
  readonly scope?: string | undefined;
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
  const { code, status, message, members, retryAfter, allow } = rejection;
  const headers: string[] = [];
  // Every 401, and the 403 for a missing scope.
  if (status === 401 || code === "insufficient_scope") {
    const scope = scopeToAskFor(exchange, rejection.scope);
    headers.push("WWW-Authenticate", challengeOf(code, exchange.routed.resource, scope));
  }
  if (retryAfter !== undefined) headers.push("Retry-After", String(retryAfter));
  if (allow !== undefined) headers.push("Allow", allow);
  // What waits for an approval is not refused yet.
  const said = status < 400 ? "pending" : "error";
  const body = { status: said, message, code, ...members, request_id: exchange.requestId };
  sendJson(exchange, status, body, headers);
}

/** What the client is told of an error; all that it is not told goes to the log. */
function asRejection(gateway: Gateway, exchange: Exchange, error: unknown): Rejection {
  if (error instanceof Refusal) {
    const { code, detail, token } = error;
    if (token !== undefined) exchange.verdict.refusedToken = { ...token, detail };
    if (detail !== undefined) {
      const usual = error.status >= 500 ? "warn" : "debug";
      const level = token === undefined ? usual : "info";
      gateway.log[level]({ requestId: exchange.requestId, code, detail, ...token }, "refused");
    }
    return error;
  }
  if (error instanceof QueryRefused) {
    return { code: error.code, status: 400, message: error.message };
  }
  if (error instanceof JsonFault) {
    return { code: error.code, status: 400, message: `Invalid request body: ${error.message}` };
  }
  gateway.log.error({ requestId: exchange.requestId, err: error }, "unexpected error");
  return new Refusal("internal_error");
}

/** Answers a request with what was thrown on its way: the one place where refusals end. */
export function reject(gateway: Gateway, exchange: Exchange, error: unknown): void {
  const { request, response, requestId } = exchange;
  // The client went away while its body was read: there is nobody to answer.
  if (request.destroyed && !request.complete) return;
  try {
    const rejection = asRejection(gateway, exchange, error);
    exchange.verdict.deny(rejection.code, rejection.status);
    if (response.headersSent) response.destroy();
    else sendRejection(exchange, rejection);
  } catch (failure) {
    gateway.log.error({ requestId, err: failure }, "an answer could not be sent");
    response.destroy();
  }
}
