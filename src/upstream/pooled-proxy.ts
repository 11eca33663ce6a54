import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { Refusal } from "../refusal.ts";
import { answerHeaders } from "./headers.ts";
import type { AnswerHead, AnswerReceiver } from "./http1/answer-reader.ts";
import type { Connection, Release } from "./http1/connection.ts";
import { ConnectionPool } from "./http1/connection-pool.ts";
import { fieldLines, type RequestFields } from "./query-form.ts";
import { asRefusal, hasBroken } from "./target.ts";

/** Transforms a response body piece by piece. An exception ends the response. */
export interface BodyFilter {
  /** Returns the output for a piece. The piece must not be kept. */
  pass(piece: Buffer): Buffer | Promise<Buffer>;
  end(): Buffer | Promise<Buffer>;
}

export interface Reception {
  /** Alternating names and values. Hop-by-hop headers are removed later. */
  readonly rawHeaders: readonly string[];
  /** Undefined if the body is passed unchanged. */
  readonly filter: BodyFilter | undefined;
  /** True for a stream, which has no idle timeout. */
  readonly isStream: boolean;
}

export interface HeldRequest {
  readonly method: string;
  readonly headers: RequestFields;
  readonly body: Buffer | undefined;
  /** True if it may be sent again when its connection breaks before a response. */
  readonly isRepeatable: boolean;
  readonly response: ServerResponse;
  /** Headers that the gateway adds to the response, as alternating names and values. */
  readonly answerHeaders: readonly string[];
  /**
   * Checks the head of the response.
   *
   * @throws Refusal if it may not reach the client
   */
  readonly receive: (head: AnswerHead) => Reception | Promise<Reception>;
}

const nothing = Buffer.alloc(0);
/** A final piece of up to this many bytes is sent as text. */
const SENT_AS_TEXT = 4096;
/** The limit of interim responses (RFC 9110, section 15.2) before the final one. */
const MAX_INTERIM = 100;

/** The response to one request, streamed to the client with back-pressure. */
class StreamedAnswer implements AnswerReceiver {
  readonly #request: HeldRequest;
  readonly #connection: Connection;
  /**
   * Called if there is no response. `isUnanswered` is true if the connection broke before its first
   * byte.
   */
  readonly #onFailure: (failure: Refusal, isUnanswered: boolean) => void;
  #filter: BodyFilter | undefined;
  /** Resolves when everything received so far has been passed on. Undefined if it has. */
  #pending: Promise<void> | undefined;
  #hasReceived = false;
  #interim = 0;
  /** True once the response is complete and its connection can be reused. */
  #isWhole = false;
  #isOver = false;

  constructor(
    request: HeldRequest,
    connection: Connection,
    onFailure: (failure: Refusal, isUnanswered: boolean) => void,
  ) {
    this.#request = request;
    this.#connection = connection;
    this.#onFailure = onFailure;
    request.response.once("close", this.#onClientClose);
  }

  onBytes(): void {
    this.#hasReceived = true;
  }

  onInterim(): void {
    this.#interim++;
    if (this.#interim <= MAX_INTERIM) return;
    this.#fail(new Refusal("upstream_broken", { detail: "too many interim answers" }));
  }

  onHead(head: AnswerHead): void {
    this.#inTurn(() => {
      const reception = this.#request.receive(head);
      if (!(reception instanceof Promise)) return this.#start(head, reception);
      return reception.then((received) => this.#start(head, received));
    });
  }

  #start({ status }: AnswerHead, { rawHeaders, filter, isStream }: Reception): void {
    const { response, answerHeaders: added } = this.#request;
    this.#filter = filter;
    response.writeHead(status, answerHeaders(rawHeaders).concat(added));
    if (!isStream) return;
    // The client can use the head long before the first event.
    response.flushHeaders();
    if (!this.#isWhole) this.#connection.waitLong();
  }

  onData(piece: Buffer, release: Release): void {
    this.#inTurn(() => {
      if (this.#filter === undefined) return this.#write(piece, release);
      const passed = this.#filter.pass(piece);
      if (!(passed instanceof Promise)) return this.#write(passed, release);
      return passed.then((bytes) => this.#write(bytes, release));
    });
  }

  #write(bytes: Buffer, release: Release): void | Promise<void> {
    if (bytes.length === 0) return release();
    const { response } = this.#request;
    if (response.write(bytes, release)) return;
    return once(response, "drain").then(() => {});
  }

