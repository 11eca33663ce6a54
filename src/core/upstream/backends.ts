import { FairQueue, type WaitEnd } from "../base/queues.ts";
import { Refusal } from "../base/refusal.ts";
import { type AnswerSink, AnswerStream, type OnComplete } from "./answer-stream.ts";
import type { UpstreamCredential } from "./credential.ts";
import {
  type Database,
  type DatabaseQuery,
  type DatabaseTarget,
  type ForwardedRequest,
  overloaded,
  type QueryMetrics,
  type SchemaQuery,
  withSlot,
} from "./database.ts";
import { answersWell, HealthCheck, takesConnection } from "./health-check.ts";
import { ConnectionPool } from "./http1/connection.ts";
import type { ReverseProxy, StreamForward } from "./reverse-proxy.ts";
import { hasBroken, schemaPath, targetName, type UpstreamTarget } from "./target.ts";

interface Candidate {
  readonly isLive: boolean;
  readonly load: number;
  /** `performance.now()` of the last failure. */
  readonly failedAt: number;
}

export class LoadBalancer<C extends Candidate> {
  readonly #candidates: readonly C[];
  #next = 0;

  constructor(candidates: readonly C[]) {
    this.#candidates = candidates;
  }

  /** The live candidate with the least load; equals take turns. Undefined if none is live. */
  leastBusy(except: ReadonlySet<C>): C | undefined {
    const count = this.#candidates.length;
    let chosen: C | undefined;
    let chosenAt = 0;
    for (let step = 0; step < count; step++) {
      const at = (this.#next + step) % count;
      const candidate = this.#candidates[at];
      if (candidate === undefined || !candidate.isLive || except.has(candidate)) continue;
      if (chosen !== undefined && candidate.load >= chosen.load) continue;
      chosen = candidate;
      chosenAt = at;
    }
    if (chosen !== undefined) this.#next = chosenAt + 1;
    return chosen;
  }

  /** The candidate whose failure is longest ago, live or not. Undefined if all are excluded. */
  leastRecentlyFailed(except: ReadonlySet<C>): C | undefined {
    const others = this.#candidates.filter((one) => !except.has(one));
    return others.sort((one, other) => one.failedAt - other.failedAt)[0];
  }

  first(): C | undefined {
    return this.#candidates.find(({ isLive }) => isLive);
  }
}

/** The maximum number of waiting queries, as a multiple of the connections. */
const WAITING_PER_CONNECTION = 16;
const MAX_FAILURES = 3;

export interface BackendOptions {
  readonly connections: number;
  readonly connectTimeoutMs: number;
  /** Until the response's head and between two parts of its body. */
  readonly responseTimeoutMs: number;
  /** If empty, accepting a connection is enough. */
  readonly healthPath: string;
  /** Between checks of each of several backends. */
  readonly healthIntervalMs: number;
  readonly credential: UpstreamCredential | undefined;
  readonly metrics: QueryMetrics;
  readonly onChange: (name: string, isLive: boolean) => void;
}

type BackendRequest = DatabaseQuery | SchemaQuery | ForwardedRequest;

function firstLine(request: BackendRequest): string {
  if ("schema" in request) return `GET ${schemaPath(request.schema)}`;
  return "path" in request ? `${request.method} ${request.path}` : "POST /query";
}

/** A method without content states no length (RFC 9110, section 8.6). */
function lengthField(request: BackendRequest): string {
  if ("schema" in request) return "";
  const { length } = request.body;
  const isEmpty = length === 0 && "path" in request && request.method === "GET";
  return isEmpty ? "" : `content-length: ${length}\r\n`;
}

/**
 * One target of the upstream, with its connections and health. One of several backends is ejected
 * after three consecutive connection failures or a failed health check, so that its queries fail
 * over. It returns when a check passes. A single backend is never ejected because there is nothing
 * to fail over to.
 */
class Backend implements Candidate, DatabaseTarget {
  readonly name: string;
  /** Queries wait here rather than in the pool, so no user waits for another user's flood. */
  readonly limiter: FairQueue;
  /** Limits uploads to half of the connections, because a slow client holds one. */
  readonly #uploads: FairQueue;
  isLive = true;
  failedAt = Number.NEGATIVE_INFINITY;
  readonly #pool: ConnectionPool;
  readonly #common: string;
  readonly #isSingle: boolean;
  readonly #healthCheck: HealthCheck;
  readonly #target: UpstreamTarget;
  readonly #options: BackendOptions;
  #failures = 0;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;
  #streams: Promise<ReverseProxy> | undefined;

