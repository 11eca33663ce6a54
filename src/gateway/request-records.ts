import type { EntryPoint } from "../access/grant.ts";
import type { AuditRecord } from "../observe/audit-line.ts";
import type { RequestTrace } from "../observe/request-trace.ts";
import { traceIdOf } from "../observe/trace-parent.ts";
import type { Tracing } from "../observe/tracing.ts";
import type { BrokenRequest } from "./broken-request.ts";
import { type Exchange, UNKNOWN_ROUTE } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { addressOf } from "./peer.ts";

const LOGIN_PATH = "/login";
/** The status that the records show for a client that left before its answer, as nginx has it. */
const CLIENT_GONE = 499;

/** What was asked for, as the metrics tell it apart. */
function operationOf({ verdict }: Exchange): string {
  if (verdict.count > 1) return "Batch";
  return verdict.operations[0]?.operation ?? "none";
}

function count(gateway: Gateway, exchange: Exchange, status: number, seconds: number): void {
  const { routed, authenticated, verdict, startedAt, forwardedAt } = exchange;
  gateway.metrics?.request({
    route: routed.pattern,
    status,
    decision: verdict.decision,
    seconds,
    reason: verdict.reason ?? "allowed",
    operation: operationOf(exchange),
    // Not a name that was only claimed at a login.
    user: authenticated.subject?.username,
    gatewaySeconds: forwardedAt === undefined ? seconds : (forwardedAt - startedAt) / 1000,
  });
}

function begin(tracing: Tracing, exchange: Exchange): RequestTrace {
  const { request, peer, routed, path, startedAt } = exchange;
  const { method = "", headers, httpVersion } = request;
  return tracing.begin({
    method,
    route: routed.pattern === UNKNOWN_ROUTE ? undefined : routed.pattern,
    path,
    scheme: peer.proto,
    address: peer.address,
    httpVersion,
    headers,
    startedAt,
  });
}

/** Begins the span of a request whose route was found, if requests are traced. */
export function beginTrace({ tracing }: Gateway, exchange: Exchange): void {
  if (tracing !== undefined) exchange.trace = begin(tracing, exchange);
}

/** One that was refused before its route was found has no span yet. */
function endTrace(tracing: Tracing, exchange: Exchange, status: number): void {
  const { decision, reason } = exchange.verdict;
  const isAnswered = exchange.response.headersSent;
  exchange.trace ??= begin(tracing, exchange);
  exchange.trace.end({ status, isAnswered, decision, reason, operation: operationOf(exchange) });
}

/** How a database was asked; undefined where none was. */
function viaOf({ routed: { resource, pattern }, verdict }: Exchange): EntryPoint | undefined {
  if (pattern === LOGIN_PATH || verdict.count === 0) return undefined;
  return resource === undefined ? "query" : "mcp";
}

/**
 * Writes the audit's line and the metrics of a request that is over, and ends its span.
 *
 * @param bytes that went out, head and body
 */
export function account(gateway: Gateway, exchange: Exchange, bytes: number): void {
  const { request, response, requestId, authenticated, verdict } = exchange;
  const seconds = (performance.now() - exchange.startedAt) / 1000;
  const status = response.headersSent ? response.statusCode : CLIENT_GONE;
  count(gateway, exchange, status, seconds);
  if (gateway.tracing !== undefined) endTrace(gateway.tracing, exchange, status);
  if (exchange.routed.isQuiet) return;
  const { routed, trace, path, peer } = exchange;
  const { username, caller, principal } = authenticated;
  const { operations, changes, decision, refusedToken } = verdict;
  if (decision === "allow" && username !== undefined) {
    gateway.activity.note(username, principal?.clientId, routed.pattern === LOGIN_PATH);
  }
  gateway.audit.request({
    requestId,
    traceId: trace?.traceId ?? traceIdOf(request.headers.traceparent),
    address: peer.address,
    method: request.method ?? "",
    // A path that is none of the gateway's may hold anything, a pasted token too.
    path: routed.pattern === UNKNOWN_ROUTE ? undefined : path,
    user: username ?? refusedToken?.user,
    tokenId: caller?.token.tokenId ?? principal?.tokenId ?? refusedToken?.tokenId,
    via: viaOf(exchange),
    client: principal?.clientId ?? refusedToken?.client,
    issuer: refusedToken?.issuer,
    operations,
    operationCount: verdict.count,
    decision,
    reason: verdict.reason,
    detail: refusedToken?.detail,
    narrowed: verdict.filters.length > 0 ? "rows" : undefined,
    approval: verdict.approval,
    rates: verdict.rates,
    affected: verdict.report?.affected,
    rows: verdict.report?.rows,
    author: changes && username !== undefined ? { kind: "api", name: username } : undefined,
    changes,
    accessVersion: gateway.access.version,
    status,
    ms: Math.round(seconds * 1e6) / 1e3,
    bytes,
  });
}

/** What is said of what was no request. */
const nothing: Omit<
  AuditRecord,
  "requestId" | "address" | "reason" | "accessVersion" | "status" | "bytes"
> = {
  ...{ traceId: undefined, path: undefined, user: undefined, tokenId: undefined },
  ...{ via: undefined, client: undefined, narrowed: undefined, affected: undefined },
  ...{ rows: undefined, author: undefined, changes: undefined, approval: undefined },
  ...{ rates: undefined, issuer: undefined, detail: undefined },
  ...{ method: "", operations: [], operationCount: 0, ms: 0 },
  decision: "deny",
};

/** Writes the same for what came in the place of a request. */
export function accountBroken(gateway: Gateway, broken: BrokenRequest): void {
  const { socket, requestId, refusal, bytes } = broken;
  const { status, code: reason } = refusal;
  gateway.metrics?.request({
    ...{ route: UNKNOWN_ROUTE, status, reason, decision: "deny", operation: "none" },
    ...{ user: undefined, seconds: 0, gatewaySeconds: 0 },
  });
  gateway.audit.request({
    ...nothing,
    requestId,
    address: addressOf(socket),
    reason,
    accessVersion: gateway.access.version,
    status,
    bytes,
  });
}
