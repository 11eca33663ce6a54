import type { Durations, UpstreamMetrics } from "../observe/metrics.ts";
import { Refusal } from "../refusal.ts";
import {
  type AnswerSink,
  AnswerStream,
  HeldAnswer,
  type HeldAnswerOptions,
  type QueryAnswer,
  type Settle,
  type StreamLimits,
} from "./answer-stream.ts";
import type { Backend, LoadBalancer } from "./backends.ts";
import { FairLimiter } from "./fair-limiter.ts";
import { type Connection, ConnectionPool } from "./http1/connection.ts";
import { hasBroken, type UpstreamTarget } from "./target.ts";

export class QueryMetrics implements UpstreamMetrics {
  readonly waits: Durations = { add() {} };
  readonly answers: Durations = { add() {} };
  onCut: () => void = () => {};
  readonly #limiters: FairLimiter[] = [];

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

export interface QueryLinkOptions {
  readonly target: UpstreamTarget;
  readonly connections: number;
  /** In milliseconds. */
  readonly connectTimeout: number;
  /** In milliseconds, until the response's head and between two parts of its body. */
  readonly responseTimeout: number;
  /**
   * How long a client may read nothing of its response, in milliseconds. The default is one minute.
   */
  readonly clientTimeout?: number;
}

const CLIENT_TIMEOUT_MS = 60_000;
/** The maximum number of waiting queries, as a multiple of the connections. */
const WAITING_PER_CONNECTION = 16;

function hostHeader({ origin, socketPath }: UpstreamTarget): string {
  return socketPath === undefined ? new URL(origin).host : "localhost";
}

export interface UpstreamQuery {
  /** Connections are shared fairly between users. */
  readonly user: string;
  /** The bytes that were judged, sent unchanged. */
  readonly body: Buffer;
  /** Header lines. */
  readonly fields: string;
  /** A query that only reads may be sent again if its connection breaks before a response. */
  readonly isRead: boolean;
  /** Set for a `GET` of this path instead of a query. */
  readonly path?: string;
  /**
   * Called after it has waited for a connection.
   *
   * @throws Refusal if it may no longer be sent
   */
  readonly judgeAgain?: (() => void) | undefined;
}

/** The limiter and connections for queries to one target. */
export class QueryLink {
  /**
   * Queries wait here rather than in the pool. A query whose client has left is dropped at once,
   * and no user waits for another user's flood.
   */
  readonly limiter: FairLimiter;
  readonly #pool: ConnectionPool;
  readonly #common: string;
  readonly #start: string;
  readonly #limits: StreamLimits;
  readonly #metrics: QueryMetrics;

  /** Connects on first use. */
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

  /** @param isRepeat uses a new connection, because another idle one might be stale too */
  send(query: UpstreamQuery, sink: AnswerSink, isRepeat: boolean, settle: Settle): Connection {
    const connection = isRepeat ? this.#pool.open() : this.#pool.take();
    const stream = new AnswerStream(sink, connection, this.#limits, settle, this.#metrics);
    const { path, fields, body } = query;
    const head =
      path === undefined
        ? `${this.#start}content-length: ${body.length}\r\n${fields}\r\n`
        : `GET ${path}${this.#common}${fields}\r\n`;
    connection.send(head, body, stream);
    return connection;
  }

  close(): void {
    this.#pool.close();
  }
}

const none: ReadonlySet<Backend> = new Set();

function overloaded(): Refusal {
  return new Refusal("upstream_overloaded", { retryAfter: 1 });
}

/**
 * Delivers one query to one of the backends, with the rules for retries and failover:
 *
 * - It waits for a free connection of the least busy live backend. If that one is ejected, it waits
 * for the next.
 * - As long as no byte of it has been sent, it tries one backend after another.
 * - A read whose connection broke before the first byte of a response is sent once more. So is any
 * other query of which no byte was sent.
 * - The repeat goes to another live backend, or to the same one if there is none, because the
 * upstream may just have closed an idle connection.
 */
class Delivery {
  readonly #query: UpstreamQuery;
  readonly #sink: AnswerSink;
  readonly #balancer: LoadBalancer<Backend>;
  #tried: Set<Backend> | undefined;
  #hasWaited = false;
  #isRepeat = false;
  #failure: Refusal | undefined;

