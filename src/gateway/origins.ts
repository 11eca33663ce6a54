import { memoize } from "../memoize.ts";
import { Refusal } from "../refusal.ts";
import { commonHeaders } from "./answer.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { isLoopbackAddress } from "./peer.ts";
import { allowedMethods, type Route } from "./route.ts";

const MEMOIZED_HOSTS = 16;

/** The host of `Host` or of an origin, without port and brackets. Empty if there is none. */
const hostname = memoize((authority): string => {
  const url = URL.parse(authority.includes("://") ? authority : `http://${authority}`);
  return url?.hostname.replace(/^\[(.*)\]$/, "$1") ?? "";
}, MEMOIZED_HOSTS);

function isLocalName(host: string): boolean {
  return host === "localhost" || isLoopbackAddress(host);
}

/** True if an authority names this machine or the gateway's public URL. */
function isOwn(gateway: Gateway, authority: string | undefined): boolean {
  const host = hostname(authority ?? "");
  return isLocalName(host) || (host !== "" && host === hostname(gateway.publicUrl));
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

/**
 * Blocks pages that have rebound their own DNS name to this machine's address.
 *
 * @throws Refusal `host_not_allowed`
 */
export function requireOwnHost(gateway: Gateway, { request }: Exchange): void {
  if (!isOwn(gateway, request.headers.host)) throw new Refusal("host_not_allowed");
}

function portOf({ port, protocol }: URL): string {
  return port || (protocol === "https:" ? "443" : "80");
}

/**
 * True for the origin of the gateway's own pages. Another port of this machine is a different
 * origin.
 */
function isSameOrigin(gateway: Gateway, origin: string, { peer, request }: Exchange): boolean {
  const page = URL.parse(origin);
  const asked = URL.parse(`${peer.proto}://${request.headers.host}`);
  if (page === null || asked === null) return false;
  if (page.origin === URL.parse(gateway.publicUrl)?.origin) return true;
  return isLocalName(hostname(origin)) && portOf(page) === portOf(asked);
}

/** Values of `Sec-Fetch-Site` for requests caused by a page or link of another origin. */
const foreignSites: ReadonlySet<unknown> = new Set(["cross-site", "same-site"]);

/**
 * Blocks pages except those of the gateway's own origin and of `server.allowed_origins`.
 *
 * @throws Refusal `origin_not_allowed`
 */
function requireSameOrigin(gateway: Gateway, exchange: Exchange): void {
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

/** Headers that a page may send. The last five belong to the Model Context Protocol. */
const requestHeaders = [
  ...["Authorization", "Content-Type", "X-Gatehouse-Approval", "traceparent", "tracestate"],
  ...["MCP-Protocol-Version", "Mcp-Session-Id", "Mcp-Method", "Mcp-Name", "Last-Event-ID"],
].join(", ");
/**
 * Headers that a page may read. Without the challenge it could not find the authorization server.
 */
const answerHeaders = [
  ...["X-Request-Id", "X-Gatehouse-Decision", "X-Gatehouse-Narrowed", "Retry-After"],
  ...["WWW-Authenticate", "Mcp-Session-Id"],
].join(", ");

/** Headers for responses to pages of an allowed origin (CORS protocol of the Fetch standard). */
export function corsHeaders(
  origin: string | undefined,
  allowedOrigins: readonly string[],
): readonly string[] {
  if (allowedOrigins.length === 0) return [];
  if (origin === undefined || !allowedOrigins.includes(origin)) return ["Vary", "Origin"];
  return [
    ...["Vary", "Origin"],
    ...["Access-Control-Allow-Origin", origin],
    ...["Access-Control-Expose-Headers", answerHeaders],
  ];
}

export function isPreflight({ request }: Exchange, allowedOrigins: readonly string[]): boolean {
  const { origin, "access-control-request-method": method } = request.headers;
  const isAsked = request.method === "OPTIONS" && method !== undefined;
  return isAsked && origin !== undefined && allowedOrigins.includes(origin);
}

export function sendPreflight(exchange: Exchange, route: Route): void {
  exchange.response.writeHead(204, [
    ...commonHeaders(exchange),
    ...["Access-Control-Allow-Methods", allowedMethods(route)],
    ...["Access-Control-Allow-Headers", requestHeaders],
    ...["Access-Control-Max-Age", String(PREFLIGHT_AGE)],
  ]);
  exchange.response.end();
}
