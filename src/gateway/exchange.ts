import { randomUUID } from "node:crypto";
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import type { Subject } from "../access/subject.ts";
import type { Caller } from "../identity/authenticate.ts";
import type { Principal } from "../mcp/authenticate.ts";
import type { AuditedChange, AuditedOperation, AuditedRate } from "../observe/audit-line.ts";
import type { RequestTrace, UpwardRequest, UpwardTrace } from "../observe/request-trace.ts";
import { Refusal, type RefusedToken } from "../refusal.ts";
import type { ClientSink } from "../upstream/forward-attempt.ts";
import type { EngineReport } from "../upstream/headers.ts";
import type { Peer } from "./peer.ts";

/** Headers that a request may have; how many bytes they may take, the parser says. */
const MAX_HEADERS = 128;

/** A host and perhaps a port (RFC 9110, section 7.2), of those names that DNS and addresses have. */
const authority = /^(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?$/i;

/** A length in its one plain spelling, and no larger than every reader can count. */
const plainLength = /^(?:0|[1-9]\d{0,14})$/;

function refused(message: string): Refusal {
  return new Refusal("bad_request", { message: `Bad request: ${message}` });
}

/**
 * How often a header stands in a head.
 *
 * @param name in lower case
 */
export function occurrences({ rawHeaders }: IncomingMessage, name: string): number {
  let count = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const found = rawHeaders[at];
    if (found?.length === name.length && found.toLowerCase() === name) count++;
  }
  return count;
}

/** RFC 9112, section 3.2. */
function requireOneHost(request: IncomingMessage): void {
  const { httpVersion, headers } = request;
  const count = occurrences(request, "host");
  if (count === 0 && httpVersion === "1.0") return;
  if (count !== 1 || !authority.test(headers.host ?? "")) throw refused("Host must name one host");
}

/**
 * The parser takes more than one way to tell a length; a server behind might take one of them for
 * another (RFC 9112, section 6).
 */
function requirePlainFraming({ httpVersion, headers }: IncomingMessage): void {
  const { "transfer-encoding": encoding, "content-length": length } = headers;
  const isPlainEncoding = encoding?.toLowerCase() === "chunked" && httpVersion === "1.1";
  if (encoding !== undefined && !isPlainEncoding) {
    throw refused("the only Transfer-Encoding is chunked, in HTTP/1.1");
  }
  if (length !== undefined && !plainLength.test(length)) {
    throw refused("Content-Length must be a plain number");
  }
}

/**
 * Refuses a head that keeps the letter of HTTP but that two readers could read differently.
 *
 * @throws Refusal `bad_request` or `headers_too_large`
 */
export function requirePlainHead(request: IncomingMessage): void {
  const { httpVersion, rawHeaders } = request;
  if (httpVersion !== "1.1" && httpVersion !== "1.0") throw refused("HTTP/1.1 is spoken here");
  if (rawHeaders.length > 2 * MAX_HEADERS) throw new Refusal("headers_too_large");
  requireOneHost(request);
  requirePlainFraming(request);
}

/** A request's path as sent, without its query string. */
export function pathOf({ url: target = "" }: IncomingMessage): string {
  const query = target.indexOf("?");
  return query === -1 ? target : target.slice(0, query);
}

/** True if the head tells of a body (RFC 9112, section 6). */
export function hasBody(headers: IncomingHttpHeaders): boolean {
  return headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0;
}

/** Listeners of an answer that are no leak. */
const MAX_LISTENERS = 24;
/** The route of a path that fits none. */
export const UNKNOWN_ROUTE = "unknown";

/** What the listener knows of a request. */
interface Arrival {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly peer: Peer;
  /** True for a WebSocket handshake on a connection that the HTTP server has handed over. */
  readonly isHandshake: boolean;
  /** Headers that the answer carries besides its own: names and values in turn. */
  readonly extraHeaders: readonly string[];
}

/** What a challenge tells a client of a protected resource besides its realm (RFC 9728). */
export interface ResourceChallenge {
  /** The URL of the resource's metadata. */
  readonly metadata: string;
  /** All scopes that the request needs, so that one step up is enough. */
  readonly scope: string;
}

/** What routing has found. */
interface Routed {
  /** The route's pattern: the metric's label, bounded in number. */
  readonly pattern: string;
  /** The values of the route's path parameters, as sent. */
  readonly parameters: Readonly<Record<string, string>>;
  /** True if no audit line is wanted. */
  readonly isQuiet: boolean;
  /** Set on a protected resource: what a challenge there must say. */
  readonly resource: ResourceChallenge | undefined;
}

const unrouted: Routed = {
  pattern: UNKNOWN_ROUTE,
  parameters: {},
  isQuiet: false,
  resource: undefined,
};

