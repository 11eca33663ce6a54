import { commonHeaders } from "./answer.ts";
import type { Exchange } from "./exchange.ts";
import { allowedMethods, type Route } from "./route.ts";

/** Seconds for which a browser may remember a preflight's answer. */
const PREFLIGHT_AGE = 600;

/** What a page may send; the last five are of the Model Context Protocol. */
const requestHeaders = [
  ...["Authorization", "Content-Type", "traceparent", "tracestate"],
  ...["MCP-Protocol-Version", "Mcp-Session-Id", "Mcp-Method", "Mcp-Name", "Last-Event-ID"],
].join(", ");
/** What a page may read: without the challenge it would not find the authorization server. */
const answerHeaders = [
  ...["X-Request-Id", "X-Gatehouse-Decision", "Retry-After"],
  ...["WWW-Authenticate", "Mcp-Session-Id"],
].join(", ");

/** Headers for answers to pages of an allowed origin (the Fetch standard's CORS protocol). */
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

/** True for a browser's question whether a page of an allowed origin may send a request. */
export function isPreflight({ request }: Exchange, allowedOrigins: readonly string[]): boolean {
  const { origin, "access-control-request-method": method } = request.headers;
  const isAsked = request.method === "OPTIONS" && method !== undefined;
  return isAsked && origin !== undefined && allowedOrigins.includes(origin);
}

/** Answers a preflight with what the route takes. */
export function sendPreflight(exchange: Exchange, route: Route): void {
  exchange.response.writeHead(204, [
    ...commonHeaders(exchange),
    ...["Access-Control-Allow-Methods", allowedMethods(route)],
    ...["Access-Control-Allow-Headers", requestHeaders],
    ...["Access-Control-Max-Age", String(PREFLIGHT_AGE)],
  ]);
  exchange.response.end();
}