  constructor(balancer: LoadBalancer<Backend>, query: UpstreamQuery, sink: AnswerSink) {
    this.#balancer = balancer;
    this.#query = query;
    this.#sink = sink;
  }

  start(): void {
    const backend = this.#nextBackend();
    if (backend === undefined) this.#sink.fail(this.#failure ?? overloaded());
    else this.#sendTo(backend);
  }

  #nextBackend(): Backend | undefined {
    const tried = this.#tried ?? none;
    return this.#balancer.leastBusy(tried) ?? this.#balancer.leastRecentlyFailed(tried);
  }

  #sendTo(backend: Backend): void {
    const { limiter } = backend.link;
    const { user } = this.#query;
    if (limiter.tryTake(user)) {
      this.#send(backend);
      return;
    }
    this.#hasWaited = true;
    const leave = limiter.wait(user, (turn) => {
      this.#sink.whenGone = undefined;
      if (turn === "slot") this.#send(backend);
      else if (this.#sink.isGone) return;
      else if (turn === "dismissed") {
        this.#noteTried(backend);
        this.start();
      } else this.#sink.fail(overloaded());
    });
    if (leave === undefined) this.#sink.fail(overloaded());
    else this.#sink.whenGone = leave;
  }

  #send(backend: Backend): void {
    const { link } = backend;
    const release = () => link.limiter.release(this.#query.user);
    if (this.#sink.isGone) {
      release();
      return;
    }
    if (this.#hasWaited) {
      try {
        this.#query.judgeAgain?.();
      } catch (error) {
        release();
        this.#sink.fail(error);
        return;
      }
    }
    const settle: Settle = (failure, hasReceived) => {
      const { isGone } = this.#sink;
      if (failure !== undefined && !isGone) {
        const { isUnsent } = connection;
        if (isUnsent || hasBroken(failure)) backend.noteFailure();
        this.#failure = failure;
        this.#retry(backend, release, failure, isUnsent, hasReceived);
        return;
      }
      release();
      if (!isGone) backend.noteSuccess();
    };
    const connection = link.send(this.#query, this.#sink, this.#isRepeat, settle);
  }

  #retry(
    backend: Backend,
    release: () => void,
    failure: Refusal,
    isUnsent: boolean,
    hasReceived: boolean,
  ): void {
    const tried = this.#noteTried(backend);
    const mayRepeat =
      (this.#query.isRead || isUnsent) && !this.#isRepeat && !hasReceived && hasBroken(failure);
    const nextForRead = mayRepeat ? this.#balancer.leastBusy(tried) : undefined;
    const next = isUnsent ? this.#nextBackend() : nextForRead;
    if (mayRepeat && (next === undefined || !isUnsent)) this.#isRepeat = true;
    if (next === undefined && mayRepeat) {
      this.#send(backend);
      return;
    }
    release();
    if (next === undefined) this.#sink.fail(failure);
    else this.#sendTo(next);
  }

  #noteTried(backend: Backend): ReadonlySet<Backend> {
    this.#tried ??= new Set();
    return this.#tried.add(backend);
  }
}

/** Sends queries to backends that serve the same databases. */
export class QueryClient {
  readonly #balancer: LoadBalancer<Backend>;

  constructor(balancer: LoadBalancer<Backend>) {
    this.#balancer = balancer;
  }

  forward(query: UpstreamQuery, sink: AnswerSink): void {
    new Delivery(this.#balancer, query, sink).start();
  }

  /**
   * Sends a query for the gateway's own use.
   *
   * @throws Refusal `upstream_unreachable`, `upstream_broken`, `upstream_timeout` or
   * `upstream_overloaded`
   */
  ask(query: UpstreamQuery & HeldAnswerOptions): Promise<QueryAnswer> {
    const sink = new HeldAnswer(query);
    this.forward(query, sink);
    return sink.answer;
  }
}
