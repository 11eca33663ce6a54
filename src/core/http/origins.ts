import type { IncomingMessage } from "node:http";
import { BlockList, isIP, isIPv6, Socket } from "node:net";
import type { Duplex } from "node:stream";
import { memoize, memoizeByObject } from "../base/memoize.ts";
import { Refusal } from "../base/refusal.ts";
import { isLoopback } from "../config/addresses.ts";
import { tokenHeaders } from "../config/schema.ts";
import type { LoginOrigin } from "../identity/throttle.ts";
import { portOf } from "../upstream/target.ts";
import { commonHeaders } from "./answer.ts";
import type { Exchange, Peer } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { allowedMethods, type Route } from "./route.ts";

const REQUEST_ID = /^[A-Za-z0-9._~+/=:-]{1,128}$/;
const forwardingHeaders = ["x-forwarded-for", "forwarded", "x-real-ip"];

function blockList(ranges: readonly string[]): BlockList {
  const list = new BlockList();
  for (const range of ranges) {
    const [address = "", prefix] = range.split("/");
    const family = isIPv6(address) ? "ipv6" : "ipv4";
    if (prefix === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(prefix), family);
  }
  return list;
}

function contains(list: BlockList, address: string): boolean {
  return isIP(address) !== 0 && list.check(address, isIPv6(address) ? "ipv6" : "ipv4");
}

function plainAddress(address: string | undefined): string {
  return (address ?? "").replace(/^::ffff:(?=\d+\.)/, "");
}

export function socketAddress(socket: Duplex): string {
  return socket instanceof Socket ? plainAddress(socket.remoteAddress) : "";
}

function hopAddress(hop: string): string {
  const [, bracketed, plain] = /^(?:\[([^\]]+)\]|(\d+(?:\.\d+){3}))(?::\d{1,5})?$/.exec(hop) ?? [];
  return plainAddress(bracketed ?? plain ?? hop);
}

function single(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value.join(", ") : value;
}

/** The last address in the list that is not a trusted proxy reported by another trusted proxy. */
function clientAddress(
  isTrusted: (address: string) => boolean,
  hops: readonly string[],
  peer: string,
): string {
  for (const hop of hops.toReversed()) {
    if (isIP(hop) === 0) return peer;
    if (!isTrusted(hop)) return hop;
  }
  return hops[0] ?? peer;
}

export const isLocal = memoize(isLoopback, 64);

/** Forwarding headers are trusted only from `trustedProxies` (CIDRs). */
export function createPeerReader(
  trustedProxies: readonly string[],
  scheme: "http" | "https",
): (request: IncomingMessage) => Peer {
  const list = blockList(trustedProxies);
  const isTrusted = memoize((address) => contains(list, address));
  return ({ socket, headers }) => {
    const peer = socketAddress(socket);
    if (!isTrusted(peer)) {
      return {
        address: peer,
        proto: scheme,
        host: headers.host,
        forwardedFor: peer,
        requestId: undefined,
        isTrusted: false,
        isUntrustedProxy:
          forwardingHeaders.some((name) => headers[name] !== undefined) && isLocal(peer),
      };
    }
    const forwardedFor = single(headers["x-forwarded-for"]) ?? "";
    const hops = forwardedFor
      .split(",")
      .map((hop) => hop.trim())
      .filter(Boolean);
    const requestId = single(headers["x-request-id"]);
    return {
      address: clientAddress(isTrusted, hops.map(hopAddress), peer),
      proto: (single(headers["x-forwarded-proto"]) || scheme) === "https" ? "https" : "http",
      host: single(headers["x-forwarded-host"]) || headers.host,
      forwardedFor: [...hops, peer].join(", "),
      requestId: requestId !== undefined && REQUEST_ID.test(requestId) ? requestId : undefined,
      isTrusted: true,
      isUntrustedProxy: false,
    };
  };
}

/** Aborts when the connection closes. All requests of a connection share one signal. */
const disconnectSignal = memoizeByObject((socket: Socket): AbortSignal => {
  const controller = new AbortController();
  if (socket.destroyed) controller.abort();
  else socket.once("close", () => controller.abort());
  return controller.signal;
});

export function loginOrigin(
  { address, isUntrustedProxy }: Peer,
  { socket }: IncomingMessage,
): LoginOrigin {
  return { address, isShared: isUntrustedProxy, signal: disconnectSignal(socket) };
}

const MEMOIZED_HOSTS = 16;

/** The host of `Host` or of an origin, without port and brackets. Empty if it is invalid. */
const hostname = memoize((authority): string => {
  const url = URL.parse(authority.includes("://") ? authority : `http://${authority}`);
  return url?.hostname.replace(/^\[(.*)\]$/, "$1") ?? "";
}, MEMOIZED_HOSTS);

/** True if an authority names this machine or the gateway's public URL. */
function isOwn(gateway: Gateway, authority: string | undefined): boolean {
  const host = hostname(authority ?? "");
  return isLocal(host) || (host !== "" && host === hostname(gateway.publicUrl));
}

/**
 * Prevents foreign web pages from using the gateway through a browser.
 *
 * @throws Refusal `origin_not_allowed`
 */
export function requireOwnOrigin(gateway: Gateway, { request }: Exchange): void {
  const { origin } = request.headers;
  const isAllowed =
    origin === undefined ||
    isOwn(gateway, origin) ||
    gateway.configuration.server.allowed_origins.includes(origin);
  if (!isAllowed) throw new Refusal("origin_not_allowed");
}

