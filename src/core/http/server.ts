import { once } from "node:events";
import type { IncomingMessage, ServerOptions, ServerResponse } from "node:http";
import type { User } from "../access/grant.ts";
import { http } from "../base/node-http.ts";
import { Refusal } from "../base/refusal.ts";
import { type Configuration, tokenHeaders } from "../config/schema.ts";
import {
  bearerOnly,
  type Credential,
  claimedIssuer,
  type ExternalToken,
  externalCaller,
  isOpaque,
  passwordCaller,
  readCredential,
  tokenCaller,
} from "../identity/authenticate.ts";
import type { LoginOrigin } from "../identity/throttle.ts";
import { findIssued, type TokenClaims } from "../identity/token.ts";
import { parseTraceId } from "../observe/audit.ts";
import type { RequestTrace, Tracing } from "../observe/tracing.ts";
import { reject } from "./answer.ts";
import {
  closeAfterResponse,
  endConnection,
  readBody,
  requireJson,
  requireLength,
  SMALL_BODY_BYTES,
} from "./body.ts";
import { type BrokenRequest, Connections, limitAnswers } from "./connections.ts";
import {
  Exchange,
  hasBody,
  occurrences,
  requestPath,
  requirePlainHead,
  requireStillGood,
  resolveTarget,
  UNKNOWN_ROUTE,
} from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import {
  corsHeaders,
  createPeerReader,
  isPreflight,
  loginOrigin,
  requireLocal,
  requireSameOrigin,
  sendPreflight,
  socketAddress,
  usesBasic,
} from "./origins.ts";
import { allowedMethods, type Endpoint, methodIn, type Router, type Routes } from "./route.ts";
import type { SecureServer } from "./secure-server.ts";
import { limitConnections } from "./system-limits.ts";

/**
 * The gateway and the upstream might each choose a different one.
 *
 * @throws Refusal `several_authorization_headers` or `several_credentials`
 */
function requireOneCredential({ configuration }: Gateway, { request }: Exchange): void {
  const count = occurrences(request, "authorization");
  if (count > 1) throw new Refusal("several_authorization_headers");
  let all = count;
  for (const name of tokenHeaders(configuration.auth.accept)) all += occurrences(request, name);
  if (all > 1) throw new Refusal("several_credentials");
}

/**
 * Waits only for a password, for an unknown opaque token or a token of an external issuer that has
 * not been verified yet, or for the endpoint's own authentication.
 *
 * @throws Refusal if the endpoint requires a credential and there is no valid one
 */
function authenticateCaller(
  gateway: Gateway,
  { authentication }: Endpoint,
  exchange: Exchange,
): Promise<void> | undefined {
  requireOneCredential(gateway, exchange);
  if (authentication === "public") return undefined;
  if (typeof authentication === "object") return authentication.authenticate(gateway, exchange);
  const { configuration, tokens, inventory, access, revocations, issuers } = gateway;
  if (!configuration.auth.enabled) {
    if (authentication === "administration") throw new Refusal("administration_disabled");
    return undefined;
  }
  const { request, routed } = exchange;
  const { authorization } = request.headers;
  const acceptExternal = (external: ExternalToken): undefined => {
    exchange.authenticated = externalCaller(access.snapshot, revocations, external);
  };
  const accept = (own: Omit<TokenClaims, "role">): undefined => {
    exchange.authenticated = tokenCaller(access.snapshot, revocations, own);
  };
  if (routed.accept.includes("bearer") && authorization?.startsWith("Bearer ")) {
    // To check the form of a long token takes longer than to find it.
    const token = authorization.slice("Bearer ".length);
    const external = issuers?.recall(token, "query");
    if (external !== undefined) return acceptExternal(external);
    const own = tokens.recall(token);
    if (own !== undefined) return accept(own);
  }
  const credential = readCredential(request.headers, routed.accept);
  if (usesBasic(request)) requireSameOrigin(gateway, exchange);
  if ("password" in credential) return authenticateUser(gateway, exchange, credential);
  const { token } = credential;
  if (isOpaque(token)) {
    const issued = findIssued(inventory, tokens.metrics, token);
    return issued instanceof Promise ? issued.then(accept) : accept(issued);
  }
  if (issuers !== undefined && claimedIssuer(token) !== configuration.auth.issuer) {
    return issuers.verify(token, "query").then(acceptExternal);
  }
  return accept(tokens.verify(token));
}

