import type { ServerResponse } from "node:http";
import { Refusal } from "../refusal.ts";
import { asRefusal } from "./failure.ts";
import { answerHeaders } from "./headers.ts";
import {
  type AnswerHead,
  type AnswerReceiver,
  NOT_MODIFIED,
  RESET_CONTENT,
  withoutLength,
} from "./http1/answer-reader.ts";
import { type Connection, type Release, writeTogether } from "./http1/connection.ts";

/** What is counted of attempts: the times of whole answers, in seconds, and answers that were cut. */
interface AttemptMetrics {
  readonly answers: { add(seconds: number): void };
  cut: number;
}

/** Who waits for an answer that is streamed. */
export interface ClientSink {
  readonly response: ServerResponse;
  /** Called when it has gone away, and when the answer is out. */
  whenClosed: (() => void) | undefined;
}

/** A query that was allowed and goes up. */
export interface ForwardedQuery {
  readonly sink: ClientSink;
  /** Who asks: connections are shared fairly between users. */
  readonly user: string;
  /** The bytes that were judged, sent as they are. */
  readonly body: Buffer;
  /** The lines of its header fields. */
  readonly fields: string;
  /** A query that only reads may be sent again if its connection breaks before an answer. */
  readonly isRead: boolean;
  /** Called when it has waited for a connection. @throws Refusal if it may no longer be sent */
  readonly judgeAgain?: (() => void) | undefined;
  /** Headers that the gateway adds to the answer: names and values in turn. */
  readonly answerHeaders: readonly string[];
  /** Told the headers of the answer: names and values in turn. */
  readonly onHeaders?: ((headers: readonly string[]) => void) | undefined;
  /**
   * Told why there is no answer, as long as nothing of one has gone out: Refusal
   * `upstream_unreachable`, `upstream_broken`, `upstream_timeout` or `upstream_overloaded`.
   */
  fail(error: unknown): void;
}

/** The client went away: there is nobody to answer. */
class ClientGoneError extends Error {}

/** How long an attempt may take, in milliseconds. */
export interface AttemptLimits {
  /** To the answer's head, whatever the upstream says before that. */
  readonly responseTimeout: number;
  /** For which the client may take nothing of its answer. */
  readonly clientTimeout: number;
}

/**
 * Told what came of an attempt.
 *
 * @param failure why it has failed before anything of an answer went out; undefined: it is over
 * @param hasReceived true if bytes of an answer have come
 */
export type Settle = (failure: Refusal | undefined, hasReceived: boolean) => void;

/** Interim answers (RFC 9110, section 15.2) that are read before one that counts. */
const MAX_INTERIM = 100;

/** One attempt to send a query up and its answer back, with back-pressure. */
export class ForwardAttempt implements AnswerReceiver {
  readonly #query: ForwardedQuery;
  readonly #response: ServerResponse;
  readonly #limits: AttemptLimits;
  readonly #metrics: AttemptMetrics;
  readonly #connection: Connection;
  readonly #settle: Settle;
  readonly #startedAt = performance.now();
  #interim = 0;
  /** True once the first byte of an answer has come. */
  #hasReceived = false;
  /** True once the client's answer has begun. */
  #hasStarted = false;
  /** The head of an answer of which nothing has gone out. */
  #head: AnswerHead | undefined;
  #isClientGone = false;
  /** True while the upstream waits for the client to read. */
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

  /** Each interim answer begins the connection's wait anew: here it has an end. */
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
   * Begins the client's answer, with its first piece or its end: until then nothing of it would go
   * out, and what breaks can be told. Returns why it cannot be passed on.
   */
  #start(head: AnswerHead | undefined): Refusal | undefined {
    if (head === undefined) return undefined;
    const { status, headers } = head;
    // A query is a POST, which spares no content.
    const own = status === NOT_MODIFIED ? withoutLength(headers) : headers;
    try {
      this.#response.writeHead(status, answerHeaders(own).concat(this.#query.answerHeaders));
    } catch (error) {
      // A status or header that cannot be passed on: the upstream's fault, not the client's.
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
    // A connection to the upstream is too dear to wait for a client that has stopped reading.
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
    // As text it goes out together with the head, byte for byte the same.
    const text = last?.toString("latin1") ?? "";
    writeTogether(() => response.end(text, "latin1"));
    this.#settle(undefined, this.#hasReceived);
  }

  onError(error: Error): void {
    this.#release();
    if (this.#isClientGone) {
      this.#settle(undefined, this.#hasReceived);
    } else if (this.#hasStarted) {
      // Half an answer must not look like a whole one: the client sees a cut connection.
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
