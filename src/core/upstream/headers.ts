import type { IncomingHttpHeaders, ServerResponse } from "node:http";
import { memoize, memoizeLast } from "../base/memoize.ts";
import { http } from "../base/node-http.ts";
import { foldHeader, hopByHop } from "../config/kinds.ts";
import type { UpstreamCredential } from "./credential.ts";

const traceNames = ["traceparent", "tracestate", "baggage"];
/** Client headers sent with a query, besides `Accept*` and configured ones. */
const forwarded = new Set(["content-type", "user-agent", ...traceNames]);
/** Client headers also sent on a configured route (RFC 9110, sections 13 and 14). */
export const conditionalHeaders: ReadonlySet<string> = new Set([
  "if-match",
  "if-none-match",
  "if-modified-since",
  "if-unmodified-since",
  "range",
  "if-range",
  "content-range",
]);

/** Headers that claim where a request came from. They are trusted only from trusted proxies. */
const provenanceClaim =
  /^(?:forwarded|(?:x-(?:original-)?)?forwarded-.*|x-real-ip|(?:true-|x-|x-cluster-)?client-ip|cf-connecting-ip)$/;

/** Client headers that are never sent upstream with a stream, in any spelling. */
const neverForwarded: ReadonlySet<string> = new Set([
  ...hopByHop,
  "http2-settings",
  "expect",
  "content-length",
  // Meant for the gateway itself.
  "authorization",
  "cookie",
  // The method and path must stay as they were judged.
  "x-http-method",
  "x-http-method-override",
  "x-method-override",
  "x-original-method",
  "x-original-url",
  "x-original-uri",
  "x-rewrite-url",
  // Gunicorn and WSGI middleware take it off the path.
  "script-name",
  "x-script-name",
  // CGI programs would read it as `HTTP_PROXY` and use it for outgoing requests.
  "proxy",
]);

/** True for headers by which the gateway vouches for something. No one else may set them. */
function isGatewayOwn(folded: string): boolean {
  return folded.startsWith("x-gatehouse-") || folded === "x-request-id";
}

const connectionOptions: ReadonlySet<string> = new Set(["", "close", ...hopByHop]);

/** The headers that `Connection` removes from the message (RFC 9110, section 7.6.1). */
function namedInConnection(connection: string | undefined): ReadonlySet<string> {
  if (connection === undefined || connection === "keep-alive") return hopByHop;
  const named = connection.split(",").map((name) => name.trim().toLowerCase());
  const others = named.filter((name) => !connectionOptions.has(name));
  return others.length === 0 ? hopByHop : new Set([...hopByHop, ...others]);
}

/** The parts of an exchange that an upstream learns. */
interface Provenance {
  readonly requestId: string;
  readonly peer: {
    /** The addresses on the path, the client's first. */
    readonly forwardedFor: string;
    readonly proto: string;
    readonly host: string | undefined;
  };
}

export interface Identity {
  readonly username: string;
  readonly roles: readonly string[];
  readonly databases: readonly string[];
}

/** Usernames contain no `%`, so this can be undone. */
const toAscii = memoize((username) => username.replace(/[^ -~]+/g, encodeURIComponent));

/** @param identity absent on public routes and while authentication is off */
export function gatewayHeaders(
  { requestId, peer: { forwardedFor, proto, host } }: Provenance,
  identity: Identity | undefined,
): Record<string, string> {
  const headers: Record<string, string> = {
    "x-request-id": requestId,
    "x-forwarded-for": forwardedFor,
    "x-forwarded-proto": proto,
  };
  if (host !== undefined) headers["x-forwarded-host"] = host;
  if (identity !== undefined) {
    headers["x-gatehouse-user"] = toAscii(identity.username);
    headers["x-gatehouse-role"] = identity.roles.join(",");
    headers["x-gatehouse-database"] = identity.databases.join(",");
  }
  return headers;
}

export interface HeaderPolicy {
  readonly forwardHeaders: ReadonlySet<string>;
  /** Headers of clients that are credentials and never forwarded, folded (`foldHeader`). */
  readonly withheld: ReadonlySet<string>;
  readonly forwardAuthorization: boolean;
  /** Schemes of `Authorization` that only the gateway may see, in lower case. */
  readonly withheldSchemes: ReadonlySet<string>;
  /** The gateway's own credential, which replaces the client's. */
  readonly credential: UpstreamCredential | undefined;
}

