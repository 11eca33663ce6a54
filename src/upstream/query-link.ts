import type { UpstreamMetrics } from "../observe/component-metrics.ts";
import { Times } from "../observe/times.ts";
import { type AnswerSink, BufferedAnswer, type BufferedQuery } from "./buffered-answer.ts";
import { FairLimiter } from "./fair-limiter.ts";
import {
  type AttemptLimits,
  ForwardAttempt,
  type ForwardedQuery,
  type Settle,
} from "./forward-attempt.ts";
import type { Connection } from "./http1/connection.ts";
import { ConnectionPool } from "./http1/connection-pool.ts";
import type { UpstreamTarget } from "./target.ts";

/** What is counted on the queries' ways to the upstream, all of them together. */
export class QueryMetrics implements UpstreamMetrics {
  readonly waits = new Times();
  readonly answers = new Times();
  cut = 0;
  readonly #limiters: FairLimiter[] = [];

  /** Counts the limiter of one more way. */
  include(limiter: FairLimiter): void {
    this.#limiters.push(limiter);
  }

  get busy(): number {
    return this.#limiters.reduce((sum, { busy }) => sum + busy, 0);
  }

  get waiting(): number {
    return this.#limiters.reduce((sum, { waiting }) => sum + waiting, 0);
  }
}

/** How queries go to one target. */
export interface QueryLinkOptions {
  readonly target: UpstreamTarget;
  readonly connections: number;
  /** Milliseconds. */
  readonly connectTimeout: number;
  /** Milliseconds to the answer's head, and between two parts of its body. */
  readonly responseTimeout: number;
  /** Milliseconds for which a client may take nothing of its answer; by default a minute. */
  readonly clientTimeout?: number;
}

const CLIENT_TIMEOUT_MS = 60_000;
/** Queries that may wait for a connection, as a multiple of the connections. */
const WAITING_PER_CONNECTION = 16;

function hostHeader({ origin, socketPath }: UpstreamTarget): string {
  return socketPath === undefined ? new URL(origin).host : "localhost";
}

/** The way of queries to one target: its limiter and its connections. */
export class QueryLink {
  /**
   * Queries wait here and not in the pool, so that one whose client left is forgotten at once, and
   * no user waits for another one's flood.
   */
  readonly limiter: FairLimiter;
  readonly #pool: ConnectionPool;
  /** What stands behind the request line. */
  readonly #common: string;
  readonly #start: string;
  readonly #limits: AttemptLimits;
  readonly #metrics: QueryMetrics;

  /** Nothing is connected until it is needed. @param metrics where this way is counted too */
  constructor(options: QueryLinkOptions, metrics: QueryMetrics) {
    const { target, connections, connectTimeout, responseTimeout } = options;
    const { clientTimeout = CLIENT_TIMEOUT_MS } = options;
    this.#limits = { responseTimeout, clientTimeout };
    this.#pool = new ConnectionPool(target, { connect: connectTimeout, response: responseTimeout });
    this.#common = ` HTTP/1.1\r\nhost: ${hostHeader(target)}\r\nconnection: keep-alive\r\n`;
    this.#start = `POST /query${this.#common}`;
    const waiting = connections * WAITING_PER_CONNECTION;
    const limits = { slots: connections, waiting, patience: responseTimeout };
    this.limiter = new FairLimiter(limits, metrics.waits);
    this.#metrics = metrics;
    metrics.include(this.limiter);
  }

  /** A connection that was used before, or a new one. */
  take(): Connection {
    return this.#pool.take();
  }

  /** A new connection. */
  open(): Connection {
    return this.#pool.open();
  }

  /** Sends a query up and streams its answer to the client; `settle` is told what came of it. */
  forward(connection: Connection, query: ForwardedQuery, settle: Settle): void {
    const attempt = new ForwardAttempt(query, connection, this.#limits, this.#metrics, settle);
    connection.send(this.#headOf(query), query.body, attempt);
  }

  /** Sends a query up and holds its answer, which the sink is given. */
  ask(connection: Connection, query: BufferedQuery, sink: AnswerSink): void {
    const answer = new BufferedAnswer(connection, query, sink, this.#metrics.answers);
    const { path, fields, body } = query;
    const head = path === undefined ? this.#headOf(query) : this.#headOfGet(path, fields);
    connection.send(head, body, answer);
  }

  #headOf({ fields, body }: Pick<ForwardedQuery, "fields" | "body">): string {
    return `${this.#start}content-length: ${body.length}\r\n${fields}\r\n`;
  }

  #headOfGet(path: string, fields: string): string {
    return `GET ${path}${this.#common}${fields}\r\n`;
  }

  /** Ends all connections, also those that wait for an answer. */
  close(): void {
    this.#pool.close();
  }
}
