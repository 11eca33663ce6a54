import type { Durations } from "../observe/metrics.ts";
import { Refusal } from "../refusal.ts";
import type { Settle } from "./forward-attempt.ts";
import type { AnswerHead, AnswerReceiver } from "./http1/answer-reader.ts";
import type { Connection, Release } from "./http1/connection.ts";
import { asRefusal } from "./target.ts";

export interface QueryAnswer {
  readonly status: number;
  readonly headers: readonly string[];
  /** The body, or its first `largest` bytes. */
  readonly body: Buffer;
  /** True if the body was longer. */
  readonly isCut: boolean;
}

export interface BufferLimits {
  /** In bytes. Everything beyond is read and discarded. */
  readonly largest: number;
  /**
   * Called before bytes are buffered.
   *
   * @throws Refusal if there is no room for them
   */
  readonly hold: (bytes: number) => void;
}

/** A query whose response the gateway itself uses. */
export interface BufferedQuery extends BufferLimits {
  readonly path?: string;
  /** Connections are shared fairly between users. */
  readonly user: string;
  readonly body: Buffer;
  /** A query that only reads may be sent again if its connection breaks before a response. */
  readonly isRead: boolean;
  readonly fields: string;
  /**
   * Called after it has waited for a connection.
   *
   * @throws Refusal if it may no longer be sent
   */
  readonly judgeAgain?: (() => void) | undefined;
  readonly signal: AbortSignal;
}

/** A longer response is abandoned. `POST /query` streams and has no such limit. */
const LARGEST_ANSWER_BYTES = 32 * 1024 * 1024;

export interface AnswerSink {
  readonly take: (answer: QueryAnswer) => void;
  readonly settle: Settle;
}

/** One attempt to send a query upstream and buffer the response. */
export class BufferedAnswer implements AnswerReceiver {
  readonly #connection: Connection;
  readonly #sink: AnswerSink;
  readonly #query: BufferedQuery;
  readonly #times: Durations;
  readonly #startedAt = performance.now();
  readonly #pieces: Buffer[] = [];
  #length = 0;
  #held = 0;
  #status = 0;
  #headers: readonly string[] = [];
  #hasReceived = false;
  #isOver = false;

  /** @param times records the time until the response's head */
  constructor(connection: Connection, query: BufferedQuery, sink: AnswerSink, times: Durations) {
    this.#connection = connection;
    this.#sink = sink;
    this.#query = query;
    this.#times = times;
    query.signal.addEventListener("abort", this.#onAbort, { once: true });
  }

  onBytes(): void {
    this.#hasReceived = true;
  }

  onInterim(): void {}

  onHead({ status, headers }: AnswerHead): void {
    this.#status = status;
    this.#headers = headers;
    this.#times.add((performance.now() - this.#startedAt) / 1000);
  }

  onData(piece: Buffer, release: Release): void {
    try {
      this.#take(piece);
      release();
    } catch (error) {
      this.#connection.abort(asRefusal(error instanceof Error ? error : new Error("unknown")));
      return;
    }
    if (this.#length <= LARGEST_ANSWER_BYTES) return;
    this.#finish();
    this.#connection.abort(new Refusal("upstream_broken", { detail: "the answer is too large" }));
  }

  /**
   * Copies the part of a piece that is buffered.
   *
   * @throws Refusal
   */
  #take(piece: Buffer): void {
    this.#length += piece.length;
    const kept = piece.subarray(0, this.#query.largest - this.#held);
    if (kept.length === 0) return;
    this.#query.hold(kept.length);
    this.#held += kept.length;
    this.#pieces.push(Buffer.from(kept));
  }

  #finish(): void {
    const isCut = this.#length > this.#held;
    const body = Buffer.concat(this.#pieces);
    this.#sink.take({ status: this.#status, headers: this.#headers, body, isCut });
    this.#settle(undefined);
  }

  #settle(failure: Refusal | undefined): void {
    // A response abandoned at its size limit completes before its connection does.
    if (this.#isOver) return;
    this.#isOver = true;
    this.#query.signal.removeEventListener("abort", this.#onAbort);
    this.#sink.settle(failure, this.#hasReceived);
  }

  onEnd(last: Buffer | undefined): void {
    try {
      if (last !== undefined) this.#take(last);
      this.#finish();
    } catch (error) {
      this.onError(error instanceof Error ? error : new Error("unknown"));
    }
  }

  onError(error: Error): void {
    this.#settle(asRefusal(error));
  }

  readonly #onAbort = (): void => {
    this.#connection.abort(new Refusal("upstream_broken", { detail: "given up" }));
  };
}