/** @throws Refusal `credentials_invalid`, `too_many_attempts` or `login_busy` */
function authenticateUser(
  { configuration, access, passwords }: Gateway,
  exchange: Exchange,
  { username, password }: Exclude<Credential, { readonly token: string }>,
): Promise<void> | undefined {
  if (!configuration.auth.passwords) throw new Refusal("credentials_invalid");
  // Text that is not the name of a user may be a mistyped password.
  if (access.snapshot.users.has(username)) exchange.claimedName = username;
  const origin = loginOrigin(exchange.peer, exchange.request);
  const accept = (user: User): undefined => {
    const caller = passwordCaller(user);
    caller.identify(access.snapshot);
    exchange.authenticated = caller;
  };
  const known = passwords.recall(access.snapshot, username, password, origin);
  if (known !== undefined) return accept(known);
  return passwords.verify(username, password, origin).then(accept);
}

/** The recorded status for a client that left before the response, as in nginx. */
const CLIENT_GONE = 499;

function operationLabel({ verdict }: Exchange): string {
  if (verdict.count > 1) return "Batch";
  return verdict.operations[0]?.operation ?? "none";
}

/** Undefined for a path that may contain anything, even a pasted token. */
function recordedPath({ basePath }: Gateway, { routed, path, verdict }: Exchange) {
  if (routed.pattern === UNKNOWN_ROUTE) return undefined;
  const isTokenId = routed.pattern === `${basePath}/api/tokens/:id`;
  return isTokenId && verdict.decision !== "allow" ? undefined : path;
}

function beginTrace(gateway: Gateway, tracing: Tracing, exchange: Exchange): RequestTrace {
  const { request, peer, routed, startedAt } = exchange;
  const { method = "", headers, httpVersion } = request;
  const { proto: scheme, address } = peer;
  const route = routed.pattern === UNKNOWN_ROUTE ? undefined : routed.pattern;
  const path = recordedPath(gateway, exchange) ?? routed.pattern;
  return tracing.begin({ method, route, path, scheme, address, httpVersion, headers, startedAt });
}

function isLogin({ basePath }: Gateway, { routed }: Exchange): boolean {
  return routed.pattern === `${basePath}/login`;
}

function account(gateway: Gateway, exchange: Exchange, bytes: number): void {
  const { request, response, routed, peer, authenticated, username, verdict } = exchange;
  const { startedAt, forwardedAt } = exchange;
  const { operations, changes, decision, reason, refusedToken } = verdict;
  const seconds = (performance.now() - startedAt) / 1000;
  const status = response.headersSent ? response.statusCode : CLIENT_GONE;
  const operation = operationLabel(exchange);
  gateway.metrics?.request({
    route: routed.pattern,
    status,
    decision,
    seconds,
    reason: reason ?? "allowed",
    operation,
    // Not a name that was only claimed at a login.
    user: authenticated.subject?.username,
    gatewaySeconds: forwardedAt === undefined ? seconds : (forwardedAt - startedAt) / 1000,
  });
  if (gateway.tracing !== undefined) {
    // A request refused before its route was found has no span.
    exchange.trace ??= beginTrace(gateway, gateway.tracing, exchange);
    exchange.trace.end({ status, isAnswered: response.headersSent, decision, reason, operation });
  }
  if (routed.isQuiet) return;
  const { tokenId, client, droppedGroups } = authenticated;
  if (decision === "allow" && username !== undefined) {
    const app = routed.via === "mcp" ? client : undefined;
    const token = gateway.inventory.index.get(tokenId ?? "")?.tokenId;
    gateway.activity.note(username, app, { isLogin: isLogin(gateway, exchange), token });
  }
  gateway.audit.request({
    requestId: exchange.requestId,
    traceId: exchange.trace?.traceId ?? parseTraceId(request.headers.traceparent),
    address: peer.address,
    method: request.method ?? "",
    path: recordedPath(gateway, exchange),
    user: username ?? refusedToken?.user,
    tokenId: tokenId || refusedToken?.tokenId,
    via: verdict.count === 0 || isLogin(gateway, exchange) ? undefined : routed.via,
    client: client ?? refusedToken?.client,
    issuer: refusedToken?.issuer,
    operations,
    operationCount: verdict.count,
    decision,
    reason,
    detail: refusedToken?.detail,
    cause: refusedToken?.cause,
    droppedGroups: droppedGroups || undefined,
    narrowed: verdict.filters.length > 0 ? "rows" : undefined,
    approval: verdict.approval,
    rates: verdict.rates,
    affected: verdict.report?.affected,
    rows: verdict.shownRows ?? verdict.report?.rows,
    format: verdict.report?.format,
    author: changes && username !== undefined ? { kind: "api", name: username } : undefined,
    changes,
    accessVersion: verdict.accessVersion ?? gateway.access.version,
    status,
    toolStatus: routed.via === "mcp" && verdict.status !== status ? verdict.status : undefined,
    ms: Math.round(seconds * 1e6) / 1e3,
    bytes,
  });
}

