import { once } from "node:events";
import { pipeline, Readable } from "node:stream";
import { isDeepStrictEqual } from "node:util";
import { allEntries } from "../access/groups.ts";
import { ClientError } from "../base/client-error.ts";
import { runCooperatively } from "../base/cooperative-scheduling.ts";
import { Refusal, type RefusalCode } from "../base/refusal.ts";
import { authenticateChallenges } from "../identity/authenticate.ts";
import { JsonFault } from "../json/fault.ts";
import { endBeforeBody, leavesBodyUnread } from "./body.ts";
import type { Exchange, ResourceChallenge } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";

export function commonHeaders(exchange: Exchange): string[] {
  const { decision, filters } = exchange.verdict;
  const headers = ["X-Request-Id", exchange.requestId];
  if (decision !== undefined) headers.push("X-Gatehouse-Decision", decision);
  if (filters.length > 0) headers.push("X-Gatehouse-Narrowed", "rows");
  for (const one of exchange.extraHeaders) headers.push(one);
  return headers;
}

/** For answers with data of the upstream, in which users may have stored pages. */
export function upstreamHeaders(exchange: Exchange): string[] {
  // Such a page must not act for others who open it in a browser, at the gateway's origin.
  return [...commonHeaders(exchange), "Content-Security-Policy", "sandbox"];
}

const JSON_TYPE = "application/json; charset=utf-8";

function beginJson(
  exchange: Exchange,
  status: number,
  headers: readonly string[] = [],
  type = JSON_TYPE,
): void {
  const { response } = exchange;
  if (leavesBodyUnread(exchange)) response.shouldKeepAlive = false;
  response.writeHead(status, [
    "Content-Type",
    type,
    "Cache-Control",
    "no-store",
    "X-Content-Type-Options",
    "nosniff",
    ...commonHeaders(exchange),
    ...headers,
  ]);
}

function endJson(exchange: Exchange, last: string | Buffer | undefined): void {
  const { response } = exchange;
  if (leavesBodyUnread(exchange)) endBeforeBody(exchange, last);
  else response.end(last);
}

export function sendText(
  exchange: Exchange,
  status: number,
  text: string,
  headers: readonly string[] = [],
  type = JSON_TYPE,
): void {
  const bytes = Buffer.from(text);
  beginJson(exchange, status, ["Content-Length", String(bytes.length), ...headers], type);
  if (exchange.request.method === "HEAD") endJson(exchange, undefined);
  else if (bytes.length > PIECE_LENGTH) {
    pipeline(Readable.from(splitPieces(bytes)), exchange.response, () => {});
  } else if (bytes.length > text.length || leavesBodyUnread(exchange)) endJson(exchange, bytes);
  // Node sends a string together with the head.
  else exchange.response.end(text, "latin1");
}

/** Pieces show how far a slow client has read. */
function* splitPieces(bytes: Buffer): Generator<Buffer> {
  for (let at = 0; at < bytes.length; at += PIECE_LENGTH) {
    yield bytes.subarray(at, at + PIECE_LENGTH);
  }
}

export function sendJson(
  exchange: Exchange,
  status: number,
  body: unknown,
  headers: readonly string[] = [],
): void {
  sendText(exchange, status, JSON.stringify(body), headers);
}

export function sendSuccess(exchange: Exchange, status: number, fields: object): void {
  sendJson(exchange, status, { status: "success", ...fields });
}

const PIECE_LENGTH = 1 << 16;

