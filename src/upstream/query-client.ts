import type { Durations, UpstreamMetrics } from "../observe/metrics.ts";
import { Refusal } from "../refusal.ts";
import type { Backend, LoadBalancer } from "./backend.ts";
import {
  type AnswerSink,
  BufferedAnswer,
  type BufferedQuery,
  type QueryAnswer,
} from "./buffered-answer.ts";
import { FairLimiter, type Place, type Slot } from "./fair-limiter.ts";
import {
  type AttemptLimits,
  ForwardAttempt,
  type ForwardedQuery,
  type Settle,
} from "./forward-attempt.ts";
import type { Connection } from "./http1/connection.ts";
import { ConnectionPool } from "./http1/connection-pool.ts";
import { hasBroken, type UpstreamTarget } from "./target.ts";

export class QueryMetrics implements UpstreamMetrics {
  readonly waits: Durations = { add() {} };
  readonly answers: Durations = { add() {} };
  cut = 0;
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
  readonly #limits: AttemptLimits;
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

  take(): Connection {
    return this.#pool.take();
  }

  open(): Connection {
    return this.#pool.open();
  }

  forward(connection: Connection, query: ForwardedQuery, settle: Settle): void {
    const attempt = new ForwardAttempt(query, connection, this.#limits, this.#metrics, settle);
    connection.send(this.#headOf(query), query.body, attempt);
  }

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

  close(): void {
    this.#pool.close();
  }
}

export interface QueryClient {
  forward(query: ForwardedQuery): void;
  /**
   * Sends a query for the gateway's own use.
   *
   * @throws Refusal `upstream_unreachable`, `upstream_broken`, `upstream_timeout` or
   * `upstream_overloaded`
   */
  ask(query: BufferedQuery): Promise<QueryAnswer>;
}

/** The refusal of a query that its caller canceled. */
export function givenUp(): Refusal {
  return new Refusal("upstream_broken", { detail: "given up" });
}

interface Sent {
  /** True if it never connected, so no byte of the query was sent. */
  readonly isUnsent: boolean;
  readonly hasReceived: boolean;
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
abstract class Delivery<Query extends ForwardedQuery | BufferedQuery> {
  protected readonly query: Query;
  readonly #balancer: LoadBalancer<Backend>;
  #tried: Set<Backend> | undefined;
  #hasWaited = false;
  #isRepeat = false;
  #failure: Refusal | undefined;

  constructor(balancer: LoadBalancer<Backend>, query: Query) {
    this.#balancer = balancer;
    this.query = query;
  }

  /** True once no one waits for the response. */
  protected abstract get isCancelled(): boolean;
  /** Makes the query leave the queue when its client cancels. Undefined if it has left already. */
  protected abstract hold(place: Place | undefined): void;
  protected abstract attempt(link: QueryLink, connection: Connection, settle: Settle): void;
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
    // A retry uses a new connection because another idle one might be stale too.
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

class Forwarding extends Delivery<ForwardedQuery> {
  protected get isCancelled(): boolean {
    return this.query.sink.response.destroyed;
  }

  /** The query uses `whenClosed` for this while it waits, and nothing else does. */
  protected hold(place: Place | undefined): void {
    this.query.sink.whenClosed = place && (() => place.leave());
  }

  protected attempt(link: QueryLink, connection: Connection, settle: Settle): void {
    link.forward(connection, this.query, settle);
  }

  protected fail(error: unknown): void {
    this.query.fail(error);
  }

  /** The client has left, so there is no one to answer. */
  protected cancel(): void {}
}

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
