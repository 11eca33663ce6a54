import { type RequestTrace, traceIdOf } from "../observe/request-trace.ts";
import type { Tracing } from "../observe/tracing.ts";
import type { BrokenRequest } from "./broken-request.ts";
import { type Exchange, UNKNOWN_ROUTE } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { addressOf } from "./peer.ts";

/** The status that the records show for a client that left before its answer, as nginx has it. */
const CLIENT_GONE = 499;

/** What was asked for, as the metrics tell it apart. */
function operationOf({ verdict }: Exchange): string {
  if (verdict.count > 1) return "Batch";
  return verdict.operations[0]?.operation ?? "none";
}

function count(gateway: Gateway, exchange: Exchange, status: number, seconds: number): void {
  const { routed, authenticated, verdict, startedAt, forwardedAt } = exchange;
  gateway.metrics.request({
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
  gateway.audit.request({
    requestId,
    traceId: exchange.trace?.traceId ?? traceIdOf(request.headers.traceparent),
    address: exchange.peer.address,
    method: request.method ?? "",
    // A path that is none of the gateway's may hold anything, a pasted token too.
    path: exchange.routed.pattern === UNKNOWN_ROUTE ? undefined : exchange.path,
    user: authenticated.username,
    tokenId: authenticated.caller?.token.tokenId ?? authenticated.principal?.tokenId,
    operations: verdict.operations,
    operationCount: verdict.count,
    decision: verdict.decision,
    reason: verdict.reason,
    accessVersion: gateway.access.snapshot.version,
    status,
    ms: Math.round(seconds * 1e6) / 1e3,
    bytes,
  });
}

/** Writes the same for what came in the place of a request. */
export function accountBroken(gateway: Gateway, broken: BrokenRequest): void {
  const { socket, requestId, refusal, bytes } = broken;
  const { status, code: reason } = refusal;
  gateway.metrics.request({
    ...{ route: UNKNOWN_ROUTE, status, reason, decision: "deny", operation: "none" },
    ...{ user: undefined, seconds: 0, gatewaySeconds: 0 },
  });
  gateway.audit.request({
    requestId,
    traceId: undefined,
    address: addressOf(socket),
    method: "",
    path: undefined,
    user: undefined,
    tokenId: undefined,
    operations: [],
    operationCount: 0,
    decision: "deny",
    reason,
    accessVersion: gateway.access.snapshot.version,
    status,
    ms: 0,
    bytes,
  });
}
