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
interface TracedOutcome {
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
function methodAttributes(method: string): Attributes {
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

/** Whom a request goes up to: `http://host:port`, `https://host:port` or `unix:/path`. */
const peerAttributes = memoize((target): Attributes => {
  if (target.startsWith("unix:")) {
    return { "server.address": target.slice("unix:".length), "network.transport": "unix" };
  }
  const { hostname, port, protocol } = new URL(target);
  const usual = protocol === "https:" ? 443 : 80;
  return { "server.address": hostname, "server.port": port === "" ? usual : Number(port) };
});

/** A request that goes up. */
export interface UpwardRequest {
  readonly method: string;
  /** All that goes up; what tells of the client's span is made to tell of this one. */
  readonly headers: NodeJS.Dict<string | string[]>;
  /** Where to, as `http://host:port` or `unix:/path`; undefined if that is yet to be chosen. */
  readonly target: string | undefined;
}

/** The span of what went up for a request (kind CLIENT). */
export class UpwardTrace {
  readonly #span: Span;
  #hasEnded = false;

  constructor(span: Span) {
    this.#span = span;
  }

  /** It was answered with this status; of a client's errors, it is the gateway that made them. */
  end(status: number): void {
    this.#span.setAttribute("http.response.status_code", status);
    if (status < 400) this.#end();
    else this.#fail(String(status));
  }

  /** The request that it went up for is over: ends it likewise, if it has not ended before. */
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

/** The span of a request (kind SERVER), and those of what goes up for it. */
export class RequestTrace {
  readonly #tracer: Tracer;
  readonly #span: Span;
  /** With the span, and with what the client has sent along: its baggage. */
  readonly #context: Context;
  readonly #upward: UpwardTrace[] = [];

  /** @param parent the context that the client's headers tell of */
  constructor(tracer: Tracer, span: Span, parent: Context) {
    this.#tracer = tracer;
    this.#span = span;
    this.#context = trace.setSpan(parent, span);
  }

  /** 32 hexadecimal digits. */
  get traceId(): string {
    return this.#span.spanContext().traceId;
  }

  /** Begins the span of a request that goes up, and has its headers name that as the parent. */
  goUp({ method, headers, target }: UpwardRequest): UpwardTrace {
    const peer = target === undefined ? {} : peerAttributes(target);
    const attributes = { ...methodAttributes(method), ...peer };
    const options = { kind: SpanKind.CLIENT, attributes };
    const span = this.#tracer.startSpan(spanName(method), options, this.#context);
    // Also what would be left of the client's own, such as the state of a trace that is not ours.
    for (const name of propagation.fields()) delete headers[name];
    propagation.inject(trace.setSpan(this.#context, span), headers);
    const upward = new UpwardTrace(span);
    this.#upward.push(upward);
    return upward;
  }

  /** The request is over. */
  end(outcome: TracedOutcome): void {
    for (const upward of this.#upward) upward.settle(outcome);
    this.#span.setAttributes(outcomeAttributes(outcome));
    if (outcome.status >= 500) this.#span.setStatus({ code: SpanStatusCode.ERROR });
    // By the clock that its beginning was given by.
    this.#span.end(performance.now());
  }
}