  /** Connects on first use. Starts health checks if it is one of several. */
  constructor(target: UpstreamTarget, isSingle: boolean, options: BackendOptions) {
    const { connections, responseTimeoutMs, metrics } = options;
    const { healthPath: path, credential } = options;
    const host = target.socketPath === undefined ? new URL(target.origin).host : "localhost";
    const maxWaiting = connections * WAITING_PER_CONNECTION;
    const { waits } = metrics;
    const limits = { slots: connections, maxWaiting, timeoutMs: responseTimeoutMs, waits };
    this.name = targetName(target);
    this.limiter = new FairQueue(limits);
    const slots = Math.ceil(connections / 2);
    this.#uploads = new FairQueue({ ...limits, slots, maxPerKey: Math.ceil(slots / 2) });
    metrics.include(this);
    this.#pool = new ConnectionPool(target, options);
    this.#common = ` HTTP/1.1\r\nhost: ${host}\r\nconnection: keep-alive\r\n`;
    this.#healthCheck = new HealthCheck(() =>
      path === "" ? takesConnection(target) : answersWell(target, path, credential),
    );
    this.#target = target;
    this.#options = options;
    this.#isSingle = isSingle;
    if (!isSingle) void this.#check();
  }

  get load(): number {
    return this.busy + this.waiting;
  }

  get waiting(): number {
    return this.limiter.waiting + this.#uploads.waiting;
  }

  get busy(): number {
    return this.limiter.busy;
  }

  /** @param isRepeat uses a new connection, because another idle one might be stale too */
  send(query: BackendRequest, sink: AnswerSink, isRepeat: boolean, complete: OnComplete) {
    const connection = isRepeat ? this.#pool.open() : this.#pool.take();
    const { metrics, responseTimeoutMs } = this.#options;
    const body = "schema" in query ? nothing : query.body;
    const head = `${firstLine(query)}${this.#common}${lengthField(query)}${query.fields}\r\n`;
    const stream = new AnswerStream(sink, connection, responseTimeoutMs, complete, metrics);
    // Nothing that was sent is sent again, except reads.
    connection.send(head, body, stream, "path" in query && !query.isRead);
    return connection;
  }

  /**
   * @returns false if the backend was ejected while the stream waited, so that nothing was sent
   * @throws Refusal as a reverse proxy does, or `upstream_overloaded`
   */
  async forward(stream: StreamForward): Promise<boolean> {
    const { slot, response, body } = stream;
    const gone = new AbortController();
    const abort = () => gone.abort();
    response.once("close", abort);
    // The client may leave before the body is forwarded, or after a refusal.
    body?.once("error", abort);
    this.#streams ??= this.#openStreams();
    const streams = await this.#streams;
    if (slot === undefined) {
      await streams.forward(stream);
      return true;
    }
    let isDismissed = false;
    const forward = () => {
      slot.authorizeAgain();
      return streams.forward(stream);
    };
    const refusal = (end: WaitEnd) => {
      isDismissed = end === "dismissed";
      return body?.errored instanceof Refusal ? body.errored : overloaded();
    };
    const entrant = { key: slot.user };
    const hold = () => this.limiter.hold(entrant, gone.signal, forward, refusal);
    try {
      if (body === undefined) await hold();
      else await this.#uploads.hold(entrant, gone.signal, hold, refusal);
    } catch (error) {
      if (!isDismissed) throw error;
    }
    return !isDismissed;
  }

  async #openStreams(): Promise<ReverseProxy> {
    // Loaded by the first stream, because most gateways carry only queries.
    const { createReverseProxy } = await import("./reverse-proxy.ts");
    const { connectTimeoutMs, responseTimeoutMs } = this.#options;
    return createReverseProxy(this.#target, connectTimeoutMs, responseTimeoutMs);
  }

  async isUp(): Promise<boolean> {
    return this.isLive && (await this.#healthCheck.isUp());
  }

  noteFailure(): void {
    this.failedAt = performance.now();
    this.#failures++;
    if (this.#failures >= MAX_FAILURES) this.#eject();
  }

  noteSuccess(): void {
    this.#failures = 0;
  }

  async #check(): Promise<void> {
    const isUp = await this.#healthCheck.check();
    if (this.#isClosed) return;
    if (isUp) this.#return();
    else {
      this.failedAt = performance.now();
      this.#eject();
    }
    this.#timer = setTimeout(() => void this.#check(), this.#options.healthIntervalMs);
  }

  #eject(): void {
    if (!this.isLive || this.#isSingle) return;
    this.isLive = false;
    this.#options.onChange(this.name, false);
    // Waiting queries go to another backend.
    this.limiter.dismissAll();
    this.#uploads.dismissAll();
  }

  #return(): void {
    if (this.isLive) return;
    this.isLive = true;
    this.#failures = 0;
    this.#options.onChange(this.name, true);
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#pool.close();
    void this.#streams?.then((streams) => streams.close());
  }
}

const none: ReadonlySet<Backend> = new Set();
const nothing = Buffer.alloc(0);

/** The facts of an attempt that failed before any part of a response was passed on. */
export interface FailedAttempt {
  /** True for a query that only reads. */
  readonly isRead: boolean;
  /** True if no byte of the query was sent. */
  readonly isUnsent: boolean;
  /** True if bytes of a response have arrived. */
  readonly hasReceived: boolean;
  /** True if the connection broke, as opposed to a timeout or an invalid response. */
  readonly isBroken: boolean;
  /** True if this attempt was the repeat. There is at most one. */
  readonly isRepeat: boolean;
  /** The best backend that this query has not tried. */
  readonly untried: "live" | "ejected" | undefined;
}

/**
 * Where a query goes after a failed attempt:
 *
 * - `other`: nothing of it was sent, so it tries one backend after another.
 * - `repeat at other`, `repeat`: a read whose connection broke before the first byte of a response
 * is sent once more, and so is any query of which no byte was sent. The same backend gets it if no
 * other one is live, because it may just have closed an idle connection.
 */
export function nextAttempt(
  failed: FailedAttempt,
): "other" | "repeat at other" | "repeat" | "none" {
  const { isRead, isUnsent, hasReceived, isBroken, isRepeat, untried } = failed;
  if (isUnsent && untried !== undefined) return "other";
  const mayRepeat = (isRead || isUnsent) && isBroken && !hasReceived && !isRepeat;
  if (!mayRepeat) return "none";
  return untried === "live" ? "repeat at other" : "repeat";
}

/**
 * Delivers one query to one of the backends. It waits for a free connection of the least busy live
 * backend. If that one is ejected, it waits for the next.
 */
class Delivery {
  readonly #query: BackendRequest;
  readonly #sink: AnswerSink;
  readonly #balancer: LoadBalancer<Backend>;
  #tried: Set<Backend> | undefined;
  #isRepeat = false;
  #failure: Refusal | undefined;