function accountBroken(gateway: Gateway, broken: BrokenRequest): void {
  const { socket, requestId, refusal, bytes } = broken;
  const { status, code: reason } = refusal;
  gateway.metrics?.request({
    route: UNKNOWN_ROUTE,
    status,
    reason,
    decision: "deny",
    operation: "none",
    user: undefined,
    seconds: 0,
    gatewaySeconds: 0,
  });
  gateway.audit.request({
    requestId,
    address: socketAddress(socket),
    method: "",
    operations: [],
    operationCount: 0,
    decision: "deny",
    reason,
    accessVersion: gateway.access.version,
    status,
    ms: 0,
    bytes,
  });
}

/** Cuts an answer within a second of losing its token or what its decision relied on. */
function cutOnceRefused(gateway: Gateway, exchange: Exchange): void {
  const { response, requestId, verdict } = exchange;
  const isOpen = verdict.isStream || (response.headersSent && verdict.decision === "allow");
  if (!isOpen || response.destroyed) return;
  try {
    requireStillGood(gateway, exchange);
    verdict.requireStillAllowed?.();
  } catch (error) {
    const code = error instanceof Refusal ? error.code : "internal_error";
    gateway.log.info({ requestId, code }, "an open stream is cut");
    verdict.cut(code);
    response.destroy();
  }
}

const noBody: Buffer = Buffer.alloc(0);

/** True for what a replica without a valid lease still serves. */
function isForMonitors({ basePath }: Gateway, { path }: Exchange): boolean {
  return path === `${basePath}/healthz` || path === `${basePath}/readyz`;
}

/**
 * All steps of a request, in order. A refusal by any of them ends in `reject`. The steps of a query
 * after its bytes have arrived are those of `prepare` in `query.ts`.
 */
async function serve(
  gateway: Gateway,
  router: Router,
  home: Endpoint,
  exchange: Exchange,
): Promise<void> {
  try {
    requirePlainHead(exchange);
    if (!isForMonitors(gateway, exchange)) gateway.lease?.requireFresh();
    const endpoint = findEndpoint(gateway, router, home, exchange);
    if (endpoint === undefined) return;
    requireLocal(gateway, exchange);
    // Most requests wait only for their bytes.
    const authenticating = authenticateCaller(gateway, endpoint, exchange);
    if (authenticating !== undefined) await authenticating;
    let body = noBody;
    if (endpoint.bodyLimit !== undefined) {
      requireJson(exchange.request);
      body = await readBody(exchange, endpoint.bodyLimit, gateway.budget);
      requireStillGood(gateway, exchange);
    } else if (!endpoint.readsBody) requireLength(exchange.request, SMALL_BODY_BYTES);
    await endpoint.handle(gateway, exchange, body);
  } catch (error) {
    reject(gateway, exchange, error);
  }
}

/** True for a browser at the gateway's URL. For other clients the path is unknown. */
function isBrowserAtHome({ basePath }: Gateway, { request, path }: Exchange): boolean {
  const { method, headers } = request;
  const isHome = path === `${basePath}/` || path === basePath;
  if (!isHome || (method !== "GET" && method !== "HEAD")) return false;
  return headers.accept?.includes("text/html") ?? false;
}

