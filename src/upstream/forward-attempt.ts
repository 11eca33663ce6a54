import type { ServerResponse } from "node:http";
import { Refusal } from "../refusal.ts";
import { answerHeaders } from "./headers.ts";
import {
  type AnswerHead,
  type AnswerReceiver,
  NOT_MODIFIED,
  RESET_CONTENT,
  withoutLength,
} from "./http1/answer-reader.ts";
import { type Connection, type Release, writeTogether } from "./http1/connection.ts";
import { asRefusal } from "./target.ts";

/** Durations of complete responses in seconds, and the number of responses that were cut off. */
interface AttemptMetrics {
  readonly answers: { add(seconds: number): void };
  cut: number;
}

export interface ClientSink {
  readonly response: ServerResponse;
  /** Called when the client disconnects and when the response has been sent. */
  whenClosed: (() => void) | undefined;
}

export interface ForwardedQuery {
  readonly sink: ClientSink;
  /** Connections are shared fairly between users. */
  readonly user: string;
  /** The bytes that were judged, sent unchanged. */
  readonly body: Buffer;
  readonly fields: string;
  /** A query that only reads may be sent again if its connection breaks before a response. */
  readonly isRead: boolean;
  /**
   * Called after it has waited for a connection.
   *
   * @throws Refusal if it may no longer be sent
   */
  readonly judgeAgain?: (() => void) | undefined;
  /** Headers that the gateway adds to the response, as alternating names and values. */
  readonly answerHeaders: readonly string[];
  /** Called with the response headers, as alternating names and values. */
  readonly onHeaders?: ((headers: readonly string[]) => void) | undefined;
  /**
   * Called if there is no response and none has begun: with Refusal `upstream_unreachable`,
   * `upstream_broken`, `upstream_timeout` or `upstream_overloaded`.
   */
  fail(error: unknown): void;
}

class ClientGoneError extends Error {}

/** Timeouts in milliseconds. */
export interface AttemptLimits {
  /** Until the final response's head, regardless of interim responses. */
  readonly responseTimeout: number;
  /** How long the client may read nothing of its response. */
  readonly clientTimeout: number;
}

/**
 * Called when an attempt completes or fails.
 *
 * @param failure why it failed before any part of a response was sent; undefined if it completed
 * @param hasReceived true if bytes of a response have arrived
 */
export type Settle = (failure: Refusal | undefined, hasReceived: boolean) => void;

/** The limit of interim responses (RFC 9110, section 15.2) before the final one. */
const MAX_INTERIM = 100;

/** One attempt to send a query upstream and stream the response back, with back-pressure. */
export class ForwardAttempt implements AnswerReceiver {
  readonly #query: ForwardedQuery;
  readonly #response: ServerResponse;
  readonly #limits: AttemptLimits;
  readonly #metrics: AttemptMetrics;
  readonly #connection: Connection;
  readonly #settle: Settle;
  readonly #startedAt = performance.now();
  #interim = 0;
  #hasReceived = false;
  #hasStarted = false;
  #head: AnswerHead | undefined;
  #isClientGone = false;
  #isStalled = false;
  #stall: NodeJS.Timeout | undefined;

  constructor(
    query: ForwardedQuery,
    connection: Connection,
    limits: AttemptLimits,
    metrics: AttemptMetrics,
    settle: Settle,
  ) {
    this.#query = query;
    this.#response = query.sink.response;
    this.#connection = connection;
    this.#limits = limits;
    this.#metrics = metrics;
    this.#settle = settle;
    query.sink.whenClosed = this.#onClientClose;
  }

  onBytes(): void {
    this.#hasReceived = true;
  }

  /** Each interim response restarts the connection's timeout, so their number is limited here. */
  onInterim(): void {
    this.#interim++;
    if (performance.now() - this.#startedAt > this.#limits.responseTimeout) {
      this.#connection.abort(new Refusal("upstream_timeout", { detail: "interim answers alone" }));
    } else if (this.#interim > MAX_INTERIM) {
      const detail = "too many interim answers";
      this.#connection.abort(new Refusal("upstream_broken", { detail }));
    }
  }

  onHead(head: AnswerHead): void {
    this.#metrics.answers.add((performance.now() - this.#startedAt) / 1000);
    this.#head = head;
  }

  /**
   * Starts the client's response with its first piece or its end. Until then, an upstream failure
   * can still be reported as an error. Returns the reason if the response cannot be forwarded.
   */
  #start(head: AnswerHead | undefined): Refusal | undefined {
    if (head === undefined) return undefined;
    const { status, headers } = head;
    // A query is a POST, so a 304 never replaces content.
    const own = status === NOT_MODIFIED ? withoutLength(headers) : headers;
    try {
      this.#response.writeHead(status, answerHeaders(own).concat(this.#query.answerHeaders));
    } catch (error) {
      // An invalid status or header is the upstream's fault, not the client's.
      return new Refusal("upstream_broken", { cause: error });
    }
    this.#head = undefined;
    this.#hasStarted = true;
    this.#query.onHeaders?.(headers);
    return undefined;
  }

  onData(piece: Buffer, release: Release): void {
    const fault =
      this.#head?.status === RESET_CONTENT
        ? new Refusal("upstream_broken", { detail: "content in a 205" })
        : this.#start(this.#head);
    if (fault !== undefined) {
      this.#connection.abort(fault);
      return;
    }
    if (this.#response.write(piece, release) || this.#isStalled) return;
    this.#isStalled = true;
    this.#connection.pause();
    this.#response.once("drain", this.#onDrain);
    // Upstream connections are too scarce to wait for a client that has stopped reading.
    this.#stall = setTimeout(() => this.#response.destroy(), this.#limits.clientTimeout);
  }

  onEnd(last: Buffer | undefined): void {
    this.#release();
    const fault = this.#start(this.#head);
    if (fault !== undefined) {
      this.#settle(fault, this.#hasReceived);
      return;
    }
    const response = this.#response;
    // A string is sent together with the head. As Latin-1, the bytes stay the same.
    const text = last?.toString("latin1") ?? "";
    writeTogether(() => response.end(text, "latin1"));
    this.#settle(undefined, this.#hasReceived);
  }

  onError(error: Error): void {
    this.#release();
    if (this.#isClientGone) {
      this.#settle(undefined, this.#hasReceived);
    } else if (this.#hasStarted) {
      // A partial response must not look complete, so the client sees a cut connection.
      this.#metrics.cut++;
      this.#response.destroy();
      this.#settle(undefined, this.#hasReceived);
    } else {
      this.#settle(asRefusal(error), this.#hasReceived);
    }
  }

  readonly #onDrain = (): void => {
    clearTimeout(this.#stall);
    this.#isStalled = false;
    this.#connection.resume();
  };

  readonly #onClientClose = (): void => {
    this.#isClientGone = true;
    this.#connection.abort(new ClientGoneError());
  };

  #release(): void {
    clearTimeout(this.#stall);
    this.#query.sink.whenClosed = undefined;
    if (this.#isStalled) this.#response.off("drain", this.#onDrain);
  }
}
