import { randomUUID } from "node:crypto";
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import type { AccessRules } from "../access/access-rules.ts";
import type { EntryPoint } from "../access/grant.ts";
import type { QueryOrigin } from "../access/rights.ts";
import type { AddedFilter } from "../access/row-filter.ts";
import { Refusal, type RefusedToken } from "../base/refusal.ts";
import { type Authenticated, bearerOnly } from "../identity/authenticate.ts";
import { quoteName } from "../json/fault.ts";
import type { AuditedChange, AuditedOperation, AuditedRate } from "../observe/audit-line.ts";
import type { RequestTrace, UpstreamRequest, UpstreamTrace } from "../observe/tracing.ts";
import type { RunReport } from "../upstream/database.ts";

/** The maximum number of headers. The parser limits their size. */
const MAX_HEADERS = 128;

/** RFC 9110, section 7.2, with the characters of DNS names and IP addresses only. */
const authority = /^(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?$/i;

const absoluteForm = /^https?:\/\/([^/?#]+)((?:[/?].*)?)$/i;

/**
 * Reads a target in absolute form: its path becomes the target, and its host replaces that of
 * `Host` (RFC 9112, sections 3.2.2 and 3.3). An invalid target or `Host` is left to be refused.
 */
export function resolveTarget(request: IncomingMessage): void {
  const { url = "", headers } = request;
  if (url.startsWith("/")) return;
  const [, host = "", path = ""] = absoluteForm.exec(url) ?? [];
  const isPlain = authority.test(host) && authority.test(headers.host ?? host);
  if (!isPlain) return;
  request.url = path.startsWith("/") ? path : `/${path}`;
  headers.host = host;
}

/** A length in canonical decimal form, small enough for every parser. */
const plainLength = /^(?:0|[1-9]\d{0,14})$/;

function refused(message: string): Refusal {
  return new Refusal("bad_request", { message: `Bad request: ${message}` });
}

export function occurrences({ rawHeaders }: IncomingMessage, name: string): number {
  let count = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const found = rawHeaders[at];
    if (found?.length === name.length && found.toLowerCase() === name) count++;
  }
  return count;
}

/**
 * Refuses a head that is valid HTTP but that two parsers could read differently (RFC 9112, sections
 * 3.2 and 6).
 *
 * @throws Refusal `bad_request`, `headers_too_large` or `expectation_unknown`
 */
export function requirePlainHead({ request, response, body }: Exchange): void {
  const fault = headFault(request);
  if (fault === undefined) return;
  body.isLost = true;
  response.shouldKeepAlive = false;
  throw fault;
}

function headFault(request: IncomingMessage): Refusal | undefined {
  const { httpVersion, rawHeaders, headers } = request;
  if (httpVersion !== "1.1" && httpVersion !== "1.0") {
    return refused("only HTTP/1.1 and HTTP/1.0 are supported");
  }
  const { expect } = headers;
  // HTTP/1.0 has no expectations (RFC 9110, section 10.1.1).
  if (expect !== undefined && httpVersion === "1.1" && expect.toLowerCase() !== "100-continue") {
    return new Refusal("expectation_unknown");
  }
  if (rawHeaders.length > 2 * MAX_HEADERS) return new Refusal("headers_too_large");
  const hosts = occurrences(request, "host");
  const needsNoHost = hosts === 0 && httpVersion === "1.0";
  if (!needsNoHost && (hosts !== 1 || !authority.test(headers.host ?? ""))) {
    return refused("Host must name one host");
  }
  const { "transfer-encoding": encoding, "content-length": length } = headers;
  const isPlainEncoding = encoding?.toLowerCase() === "chunked" && httpVersion === "1.1";
  if (encoding !== undefined && !isPlainEncoding) {
    return refused("the only Transfer-Encoding is chunked, in HTTP/1.1");
  }
  if (length !== undefined && !plainLength.test(length)) {
    return refused("Content-Length must be a plain number");
  }
  return undefined;
}

export function requestPath({ url: target = "" }: IncomingMessage): string {
  const query = target.indexOf("?");
  return query === -1 ? target : target.slice(0, query);
}

/** @throws Refusal `unknown_parameter`, or `bad_request` for a parameter that is sent twice */
export function requireListed(
  name: string,
  listed: readonly string[],
  seen: { has(name: string): boolean },
): void {
  if (!listed.includes("*") && !listed.includes(name)) {
    const message = `Unknown query parameter ${quoteName(name)}; allowed: ${listed.join(", ") || "none"}`;
    throw new Refusal("unknown_parameter", { message });
  }
  if (seen.has(name)) throw refused(`the query parameter ${quoteName(name)} is sent twice`);
}

/** True if the head announces a body (RFC 9112, section 6). */
export function hasBody(headers: IncomingHttpHeaders): boolean {
  return headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0;
}

/** The number of response listeners below which Node does not warn of a leak. */
const MAX_LISTENERS = 24;
export const UNKNOWN_ROUTE = "unknown";

/** The parts of a challenge for a protected resource besides the realm (RFC 9728). */
export interface ResourceChallenge {
  /** Not a getter, which V8 would keep with its request until it collects the whole heap. */
  metadata(): string;
  /** All scopes that the request needs, so that one step-up is enough. */
  readonly scope: string;
}

/** The origin of a request, as far as it can be trusted. */
export interface Peer {
  readonly address: string;
  readonly proto: string;
  readonly host: string | undefined;
  readonly forwardedFor: string;
  readonly requestId: string | undefined;
  readonly isTrusted: boolean;
  /** Suggests a misconfigured proxy. */
  readonly isUntrustedProxy: boolean;
}

interface Routed {
  /** The route's pattern, used as a metric label because the number of patterns is bounded. */
  readonly pattern: string;
  /** Path parameters as sent, or decoded with a preset. */
  readonly parameters: Readonly<Record<string, string>>;
  readonly isQuiet: boolean;
  readonly via: EntryPoint;
  /** The kinds of credentials that open it, as in `auth.accept`. */
  readonly accept: readonly string[];
  readonly resource: ResourceChallenge | undefined;
}

const unrouted: Routed = {
  pattern: UNKNOWN_ROUTE,
  parameters: {},
  isQuiet: false,
  via: "query",
  accept: bearerOnly,
  resource: undefined,
};

/** On public routes and while authentication is off. */
type Unauthenticated = { readonly [Name in keyof Authenticated]?: undefined };

/** The outcome of a request so far, for the audit, the metrics and the headers of the answer. */
class Verdict {
  operations: readonly AuditedOperation[] = [];
  count = 0;
  /** Of the access file by which the operations were judged. */
  accessVersion: string | undefined;
  decision: "allow" | "deny" | undefined;
  reason: string | undefined;
  filters: readonly AddedFilter[] = [];
  /** The refused token, with the precise reason. */
  refusedToken: (RefusedToken & { readonly detail: string | undefined }) | undefined;
  approval: string | undefined;
  rates: readonly AuditedRate[] | undefined;
  report: RunReport | undefined;
  /** Rows in the result of a tool. */
  shownRows: number | undefined;
  /** The status of the refusal or of the query, even if the client's protocol has none. */
  status: number | undefined;
  changes: readonly AuditedChange[] | undefined;
  /** True for streams, which are cut even before the first byte of an answer. */
  isStream = false;
  requireStillAllowed: (() => void) | undefined;

  record(
    operations: readonly AuditedOperation[],
    count = operations.length,
    accessVersion = this.accessVersion,
  ): void {
    this.operations = operations;
    this.count = count;
    this.accessVersion = accessVersion;
  }

  allow(): void {
    this.decision = "allow";
  }

  /** @param status the HTTP status of the refusal, even if the client's protocol has none */
  deny(code: string, status: number): void {
    this.reason = code;
    this.status = status;
    if (status < 500) this.decision = "deny";
  }

  /** An answer that was allowed is cut. */
  cut(code: string): void {
    this.reason = code;
  }

  refuseToken(token: RefusedToken, detail: string | undefined): void {
    this.refusedToken = { ...token, detail };
  }

  noteFilters(filters: readonly AddedFilter[]): void {
    this.filters = filters;
  }

  noteApproval(id: string): void {
    this.approval = id;
  }

  noteRates(rates: readonly AuditedRate[]): void {
    this.rates = [...(this.rates ?? []), ...rates];
  }

  noteReport(report: RunReport): void {
    this.report ??= report;
    if (report.denied !== undefined) this.deny(report.denied, 409);
  }

  noteStatus(status: number): void {
    this.status = status;
  }

  noteShownRows(rows: number): void {
    this.shownRows = rows;
  }

  noteChanges(changes: readonly AuditedChange[]): void {
    this.changes = changes;
  }

  noteStream(): void {
    this.isStream = true;
  }

  /** For a change, so that the client learns whether it was made. */
  runToEnd(): void {
    this.isStream = false;
  }

  /** @param check for a long answer; throws a Refusal once it would no longer be allowed */
  checkWhileOpen(check: () => void): void {
    this.requireStillAllowed = check;
  }
}

export class Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly peer: Peer;
  /** True for a WebSocket handshake on a connection that the HTTP server has detached. */
  readonly isHandshake: boolean;
  readonly extraHeaders: readonly string[];
  readonly requestId: string;
  readonly path: string;
  /** `performance.now()` when the request's head had arrived. */
  readonly startedAt = performance.now();
  routed: Routed = unrouted;
  trace: RequestTrace | undefined;
  authenticated: Authenticated | Unauthenticated = {};
  /** The name that a login claims, unverified. */
  claimedName: string | undefined;
  /** `performance.now()` when the request was first forwarded upstream. */
  forwardedAt: number | undefined;
  readonly body = {
    /** Bytes of the body and of responses held in memory. */
    heldBytes: 0,
    chargedTo: "",
    /** True once a client that sent `Expect: 100-continue` may send its body. */
    continueSent: false,
    /** True if the rest of the body can no longer be read. */
    isLost: false,
    /** True once the response is written and the rest of the body is being discarded. */
    isDropped: false,
  };
  /** Written only by its methods. */
  readonly verdict: Readonly<Verdict> = new Verdict();

  constructor(
    request: IncomingMessage,
    response: ServerResponse,
    peer: Peer,
    extraHeaders: readonly string[],
    isHandshake = false,
  ) {
    this.request = request;
    this.response = response;
    // Each stage of a stream listens for its end, which exceeds Node's default limit of ten.
    response.setMaxListeners(MAX_LISTENERS);
    this.peer = peer;
    this.isHandshake = isHandshake;
    this.extraHeaders = extraHeaders;
    this.requestId = peer.requestId ?? randomUUID();
    this.path = requestPath(request);
  }

  get username(): string | undefined {
    return this.authenticated.subject?.username ?? this.claimedName;
  }

  /** Sends 100 Continue if the client waits for it (RFC 9110, section 10.1.1). */
  sendContinue(): void {
    // An invalid body may have been refused already.
    if (this.response.headersSent) return;
    const { headers, httpVersion } = this.request;
    if (headers.expect !== undefined && httpVersion === "1.1") this.response.writeContinue();
    this.body.continueSent = true;
  }

  /**
   * Records that the request is forwarded upstream. If tracing is on, starts a span and names it in
   * the headers.
   */
  forwardUpstream(request: UpstreamRequest): UpstreamTrace | undefined {
    this.forwardedAt ??= performance.now();
    return this.trace?.startUpstreamSpan(request);
  }
}

/**
 * Checks the caller again some time after the token was presented: a body may take long to arrive,
 * and a stream stays open even longer.
 *
 * @throws Refusal with one of the 401 codes if the token would no longer be accepted
 */
export function requireStillGood(
  { access }: { readonly access: AccessRules },
  { authenticated }: Exchange,
): void {
  authenticated.identify?.(access.snapshot);
}

/** An answer that begins this soon goes by the rights that its request was judged by. */
const SOON_MS = 500;

/**
 * Before an answer begins, since a read may have taken long.
 *
 * @throws Refusal if the request would no longer be allowed
 */
export function requireStillAllowed({ startedAt, verdict }: Exchange): void {
  if (performance.now() - startedAt > SOON_MS) verdict.requireStillAllowed?.();
}

/** The account to which scarce resources are charged. */
export function fairnessKey({ username, peer }: Exchange): string {
  return username ?? peer.address;
}

export function queryOrigin({ routed, authenticated }: Exchange): QueryOrigin {
  return { via: routed.via, client: authenticated.client };
}
