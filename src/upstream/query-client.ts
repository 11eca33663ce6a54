import type { UpstreamMetrics } from "../observe/component-metrics.ts";
import { Times } from "../observe/times.ts";
import { Refusal } from "../refusal.ts";
import type { Backend, LoadBalancer } from "./backend.ts";
import {
  type AnswerSink,
  BufferedAnswer,
  type BufferedQuery,
  type QueryAnswer,
} from "./buffered-answer.ts";
import { hasBroken } from "./failure.ts";
import { FairLimiter, type Place, type Slot } from "./fair-limiter.ts";
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

/** Sends queries to the upstream. */
export interface QueryClient {
  /** Sends a query up and streams its answer to the client. */
  forward(query: ForwardedQuery): void;
  /**
   * Sends a query for the gateway's own use.
   *
   * @throws Refusal `upstream_unreachable`, `upstream_broken`, `upstream_timeout` or
   *   `upstream_overloaded`
   */
  ask(query: BufferedQuery): Promise<QueryAnswer>;
}

/** What becomes of a query whose caller gave it up. */
export function givenUp(): Refusal {
  return new Refusal("upstream_broken", { detail: "given up" });
}

/** How far an attempt that has failed had come. */
interface Sent {
  /** True if its connection never stood, so that no byte of it has gone up. */
  readonly isUnsent: boolean;
  /** True if bytes of an answer have come. */
  readonly hasReceived: boolean;
}

const none: ReadonlySet<Backend> = new Set();

function overloaded(): Refusal {
  return new Refusal("upstream_overloaded", { retryAfter: 1 });
}

/**
 * One query on its way to one of the backends, by one set of rules for retries and failover:
 *
 * - It waits for a free connection of the least busy live backend; if that is ejected meanwhile, of
 *   the next one.
 * - As long as no byte of it has gone up, it goes to one backend after the other.
 * - A read whose connection broke before a byte of an answer is sent once more, and so is anything
 *   else of which no byte has gone up: to another live backend, or to the same one where there is
 *   none, since it may have been no more than the end of an idle connection.
 */
abstract class Delivery<Query extends ForwardedQuery | BufferedQuery> {
  protected readonly query: Query;
  readonly #balancer: LoadBalancer<Backend>;
  #tried: Set<Backend> | undefined;
  #hasWaited = false;
  /** True once it was sent again. */
  #isRepeat = false;
  /** Why the last attempt has failed. */
  #failure: Refusal | undefined;

  constructor(balancer: LoadBalancer<Backend>, query: Query) {
    this.#balancer = balancer;
    this.query = query;
  }

  /** True once nobody waits for the answer any more. */
  protected abstract get isCancelled(): boolean;
  /** Has the place left once nobody waits any more; undefined: it is left already. */
  protected abstract hold(place: Place | undefined): void;
  protected abstract attempt(link: QueryLink, connection: Connection, settle: Settle): void;
  /** Told why there is no answer. */
  protected abstract fail(error: unknown): void;
  protected abstract cancel(): void;

  start(): void {
    const backend = this.#nextBackend();
    if (backend === undefined) {
      this.fail(this.#failure ?? overloaded());
    } else this.#sendTo(backend);
  }

  #nextBackend(): Backend | undefined {
    const tried = this.#tried ?? none;
    return this.#balancer.leastBusy(tried) ?? this.#balancer.leastRecentlyFailed(tried);
  }

  #sendTo(backend: Backend): void {
    const { limiter } = backend.link;
    const { user } = this.query;
    const slot = limiter.tryTake(user);
    if (slot !== undefined) {
      this.#send(backend, slot);
      return;
    }
    const place = limiter.wait(user, (next, left) => this.#onTurn(backend, next, left));
    this.#hasWaited = true;
    if (place === undefined) this.fail(overloaded());
    else this.hold(place);
  }

