import type { RequestOptions } from "node:http";
import { connect } from "node:net";
import { http } from "../node-http.ts";
import type { TargetMetrics } from "../observe/component-metrics.ts";
import { engineName } from "../product.ts";
import { QueryLink, type QueryLinkOptions, type QueryMetrics } from "./query-client.ts";
import type { ReverseProxy, StreamForward } from "./reverse-proxy.ts";
import { hostAndPort, targetName, type UpstreamTarget } from "./target.ts";

/** Milliseconds after which an upstream that takes no connection, or gives no answer, is down. */
const TIMEOUT_MS = 2000;
/** Milliseconds for which an upstream that was found up counts as up. */
const FRESH_MS = 1000;

/** How the health of an upstream is checked. */
interface HealthCheckOptions {
  readonly target: UpstreamTarget;
  /**
   * What is asked for, to be answered with 2xx; empty: that it takes a connection is enough, unless
   * it is the engine, which says whether its database answers.
   */
  readonly path?: string;
  /** The `Authorization` header that goes with it, if any. */
  readonly authorization?: string | undefined;
}

/** True if the upstream takes a connection; nothing is sent on it. */
function takesConnection(target: UpstreamTarget): Promise<boolean> {
  return new Promise((resolve) => {
    const { origin, socketPath } = target;
    const address = socketPath === undefined ? hostAndPort(origin) : { path: socketPath };
    const socket = connect({ ...address, timeout: TIMEOUT_MS });
    const finish = (reachable: boolean) => {
      socket.destroy();
      resolve(reachable);
    };
    socket.once("connect", () => finish(true));
    socket.once("timeout", () => finish(false));
    socket.once("error", () => finish(false));
  });
}

/** What an upstream has answered to a health check. */
interface Health {
  /** True for a status of 2xx. */
  readonly isGood: boolean;
  readonly isEngine: boolean;
}

/** Asks the upstream for `GET` of the path, on a connection of its own; undefined: no answer. */
function ask(
  { target, authorization }: HealthCheckOptions,
  path: string,
): Promise<Health | undefined> {
  const { origin, socketPath } = target;
  const options: RequestOptions = {
    path,
    agent: false,
    signal: AbortSignal.timeout(TIMEOUT_MS),
    headers: authorization === undefined ? {} : { authorization },
    ...(socketPath === undefined ? {} : { socketPath }),
  };
  const request = origin.startsWith("https:")
    ? process.getBuiltinModule("node:https").request
    : http.request;
  return new Promise((resolve) => {
    const asked = request(origin, options, ({ statusCode = 0, headers }) => {
      const isGood = statusCode >= 200 && statusCode < 300;
      resolve({ isGood, isEngine: headers.server === engineName });
      asked.destroy();
    });
    asked.on("error", () => resolve(undefined));
    asked.end();
  });
}

/** Finds out whether the upstream is there, with one health check for all who ask at one moment. */
export class HealthCheck {
  readonly #options: HealthCheckOptions;
  #asking: Promise<boolean> | undefined;
  #isEngine: boolean | undefined;
  /** `performance.now()` until which the upstream counts as up. */
  #freshUntil = Number.NEGATIVE_INFINITY;

  constructor(options: HealthCheckOptions) {
    this.#options = options;
  }

  /** True if it is `gatehouse engine`; undefined until it has answered since it was last down. */
  get isEngine(): boolean | undefined {
    return this.#isEngine;
  }

  /** True if the upstream is there, or was within the last second. */
  async isUp(): Promise<boolean> {
    if (performance.now() < this.#freshUntil) return true;
    return this.check();
  }

  /** True if the upstream is there now. */
  check(): Promise<boolean> {
    this.#asking ??= this.#ask();
    return this.#asking;
  }

  async #ask(): Promise<boolean> {
    const { path = "" } = this.#options;
    const isUp =
      path === "" ? await this.#isThere() : ((await ask(this.#options, path))?.isGood ?? false);
    this.#freshUntil = isUp ? performance.now() + FRESH_MS : Number.NEGATIVE_INFINITY;
    this.#asking = undefined;
    return isUp;
  }

