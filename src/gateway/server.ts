import { once } from "node:events";
import type { IncomingMessage, Server, ServerOptions, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Configuration } from "../config/schema.ts";
import type { LoginOrigin } from "../identity/throttle.ts";
import { http } from "../node-http.ts";
import { Refusal } from "../refusal.ts";
import { closeBehindAnswer, endConnection } from "./body.ts";
import { BrokenRequests, Connections, refuseOddHead } from "./connections.ts";
import { Exchange, hasBody, pathOf } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { corsHeaders } from "./origins.ts";
import { createPeerReader, loginOrigin } from "./peer.ts";
import { account, accountBroken, handleRequest } from "./request-pipeline.ts";
import { createRouter, endpointFor, type Router, refuseAmbiguousPaths } from "./route.ts";
import { routeTable } from "./routes.ts";
import type { SecureServer } from "./secure-server.ts";
import { limitConnections } from "./system-limits.ts";

/** 16 bytes in base64 (RFC 6455, section 4.1). */
const key = /^[A-Za-z0-9+/]{22}==$/;

/** True for a strictly valid WebSocket handshake, without other protocols. */
function isHandshake({ method, httpVersion, headers }: IncomingMessage): boolean {
  const isAsked = headers.upgrade?.toLowerCase() === "websocket";
  const isPlain = headers.expect === undefined && !hasBody(headers);
  const hasKey = key.test(headers["sec-websocket-key"] ?? "");
  return method === "GET" && httpVersion === "1.1" && isAsked && isPlain && hasKey;
}

/**
 * True for a WebSocket handshake on a route that accepts one. Other `Upgrade` requests are served
 * as if they had none (RFC 9110, section 7.8).
 */
function isWebSocketTaken(router: Router, request: IncomingMessage): boolean {
  if (!isHandshake(request)) return false;
  try {
    const match = router(pathOf(request));
    return match !== undefined && endpointFor(match.route, "GET")?.takesWebSocket === true;
  } catch {
    // Errors in the path are reported when the request is served.
    return false;
  }
}

/**
 * The response for a connection that the HTTP server has detached. Unless the protocol changes, the
 * connection ends with it.
 *
 * @param head bytes that the client sent after the request; held back until the upstream agrees
 */
function answerOnItsOwn(request: IncomingMessage, head: Buffer): ServerResponse {
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
  response.once("finish", () => {
    socket.resume();
    endConnection(socket);
  });
  return response;
}

const HEADERS_TIMEOUT_MS = 10_000;
/** The idle timeout of a keep-alive connection, longer than that of most reverse proxies. */
const KEEP_ALIVE_MS = 65_000;
const CHECK_INTERVAL_MS = 1000;

const MAX_HEADER_BYTES = 16 * 1024;

export interface Listener {
  readonly scheme: "http" | "https";
  readonly port: number;
  readonly secure: Pick<SecureServer, "certificate" | "failure"> | undefined;
  reloadCertificate(): Promise<void>;
  originOf(request: IncomingMessage): LoginOrigin;
  /** Applies the current configuration. */
  configure(): void;
  /** Stops accepting connections, the first part of a graceful shutdown. */
  stopListening(): Promise<void>;
  drain(grace: number): Promise<void>;
}

async function openSecureServer(
  { configuration, log, metrics }: Gateway,
  options: ServerOptions,
): Promise<SecureServer | undefined> {
  const { server, auth } = configuration;
  const { certificate, key } = server.tls;
  if (certificate === undefined || key === undefined) return undefined;
  // Loaded on demand, because most gateways need no TLS or have a reverse proxy for it.
  const { createSecureServer } = await import("./secure-server.ts");
  return createSecureServer(options, {
    files: { certificate, key },
    checkRead: auth.check_permissions,
    log,
    ...metrics?.showCertificate(),
  });
}

function routerOf(configuration: Configuration): Router {
  return refuseAmbiguousPaths(createRouter(routeTable(configuration)), configuration.routes);
}

function timeouts({ request_timeout: seconds }: Configuration["server"]) {
  const requestTimeout = seconds * 1000;
  return { requestTimeout, headersTimeout: Math.min(HEADERS_TIMEOUT_MS, requestTimeout) };
}

/**
 * Listens on the configured host.
 *
 * @param port 0 picks a free port, which several processes share
 */
export async function openListener(gateway: Gateway, port: number): Promise<Listener> {
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
    const peer = readPeer(request);
    if (peer.isUntrustedProxy && !hasWarned) {
      hasWarned = true;
      gateway.log.warn(
        { address: peer.address },
        "a local proxy sends forwarding headers but is not in server.trusted_proxies: they are ignored",
      );
    }
    const { allowed_origins: origins } = gateway.configuration.server;
    const cors = corsHeaders(request.headers.origin, origins);
    const extraHeaders = gateway.transportHeaders.concat(cors);
    // The bytes after a request with `Upgrade` are not parsed as HTTP/1.1.
    if (request.headers.upgrade !== undefined) response.shouldKeepAlive = false;
    connections.arrive(new Exchange({ request, response, peer, isHandshake, extraHeaders }));
  }

  function serve(exchange: Exchange): void {
    gateway.metrics?.begin();
    if (refuseOddHead(exchange)) return;
    handleRequest(gateway, router, exchange);
  }

  function finish(exchange: Exchange, bytes: number): void {
    if (exchange.response.writableFinished) closeBehindAnswer(exchange);
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
  const secure = await openSecureServer(gateway, options);
  const server = secure?.server ?? http.createServer(options);
  // The gateway checks the number of headers itself, because the parser may silently drop some.
  server.maxHeadersCount = 0;
  limitConnections(server, gateway.log);
  const connections = new Connections(server, { serve, finish });
  const broken = new BrokenRequests((what) => accountBroken(gateway, what));
  server.on("request", (request, response) => onRequest(request, response));
  server.on("upgrade", (request, _socket, head) => {
    onRequest(request, answerOnItsOwn(request, head), true);
  });
  server.on("clientError", (error: NodeJS.ErrnoException, socket) => {
    const plain = error.code === "ERR_SSL_HTTP_REQUEST" ? connections.underTls(socket) : undefined;
    if (plain !== undefined) {
      const message = "This port speaks TLS: use https:// in place of http://";
      return broken.refuse(new Refusal("bad_request", { message }), plain, undefined);
    }
    broken.fail(error, socket, connections.latestOn(socket));
  });
  server.on("connect", (_request, socket) => {
    broken.refuse(new Refusal("bad_request"), socket, connections.latestOn(socket));
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

  return {
    scheme,
    port: portOf(server),
    secure,
    reloadCertificate: async () => secure?.reload(),
    configure() {
      const { configuration } = gateway;
      router = routerOf(configuration);
      readPeer = createPeerReader(configuration.server.trusted_proxies, scheme);
      Object.assign(server, timeouts(configuration.server));
    },
    originOf: (request) => loginOrigin(readPeer(request), request),
    stopListening: () => connections.stopListening(),
    async drain(grace) {
      await secure?.close();
      await connections.drain(grace);
    },
  };
}

function isAddressInfo(address: AddressInfo | string | null): address is AddressInfo {
  return typeof address === "object" && address !== null;
}

function portOf(server: Server): number {
  const address = server.address();
  return isAddressInfo(address) ? address.port : 0;
}
