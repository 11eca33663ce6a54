import type { TargetMetrics } from "../observe/component-metrics.ts";
import { HealthCheck } from "./health-check.ts";
import type { Candidate } from "./load-balancer.ts";
import { QueryLink, type QueryLinkOptions, type QueryMetrics } from "./query-link.ts";
import type { ReverseProxy, StreamForward } from "./reverse-proxy.ts";
import { targetName, type UpstreamTarget } from "./target.ts";

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
