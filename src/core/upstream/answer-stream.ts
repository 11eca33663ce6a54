import type { ServerResponse } from "node:http";
import { Refusal } from "../base/refusal.ts";
import type { UpstreamMetrics } from "../observe/metrics.ts";
import { answerHeaders, flushHead, withoutLength } from "./headers.ts";
import {
  type AnswerHead,
  type AnswerReceiver,
  NOT_MODIFIED,
  RESET_CONTENT,
} from "./http1/answer-reader.ts";
import { type Connection, freeMemory, SENT_AS_TEXT, writeTogether } from "./http1/connection.ts";
import { asRefusal } from "./target.ts";

/** Transforms a response body piece by piece. An exception ends the response. */
export interface BodyFilter {
  pass(piece: Buffer): Buffer | Promise<Buffer>;
  end(): Buffer | Promise<Buffer>;
}

export interface ResponseHandling {
  /** Alternating names and values. Hop-by-hop headers are removed later. */
  readonly rawHeaders: readonly string[];
  /** Undefined if the body is passed unchanged. */
  readonly filter?: BodyFilter | undefined;
  /** True for a stream, which starts at once and has no idle timeout. */
  readonly isStream?: boolean;
}

export interface AnswerSink {
  /** True once no one is waiting for the response. */
  readonly isGone: boolean;
  /** True once a part of the response has been sent, so that no error can be reported. */
  readonly hasBegun: boolean;
  whenGone: (() => void) | undefined;
  whenDrained: (() => void) | undefined;
  /**
   * Absent if every response is passed on unchanged.
   *
   * @throws Refusal if the response may not be passed on
   */
  receive?: ((head: AnswerHead) => Promise<ResponseHandling>) | undefined;
  /** @throws Error if the head cannot be sent, which is the fault of the upstream */
  begin(status: number, handling: ResponseHandling): void;
  /** Returns false if the sink wants nothing more until it calls `whenDrained`. */
  write(piece: Buffer): boolean;
  end(last: Buffer): void;
  /** Ends a response that is incomplete, so that it does not look complete. */
  cut(): void;
  fail(error: unknown): void;
}

/**
 * Selects headers of an answer, alternating names and values.
 *
 * @throws Refusal if the answer may not be passed on
 */
export type SelectHeaders = (status: number, rawHeaders: readonly string[]) => readonly string[];

interface ClientAnswerOptions {
  readonly response: ServerResponse;
  /** The gateway's own, alternating names and values. */
  readonly addedHeaders: readonly string[];
  readonly receive?: AnswerSink["receive"];
  /** Absent if all may pass. */
  readonly selectHeaders?: SelectHeaders;
  /**
   * Called if there is no response and none has begun: with Refusal `upstream_unreachable`,
   * `upstream_broken`, `upstream_timeout` or `upstream_overloaded`.
   */
  fail(error: unknown): void;
}

export class ClientAnswer implements AnswerSink {
  whenGone: (() => void) | undefined;
  whenDrained: (() => void) | undefined;
  readonly receive: AnswerSink["receive"];
  readonly #options: ClientAnswerOptions;
  readonly #response: ServerResponse;
  #hasWaited = false;

  constructor(options: ClientAnswerOptions) {
    this.receive = options.receive;
    this.#options = options;
    this.#response = options.response;
    this.#response.once("close", () => this.whenGone?.());
  }

  get isGone(): boolean {
    return this.#response.destroyed;
  }

  get hasBegun(): boolean {
    return this.#response.headersSent;
  }

