import type { IncomingHttpHeaders } from "node:http";
import {
  ProxyTracer,
  propagation,
  ROOT_CONTEXT,
  SpanKind,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import type { Log } from "./log.ts";
import { RequestTrace, requestAttributes, spanName, type TracedRequest } from "./request-trace.ts";

/** Milliseconds that the SDK has to send its spans when the process ends. */
const FLUSH_MS = 2000;

interface ArrivedRequest extends TracedRequest {
  readonly headers: IncomingHttpHeaders;
  /** `performance.now()` when the head had arrived. */
  readonly startedAt: number;
}

/** Calls a method that the SDK has but the API does not declare; undefined if it is missing. */
function callIfThere(target: object, name: string): unknown {
  const method: unknown = Reflect.get(target, name);
  return typeof method === "function" ? Reflect.apply(method, target, []) : undefined;
}

/** The SDK's own provider, not the API's proxy for it. */
function registeredProvider(): object {
  const provider = trace.getTracerProvider();
  const delegate = callIfThere(provider, "getDelegate");
  return typeof delegate === "object" && delegate !== null ? delegate : provider;
}

/** Traces requests with the OpenTelemetry SDK of this process. */
export class Tracing {
  /** The only target, as named in the configuration; undefined if there are several. */
  readonly upstream: string | undefined;
  readonly #tracer: Tracer;
  readonly #log: Log;

  constructor(tracer: Tracer, upstream: string | undefined, log: Log) {
    this.#tracer = tracer;
    this.upstream = upstream;
    this.#log = log;
  }

  /** Begins a request's span as a child of the one in the client's headers. */
  begin(request: ArrivedRequest): RequestTrace {
    const { method, route, headers, startedAt } = request;
    const parent = propagation.extract(ROOT_CONTEXT, headers);
    const attributes = requestAttributes(request);
    const options = { kind: SpanKind.SERVER, attributes, startTime: startedAt };
    const span = this.#tracer.startSpan(spanName(method, route), options, parent);
    return new RequestTrace(this.#tracer, span, parent);
  }

  /** Makes the SDK send its spans. Resolves after two seconds at the latest. */
  async flush(): Promise<void> {
    const late = Promise.withResolvers<"late">();
    const timer = setTimeout(late.resolve, FLUSH_MS, "late");
    try {
      const sent = Promise.resolve(callIfThere(registeredProvider(), "forceFlush"));
      if ((await Promise.race([sent, late.promise])) === "late") throw new Error("timeout");
    } catch {
      this.#log.warn("the last traces could not be sent");
    } finally {
      clearTimeout(timer);
    }
  }
}

interface TracingOptions {
  /** The gateway's version. */
  readonly version: string;
  /** Upstream targets, as named in the configuration. */
  readonly targets: readonly string[];
  readonly log: Log;
}

/**
 * Decides once whether requests are traced.
 *
 * @returns undefined if no SDK is registered in this process
 */
export function openTracing({ version, targets, log }: TracingOptions): Tracing | undefined {
  const tracer = trace.getTracer("gatehouse", version);
  // The API returns a `ProxyTracer` as long as no SDK is registered.
  if (tracer instanceof ProxyTracer) return undefined;
  log.info("requests are traced by the OpenTelemetry SDK of this process");
  return new Tracing(tracer, targets.length === 1 ? targets[0] : undefined, log);
}
