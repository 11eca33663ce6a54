import {
  type Attributes,
  type Context,
  propagation,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import { memoize } from "../memoize.ts";

/** What is known when the route is found, or when the request is refused earlier. */
export interface TracedRequest {
  readonly method: string;
  /** The route's pattern; undefined for an unknown path. */
  readonly route: string | undefined;
  /** Without its query string. Recorded only if there is a route. */
  readonly path: string;
  /** `http` or `https`, as the client saw it. */
  readonly scheme: string;
  readonly address: string;
  readonly httpVersion: string;
}

interface TracedOutcome {
  readonly status: number;
  /** False if the client disconnected before its response. */
  readonly isAnswered: boolean;
  readonly decision: "allow" | "deny" | undefined;
  /** A stable code. */
  readonly reason: string | undefined;
  /** The same value as the `operation` label of the metrics. */
  readonly operation: string;
}

/** Methods known to the OpenTelemetry conventions: RFC 9110, section 9, PATCH and QUERY. */
const methods = new Set([
  ...["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE"],
  ...["PATCH", "QUERY"],
]);

/** Unknown methods become `_OTHER`, so that clients cannot invent span names. */
function methodAttributes(method: string): Attributes {
  if (methods.has(method)) return { "http.request.method": method };
  return { "http.request.method": "_OTHER", "http.request.method_original": method };
}

export function spanName(method: string, route?: string): string {
  const shown = methods.has(method) ? method : "HTTP";
  return route === undefined ? shown : `${shown} ${route}`;
}

/** Attributes set at the start of a span, so that a sampler can use them. */
export function requestAttributes(request: TracedRequest): Attributes {
  const { method, route, path, scheme, address, httpVersion } = request;
  return {
    ...methodAttributes(method),
    // An unknown path may contain anything, even a pasted token.
    ...(route === undefined ? {} : { "http.route": route, "url.path": path }),
    "url.scheme": scheme,
    "client.address": address,
    "network.protocol.version": httpVersion,
  };
}

/** `error.type` is set only if the server failed. */
function outcomeAttributes(outcome: TracedOutcome): Attributes {
  const { status, decision, reason, operation } = outcome;
  return {
    "http.response.status_code": status,
    "gatehouse.operation": operation,
    ...(decision === undefined ? {} : { "gatehouse.decision": decision }),
    ...(reason === undefined ? {} : { "gatehouse.reason": reason }),
    ...(status < 500 ? {} : { "error.type": reason ?? String(status) }),
  };
}

/** Accepts `http://host:port`, `https://host:port` and `unix:/path`. */
const peerAttributes = memoize((target): Attributes => {
  if (target.startsWith("unix:")) {
    return { "server.address": target.slice("unix:".length), "network.transport": "unix" };
  }
  const { hostname, port, protocol } = new URL(target);
  const usual = protocol === "https:" ? 443 : 80;
  return { "server.address": hostname, "server.port": port === "" ? usual : Number(port) };
});

/** A request that is forwarded upstream. */
export interface UpwardRequest {
  readonly method: string;
  /** All headers that are forwarded. The client's trace headers are replaced by this span's. */
  readonly headers: NodeJS.Dict<string | string[]>;
  /** `http://host:port` or `unix:/path`; undefined if not chosen yet. */
  readonly target: string | undefined;
}

/** The span of a request to the upstream (kind CLIENT). */
export class UpwardTrace {
  readonly #span: Span;
  #hasEnded = false;

  constructor(span: Span) {
    this.#span = span;
  }

  /**
   * Ends the span with a status. A 4xx is the gateway's error here, because the gateway is the
   * client.
   */
  end(status: number): void {
    this.#span.setAttribute("http.response.status_code", status);
    if (status < 400) this.#end();
    else this.#fail(String(status));
  }

  /** Ends the span together with its request, unless it has already ended. */
  settle({ status, isAnswered, reason }: TracedOutcome): void {
    if (this.#hasEnded) return;
    if (reason !== undefined) this.#fail(reason);
    else if (isAnswered) this.end(status);
    else this.#end();
  }

  #fail(type: string): void {
    this.#span.setAttribute("error.type", type);
    this.#span.setStatus({ code: SpanStatusCode.ERROR });
    this.#end();
  }

  #end(): void {
    this.#hasEnded = true;
    this.#span.end();
  }
}

/** The span of a request (kind SERVER), and the parent of its upstream spans. */
export class RequestTrace {
  readonly #tracer: Tracer;
  readonly #span: Span;
  /** Contains the span and the client's baggage. */
  readonly #context: Context;
  readonly #upward: UpwardTrace[] = [];

  /** @param parent the context from the client's headers */
  constructor(tracer: Tracer, span: Span, parent: Context) {
    this.#tracer = tracer;
    this.#span = span;
    this.#context = trace.setSpan(parent, span);
  }

  /** 32 hexadecimal digits. */
  get traceId(): string {
    return this.#span.spanContext().traceId;
  }

  /** Begins the span of a forwarded request and writes it into the headers as the parent. */
  goUp({ method, headers, target }: UpwardRequest): UpwardTrace {
    const peer = target === undefined ? {} : peerAttributes(target);
    const attributes = { ...methodAttributes(method), ...peer };
    const options = { kind: SpanKind.CLIENT, attributes };
    const span = this.#tracer.startSpan(spanName(method), options, this.#context);
    // Deletes what `inject` does not overwrite, such as the state of the client's trace.
    for (const name of propagation.fields()) delete headers[name];
    propagation.inject(trace.setSpan(this.#context, span), headers);
    const upward = new UpwardTrace(span);
    this.#upward.push(upward);
    return upward;
  }

  end(outcome: TracedOutcome): void {
    for (const upward of this.#upward) upward.settle(outcome);
    this.#span.setAttributes(outcomeAttributes(outcome));
    if (outcome.status >= 500) this.#span.setStatus({ code: SpanStatusCode.ERROR });
    // The start time is from the same clock.
    this.#span.end(performance.now());
  }
}
