import type { IncomingHttpHeaders } from "node:http";
import { foldHeader, hopByHop } from "../config/kinds.ts";
import { memoize } from "../memoize.ts";
import { affectedHeader, deniedHeader, rowsHeader } from "../product.ts";

/** The headers by which a client joins traces (W3C Trace Context and Baggage). */
const traceNames = ["traceparent", "tracestate", "baggage"];
/** What a query may take along, besides `Accept*` and what is configured. */
const forwarded = new Set(["content-type", "user-agent", ...traceNames]);

/** Headers that say where a request came from: believed from trusted proxies alone. */
const provenanceClaim =
  /^(?:forwarded|(?:x-(?:original-)?)?forwarded-.*|x-real-ip|(?:true-|x-|x-cluster-)?client-ip|cf-connecting-ip)$/;

/** Headers of a stream that no client sends up, in any spelling. */
const notPassedOn: ReadonlySet<string> = new Set([
  ...hopByHop,
  ...["http2-settings", "expect", "content-length"],
  // Meant for the gateway itself.
  ...["authorization", "cookie"],
  // The method and the path are as they were judged.
  ...["x-http-method", "x-http-method-override", "x-method-override"],
  ...["x-original-method", "x-original-url", "x-original-uri", "x-rewrite-url"],
  // CGI programs would read it as `HTTP_PROXY`, by which they find their own way out.
  "proxy",
]);

/** True for headers by which the gateway vouches for something; nobody else may set them. */
function isGatewayOwn(folded: string): boolean {
  return folded.startsWith("x-gatehouse-") || folded === "x-request-id";
}

/** What `Connection` says besides the names of headers. */
const connectionOptions: ReadonlySet<string> = new Set(["", "close", ...hopByHop]);

const readConnection = memoize<ReadonlySet<string>>((connection) => {
  const named = connection.split(",").map((name) => name.trim().toLowerCase());
  const others = named.filter((name) => !connectionOptions.has(name));
  return others.length === 0 ? hopByHop : new Set([...hopByHop, ...others]);
});

/** The names that a `Connection` header takes off the message (RFC 9110, section 7.6.1). */
function namedInConnection(connection: string | undefined): ReadonlySet<string> {
  if (connection === undefined || connection === "keep-alive") return hopByHop;
  return readConnection(connection);
}

/** What the gateway tells the upstream about a request. */
export interface Provenance {
  readonly requestId: string;
  /** The addresses on the way here, the client's first. */
  readonly forwardedFor: string;
  readonly proto: string;
  readonly host: string | undefined;
  /** Absent while authentication is switched off and on public routes. */
  readonly identity: Identity | undefined;
}

/** For whom and by which right a request goes up; lists are in the order of the query. */
export interface Identity {
  readonly username: string;
  readonly roles: readonly string[];
  readonly databases: readonly string[];
}

/** The headers that the gateway itself adds to each request that goes up. */
export function gatewayHeaders(provenance: Provenance): Record<string, string> {
  const headers: Record<string, string> = {
    "x-request-id": provenance.requestId,
    "x-forwarded-for": provenance.forwardedFor,
    "x-forwarded-proto": provenance.proto,
  };
  if (provenance.host !== undefined) headers["x-forwarded-host"] = provenance.host;
  const { identity } = provenance;
  if (identity !== undefined) {
    headers["x-gatehouse-user"] = identity.username;
    headers["x-gatehouse-role"] = identity.roles.join(",");
    headers["x-gatehouse-database"] = identity.databases.join(",");
  }
  return headers;
}

/** Which of the client's credentials and headers an operator lets through. */
export interface HeaderPolicy {
  /** Lower-case names besides the standard ones. */
  readonly forwardHeaders: ReadonlySet<string>;
  readonly forwardAuthorization: boolean;
  /** The upstream's own credential, in the place of the client's. */
  readonly authorization: string | undefined;
}

function credential(headers: IncomingHttpHeaders, policy: HeaderPolicy): string | undefined {
  if (policy.authorization !== undefined) return policy.authorization;
  return policy.forwardAuthorization ? headers.authorization : undefined;
}

/** The client's headers that a query takes along: an allow-list. */
export function queryHeaders(
  headers: IncomingHttpHeaders,
  policy: HeaderPolicy,
): Record<string, string | string[]> {
  const dropped = namedInConnection(headers.connection);
  const kept: Record<string, string | string[]> = {};
  for (const name in headers) {
    const allowed =
      forwarded.has(name) || name.startsWith("accept") || policy.forwardHeaders.has(name);
    const value = headers[name];
    if (allowed && value !== undefined && !dropped.has(name)) kept[name] = value;
  }
  const authorization = credential(headers, policy);
  if (authorization !== undefined) kept.authorization = authorization;
  return kept;
}

