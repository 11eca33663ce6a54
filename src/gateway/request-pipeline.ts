import { AsyncLocalStorage } from "node:async_hooks";
import type { EntryPoint } from "../access/grant.ts";
import { authenticate, recognize } from "../identity/authenticate.ts";
import type { AuditRecord } from "../observe/audit-line.ts";
import type { RequestTrace } from "../observe/request-trace.ts";
import { traceIdOf } from "../observe/trace-parent.ts";
import type { Tracing } from "../observe/tracing.ts";
import { Refusal } from "../refusal.ts";
import { reject } from "./answer.ts";
import {
  authenticateCaller,
  authenticateMcp,
  mcpChallenge,
  requireStillGood,
} from "./authentication.ts";
import { readBody, requireJson, requireLength, SMALL_BODY_BYTES } from "./body.ts";
import type { BrokenRequest } from "./connections.ts";
import { type Exchange, occurrences, UNKNOWN_ROUTE } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { home, isBrowserAtHome } from "./handlers/public.ts";
import { isPreflight, requireLocal, sendPreflight } from "./origins.ts";
import { addressOf } from "./peer.ts";
import { allowedMethods, type Endpoint, endpointFor, type Router } from "./route.ts";

/**
 * Steps per batch, a few milliseconds of signature checks. Other events are handled between
 * batches.
 */
const BATCH_SIZE = 64;

/**
 * Defers slow steps, such as verifying a signature, until all pending input is read, then runs them
 * in a row. Interleaved with other work, each would evict the CPU caches and find them cold.
 * Batching makes a request with a signature one sixth cheaper.
 */
export class Batch {
  readonly #steps: (() => void)[] = [];

  /** @param step must not throw */
  add(step: () => void): void {
    if (this.#steps.push(AsyncLocalStorage.bind(step)) === 1) setImmediate(this.#take);
  }

  readonly #take = (): void => {
    for (const step of this.#steps.splice(0, BATCH_SIZE)) step();
    if (this.#steps.length > 0) setImmediate(this.#take);
  };
}

const LOGIN_PATH = "/login";
/** The recorded status for a client that left before the response, as in nginx. */
const CLIENT_GONE = 499;

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

function beginTrace({ tracing }: Gateway, exchange: Exchange): void {
  if (tracing !== undefined) exchange.trace = begin(tracing, exchange);
}

/** A request refused before its route was found has no span. */
function endTrace(tracing: Tracing, exchange: Exchange, status: number): void {
  const { decision, reason } = exchange.verdict;
  const isAnswered = exchange.response.headersSent;
  exchange.trace ??= begin(tracing, exchange);
  exchange.trace.end({ status, isAnswered, decision, reason, operation: operationOf(exchange) });
}

function viaOf({ routed: { resource, pattern }, verdict }: Exchange): EntryPoint | undefined {
  if (pattern === LOGIN_PATH || verdict.count === 0) return undefined;
  return resource === undefined ? "query" : "mcp";
}

/**
 * Writes the audit line and metrics of a finished request and ends its span.
 *
 * @param bytes sent, head and body
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
    // An unknown path may contain anything, even a pasted token.
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

/**
 * Handles a request: route, authenticate, read the body, authorize, forward, respond. All refusals
 * end in one place.
 * Queries run through all steps without a promise, because they wait only for bytes.
 */
export function handleRequest(gateway: Gateway, router: Router, exchange: Exchange): void {
  attempt(gateway, exchange, () => enter(gateway, router, exchange));
}

function attempt(gateway: Gateway, exchange: Exchange, step: () => Promise<void> | void): void {
  try {
    step()?.catch((error: unknown) => reject(gateway, exchange, error));
  } catch (error) {
    reject(gateway, exchange, error);
  }
}

/** Endpoints that a replica without a valid lease still serves. */
const alwaysAnswered: ReadonlySet<string> = new Set(["/healthz", "/readyz"]);

function enter(gateway: Gateway, router: Router, exchange: Exchange): Promise<void> | void {
  const { replica } = gateway;
  if (replica !== undefined && !alwaysAnswered.has(exchange.path)) replica.requireFresh();
  const endpoint = findEndpoint(gateway, router, exchange);
  if (endpoint === undefined) return;
  requireLocal(gateway, exchange);
  requireOneAuthorization(exchange);
  if (endpoint.authentication === "mcp") return enterMcp(gateway, endpoint, exchange);
  if (authenticateCaller(gateway, endpoint, exchange, recognize)) {
    readAndHandle(gateway, endpoint, exchange);
    return;
  }
  const verify = () => {
    authenticateCaller(gateway, endpoint, exchange, authenticate);
    readAndHandle(gateway, endpoint, exchange);
  };
  signatures.add(() => attempt(gateway, exchange, verify));
}

const signatures = new Batch();

async function enterMcp(gateway: Gateway, endpoint: Endpoint, exchange: Exchange): Promise<void> {
  await authenticateMcp(gateway, exchange);
  readAndHandle(gateway, endpoint, exchange);
}

/**
 * Returns undefined if the request has already been answered.
 *
 * @throws Refusal `not_found` or `method_not_allowed`
 */
function findEndpoint(gateway: Gateway, router: Router, exchange: Exchange): Endpoint | undefined {
  const match = router(exchange.path);
  if (match === undefined) {
    if (isBrowserAtHome(exchange.request, exchange.path)) return home;
    throw new Refusal("not_found");
  }
  const { route, parameters } = match;
  const endpoint = endpointFor(route, exchange.request.method ?? "");
  exchange.routed = {
    pattern: route.pattern,
    parameters,
    isQuiet: endpoint?.isQuiet ?? false,
    resource: endpoint?.authentication === "mcp" ? mcpChallenge(gateway) : undefined,
  };
  beginTrace(gateway, exchange);
  if (endpoint !== undefined) return endpoint;
  if (isPreflight(exchange, gateway.configuration.server.allowed_origins)) {
    sendPreflight(exchange, route);
    return undefined;
  }
  throw new Refusal("method_not_allowed", { allow: allowedMethods(route) });
}

/** The gateway and the upstream might each choose a different credential if there are several. */
function requireOneAuthorization({ request }: Exchange): void {
  if (occurrences(request, "authorization") > 1) {
    throw new Refusal("several_authorization_headers");
  }
}

const noBody = Buffer.alloc(0);

function readAndHandle(gateway: Gateway, endpoint: Endpoint, exchange: Exchange): void {
  const { bodyLimit } = endpoint;
  if (bodyLimit === undefined) {
    if (!endpoint.readsBody) requireLength(exchange.request, SMALL_BODY_BYTES);
    attempt(gateway, exchange, () => endpoint.handle(gateway, exchange, noBody));
    return;
  }
  requireJson(exchange.request);
  readBody(exchange, bodyLimit, gateway.budget, {
    take: (body) =>
      attempt(gateway, exchange, () => {
        requireStillGood(gateway, exchange);
        return endpoint.handle(gateway, exchange, body);
      }),
    fail: (error) => reject(gateway, exchange, error),
  });
}