/** @throws Refusal `host_not_allowed` for pages that have rebound their DNS name to this machine */
export function requireOwnHost(gateway: Gateway, { request }: Exchange): void {
  if (!isOwn(gateway, request.headers.host)) throw new Refusal("host_not_allowed");
}

/** Another port of this machine is a different origin. */
function isSameOrigin(gateway: Gateway, origin: string, { peer, request }: Exchange): boolean {
  const page = URL.parse(origin);
  const requested = URL.parse(`${peer.proto}://${request.headers.host}`);
  if (page === null || requested === null) return false;
  if (page.origin === URL.parse(gateway.publicUrl)?.origin) return true;
  return isLocal(hostname(origin)) && portOf(page) === portOf(requested);
}

/** Browsers add Basic credentials that were typed in once to all later requests by themselves. */
export function usesBasic({ headers: { authorization = "" } }: IncomingMessage): boolean {
  return /^basic /i.test(authorization);
}

/** Values of `Sec-Fetch-Site` for requests caused by a page or link of another origin. */
const foreignSites: ReadonlySet<unknown> = new Set(["cross-site", "same-site"]);

/** @throws Refusal `origin_not_allowed` for pages of other origins */
export function requireSameOrigin(gateway: Gateway, exchange: Exchange): void {
  const { origin, "sec-fetch-site": site } = exchange.request.headers;
  if (origin !== undefined && gateway.configuration.server.allowed_origins.includes(origin)) return;
  const isForeign = origin !== undefined && !isSameOrigin(gateway, origin, exchange);
  if (isForeign || foreignSites.has(site)) throw new Refusal("origin_not_allowed");
}

/**
 * While authentication is off, only `Host`, `Origin` and `Sec-Fetch-Site` distinguish a local
 * program from a web page in a browser on the same machine.
 *
 * @throws Refusal `host_not_allowed` or `origin_not_allowed`
 */
export function requireLocal(gateway: Gateway, exchange: Exchange): void {
  const { auth } = gateway.configuration;
  if (auth.enabled || auth.insecure_allow_remote) return;
  requireOwnHost(gateway, exchange);
  requireSameOrigin(gateway, exchange);
}

/** How long a browser may cache a preflight response, in seconds. */
const PREFLIGHT_AGE = 600;

/**
 * Headers that a page may send, besides those with tokens and those of a route. The last five belong
 * to the Model Context Protocol.
 */
const requestHeaders = [
  "Authorization",
  "Content-Type",
  "X-Gatehouse-Approval",
  "User-Agent",
  "traceparent",
  "tracestate",
  "baggage",
  "MCP-Protocol-Version",
  "Mcp-Session-Id",
  "Mcp-Method",
  "Mcp-Name",
  "Last-Event-ID",
];
/**
 * Headers that a page may read: all, but a page that sends credentials of the browser reads only the
 * named ones. Without the challenge it could not find the authorization server.
 */
const answerHeaders = [
  "X-Request-Id",
  "X-Gatehouse-Decision",
  "X-Gatehouse-Narrowed",
  "Retry-After",
  "WWW-Authenticate",
  "Mcp-Session-Id",
  "ETag",
  "Location",
  "*",
].join(", ");

/** Pages of any origin may read these documents, which need no cookies. */
function isDocument(path = ""): boolean {
  return path.startsWith("/.well-known/");
}

export function corsHeaders(
  { configuration: { server, upstream }, basePath }: Gateway,
  { url = "", headers: { origin } }: IncomingMessage,
): readonly string[] {
  if (isDocument(url)) return ["Access-Control-Allow-Origin", "*"];
  if (server.allowed_origins.length === 0) return [];
  if (origin === undefined || !server.allowed_origins.includes(origin)) return ["Vary", "Origin"];
  // PouchDB sends all requests so. The gateway's own pages have cookies, the paths of a preset none.
  const takesCredentials = upstream.preset !== undefined && !url.startsWith(`${basePath}/`);
  return [
    "Vary",
    "Origin",
    "Access-Control-Allow-Origin",
    origin,
    ...(takesCredentials ? ["Access-Control-Allow-Credentials", "true"] : []),
    "Access-Control-Expose-Headers",
    answerHeaders,
  ];
}

export function isPreflight({ request }: Exchange, allowedOrigins: readonly string[]): boolean {
  const { origin, "access-control-request-method": method } = request.headers;
  const isAsked = request.method === "OPTIONS" && method !== undefined;
  const isAllowed = isDocument(request.url) || allowedOrigins.includes(origin ?? "");
  return isAsked && origin !== undefined && isAllowed;
}

export function sendPreflight({ configuration }: Gateway, exchange: Exchange, route: Route): void {
  const { auth, upstream } = configuration;
  const { "access-control-request-headers": asked = "" } = exchange.request.headers;
  const allowed = new Set([
    ...requestHeaders,
    // Named after arguments of tools (MCP 2026-07-28).
    ...(asked.match(/\bmcp-param-[^\s,]+/gi) ?? []),
    ...tokenHeaders(auth.accept),
    ...upstream.forward_headers,
    ...(route.forwardedHeaders?.() ?? []),
  ]);
  exchange.response.writeHead(204, [
    ...commonHeaders(exchange),
    "Access-Control-Allow-Methods",
    allowedMethods(route),
    "Access-Control-Allow-Headers",
    [...allowed].join(", "),
    "Access-Control-Max-Age",
    String(PREFLIGHT_AGE),
  ]);
  exchange.response.end();
}