/** The client's headers that a request takes along which the gateway makes for it. */
export function traceHeaders(headers: IncomingHttpHeaders): Record<string, string | string[]> {
  const dropped = namedInConnection(headers.connection);
  const kept: Record<string, string | string[]> = {};
  for (const name of traceNames) {
    const value = headers[name];
    if (value !== undefined && !dropped.has(name)) kept[name] = value;
  }
  return kept;
}

/**
 * How the length of a body is told. It is never taken off, whatever `Connection` names: a body
 * without it would be read as a request of its own.
 */
function framing(headers: IncomingHttpHeaders): Record<string, string> {
  const { "content-length": length, "transfer-encoding": encoding } = headers;
  if (encoding !== undefined) return { "transfer-encoding": "chunked" };
  return length === undefined ? {} : { "content-length": length };
}

/** Who may have a header passed on, by its name. */
const passage = memoize((name): "all" | "trusted peers" | "nobody" => {
  const folded = foldHeader(name);
  if (isGatewayOwn(folded) || notPassedOn.has(folded)) return "nobody";
  if (!provenanceClaim.test(folded)) return "all";
  // A proxy writes its own spelling; another one is the client's, and an upstream may fold it.
  return name === folded ? "trusted peers" : "nobody";
}, 256);

/**
 * The client's headers that may pass.
 *
 * @param isWritten true for the name of a header that whoever asks writes itself
 */
export function passedHeaders(
  headers: IncomingHttpHeaders,
  policy: HeaderPolicy,
  fromTrustedPeer: boolean,
  isWritten: (name: string) => boolean = () => false,
): Record<string, string | string[]> {
  const dropped = namedInConnection(headers.connection);
  const kept: Record<string, string | string[]> = {};
  for (const name in headers) {
    const value = headers[name];
    if (value === undefined || dropped.has(name) || isWritten(name)) continue;
    const allowed = passage(name);
    if (allowed === "all" || (allowed === "trusted peers" && fromTrustedPeer)) kept[name] = value;
  }
  const authorization = credential(headers, policy);
  if (authorization !== undefined) kept.authorization = authorization;
  return kept;
}

/** The client's headers that a stream takes along: those, and how its body is framed. */
export function streamHeaders(
  headers: IncomingHttpHeaders,
  policy: HeaderPolicy,
  fromTrustedPeer: boolean,
): IncomingHttpHeaders {
  return Object.assign(passedHeaders(headers, policy, fromTrustedPeer), framing(headers));
}

/** What pages of other origins may do is for the gateway to say (the Fetch standard's CORS). */
function isCrossOrigin(folded: string): boolean {
  return folded.startsWith("access-control-");
}

/** True for a header of an answer that may be the upstream's own. */
const isAnswerHeader = memoize((name) => {
  const folded = foldHeader(name);
  return !(hopByHop.has(name.toLowerCase()) || isGatewayOwn(folded) || isCrossOrigin(folded));
});

/** The values of all `Connection` headers; undefined if there is none. */
function connectionOf(raw: readonly string[]): string | undefined {
  let values: string | undefined;
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const name = raw[at] ?? "";
    if (name.length !== "connection".length || name.toLowerCase() !== "connection") continue;
    values = values === undefined ? raw[at + 1] : `${values},${raw[at + 1]}`;
  }
  return values;
}

/** What `gatehouse engine` tells the gateway besides its answer. */
export interface EngineReport {
  /** Rows that a query has changed, and rows that it answers, where known. */
  readonly affected: number | undefined;
  readonly rows: number | undefined;
  /** The code of the caller's limit that denied the query. */
  readonly denied: string | undefined;
}

/** Reads the headers of an answer of `gatehouse engine`: names and values in turn. */
export function engineReportOf(raw: readonly string[]): EngineReport {
  let affected: number | undefined;
  let rows: number | undefined;
  let denied: string | undefined;
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const name = raw[at];
    if (name === affectedHeader) affected = Number(raw[at + 1]);
    else if (name === rowsHeader) rows = Number(raw[at + 1]);
    else if (name === deniedHeader) denied = raw[at + 1];
  }
  return { affected, rows, denied };
}

let latest: { readonly raw: readonly string[]; readonly kept: readonly string[] } | undefined;

/** The headers of the upstream's answer that may reach the client: names and values in turn. */
export function answerHeaders(raw: readonly string[]): readonly string[] {
  // A head that is the same again comes as the same list.
  if (latest?.raw !== raw) latest = { raw, kept: keptOf(raw) };
  return latest.kept;
}

function keptOf(raw: readonly string[]): string[] {
  const dropped = namedInConnection(connectionOf(raw));
  const kept: string[] = [];
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const name = raw[at] ?? "";
    if (!isAnswerHeader(name)) continue;
    if (dropped !== hopByHop && dropped.has(name.toLowerCase())) continue;
    kept.push(name, raw[at + 1] ?? "");
  }
  return kept;
}