  begin(status: number, { rawHeaders: raw, isStream }: ResponseHandling): void {
    const rawHeaders = this.#options.selectHeaders?.(status, raw) ?? raw;
    // A 304 to a query or a message never replaces content.
    const own = status === NOT_MODIFIED ? withoutLength(rawHeaders) : rawHeaders;
    this.#response.writeHead(status, answerHeaders(own).concat(this.#options.addedHeaders));
    if (isStream) flushHead(this.#response);
  }

  write(piece: Buffer): boolean {
    const isReady = this.#response.write(piece, () => freeMemory(piece));
    // Most responses never have to wait for the client.
    if (!isReady && !this.#hasWaited) this.#response.on("drain", () => this.whenDrained?.());
    this.#hasWaited ||= !isReady;
    return isReady;
  }

  end(last: Buffer): void {
    const response = this.#response;
    // A string is sent together with the head. As Latin-1, the bytes stay the same.
    const rest = last.length <= SENT_AS_TEXT ? last.toString("latin1") : last;
    writeTogether(() => response.end(rest, "latin1"));
  }

  cut(): void {
    this.#response.destroy();
  }

  fail(error: unknown): void {
    this.#options.fail(error);
  }
}

export interface QueryAnswer {
  readonly status: number;
  readonly headers: readonly string[];
  /** The body, or its first `largest` bytes. */
  readonly body: Buffer;
  /** True if the answer continues after the body. */
  readonly isCut: boolean;
}

export interface BufferedAnswerOptions {
  readonly signal: AbortSignal;
  /** In bytes. Everything beyond is read and discarded. */
  readonly largest: number;
  /** @throws Refusal if there is no room for them */
  readonly hold: (bytes: number) => void;
}

/** A longer response is abandoned. `POST /query` streams and has no such limit. */
const LARGEST_ANSWER_BYTES = 32 * 1024 * 1024;

export function abandoned(): Refusal {
  return new Refusal("upstream_broken", { detail: "abandoned" });
}

export class BufferedAnswer implements AnswerSink {
  isGone = false;
  readonly hasBegun = false;
  whenGone: (() => void) | undefined;
  whenDrained: undefined;
  readonly #options: BufferedAnswerOptions;
  readonly #result = Promise.withResolvers<QueryAnswer>();
  readonly answer = this.#result.promise;
  readonly #pieces: Buffer[] = [];
  #length = 0;
  #held = 0;
  #status = 0;
  #headers: readonly string[] = [];

  constructor(options: BufferedAnswerOptions) {
    this.#options = options;
    const { signal } = options;
    if (signal.aborted) this.#onAbort();
    else signal.addEventListener("abort", this.#onAbort, { once: true });
  }

  readonly #onAbort = (): void => {
    this.isGone = true;
    this.fail(abandoned());
    this.whenGone?.();
  };

  begin(status: number, { rawHeaders }: ResponseHandling): void {
    this.#status = status;
    this.#headers = rawHeaders;
  }

  write(piece: Buffer): boolean {
    this.#take(piece);
    if (this.#length <= LARGEST_ANSWER_BYTES) return true;
    this.#complete();
    throw new Refusal("upstream_broken", { detail: "the response is too large" });
  }

  #take(piece: Buffer): void {
    this.#length += piece.length;
    const kept = piece.subarray(0, this.#options.largest - this.#held);
    if (kept.length === 0) return;
    this.#options.hold(kept.length);
    this.#held += kept.length;
    // A view would hold the memory of the whole read, which is not accounted for.
    this.#pieces.push(Buffer.from(kept));
  }

  end(last: Buffer): void {
    this.#take(last);
    this.#complete();
  }

  #complete(): void {
    const isCut = this.#length > this.#held;
    const body = Buffer.concat(this.#pieces);
    this.#result.resolve({ status: this.#status, headers: this.#headers, body, isCut });
    this.#options.signal.removeEventListener("abort", this.#onAbort);
  }

  cut(): void {}

  fail(error: unknown): void {
    this.#result.reject(error);
    this.#options.signal.removeEventListener("abort", this.#onAbort);
  }
}

/**
 * Called when an attempt completes or fails.
 *
 * @param failure why it failed before any part of a response was sent; undefined if it completed
 * @param hasReceived true if bytes of a response have arrived
 */
export type OnComplete = (failure: Refusal | undefined, hasReceived: boolean) => void;

const nothing = Buffer.alloc(0);
/** RFC 9110, section 15.2. */
export const MAX_INTERIM = 100;

/**
 * - `arriving`: the connection delivers the response.
 * - `stalled`: the connection is paused, because the client does not read.
 * - `arrived`: the response is whole, and its connection may serve another request. Parts of it may
 * still be filtered.
 * - `ended`: nothing more is passed on.
 */
type StreamState = "arriving" | "stalled" | "arrived" | "ended";

/** The response to one request, on its way from a connection to a sink, with back-pressure. */
export class AnswerStream implements AnswerReceiver {
  readonly #sink: AnswerSink;
  readonly #connection: Connection;
  readonly #responseTimeoutMs: number;
  readonly #metrics: UpstreamMetrics | undefined;
  readonly #complete: OnComplete;
  readonly #startedAt = performance.now();
  #state: StreamState = "arriving";
  #interim = 0;
  #hasReceived = false;
  #status = 0;
  /** Set from the acceptance of the head until it is passed on. */
  #handling: ResponseHandling | undefined;
  #filter: BodyFilter | undefined;
  /** Resolves when everything received so far has been filtered. Undefined if it has. */
  #filtering: Promise<void> | undefined;

  /** @param responseTimeoutMs until the final response's head, regardless of interim responses */
  constructor(
    sink: AnswerSink,
    connection: Connection,
    responseTimeoutMs: number,
    complete: OnComplete,
    metrics?: UpstreamMetrics,
  ) {
    this.#sink = sink;
    this.#connection = connection;
    this.#responseTimeoutMs = responseTimeoutMs;
    this.#metrics = metrics;
    this.#complete = complete;
    // Named first: V8 allocates a function long-lived that is written where a property is assigned.
    // All that it refers to, here the request, would stay until the whole heap is collected.
    const onGone = () => this.#fail(new Error("no one is waiting for the response"));
    const onDrained = () => {
      if (this.#state === "stalled") this.#state = "arriving";
      this.#resume();
    };
    sink.whenGone = onGone;
    sink.whenDrained = onDrained;
  }

  get #isArriving(): boolean {
    return this.#state === "arriving" || this.#state === "stalled";
  }

  onBytes(): void {
    this.#hasReceived = true;
  }

  /** Each interim response restarts the connection's timeout, so their number is limited here. */
  onInterim(): void {
    this.#interim++;
    if (performance.now() - this.#startedAt > this.#responseTimeoutMs) {
      this.#fail(new Refusal("upstream_timeout", { detail: "only interim responses" }));
    } else if (this.#interim > MAX_INTERIM) {
      this.#fail(new Refusal("upstream_broken", { detail: "too many interim responses" }));
    }
  }

  onHead(head: AnswerHead): void {
    this.#metrics?.answers.add((performance.now() - this.#startedAt) / 1000);
    this.#status = head.status;
    const { receive } = this.#sink;
    if (receive === undefined) this.#handling = { rawHeaders: head.headers };
    else this.#inTurn(async () => this.#accept(await receive(head)));
  }

  #accept(handling: ResponseHandling): void {
    this.#handling = handling;
    this.#filter = handling.filter;
    // The client can use the head of a stream long before the first event.
    if (!handling.isStream) return;
    this.#begin();
    if (this.#isArriving) this.#connection.disableTimeout();
  }

  /** Passes on the head. Before that, an upstream failure can still be reported as an error. */
  #begin(): void {
    const handling = this.#handling;
    if (handling === undefined) return;
    this.#handling = undefined;
    this.#sink.begin(this.#status, handling);
  }

  onData(piece: Buffer): void {
    this.#inTurn(() => {
      if (this.#status === RESET_CONTENT) {
        throw new Refusal("upstream_broken", { detail: "content in a 205" });
      }
      const filter = this.#filter;
      return filter === undefined ? this.#write(piece) : this.#writeFiltered(filter, piece);
    });
  }