/** Undefined if the request is a preflight, which has been answered. */
function findEndpoint(
  gateway: Gateway,
  router: Router,
  home: Endpoint,
  exchange: Exchange,
): Endpoint | undefined {
  const match = router(exchange.path);
  if (match === undefined) {
    if (isBrowserAtHome(gateway, exchange)) return home;
    const { basePath } = gateway;
    const isMoved = basePath !== "" && router(basePath + exchange.path.toLowerCase()) !== undefined;
    const message = `Not found: the gateway's own paths are below ${basePath}`;
    throw new Refusal("not_found", isMoved ? { message } : {});
  }
  const { route, parameters } = match;
  const endpoint = methodIn(route.methods, exchange.request.method ?? "");
  const { authentication, isQuiet = false } = endpoint ?? {};
  const own = typeof authentication === "object" ? authentication : undefined;
  exchange.routed = {
    pattern: route.pattern,
    parameters,
    isQuiet,
    via: own?.via ?? "query",
    accept: authentication === "data" ? gateway.configuration.auth.accept : bearerOnly,
    resource: own?.challenge(gateway, exchange),
  };
  if (gateway.tracing !== undefined)
    exchange.trace = beginTrace(gateway, gateway.tracing, exchange);
  // An upstream does not hear of preflights, since its CORS headers are dropped.
  const isOwnOptions = endpoint !== undefined && route.forwardedHeaders === undefined;
  if (!isOwnOptions && isPreflight(exchange, gateway.configuration.server.allowed_origins)) {
    sendPreflight(gateway, exchange, route);
    return undefined;
  }
  if (endpoint !== undefined) return endpoint;
  throw new Refusal("method_not_allowed", { allow: allowedMethods(route) });
}

/** 16 bytes in base64 (RFC 6455, section 4.1). */
const handshakeKey = /^[A-Za-z0-9+/]{22}==$/;

/**
 * True for a strictly valid WebSocket handshake on a route that accepts one. Other `Upgrade`
 * requests are served as if they had none (RFC 9110, section 7.8).
 */
function isWebSocketTaken(router: Router, request: IncomingMessage): boolean {
  const { method, httpVersion, headers } = request;
  const isAsked = headers.upgrade?.toLowerCase() === "websocket";
  const isPlain = headers.expect === undefined && !hasBody(headers);
  const hasKey = handshakeKey.test(headers["sec-websocket-key"] ?? "");
  if (method !== "GET" || httpVersion !== "1.1" || !isAsked || !isPlain || !hasKey) return false;
  try {
    resolveTarget(request);
    const match = router(requestPath(request));
    return match !== undefined && methodIn(match.route.methods, "GET")?.takesWebSocket === true;
  } catch {
    return false;
  }
}

/**
 * The response for a connection that the HTTP server has detached. Unless the protocol changes, the
 * connection ends with it.
 *
 * @param head bytes that the client sent after the request; held back until the upstream agrees
 */
function detachedResponse(request: IncomingMessage, head: Buffer): ServerResponse {
  const { socket } = request;
  const response = new http.ServerResponse(request);
  response.shouldKeepAlive = false;
  // The `close` event follows and informs everyone.
  socket.on("error", () => {});
  socket.once("end", () => {
    if (!response.headersSent) response.destroy();
  });
  if (head.length > 0) socket.unshift(head);
  response.assignSocket(socket);
  // The HTTP server does this for connections that it has not detached.
  socket.on("drain", () => response.emit("drain"));
  response.once("finish", () => {
    socket.resume();
    endConnection(socket);
  });
  return response;
}

const HEADERS_TIMEOUT_MS = 10_000;
/** Longer than that of most reverse proxies. */
const KEEP_ALIVE_MS = 65_000;
const CHECK_INTERVAL_MS = 1000;
const MAX_HEADER_BYTES = 16 * 1024;

export interface Listener {
  readonly scheme: "http" | "https";
  readonly port: number;
  /** Undefined without TLS. */
  readonly secure: SecureServer | undefined;
  reloadCertificate(): Promise<void>;
  configure(): void;
  originOf(request: IncomingMessage): LoginOrigin;
  stopListening(): Promise<void>;
  /** Closes all connections, at the latest after `grace` milliseconds. */
  drain(grace: number): Promise<void>;
}

function timeouts({ request_timeout: seconds }: Configuration["server"]) {
  const requestTimeout = seconds * 1000;
  return { requestTimeout, headersTimeout: Math.min(HEADERS_TIMEOUT_MS, requestTimeout) };
}