  #onTurn(backend: Backend, slot: Slot | undefined, { isDismissed }: Place): void {
    this.hold(undefined);
    if (slot !== undefined) this.#send(backend, slot);
    else if (this.isCancelled) this.cancel();
    else if (isDismissed) {
      this.#noteTried(backend);
      this.start();
    } else this.fail(overloaded());
  }

  #send(backend: Backend, slot: Slot): void {
    const { link } = backend;
    if (this.isCancelled) {
      link.limiter.release(slot);
      this.cancel();
      return;
    }
    if (this.#hasWaited) {
      try {
        this.query.judgeAgain?.();
      } catch (error) {
        link.limiter.release(slot);
        this.fail(error);
        return;
      }
    }
    // On a new connection: the retry must not meet another stale one.
    const connection = this.#isRepeat ? link.open() : link.take();
    this.attempt(link, connection, (failure, hasReceived) => {
      if (failure !== undefined && !this.isCancelled) {
        const { isUnsent } = connection;
        if (isUnsent || hasBroken(failure)) backend.noteFailure();
        this.#failure = failure;
        this.#retry(backend, slot, failure, { isUnsent, hasReceived });
        return;
      }
      link.limiter.release(slot);
      if (failure !== undefined) this.cancel();
      else if (!this.isCancelled) backend.noteSuccess();
    });
  }

  #retry(backend: Backend, slot: Slot, failure: Refusal, { isUnsent, hasReceived }: Sent): void {
    const { isRead } = this.query;
    const tried = this.#noteTried(backend);
    const mayRepeat = (isRead || isUnsent) && !this.#isRepeat && !hasReceived && hasBroken(failure);
    const nextForRead = mayRepeat ? this.#balancer.leastBusy(tried) : undefined;
    const next = isUnsent ? this.#nextBackend() : nextForRead;
    if (mayRepeat && (next === undefined || !isUnsent)) this.#isRepeat = true;
    if (next === undefined && mayRepeat) {
      this.#send(backend, slot);
      return;
    }
    backend.link.limiter.release(slot);
    if (next === undefined) this.fail(failure);
    else this.#sendTo(next);
  }

  #noteTried(backend: Backend): ReadonlySet<Backend> {
    this.#tried ??= new Set();
    return this.#tried.add(backend);
  }
}

/** A query whose answer is streamed to the client. */
class Forwarding extends Delivery<ForwardedQuery> {
  protected get isCancelled(): boolean {
    return this.query.sink.response.destroyed;
  }

  /** The client going away; nothing else may wait for that meanwhile. */
  protected hold(place: Place | undefined): void {
    this.query.sink.whenClosed = place && (() => place.leave());
  }

  protected attempt(link: QueryLink, connection: Connection, settle: Settle): void {
    link.forward(connection, this.query, settle);
  }

  protected fail(error: unknown): void {
    this.query.fail(error);
  }

  /** The client is gone: there is nobody to answer. */
  protected cancel(): void {}
}

/** A query whose answer the gateway itself has a use for. */
class Asking extends Delivery<BufferedQuery> {
  readonly #result = Promise.withResolvers<QueryAnswer>();
  readonly answer = this.#result.promise;
  #leave: (() => void) | undefined;

  protected get isCancelled(): boolean {
    return this.query.signal.aborted;
  }

  protected hold(place: Place | undefined): void {
    const { signal } = this.query;
    if (this.#leave !== undefined) signal.removeEventListener("abort", this.#leave);
    this.#leave = place && (() => place.leave());
    if (this.#leave !== undefined) signal.addEventListener("abort", this.#leave, { once: true });
  }

  protected attempt(link: QueryLink, connection: Connection, settle: Settle): void {
    link.ask(connection, this.query, { take: this.#result.resolve, settle });
  }

  protected fail(error: unknown): void {
    this.#result.reject(error);
  }

  protected cancel(): void {
    this.#result.reject(givenUp());
  }
}

/** Sends queries to whichever of the backends is live and least busy. */
export function createQueryClient(balancer: LoadBalancer<Backend>): QueryClient {
  return {
    forward: (query) => new Forwarding(balancer, query).start(),
    ask(query) {
      const asking = new Asking(balancer, query);
      asking.start();
      return asking.answer;
    },
  };
}
