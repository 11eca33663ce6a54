import type { Attributes } from "@opentelemetry/api";
import { memoize } from "../memoize.ts";

/** What is known of a request when its route was found, or when it was refused before that. */
export interface TracedRequest {
  readonly method: string;
  /** The route's pattern; undefined for a path that is none of the gateway's. */
  readonly route: string | undefined;
  /** Without its query string; shown only if there is a route. */
  readonly path: string;
  /** `http` or `https`, as the client saw it. */
  readonly scheme: string;
  /** The client's address. */
  readonly address: string;
  readonly httpVersion: string;
}

/** What is known of a request when it is over. */
export interface TracedOutcome {
  readonly status: number;
  /** False if the client left before its answer. */
  readonly isAnswered: boolean;
  readonly decision: "allow" | "deny" | undefined;
  /** Why, as a stable code. */
  readonly reason: string | undefined;
  /** What was asked for, as the metrics tell it apart. */
  readonly operation: string;
}

/** The methods that the conventions know: those of RFC 9110, section 9, PATCH and QUERY. */
const methods = new Set([
  ...["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE"],
  ...["PATCH", "QUERY"],
]);

/** The method as the conventions have it: whoever makes up methods makes up no names of spans. */
export function methodAttributes(method: string): Attributes {
  if (methods.has(method)) return { "http.request.method": method };
  return { "http.request.method": "_OTHER", "http.request.method_original": method };
}

/** The name of a span: the method, and the route's pattern if there is one. */
export function spanName(method: string, route?: string): string {
  const shown = methods.has(method) ? method : "HTTP";
  return route === undefined ? shown : `${shown} ${route}`;
}

/** What a request's span says from its beginning, so that a sampler may go by it. */
export function requestAttributes(request: TracedRequest): Attributes {
  const { method, route, path, scheme, address, httpVersion } = request;
  return {
    ...methodAttributes(method),
    // A path that is none of the gateway's may hold anything, a pasted token too.
    ...(route === undefined ? {} : { "http.route": route, "url.path": path }),
    "url.scheme": scheme,
    "client.address": address,
    "network.protocol.version": httpVersion,
  };
}

/** What a request's span says at its end; `error.type` stands there if the server has failed. */
export function outcomeAttributes(outcome: TracedOutcome): Attributes {
  const { status, decision, reason, operation } = outcome;
  return {
    "http.response.status_code": status,
    "gatehouse.operation": operation,
    ...(decision === undefined ? {} : { "gatehouse.decision": decision }),
    ...(reason === undefined ? {} : { "gatehouse.reason": reason }),
    ...(status < 500 ? {} : { "error.type": reason ?? String(status) }),
  };
}

/** Whom a request goes up to: `http://host:port`, `https://host:port` or `unix:/path`. */
export const peerAttributes = memoize((target): Attributes => {
  if (target.startsWith("unix:")) {
    return { "server.address": target.slice("unix:".length), "network.transport": "unix" };
  }
  const { hostname, port, protocol } = new URL(target);
  const usual = protocol === "https:" ? 443 : 80;
  return { "server.address": hostname, "server.port": port === "" ? usual : Number(port) };
});
