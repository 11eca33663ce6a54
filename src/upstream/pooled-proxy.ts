import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { Refusal } from "../refusal.ts";
import { asRefusal, hasBroken } from "./failure.ts";
import { answerHeaders } from "./headers.ts";
import type { AnswerHead, AnswerReceiver } from "./http1/answer-reader.ts";
import type { Connection, Release } from "./http1/connection.ts";
import { ConnectionPool } from "./http1/connection-pool.ts";
import { fieldLines, type RequestFields } from "./query-form.ts";

/** What the body of an answer goes through, one piece after the other. What it throws ends the answer. */
export interface BodyFilter {
  /** What goes on of a piece, which is not to be kept. */
  pass(piece: Buffer): Buffer | Promise<Buffer>;
  /** What goes on behind the last piece. */
  end(): Buffer | Promise<Buffer>;
}

/** What becomes of an upstream's answer on its way to the client. */
export interface Reception {
  /** The answer's headers, names and values in turn; hop-by-hop ones are dropped afterwards. */
  readonly rawHeaders: readonly string[];
  /** What the body goes through, if it does not go as it is. */
  readonly filter: BodyFilter | undefined;
  /** True for a stream, which may be silent for as long as it likes. */
  readonly isStream: boolean;
}

/** A request that was judged, with its whole body. */
export interface HeldRequest {
  readonly method: string;
  /** All that goes up. */
  readonly headers: RequestFields;
  /** Undefined for a request without one. */
  readonly body: Buffer | undefined;
  /** True if it may be sent again where its connection breaks before an answer. */
  readonly isRepeatable: boolean;
  readonly response: ServerResponse;
  /** Headers that the gateway adds to the answer: names and values in turn. */
  readonly answerHeaders: readonly string[];
  /** Judges the head of the answer. @throws Refusal if it may not reach the client */
  readonly receive: (head: AnswerHead) => Reception | Promise<Reception>;
}

const nothing = Buffer.alloc(0);
/** Bytes up to which the end of an answer goes out as text. */
const SENT_AS_TEXT = 4096;
/** Interim answers (RFC 9110, section 15.2) that are read before one that counts. */
const MAX_INTERIM = 100;

/** The answer to one request, streamed to the client with back-pressure. */
class StreamedAnswer implements AnswerReceiver {
  readonly #request: HeldRequest;
  readonly #connection: Connection;
  /** Told why there is no answer, and whether its connection broke before a byte of one. */
  readonly #onFailure: (failure: Refusal, isUnanswered: boolean) => void;
  #filter: BodyFilter | undefined;
  /** Settled when all that has come so far has been passed on; undefined if it has. */
  #pending: Promise<void> | undefined;
  #hasReceived = false;
  #interim = 0;
  /** True once the answer is whole: its connection may carry another one. */
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
    // Its head is worth something by itself, long before the first event.
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
    // What comes with the end is short, and is not to be kept.
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
    // As text it goes out together with the head, byte for byte the same.
    if (rest.length <= SENT_AS_TEXT) response.end(rest.toString("latin1"), "latin1");
    else response.end(rest);
  }

  onError(error: Error): void {
    this.#isWhole = true;
    this.#fail(error);
  }

  /** Takes a step once all before it are done. Until then the connection is not read on. */
  #inTurn(step: () => void | Promise<void>): void {
    if (this.#isOver) return;
    try {
      // What an answer has left that was refused meanwhile goes nowhere.
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
    // Half an answer must not look like a whole one: the client sees a cut connection.
    if (response.headersSent) response.destroy();
    else this.#onFailure(asRefusal(error), !this.#hasReceived);
  }

  readonly #onClientClose = (): void => {
    this.#isOver = true;
    if (!this.#isWhole) this.#connection.abort(new Error("the client has gone away"));
  };
}

/** Where requests go, and the milliseconds that are waited for it. */
export interface PooledProxyOptions {
  /** With the path and the query that are asked for. */
  readonly url: URL;
  readonly connectTimeout: number;
  /** To the head of an answer, and between two parts of one that is no stream. */
  readonly responseTimeout: number;
}

/** Carries requests that are held whole to one address, over a connection pool. */
export class PooledProxy {
  readonly #pool: ConnectionPool;
  readonly #common: string;

  /** Nothing is connected until it is needed. */
  constructor({ url, connectTimeout, responseTimeout }: PooledProxyOptions) {
    const target = { origin: url.origin, socketPath: undefined };
    this.#pool = new ConnectionPool(target, { connect: connectTimeout, response: responseTimeout });
    const path = `${url.pathname}${url.search}`;
    this.#common = ` ${path} HTTP/1.1\r\nhost: ${url.host}\r\nconnection: keep-alive\r\n`;
  }

  /**
   * Resolves when the answer has gone out or broken off.
   *
   * @throws Refusal `upstream_unreachable`, `upstream_broken` or `upstream_timeout`, as long as
   *   nothing of an answer has gone out
   */
  forward(request: HeldRequest): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const { response, method, headers, body = nothing, isRepeatable } = request;
    if (response.destroyed) return Promise.resolve();
    response.once("close", resolve);
    const head = `${method}${this.#common}${fieldLines(headers)}\r\n`;
    const send = (connection: Connection, mayRepeat: boolean): void => {
      const onFailure = (failure: Refusal, isUnanswered: boolean): void => {
        // As it is where the upstream closed a connection that was idle.
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
