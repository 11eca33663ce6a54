import type { RequestTrace } from "../observe/request-trace.ts";
import type { TracedOutcome } from "../observe/span-attributes.ts";
import type { Tracing } from "../observe/tracing.ts";
import { type Exchange, UNKNOWN_ROUTE } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";

function begin(tracing: Tracing, exchange: Exchange): RequestTrace {
  const { request, peer, routed, path, startedAt } = exchange;
  const { method = "", headers, httpVersion } = request;
  return tracing.begin({
    method,
    route: routed.pattern === UNKNOWN_ROUTE ? undefined : routed.pattern,
    path,
    scheme: peer.proto,
    address: peer.address,
    httpVersion,
    headers,
    startedAt,
  });
}

/** Begins the span of a request whose route was found, if requests are traced. */
export function beginTrace({ tracing }: Gateway, exchange: Exchange): void {
  if (tracing !== undefined) exchange.trace = begin(tracing, exchange);
}

/** Ends the span of a request; one that was refused before its route was found has none yet. */
export function endTrace(tracing: Tracing, exchange: Exchange, outcome: TracedOutcome): void {
  exchange.trace ??= begin(tracing, exchange);
  exchange.trace.end(outcome);
}