  constructor(balancer: LoadBalancer<Backend>, query: BackendRequest, sink: AnswerSink) {
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
    const onDismissed = () => {
      this.#noteTried(backend);
      this.start();
    };
    const send = () => this.#send(backend);
    withSlot(backend.limiter, this.#query, this.#sink, send, onDismissed);
  }

  #send(backend: Backend): void {
    const release = () => backend.limiter.release({ key: this.#query.user });
    if (this.#sink.isGone) {
      release();
      return;
    }
    const complete: OnComplete = (failure, hasReceived) => {
      const { isGone } = this.#sink;
      if (failure === undefined || isGone) {
        release();
        if (!isGone) backend.noteSuccess();
        return;
      }
      const { isUnsent } = connection;
      const isBroken = hasBroken(failure);
      if (isUnsent || isBroken) backend.noteFailure();
      this.#failure = failure;
      this.#noteTried(backend);
      const other = this.#nextBackend();
      const untried = other && (other.isLive ? "live" : "ejected");
      const isRead = "schema" in this.#query || this.#query.isRead;
      const isRepeat = this.#isRepeat;
      const next = nextAttempt({ isRead, isUnsent, hasReceived, isBroken, isRepeat, untried });
      if (next === "repeat" || next === "repeat at other") this.#isRepeat = true;
      if (next === "repeat") {
        this.#send(backend);
        return;
      }
      release();
      if (next === "none" || other === undefined) this.#sink.fail(failure);
      else this.#sendTo(other);
    };
    const connection = backend.send(this.#query, this.#sink, this.#isRepeat, complete);
  }

  #noteTried(backend: Backend): void {
    this.#tried ??= new Set();
    this.#tried.add(backend);
  }
}

export class BackendGroup implements Database {
  readonly isEngine = false;
  readonly readsBytes = true;
  readonly targets: readonly Backend[];
  readonly #balancer: LoadBalancer<Backend>;

  constructor(targets: readonly UpstreamTarget[], options: BackendOptions) {
    const isSingle = targets.length === 1;
    this.targets = targets.map((target) => new Backend(target, isSingle, options));
    this.#balancer = new LoadBalancer(this.targets);
  }

  run(query: DatabaseQuery | SchemaQuery, sink: AnswerSink): void {
    new Delivery(this.#balancer, query, sink).start();
  }

  forward(request: ForwardedRequest, sink: AnswerSink): void {
    new Delivery(this.#balancer, request, sink).start();
  }

  /**
   * Forwards a stream to the first live backend. Streams stay on it while it is live, and nothing
   * is sent twice. A stream that waits for a backend when it is ejected goes to the next.
   *
   * @throws Refusal as a reverse proxy does
   */
  async forwardStream(stream: StreamForward): Promise<void> {
    const backend = this.#balancer.first() ?? this.#balancer.leastRecentlyFailed(none);
    try {
      if (await backend?.forward(stream)) return;
    } catch (error) {
      const isFailure = error instanceof Refusal && error.code === "upstream_unreachable";
      if (isFailure) backend?.noteFailure();
      throw error;
    }
    if (this.#balancer.first() === undefined) throw overloaded();
    await this.forwardStream(stream);
  }

  async isUp(): Promise<boolean> {
    const answers = await Promise.all(this.targets.map((backend) => backend.isUp()));
    return answers.includes(true);
  }

  close(): void {
    for (const backend of this.targets) backend.close();
  }
}
