import type { ServerResponse } from "node:http";
import {
  AnswerStream,
  CLIENT_TIMEOUT_MS,
  ClientAnswer,
  type OnComplete,
  type ResponseHandling,
  type StreamLimits,
} from "../../core/upstream/answer-stream.ts";
import { fieldLines, type RequestFields } from "../../core/upstream/headers.ts";
import type { AnswerHead } from "../../core/upstream/http1/answer-reader.ts";
import { type Connection, ConnectionPool } from "../../core/upstream/http1/connection.ts";
import { hasBroken } from "../../core/upstream/target.ts";

export interface BufferedRequest {
  readonly method: string;
  readonly headers: RequestFields;
  readonly body: Buffer | undefined;
  /** True if it may be sent again when its connection breaks before a response. */
  readonly isRepeatable: boolean;
  readonly response: ServerResponse;
  readonly answerHeaders: readonly string[];
  /** @throws Refusal if the response may not reach the client */
  readonly receive: (head: AnswerHead) => Promise<ResponseHandling>;
}

const nothing = Buffer.alloc(0);

/** Forwards buffered requests to one address through a connection pool. */
export class PooledProxy {
  readonly #pool: ConnectionPool;
  readonly #common: string;
  readonly #limits: StreamLimits;

  /**
   * Connects on first use.
   *
   * @param responseTimeoutMs until the head, and between two parts of a response that is no stream
   */
  constructor(url: URL, connectTimeoutMs: number, responseTimeoutMs: number) {
    const target = { origin: url.origin, socketPath: undefined };
    this.#pool = new ConnectionPool(target, { connectTimeoutMs, responseTimeoutMs });
    this.#limits = { responseTimeoutMs, clientTimeoutMs: CLIENT_TIMEOUT_MS };
    const path = `${url.pathname}${url.search}`;
    this.#common = ` ${path} HTTP/1.1\r\nhost: ${url.host}\r\nconnection: keep-alive\r\n`;
  }

  /**
   * Resolves when the response has been sent or was cut off.
   *
   * @throws Refusal `upstream_unreachable`, `upstream_broken` or `upstream_timeout`, as long as no
   * part of a response has been sent
   */
  forward(request: BufferedRequest): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const { response, method, headers, body = nothing, isRepeatable } = request;
    if (response.destroyed) return Promise.resolve();
    response.once("close", resolve);
    const sink = new ClientAnswer({ ...request, fail: reject });
    const head = `${method}${this.#common}${fieldLines(headers)}\r\n`;
    const send = (connection: Connection, mayRepeat: boolean): void => {
      const complete: OnComplete = (failure, hasReceived) => {
        if (failure === undefined || sink.isGone) return;
        // This happens when the upstream closes an idle connection.
        if (mayRepeat && !hasReceived && hasBroken(failure)) send(this.#pool.open(), false);
        else sink.fail(failure);
      };
      const stream = new AnswerStream(sink, connection, this.#limits, complete);
      connection.send(head, body, stream);
    };
    send(this.#pool.take(), isRepeatable);
    return promise;
  }

  close(): void {
    this.#pool.close();
  }
}
