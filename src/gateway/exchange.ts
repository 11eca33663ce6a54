import { randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
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
  /** The values of the route's path parameters, decoded. */
  parameters: Readonly<Record<string, string>> = {};
  /** The route's pattern: the metric's label, bounded in number. */
  route = UNKNOWN_ROUTE;
  /** Who is calling; undefined on public routes and while authentication is off. */
  caller: Caller | undefined;
  /** Who is calling `/mcp`. */
  principal: Principal | undefined;
  /** Set on a protected resource: what a challenge there must say. */
  resource: ResourceChallenge | undefined;
  /** The user that the audit names. */
  username: string | undefined;
  decision: "allow" | "deny" | undefined;
  reason: string | undefined;
  /** Set with a decision on a stream: throws a Refusal once it would be denied. */
  requireStillAllowed: (() => void) | undefined;
  operations: readonly AuditedOperation[] = [];
  operationCount = 0;
  /** Its span, if requests are traced, from when its route was found. */
  trace: RequestTrace | undefined;
  /** True for a WebSocket handshake on a connection that the HTTP server has handed over. */
  isHandshake = false;
  /** True if no audit line is wanted. */
  isQuiet = false;
  /** Headers that the answer carries besides its own: names and values in turn. */
  extraHeaders: readonly string[] = [];
  /** Called when the answer is out or the connection has ended. */
  whenClosed: (() => void) | undefined;
  /** Bytes that had gone out on the connection when its turn came. */
  writtenBefore = 0;
  /** Bytes of request body that this exchange holds in memory, and for whom. */
  heldBytes = 0;
  heldFor = "";
  /** True once a client that waits to be asked for its body was asked. */
  isBodyInvited = false;
  /** True if no more of the body can be read. */
  isBodyLost = false;
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

  /** Asks for the body, if the client waits for that (RFC 9110, section 10.1.1). */
  inviteBody(): void {
    const { headers, httpVersion } = this.request;
    if (headers.expect !== undefined && httpVersion === "1.1") this.response.writeContinue();
    this.isBodyInvited = true;
  }
}

/** On whose account a request takes what is scarce: its user's, or its address's without one. */
export function payerOf({ username, peer }: Exchange): string {
  return username ?? peer.address;
}
