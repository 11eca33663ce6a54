import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { foldHeader } from "../../config/headers.ts";
import {
  gatewayHeaders,
  type HeaderPolicy,
  type Provenance,
  streamHeaders,
} from "../../upstream/headers.ts";
import type { StreamForward } from "../../upstream/reverse-proxy.ts";
import type { Judged } from "./judge.ts";

/** What the gateway knows of where a request came from. */
export interface Origin extends Omit<Provenance, "identity"> {
  /** True if the peer's `X-Forwarded-*` headers are believed. */
  readonly isTrusted: boolean;
  /** False while authentication is off: then nobody is vouched for. */
  readonly isAuthenticated: boolean;
}

/** A request that was judged, with its whole body; undefined for GET and DELETE. */
export interface UpwardRequest {
  readonly request: IncomingMessage;
  readonly judged: Judged;
  readonly body: Buffer | undefined;
}

/** Headers that were held against the body, its form, and the caller. */
const judgedHeaders: ReadonlySet<string> = new Set([
  ...["mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id", "last-event-id"],
  ...["content-type", "content-encoding"],
]);

/**
 * The client's headers with those that were judged exactly as they were: not in another spelling
 * that a server may fold to theirs, and also if the client had them taken off as headers of the
 * connection.
 */
function withJudged(kept: IncomingHttpHeaders, sent: IncomingHttpHeaders): IncomingHttpHeaders {
  const others = Object.entries(kept).filter(([name]) => !judgedHeaders.has(foldHeader(name)));
  const judged = Object.entries(sent).filter(([name]) => judgedHeaders.has(name));
  return Object.fromEntries([...others, ...judged]);
}

/** The headers that go up: the client's that may, as they were judged, and the gateway's own. */
export function upwardHeaders(
  { request, judged: { era, sessionId, identity }, body }: UpwardRequest,
  policy: HeaderPolicy,
  origin: Origin,
): StreamForward["headers"] {
  const kept = streamHeaders(request.headers, policy, origin.isTrusted);
  const headers: NodeJS.Dict<string | string[]> = {
    ...withJudged(kept, request.headers),
    // Lists are looked at on their way back, which an encoding would hinder.
    "accept-encoding": "identity",
    ...gatewayHeaders({ ...origin, identity: origin.isAuthenticated ? identity : undefined }),
  };
  delete headers["transfer-encoding"];
  delete headers["content-length"];
  if (body !== undefined) headers["content-length"] = String(body.length);
  if (era === "stateless" || sessionId === undefined) delete headers["mcp-session-id"];
  return headers;
}
