import {
  type Context,
  propagation,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import {
  methodAttributes,
  outcomeAttributes,
  peerAttributes,
  spanName,
  type TracedOutcome,
} from "./span-attributes.ts";

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