/** What authentication has found: nothing on public routes and while it is off. */
interface Authenticated {
  /** The user that the audit names; at a login, the one who it is said to be. */
  readonly username: string | undefined;
  /** Who asks, for the policy. */
  readonly subject: Subject | undefined;
  /** Who has shown a login token. */
  readonly caller: Caller | undefined;
  /** Who has shown a token for `/mcp`. */
  readonly principal: Principal | undefined;
}

/** Nobody is known to call. */
export const nobody: Authenticated = {
  username: undefined,
  subject: undefined,
  caller: undefined,
  principal: undefined,
};

/** How far the body was read. */
class RequestBody {
  /** Bytes of it, and of answers, that are held in memory, and on whose account. */
  heldBytes = 0;
  heldFor = "";
  /** True once a client that waits to be asked for its body was asked. */
  isInvited = false;
  /** True if no more of it can be read. */
  isLost = false;
  /** True once the answer is written and the rest of the body is read for nothing. */
  isDropped = false;
}

/** What authorization has found, as the audit and the answer's headers tell it. */
class Verdict {
  /** The first few of what the request asks of databases, and how many there are. */
  operations: readonly AuditedOperation[] = [];
  count = 0;
  decision: "allow" | "deny" | undefined;
  /** The stable code of what denied it, or broke it off. */
  reason: string | undefined;
  /** The conditions of row filters that were added to the query, as JSON. */
  filters: readonly string[] = [];
  /** The external token that was refused, and more precisely why. */
  refusedToken: (RefusedToken & { readonly detail: string | undefined }) | undefined;
  /** The id of the approval that it asked for, or is run by. */
  approval: string | undefined;
  /** The rate limits in which it was counted. */
  rates: readonly AuditedRate[] | undefined;
  /** What the engine has told besides its answer. */
  report: EngineReport | undefined;
  /** What the request has changed of users, grants and revocations. */
  changes: readonly AuditedChange[] | undefined;
  /** Set with a decision on a stream: throws a Refusal once it would be denied. */
  requireStillAllowed: (() => void) | undefined;

  /** Notes what is asked. */
  ask(operations: readonly AuditedOperation[], count = operations.length): void {
    this.operations = operations;
    this.count = count;
  }

  /** Notes that it may go on. */
  allow(): void {
    this.decision = "allow";
  }

  /**
   * Notes why it was refused.
   *
   * @param status the HTTP status of the refusal, also if its own protocol has none
   */
  deny(code: string, status: number): void {
    this.reason = code;
    if (status < 500) this.decision = "deny";
  }

  /** Notes why what was allowed has been cut. */
  breakOff(code: string): void {
    this.reason = code;
  }
}

/** One request and its answer: what each phase of their way through the gateway has found out. */
export class Exchange implements Arrival, ClientSink {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly peer: Peer;
  readonly isHandshake: boolean;
  readonly extraHeaders: readonly string[];
  readonly requestId: string;
  /** The request's path as sent, without its query string. */
  readonly path: string;
  /** `performance.now()` when the request's head had arrived. */
  readonly startedAt = performance.now();
  routed: Routed = unrouted;
  /** Its span, if requests are traced, from when its route was found. */
  trace: RequestTrace | undefined;
  authenticated: Authenticated = nobody;
  readonly body = new RequestBody();
  readonly verdict = new Verdict();
  #forwardedAt: number | undefined;
  /** Called when the answer is out or the connection has ended. */
  whenClosed: (() => void) | undefined;

  constructor({ request, response, peer, isHandshake, extraHeaders }: Arrival) {
    this.request = request;
    this.response = response;
    // Each room on a stream's way wants to know its end: more than the warning's usual ten.
    response.setMaxListeners(MAX_LISTENERS);
    this.peer = peer;
    this.isHandshake = isHandshake;
    this.extraHeaders = extraHeaders;
    this.requestId = peer.requestId ?? randomUUID();
    this.path = pathOf(request);
  }

  /** Asks for the body, if the client waits for that (RFC 9110, section 10.1.1). */
  inviteBody(): void {
    const { headers, httpVersion } = this.request;
    if (headers.expect !== undefined && httpVersion === "1.1") this.response.writeContinue();
    this.body.isInvited = true;
  }

  /** `performance.now()` when it first went up; undefined if it was answered without that. */
  get forwardedAt(): number | undefined {
    return this.#forwardedAt;
  }

  /** Notes that it goes up. If requests are traced, its headers name the span that this begins. */
  goUp(upward: UpwardRequest): UpwardTrace | undefined {
    this.#forwardedAt ??= performance.now();
    return this.trace?.goUp(upward);
  }
}

/** On whose account a request takes what is scarce: its user's, or its address's without one. */
export function payerOf({ authenticated, peer }: Exchange): string {
  return authenticated.username ?? peer.address;
}