  async #writeFiltered(filter: BodyFilter, piece: Buffer): Promise<void> {
    this.#write(await filter.pass(piece));
  }

  #write(bytes: Buffer): void {
    if (bytes.length === 0) return;
    this.#begin();
    if (this.#sink.write(bytes) || this.#state !== "arriving") return;
    this.#state = "stalled";
    this.#connection.pause();
  }

  #resume(): void {
    if (this.#state === "arriving" && this.#filtering === undefined) this.#connection.resume();
  }

  onEnd(last: Buffer = nothing): void {
    if (this.#state === "ended") return;
    this.#state = "arrived";
    this.#inTurn(() => {
      const filter = this.#filter;
      return filter === undefined ? this.#end(last) : this.#endFiltered(filter, last);
    });
  }

  async #endFiltered(filter: BodyFilter, rest: Buffer): Promise<void> {
    const passed = await filter.pass(rest);
    const added = await filter.end();
    if (this.#state !== "ended") this.#end(Buffer.concat([passed, added]));
  }

  #end(rest: Buffer): void {
    this.#begin();
    this.#sink.end(rest);
    this.#close();
    this.#complete(undefined, this.#hasReceived);
  }

  onError(error: Error): void {
    if (this.#state === "ended") return;
    this.#state = "arrived";
    this.#fail(error);
  }

  /** Runs a step after all earlier ones. Until it is done, the connection is not read. */
  #inTurn(step: () => void | Promise<void>): void {
    if (this.#state === "ended") return;
    try {
      // The rest of a response that has been refused is discarded.
      const work =
        this.#filtering === undefined
          ? step()
          : this.#filtering.then(() => (this.#state === "ended" ? undefined : step()));
      if (work === undefined) return;
      if (this.#isArriving) this.#connection.pause();
      const filtering: Promise<void> = work.then(
        () => {
          if (this.#filtering !== filtering) return;
          this.#filtering = undefined;
          this.#resume();
        },
        (error: unknown) => this.#fail(error),
      );
      this.#filtering = filtering;
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(cause: unknown): void {
    if (this.#state === "ended") return;
    const isArriving = this.#isArriving;
    const error = cause instanceof Error ? cause : new Error("no answer", { cause });
    const { hasBegun, isGone } = this.#sink;
    this.#close();
    if (isArriving) this.#connection.abort(error);
    if (hasBegun && !isGone) {
      this.#metrics?.onCut();
      this.#sink.cut();
    }
    this.#complete(hasBegun ? undefined : asRefusal(error), this.#hasReceived);
  }

  #close(): void {
    this.#state = "ended";
    this.#sink.whenGone = undefined;
    this.#sink.whenDrained = undefined;
  }
}