/**
 * The credentials that the upstream gets.
 *
 * @param headers of the client, for its own credential if that is forwarded. Requests that originate
 * in the gateway never carry one.
 */
export function credentialHeaders(
  policy: HeaderPolicy,
  { authorization }: IncomingHttpHeaders = {},
): Record<string, string> {
  const { forwardAuthorization, withheldSchemes, credential } = policy;
  const fields: Record<string, string> = {};
  if (forwardAuthorization && authorization !== undefined) {
    const [scheme = ""] = authorization.toLowerCase().split(/\s/, 1);
    if (!withheldSchemes.has(scheme)) fields.authorization = authorization;
  }
  if (credential !== undefined) fields[credential.header] = credential.value;
  return fields;
}

function keptHeaders(
  headers: IncomingHttpHeaders,
  isAllowed: (name: string) => boolean,
  policy?: HeaderPolicy,
): Record<string, string | string[]> {
  const dropped = namedInConnection(headers.connection);
  const kept: Record<string, string | string[]> = {};
  for (const name in headers) {
    const value = headers[name];
    if (value === undefined || !isAllowed(name) || dropped.has(name)) continue;
    if (!policy?.withheld.has(foldHeader(name))) kept[name] = value;
  }
  return policy === undefined ? kept : Object.assign(kept, credentialHeaders(policy, headers));
}

/** True for a client header sent with a query (an allow-list). */
function isForwarded(name: string, { forwardHeaders }: HeaderPolicy): boolean {
  return forwarded.has(name) || name.startsWith("accept") || forwardHeaders.has(name);
}

/** The client headers sent with a query. Parameters of its type could name another charset. */
export function queryHeaders(headers: IncomingHttpHeaders, policy: HeaderPolicy) {
  const kept = keptHeaders(headers, (name) => isForwarded(name, policy), policy);
  kept["content-type"] = "application/json";
  return kept;
}

/** The client headers sent with requests that the gateway makes on its behalf. */
export function traceHeaders(headers: IncomingHttpHeaders) {
  return keptHeaders(headers, (name) => traceNames.includes(name));
}

/** Kept whatever `Connection` names, because a body without them would be a separate request. */
export function framing(headers: IncomingHttpHeaders): Record<string, string> {
  const { "content-length": length, "transfer-encoding": encoding } = headers;
  if (encoding !== undefined) return { "transfer-encoding": "chunked" };
  return length === undefined ? {} : { "content-length": length };
}

/** From whom a header is accepted for forwarding. */
const acceptedFrom = memoize((name): "all" | "trusted peers" | "none" => {
  const folded = foldHeader(name);
  if (isGatewayOwn(folded) || neverForwarded.has(folded)) return "none";
  if (!provenanceClaim.test(folded)) return "all";
  // A proxy writes the standard spelling. Any other comes from the client, and an upstream may fold
  // it.
  return name === folded ? "trusted peers" : "none";
}, 256);

/** Without those that are never forwarded, also if they are configured. In lower case. */
export function forwardable(names: readonly string[]): ReadonlySet<string> {
  const lower = names.map((name) => name.toLowerCase());
  return new Set(lower.filter((name) => acceptedFrom(name) !== "none"));
}

/**
 * The client headers sent to a proxied server (all but those that are never forwarded).
 *
 * @param isWritten true for headers that the caller writes itself
 */
export function proxyHeaders(
  headers: IncomingHttpHeaders,
  policy: HeaderPolicy,
  fromTrustedPeer: boolean,
  isWritten: (name: string) => boolean,
): Record<string, string | string[]> {
  const isAllowed = (name: string): boolean => {
    if (isWritten(name)) return false;
    const allowed = acceptedFrom(name);
    return allowed === "all" || (allowed === "trusted peers" && fromTrustedPeer);
  };
  return keptHeaders(headers, isAllowed, policy);
}

/**
 * The client headers sent on a configured route (an allow-list).
 *
 * @param isAdded true for headers that this route also forwards
 */