  async #isThere(): Promise<boolean> {
    if (this.#isEngine !== false) {
      const answer = await ask(this.#options, "/healthz");
      if (answer !== undefined) this.#isEngine = answer.isEngine;
      // One that was the engine and is mute is down; of any other a connection is enough.
      if (this.#isEngine) return answer?.isGood ?? false;
      if (answer !== undefined) return true;
    }
    const isThere = await takesConnection(this.#options.target);
    if (!isThere) this.#isEngine = undefined;
    return isThere;
  }
}

/** One that may be chosen. */
interface Candidate {
  /** False while it is ejected. */
  readonly isLive: boolean;
  /** How much it carries just now. */
  readonly load: number;
  /** `performance.now()` of its last failure; lower is longer ago. */
  readonly failedAt: number;
}

/** Load balancing: chooses among candidates that serve the same. */
export class LoadBalancer<C extends Candidate> {
  readonly #candidates: readonly C[];
  /** Where the search begins, so that equals have their turns. */
  #next = 0;

  constructor(candidates: readonly C[]) {
    this.#candidates = candidates;
  }

  /** The live one with the least load, equals in turn; undefined if none is live. */
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

  /** The one whose failure is longest ago, live or not; undefined if all are excepted. */
  leastRecentlyFailed(except: ReadonlySet<C>): C | undefined {
    let chosen: C | undefined;
    for (const candidate of this.#candidates) {
      if (except.has(candidate)) continue;
      if (chosen === undefined || candidate.failedAt < chosen.failedAt) chosen = candidate;
    }
    return chosen;
  }

  /** The first live one, in the order in which they were given. */
  first(): C | undefined {
    return this.#candidates.find(({ isLive }) => isLive);
  }
}

/** Failed connections in a row after which a backend is ejected. */
const MOST_FAILURES = 3;

/** What holds for each backend of a group. */
export interface BackendOptions extends Omit<QueryLinkOptions, "target"> {
  /** What a health check asks for; empty: that a connection is taken is enough. */
  readonly healthPath: string;
  /** Milliseconds between two health checks of each of several backends. */
  readonly healthInterval: number;
  /** The `Authorization` header that a health check of a path sends, if any. */
  readonly authorization: string | undefined;
  readonly metrics: QueryMetrics;
  /** Is told when one of several is ejected and when it returns. */
  readonly onChange: (name: string, isLive: boolean) => void;
}

/** What operators are told of a target. */
export interface TargetState extends TargetMetrics {
  /** False while it is ejected, so that queries go to others. */
  readonly isLive: boolean;
  /** Queries in line for a connection. */
  readonly waiting: number;
}

/**
 * One target of the upstream: the ways to it, and whether they are used. One of several is ejected
 * by three connection failures in a row or a failed health check, and returns by a passed one, so
 * that its queries fail over to the others. A single one has nothing to fail over to.
 */
export class Backend implements Candidate, TargetState {
  /** As the configuration names it: for the log and the metrics. */
  readonly name: string;
  readonly link: QueryLink;
  isLive = true;
  failedAt = Number.NEGATIVE_INFINITY;
  readonly #isSingle: boolean;
  readonly #healthCheck: HealthCheck;
  readonly #target: UpstreamTarget;
  readonly #options: BackendOptions;
  #failures = 0;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;
  #streams: Promise<ReverseProxy> | undefined;

  /** One of several is checked from now on. */
  constructor(target: UpstreamTarget, isSingle: boolean, options: BackendOptions) {
    const { healthPath: path, authorization, metrics } = options;
    this.name = targetName(target);
    this.link = new QueryLink({ ...options, target }, metrics);
    this.#healthCheck = new HealthCheck({ target, path, authorization });
    this.#target = target;
    this.#options = options;
    this.#isSingle = isSingle;
    if (!isSingle) void this.#check();
  }

  /** Queries on it and in line for it. */
  get load(): number {
    const { busy, waiting } = this.link.limiter;
    return busy + waiting;
  }

  get waiting(): number {
    return this.link.limiter.waiting;
  }

  /** Connections that carry a query. */
  get busy(): number {
    return this.link.limiter.busy;
  }

  /** Carries a stream to it. @throws Refusal as a reverse proxy does */
  async forward(stream: StreamForward): Promise<void> {
    this.#streams ??= this.#openStreams();
    await (await this.#streams).forward(stream);
  }

  async #openStreams(): Promise<ReverseProxy> {
    // Loaded by the first stream: most gateways carry queries alone.
    const { createReverseProxy } = await import("./reverse-proxy.ts");
    return createReverseProxy({ ...this.#options, target: this.#target });
  }

  /** True if it is live, and passes a health check. */
  async isUp(): Promise<boolean> {
    return this.isLive && (await this.#healthCheck.isUp());
  }

  /** Notes a connection that could not be made, or broke before an answer. */
  noteFailure(): void {
    this.failedAt = performance.now();
    this.#failures++;
    if (this.#failures >= MOST_FAILURES) this.#eject();
  }

  /** Notes a connection that held. */
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
    this.#timer = setTimeout(() => void this.#check(), this.#options.healthInterval);
  }

  #eject(): void {
    if (!this.isLive || this.#isSingle) return;
    this.isLive = false;
    this.#options.onChange(this.name, false);
    // Whoever waits for it goes to another one.
    this.link.limiter.dismissAll();
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
    this.link.close();
    void this.#streams?.then((streams) => streams.close());
  }
}
