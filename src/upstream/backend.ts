import type { RequestOptions } from "node:http";
import { connect } from "node:net";
import { http } from "../node-http.ts";
import type { TargetMetrics } from "../observe/metrics.ts";
import { engineName } from "../product.ts";
import { QueryLink, type QueryLinkOptions, type QueryMetrics } from "./query-client.ts";
import type { ReverseProxy, StreamForward } from "./reverse-proxy.ts";
import { hostAndPort, targetName, type UpstreamTarget } from "./target.ts";

/** An upstream that does not connect or respond within this time is down. */
const TIMEOUT_MS = 2000;
/** How long a passed check stays valid. */
const FRESH_MS = 1000;

interface HealthCheckOptions {
  readonly target: UpstreamTarget;
  /**
   * The path must answer with 2xx. If empty, accepting a connection is enough, except for the
   * engine, which also reports whether its database answers.
   */
  readonly path?: string;
  readonly authorization?: string | undefined;
}

/** True if the upstream accepts a connection. Sends nothing on it. */
export function takesConnection(target: UpstreamTarget): Promise<boolean> {
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

interface Health {
  readonly isGood: boolean;
  readonly isEngine: boolean;
}

/** Sends `GET` on a connection of its own. Resolves to undefined without a response. */
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

/** Checks whether the upstream is up. Concurrent callers share one check. */
export class HealthCheck {
  readonly #options: HealthCheckOptions;
  #asking: Promise<boolean> | undefined;
  #isEngine: boolean | undefined;
  /** `performance.now()` until which the upstream counts as up. */
  #freshUntil = Number.NEGATIVE_INFINITY;

  constructor(options: HealthCheckOptions) {
    this.#options = options;
  }

  /** True for `gatehouse engine`. Undefined until it has answered since it was last down. */
  get isEngine(): boolean | undefined {
    return this.#isEngine;
  }

  /** True if the upstream is up or was within the last second. */
  async isUp(): Promise<boolean> {
    if (performance.now() < this.#freshUntil) return true;
    return this.check();
  }

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
      // An engine that stops responding is down. For any other upstream a connection is enough.
      if (this.#isEngine) return answer?.isGood ?? false;
      if (answer !== undefined) return true;
    }
    const isThere = await takesConnection(this.#options.target);
    if (!isThere) this.#isEngine = undefined;
    return isThere;
  }
}

interface Candidate {
  readonly isLive: boolean;
  readonly load: number;
  /** `performance.now()` of the last failure. */
  readonly failedAt: number;
}

/** Chooses among candidates that serve the same databases. */
export class LoadBalancer<C extends Candidate> {
  readonly #candidates: readonly C[];
  /** Where the search starts, so that equals take turns. */
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
    let chosen: C | undefined;
    for (const candidate of this.#candidates) {
      if (except.has(candidate)) continue;
      if (chosen === undefined || candidate.failedAt < chosen.failedAt) chosen = candidate;
    }
    return chosen;
  }

  first(): C | undefined {
    return this.#candidates.find(({ isLive }) => isLive);
  }
}

const MOST_FAILURES = 3;

export interface BackendOptions extends Omit<QueryLinkOptions, "target"> {
  /** If empty, accepting a connection is enough. */
  readonly healthPath: string;
  /** In milliseconds, for each of several backends. */
  readonly healthInterval: number;
  readonly authorization: string | undefined;
  readonly metrics: QueryMetrics;
  /** Called when one of several backends is ejected and when it returns. */
  readonly onChange: (name: string, isLive: boolean) => void;
}

export interface TargetState extends TargetMetrics {
  /** False while it is ejected and its queries go to others. */
  readonly isLive: boolean;
  readonly waiting: number;
}

/**
 * One target of the upstream, with its connections and health. One of several backends is ejected
 * after three consecutive connection failures or a failed health check, so that its queries fail
 * over. It returns when a check passes. A single backend is never ejected because there is nothing
 * to fail over to.
 */
export class Backend implements Candidate, TargetState {
  /** The name in the configuration, for log and metrics. */
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

  /** Starts health checks if it is one of several. */
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

  get load(): number {
    const { busy, waiting } = this.link.limiter;
    return busy + waiting;
  }

  get waiting(): number {
    return this.link.limiter.waiting;
  }

  get busy(): number {
    return this.link.limiter.busy;
  }

  /** @throws Refusal as a reverse proxy does */
  async forward(stream: StreamForward): Promise<void> {
    this.#streams ??= this.#openStreams();
    await (await this.#streams).forward(stream);
  }

  async #openStreams(): Promise<ReverseProxy> {
    // Loaded by the first stream, because most gateways carry only queries.
    const { createReverseProxy } = await import("./reverse-proxy.ts");
    return createReverseProxy({ ...this.#options, target: this.#target });
  }

  async isUp(): Promise<boolean> {
    return this.isLive && (await this.#healthCheck.isUp());
  }

  noteFailure(): void {
    this.failedAt = performance.now();
    this.#failures++;
    if (this.#failures >= MOST_FAILURES) this.#eject();
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
    this.#timer = setTimeout(() => void this.#check(), this.#options.healthInterval);
  }

  #eject(): void {
    if (!this.isLive || this.#isSingle) return;
    this.isLive = false;
    this.#options.onChange(this.name, false);
    // Waiting queries go to another backend.
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