function* pieceSteps(items: Iterator<object | undefined>, isFirst: boolean) {
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

/**
 * Sends a success response with a list that may be long. It is built in slices, so other requests
 * are served in between, and written no faster than the client reads.
 *
 * @param items undefined items are skipped; they let a slow search yield
 * @param next where the next page begins, if there is one
 */
export async function sendList(
  exchange: Exchange,
  name: string,
  items: Iterable<object | undefined>,
  next?: string,
): Promise<void> {
  const { request, response } = exchange;
  const iterator = items[Symbol.iterator]();
  const head = `{"status":"success","${name}":[`;
  const tail = next === undefined ? "]}" : `],"next":${JSON.stringify(next)}}`;
  let piece = await runCooperatively(pieceSteps(iterator, true));
  if (piece.isLast) return sendText(exchange, 200, `${head}${piece.text}${tail}`);
  beginJson(exchange, 200);
  if (request.method === "HEAD") return endJson(exchange, undefined);
  response.write(head);
  const closed = new Promise((resolve) => response.once("close", resolve));
  while (!response.destroyed) {
    if (!response.write(piece.text)) await Promise.race([once(response, "drain"), closed]);
    if (piece.isLast) break;
    piece = await runCooperatively(pieceSteps(iterator, false));
  }
  endJson(exchange, tail);
}

/** Has a list cut once the caller's entries change: it may show what they no longer allow. */
export function cutOnChange({ access }: Gateway, { authenticated, verdict }: Exchange): void {
  const { subject } = authenticated;
  if (subject === undefined) return;
  const { snapshot } = access;
  verdict.checkWhileOpen(() => {
    if (access.snapshot === snapshot) return;
    const before = [...allEntries(snapshot, subject)];
    const now = [...allEntries(access.snapshot, subject)];
    if (!isDeepStrictEqual(now, before)) throw new Refusal("role_insufficient");
  });
}

/** Error codes in the challenge for refusals caused by the token (RFC 6750, section 3.1). */
const challengeErrors: ReadonlyMap<string, string> = new Map<RefusalCode, string>([
  ["token_invalid", "invalid_token"],
  ["token_expired", "invalid_token"],
  ["token_revoked", "invalid_token"],
  ["user_gone", "invalid_token"],
  ["insufficient_scope", "insufficient_scope"],
]);

function bearerParameters(
  code: string,
  resource: ResourceChallenge | undefined,
  scope = resource?.scope,
): string {
  const parameters = [resource === undefined ? 'realm="gatehouse"' : 'realm="mcp"'];
  if (resource !== undefined) parameters.push(`resource_metadata="${resource.metadata()}"`);
  const error = challengeErrors.get(code);
  if (error !== undefined) parameters.push(`error="${error}"`);
  if (resource !== undefined) parameters.push(`scope="${scope}"`);
  return parameters.join(", ");
}

type Rejection = Pick<ClientError, "code" | "status" | "message"> &
  Partial<Pick<Refusal, "members" | "retryAfter" | "allow" | "scope">>;

/** Sends a refusal in the documented shape. All error responses are written here. */
export function sendRejection(exchange: Exchange, rejection: Rejection): void {
  const { code, status, message, members, retryAfter, allow } = rejection;
  const headers: string[] = [];
  if (status === 401 || code === "insufficient_scope") {
    const { accept, resource } = exchange.routed;
    const bearer = bearerParameters(code, resource, rejection.scope);
    for (const one of authenticateChallenges(accept, bearer)) headers.push("WWW-Authenticate", one);
  }
  if (retryAfter !== undefined) headers.push("Retry-After", String(retryAfter));
  if (allow !== undefined) headers.push("Allow", allow);
  // A request that waits for approval has not been refused yet.
  const outcome = status < 400 ? "pending" : "error";
  const body = { status: outcome, message, code, ...members, request_id: exchange.requestId };
  sendJson(exchange, status, body, headers);
}

/** The error that the client sees. Details that it must not see go to the log. */
function asRejection(gateway: Gateway, exchange: Exchange, error: unknown): Rejection {
  if (error instanceof Refusal) {
    const { code, detail, token } = error;
    if (token !== undefined) exchange.verdict.refuseToken(token, detail);
    if (detail !== undefined) {
      const usual = error.status >= 500 ? "warn" : "debug";
      const level = token === undefined ? usual : "info";
      gateway.log[level]({ requestId: exchange.requestId, code, detail, ...token }, "refused");
    }
    return error;
  }
  if (error instanceof ClientError) return error;
  if (error instanceof JsonFault) {
    return { code: error.code, status: 400, message: `Invalid request body: ${error.message}` };
  }
  gateway.log.error({ requestId: exchange.requestId, err: error }, "unexpected error");
  return new Refusal("internal_error");
}

/** Answers a request with the error thrown while it was handled. All refusals end here. */
export function reject(gateway: Gateway, exchange: Exchange, error: unknown): void {
  const { request, response, requestId } = exchange;
  // The client left while its body was being read, so no response can be sent.
  if (request.destroyed && !request.complete) return;
  try {
    const rejection = asRejection(gateway, exchange, error);
    exchange.verdict.deny(rejection.code, rejection.status);
    if (response.headersSent) response.destroy();
    else sendRejection(exchange, rejection);
  } catch (failure) {
    gateway.log.error({ requestId, err: failure }, "a response could not be sent");
    response.destroy();
  }
}
