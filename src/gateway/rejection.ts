import { JsonFault } from "../json/fault.ts";
import { QueryRefused } from "../query/refusal.ts";
import { type Members, Refusal, type RefusalCode } from "../refusal.ts";
import { sendJson } from "./answer.ts";
import type { Exchange, ResourceChallenge } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";

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
export interface Rejection {
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