export function routeHeaders(
  headers: IncomingHttpHeaders,
  policy: HeaderPolicy,
  isAdded: (name: string) => boolean,
): IncomingHttpHeaders {
  const isAllowed = (name: string) =>
    (isForwarded(name, policy) || conditionalHeaders.has(name) || isAdded(name)) &&
    acceptedFrom(name) === "all";
  return Object.assign(keptHeaders(headers, isAllowed, policy), framing(headers));
}

/**
 * The client headers sent with a request of a preset (an allow-list).
 *
 * @param listed in lower case, besides those of a query
 * @param isDropped true for headers that do not suit this request
 */
export function presetHeaders(
  headers: IncomingHttpHeaders,
  policy: HeaderPolicy,
  listed: ReadonlySet<string>,
  isDropped: (name: string) => boolean,
): Record<string, string | string[]> {
  const isKept = (name: string) =>
    (listed.has(name) || isForwarded(name, policy)) && !isDropped(name);
  return keptHeaders(headers, isKept, policy);
}

/** True for a response header that the upstream may set. */
const isAnswerHeader = memoize((name) => {
  const folded = foldHeader(name);
  // The gateway decides what pages of other origins may do (CORS protocol of the Fetch standard).
  const isCrossOrigin = folded.startsWith("access-control-");
  return !(hopByHop.has(name.toLowerCase()) || isGatewayOwn(folded) || isCrossOrigin);
});

/** Joins several values. The name is in lower case. */
export function fieldIn(raw: readonly string[], name: string): string | undefined {
  let value: string | undefined;
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const other = raw[at];
    if (other?.length !== name.length || other.toLowerCase() !== name) continue;
    value = value === undefined ? raw[at + 1] : `${value}, ${raw[at + 1]}`;
  }
  return value;
}

/** @param isDropped given a name in lower case */
export function withoutFields(
  raw: readonly string[],
  isDropped: (name: string) => boolean,
): string[] {
  return raw.filter((_, at) => !isDropped((raw[at - (at % 2)] ?? "").toLowerCase()));
}

export function withoutLength(raw: readonly string[]): string[] {
  return withoutFields(raw, (name) => name === "content-length");
}

/** Sends the head at once. `flushHeaders` would encode bytes beyond ASCII in it as UTF-8 again. */
export function flushHead(response: ServerResponse): void {
  response.write("", "latin1");
}

/** The headers that may reach the client. The parser returns the same list for an identical head. */
export const answerHeaders = memoizeLast((raw: readonly string[]): readonly string[] => {
  const dropped = namedInConnection(fieldIn(raw, "connection"));
  const kept: string[] = [];
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const name = raw[at] ?? "";
    if (!isAnswerHeader(name)) continue;
    if (dropped !== hopByHop && dropped.has(name.toLowerCase())) continue;
    kept.push(name, raw[at + 1] ?? "");
  }
  return kept;
});

/** Those of common caches outrank `Cache-Control`. */
const cacheFields = /^(?:cache-control|.*cdn-cache-control|surrogate-control|x-accel-expires)$/;
const directive = /(?:"[^"]*"|[^",])+/g;
const isForAll = (one: string) => /^(?:public|s-maxage=.*)$/i.test(one);

/** The headers of an answer for one user, which no cache may give to others (RFC 9111). */
export const privateHeaders = memoizeLast((raw: readonly string[]): readonly string[] => {
  const written = fieldIn(raw, "cache-control")?.match(directive) ?? [];
  const kept = written.map((one) => one.trim()).filter((one) => one !== "" && !isForAll(one));
  const own = ["Cache-Control", ["private", ...kept].join(", "), "Vary", "Authorization"];
  return [...withoutFields(raw, (name) => cacheFields.test(name)), ...own];
});

/** A list is sent as several lines. */
type RequestFields = Readonly<Record<string, string | readonly string[]>>;

function fieldLine(name: string, value: string): string {
  http.validateHeaderValue(name, value);
  return `${name}: ${value}\r\n`;
}

/**
 * Serializes header fields (RFC 9110, section 5.5).
 *
 * @throws TypeError for a control character
 */
export function fieldLines(fields: RequestFields): string {
  let lines = "";
  for (const name in fields) {
    const value = fields[name];
    if (typeof value === "string") lines += fieldLine(name, value);
    else if (value !== undefined) for (const one of value) lines += fieldLine(name, one);
  }
  return lines;
}