  onEnd(last: Buffer | undefined): void {
    this.#isWhole = true;
    // The last piece is short and must not be kept, so it is copied.
    const rest = last === undefined ? nothing : Buffer.from(last);
    this.#inTurn(() => {
      const filter = this.#filter;
      if (filter === undefined) return this.#end(rest);
      const passed = filter.pass(rest);
      if (!(passed instanceof Promise)) return this.#finish(filter, passed);
      return passed.then((bytes) => this.#finish(filter, bytes));
    });
  }

  #finish(filter: BodyFilter, passed: Buffer): void | Promise<void> {
    const behind = filter.end();
    const end = (bytes: Buffer) =>
      this.#end(bytes.length === 0 ? passed : Buffer.concat([passed, bytes]));
    return behind instanceof Promise ? behind.then(end) : end(behind);
  }

  #end(rest: Buffer): void {
    const { response } = this.#request;
    if (this.#isOver) return;
    // A string is sent together with the head. As Latin-1, the bytes stay the same.
    if (rest.length <= SENT_AS_TEXT) response.end(rest.toString("latin1"), "latin1");
    else response.end(rest);
  }

  onError(error: Error): void {
    this.#isWhole = true;
    this.#fail(error);
  }

  /** Runs a step after all earlier ones. Until then, reading from the connection is paused. */
  #inTurn(step: () => void | Promise<void>): void {
    if (this.#isOver) return;
    try {
      // The rest of a response that has been refused is discarded.
      const work = this.#pending?.then(() => (this.#isOver ? undefined : step())) ?? step();
      if (work === undefined) return;
      if (!this.#isWhole) this.#connection.pause();
      const pending: Promise<void> = work.then(
        () => this.#onDone(pending),
        (error: Error) => this.#fail(error),
      );
      this.#pending = pending;
    } catch (error) {
      this.#fail(error instanceof Error ? error : new Error("no answer", { cause: error }));
    }
  }

  #onDone(work: Promise<void>): void {
    if (this.#pending !== work) return;
    this.#pending = undefined;
    if (!this.#isWhole) this.#connection.resume();
  }

  #fail(error: Error): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (!this.#isWhole) this.#connection.abort(error);
    const { response } = this.#request;
    response.off("close", this.#onClientClose);
    // A partial response must not look complete, so the client sees a cut connection.
    if (response.headersSent) response.destroy();
    else this.#onFailure(asRefusal(error), !this.#hasReceived);
  }

  readonly #onClientClose = (): void => {
    this.#isOver = true;
    if (!this.#isWhole) this.#connection.abort(new Error("the client has gone away"));
  };
}

/** Timeouts are in milliseconds. */
export interface PooledProxyOptions {
  readonly url: URL;
  readonly connectTimeout: number;
  /** Until the head of a response, and between two parts unless it is a stream. */
  readonly responseTimeout: number;
}

/** Forwards buffered requests to one address through a connection pool. */
export class PooledProxy {
  readonly #pool: ConnectionPool;
  readonly #common: string;

  /** Connects on first use. */
  constructor({ url, connectTimeout, responseTimeout }: PooledProxyOptions) {
    const target = { origin: url.origin, socketPath: undefined };
    this.#pool = new ConnectionPool(target, { connect: connectTimeout, response: responseTimeout });
    const path = `${url.pathname}${url.search}`;
    this.#common = ` ${path} HTTP/1.1\r\nhost: ${url.host}\r\nconnection: keep-alive\r\n`;
  }

  /**
   * Resolves when the response has been sent or was cut off.
   *
   * @throws Refusal `upstream_unreachable`, `upstream_broken` or `upstream_timeout`, as long as no
   * part of a response has been sent
   */
  forward(request: HeldRequest): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const { response, method, headers, body = nothing, isRepeatable } = request;
    if (response.destroyed) return Promise.resolve();
    response.once("close", resolve);
    const head = `${method}${this.#common}${fieldLines(headers)}\r\n`;
    const send = (connection: Connection, mayRepeat: boolean): void => {
      const onFailure = (failure: Refusal, isUnanswered: boolean): void => {
        // This happens when the upstream closes an idle connection.
        if (mayRepeat && isUnanswered && hasBroken(failure)) send(this.#pool.open(), false);
        else reject(failure);
      };
      connection.send(head, body, new StreamedAnswer(request, connection, onFailure));
    };
    send(this.#pool.take(), isRepeatable);
    return promise;
  }

  close(): void {
    this.#pool.close();
  }
}
