import { randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Subject } from "../access/policy.ts";
import type { Caller } from "../identity/authenticate.ts";
import type { Principal } from "../mcp/principal.ts";
import type { AuditedOperation } from "../observe/audit.ts";
import type { RequestTrace } from "../observe/request-trace.ts";
import type { ClientSink } from "../upstream/forward-attempt.ts";
import type { ResourceChallenge } from "./challenge.ts";
import type { Peer } from "./peer.ts";
import { pathOf } from "./request-head.ts";

/** Listeners of an answer that are no leak. */
const MAX_LISTENERS = 24;
/** The route of a path that fits none. */
export const UNKNOWN_ROUTE = "unknown";

/** What routing has found of a request. */
export interface Routed {
  /** The route's pattern: the metric's label, bounded in number. */
  readonly pattern: string;
  /** The values of the route's path parameters, as sent. */
  readonly parameters: Readonly<Record<string, string>>;
  /** True if no audit line is wanted. */
  readonly isQuiet: boolean;
}

const unrouted: Routed = { pattern: UNKNOWN_ROUTE, parameters: {}, isQuiet: false };

/** What a request asks of databases. */
export interface Asked {
  /** The first few. */
  readonly operations: readonly AuditedOperation[];
  /** How many there are. */
  readonly count: number;
}

const nothingAsked: Asked = { operations: [], count: 0 };

/** How far the body of a request was read. */
class RequestBody {
  /** Bytes of it, and of answers, that are held in memory, and on whose account. */
  heldBytes = 0;
  heldFor = "";
  /** True once a client that waits to be asked for its body was asked. */
  isInvited = false;
  /** True if no more of it can be read. */
  isLost = false;
}

/** One request and its answer, on their way through the gateway. */
export class Exchange implements ClientSink {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly peer: Peer;
  readonly requestId: string;
  /** The request's path as sent, without its query string. */
  readonly path: string;
  /** `performance.now()` when the request's head had arrived. */
  readonly startedAt = performance.now();
  /** `performance.now()` when it went up; undefined if it was answered without that. */
  forwardedAt: number | undefined;
  /** What routing has found. */
  routed: Routed = unrouted;
  /** Who is calling; undefined on public routes and while authentication is off. */
  caller: Caller | undefined;
  /** Who is calling `/mcp`. */
  principal: Principal | undefined;
  /** Set on a protected resource: what a challenge there must say. */
  resource: ResourceChallenge | undefined;
  /** The user that the audit names. */
  username: string | undefined;
  /** What the query or the call asks for, as the audit tells it. */
  asked: Asked = nothingAsked;
  decision: "allow" | "deny" | undefined;
  /** The stable code of what denied it, or broke it off. */
  reason: string | undefined;
  /** Set with a decision on a stream: throws a Refusal once it would be denied. */
  requireStillAllowed: (() => void) | undefined;
  /** Its span, if requests are traced, from when its route was found. */
  trace: RequestTrace | undefined;
  /** True for a WebSocket handshake on a connection that the HTTP server has handed over. */
  isHandshake = false;
  /** Headers that the answer carries besides its own: names and values in turn. */
  extraHeaders: readonly string[] = [];
  /** Called when the answer is out or the connection has ended. */
  whenClosed: (() => void) | undefined;
  /** Bytes that had gone out on the connection when its turn came. */
  writtenBefore = 0;
  readonly body = new RequestBody();
  /** True once all of an answer is written whose request is still arriving. */
  isAnswered = false;

  constructor(request: IncomingMessage, response: ServerResponse, peer: Peer) {
    this.request = request;
    this.response = response;
    // Each room on a stream's way wants to know its end: more than the warning's usual ten.
    response.setMaxListeners(MAX_LISTENERS);
    this.peer = peer;
    this.requestId = peer.requestId ?? randomUUID();
    this.path = pathOf(request);
  }

  /** Notes that it may go on. */
  allow(): void {
    this.decision = "allow";
  }

  /**
   * Notes why it was refused, for the audit and for the answer's headers.
   *
   * @param status the HTTP status of the refusal, also if its own protocol has none
   */
  deny(code: string, status: number): void {
    this.reason = code;
    if (status < 500) this.decision = "deny";
  }

  /** Asks for the body, if the client waits for that (RFC 9110, section 10.1.1). */
  inviteBody(): void {
    const { headers, httpVersion } = this.request;
    if (headers.expect !== undefined && httpVersion === "1.1") this.response.writeContinue();
    this.body.isInvited = true;
  }
}

/** On whose account a request takes what is scarce: its user's, or its address's without one. */
export function payerOf({ username, peer }: Exchange): string {
  return username ?? peer.address;
}

/** Who asks, for the policy; undefined while authentication is off. */
export function subjectOf({ caller, principal }: Exchange): Subject | undefined {
  if (caller === undefined) return principal?.subject;
  return { username: caller.user.username, tokenDatabase: caller.token.database };
}
