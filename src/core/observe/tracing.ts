import type { IncomingHttpHeaders } from "node:http";
import {
  type Attributes,
  ProxyTracer,
  propagation,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import { memoize } from "../base/memoize.ts";
import { portOf } from "../upstream/target.ts";
import type { Log } from "./log.ts";

interface TracedRequest {
  readonly method: string;
  /** The pattern; undefined for an unknown path. */
  readonly route: string | undefined;
  /** Without the query string. Recorded only if there is a route. */
  readonly path: string;
  /** `http` or `https`, as the client saw it. */
  readonly scheme: string;
  readonly address: string;
  readonly httpVersion: string;
  readonly headers: IncomingHttpHeaders;
  /** `performance.now()` when the head had arrived. */
  readonly startedAt: number;
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
  "GET",
  "HEAD",
  "POST",
  "PUT",
  "DELETE",
  "CONNECT",
  "OPTIONS",
  "TRACE",
  "PATCH",
  "QUERY",
]);

/** Unknown methods become `_OTHER`, so that clients cannot invent span names. */
function methodAttributes(method: string): Attributes {
  if (methods.has(method)) return { "http.request.method": method };
  return { "http.request.method": "_OTHER", "http.request.method_original": method };
}

function spanName(method: string, route?: string): string {
  const known = methods.has(method) ? method : "HTTP";
  return route === undefined ? known : `${known} ${route}`;
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
  const url = new URL(target);
  return { "server.address": url.hostname, "server.port": portOf(url) };
});

export interface UpstreamRequest {
  readonly method: string;
  /** All headers that are forwarded. The client's trace headers are replaced by this span's. */
  readonly headers: NodeJS.Dict<string | string[]>;
  /** `http://host:port` or `unix:/path`; undefined if not chosen yet. */
  readonly target: string | undefined;
}

function upstreamTrace(span: Span) {
  function finish(error: string | undefined): void {
    if (error !== undefined) {
      span.setAttribute("error.type", error);
      span.setStatus({ code: SpanStatusCode.ERROR });
    }
    span.end();
  }

  /** A 4xx is the gateway's error here, because the gateway is the client. */
  function end(status: number): void {
    span.setAttribute("http.response.status_code", status);
    finish(status < 400 ? undefined : String(status));
  }

  return {
    end,
    /** Ends the span with its request, unless it has ended. */
    endWith({ status, isAnswered, reason }: TracedOutcome): void {
      if (!span.isRecording()) return;
      if (reason === undefined && isAnswered) end(status);
      else finish(reason);
    },
  };
}

export type UpstreamTrace = ReturnType<typeof upstreamTrace>;

/** Begins a span of kind SERVER under the one in the client's headers. */
function requestTrace(tracer: Tracer, request: TracedRequest) {
  const { method, route, path, scheme, address, httpVersion, headers, startedAt } = request;
  const parent = propagation.extract(ROOT_CONTEXT, headers);
  // Set at the start, for samplers.
  const attributes = {
    ...methodAttributes(method),
    // An unknown path may contain anything, even a pasted token.
    ...(route === undefined ? {} : { "http.route": route, "url.path": path }),
    "url.scheme": scheme,
    "client.address": address,
    "network.protocol.version": httpVersion,
  };
  const options = { kind: SpanKind.SERVER, attributes, startTime: startedAt };
  const span = tracer.startSpan(spanName(method, route), options, parent);
  /** Contains the span and the client's baggage. */
  const context = trace.setSpan(parent, span);
  const upstreamTraces: UpstreamTrace[] = [];
  return {
    /** 32 hexadecimal digits. */
    traceId: span.spanContext().traceId,

    /** Begins the span of a forwarded request and writes it into the headers as the parent. */
    startUpstreamSpan({ method, headers, target }: UpstreamRequest): UpstreamTrace {
      const peer = target === undefined ? {} : peerAttributes(target);
      const attributes = { ...methodAttributes(method), ...peer };
      const options = { kind: SpanKind.CLIENT, attributes };
      const span = tracer.startSpan(spanName(method), options, context);
      // Deletes what `inject` does not overwrite, such as the state of the client's trace.
      for (const name of propagation.fields()) delete headers[name];
      propagation.inject(trace.setSpan(context, span), headers);
      const upstream = upstreamTrace(span);
      upstreamTraces.push(upstream);
      return upstream;
    },

    end(outcome: TracedOutcome): void {
      for (const upstream of upstreamTraces) upstream.endWith(outcome);
      span.setAttributes(outcomeAttributes(outcome));
      if (outcome.status >= 500) span.setStatus({ code: SpanStatusCode.ERROR });
      // The start time is from the same clock.
      span.end(performance.now());
    },
  };
}

export type RequestTrace = ReturnType<typeof requestTrace>;

const FLUSH_TIMEOUT_MS = 2000;

/** Calls a method that the API does not declare; undefined if it is missing. */
function callIfThere(target: object, name: string): unknown {
  const method: unknown = Reflect.get(target, name);
  return typeof method === "function" ? Reflect.apply(method, target, []) : undefined;
}

export type Tracing = NonNullable<ReturnType<typeof openTracing>>;

/** Traces requests with the OpenTelemetry SDK of this process; undefined if none is registered. */
export function openTracing(version: string, targets: readonly string[], log: Log) {
  const tracer = trace.getTracer("gatehouse", version);
  // A `ProxyTracer` means that no SDK is registered.
  if (tracer instanceof ProxyTracer) return undefined;
  log.info("requests are traced by the OpenTelemetry SDK of this process");
  return {
    /** The only target; undefined if there are several. */
    upstream: targets.length === 1 ? targets[0] : undefined,
    begin: (request: TracedRequest) => requestTrace(tracer, request),

    /** Makes the SDK send its spans, within two seconds. */
    async flush(): Promise<void> {
      const late = Promise.withResolvers<never>();
      const timer = setTimeout(late.reject, FLUSH_TIMEOUT_MS);
      const provider = trace.getTracerProvider();
      try {
        // The API returns a proxy of the SDK's own provider.
        const sdk: object = Object(callIfThere(provider, "getDelegate") ?? provider);
        await Promise.race([callIfThere(sdk, "forceFlush"), late.promise]);
      } catch {
        log.warn("the last traces could not be sent");
      } finally {
        clearTimeout(timer);
      }
    },
  };
}