/** @param port 0 picks a free port, which several processes share */
export async function openListener(
  gateway: Gateway,
  port: number,
  { routerOf, home }: Routes,
): Promise<Listener> {
  const { server: settings } = gateway.configuration;
  let router = routerOf(gateway.configuration);
  const scheme = settings.tls.certificate === undefined ? "http" : "https";
  let readPeer = createPeerReader(settings.trusted_proxies, scheme);
  let hasWarned = false;

  function onRequest(
    request: IncomingMessage,
    response: ServerResponse,
    isHandshake = false,
  ): void {
    resolveTarget(request);
    const peer = readPeer(request);
    if (peer.isUntrustedProxy && !hasWarned) {
      hasWarned = true;
      gateway.log.warn(
        { address: peer.address },
        "a local proxy sends forwarding headers but is not in server.trusted_proxies: they are ignored",
      );
    }
    const extraHeaders = gateway.transportHeaders.concat(corsHeaders(gateway, request));
    // The bytes after a request with `Upgrade` are not parsed as HTTP/1.1.
    if (request.headers.upgrade !== undefined) response.shouldKeepAlive = false;
    connections.arrive(new Exchange(request, response, peer, extraHeaders, isHandshake));
  }

  function begin(exchange: Exchange): void {
    gateway.metrics?.begin();
    void serve(gateway, router, home, exchange);
  }

  function finish(exchange: Exchange, bytes: number): void {
    if (exchange.response.writableFinished) closeAfterResponse(exchange);
    gateway.budget.release(exchange);
    gateway.metrics?.end();
    account(gateway, exchange, bytes);
  }

  const options: ServerOptions = {
    ...timeouts(settings),
    keepAliveTimeout: KEEP_ALIVE_MS,
    connectionsCheckingInterval: CHECK_INTERVAL_MS,
    noDelay: true,
    // The gateway checks it itself and answers in JSON.
    requireHostHeader: false,
    insecureHTTPParser: false,
    maxHeaderSize: MAX_HEADER_BYTES,
    shouldUpgradeCallback: (request) =>
      connections.isFree(request.socket) && isWebSocketTaken(router, request),
  };
  const { certificate, key } = settings.tls;
  let secure: SecureServer | undefined;
  if (certificate !== undefined && key !== undefined) {
    // Loaded on demand, because most gateways need no TLS or have a reverse proxy for it.
    const { createSecureServer } = await import("./secure-server.ts");
    secure = await createSecureServer(options, {
      files: { certificate, key },
      checkRead: gateway.configuration.auth.check_permissions,
      log: gateway.log,
      ...gateway.metrics?.exportCertificate(),
    });
  }
  const server = secure?.server ?? http.createServer(options);
  // The gateway checks the number of headers itself, because the parser may silently drop some.
  server.maxHeadersCount = 0;
  limitConnections(server, gateway.log);
  const finishBroken = (what: BrokenRequest) => accountBroken(gateway, what);
  const connections = new Connections(server, { begin, finish, finishBroken });
  const limits = limitAnswers(
    () => connections.exchanges(),
    (exchange) => cutOnceRefused(gateway, exchange),
  );
  server.on("request", (request, response) => onRequest(request, response));
  server.on("upgrade", (request, _socket, head) => {
    onRequest(request, detachedResponse(request, head), true);
  });
  server.on("clientError", (error, socket) => connections.fail(error, socket));
  server.on("connect", (_request, socket) => {
    connections.refuse(new Refusal("bad_request"), socket);
  });
  for (const event of ["checkContinue", "checkExpectation"]) {
    server.on(event, (request: IncomingMessage, response: ServerResponse) => {
      // The body is requested only once the caller is known and the size is allowed. Otherwise the
      // next bytes could be the body or another request, so they are not read.
      response.shouldKeepAlive = false;
      onRequest(request, response);
    });
  }
  server.listen({ port, host: settings.host, reusePort: settings.workers > 1 });
  await once(server, "listening");
  const address = server.address();

  return {
    scheme,
    port: typeof address === "object" ? (address?.port ?? 0) : 0,
    secure,
    reloadCertificate: async () => secure?.reload(),
    configure(): void {
      const { configuration } = gateway;
      router = routerOf(configuration);
      readPeer = createPeerReader(configuration.server.trusted_proxies, scheme);
      Object.assign(server, timeouts(configuration.server));
    },
    originOf: (request: IncomingMessage) => loginOrigin(readPeer(request), request),
    stopListening: () => connections.stopListening(),
    async drain(grace: number): Promise<void> {
      await secure?.close();
      await connections.drain(grace);
      clearInterval(limits);
    },
  };
}
