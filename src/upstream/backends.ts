import type { TargetMetrics } from "../observe/metrics.ts";
import type { Query } from "../query/query.ts";
import { Refusal } from "../refusal.ts";
import { HealthCheck } from "./health-check.ts";
import {
  QueryClient,
  QueryLink,
  type QueryLinkOptions,
  type QueryMetrics,
} from "./query-client.ts";
import type { ReverseProxy, StreamForward } from "./reverse-proxy.ts";
import { targetName, type UpstreamTarget } from "./target.ts";

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

/**
 * One target of the upstream, with its connections and health. One of several backends is ejected
 * after three consecutive connection failures or a failed health check, so that its queries fail
 * over. It returns when a check passes. A single backend is never ejected because there is nothing
 * to fail over to.
 */
export class Backend implements Candidate, TargetMetrics {
  /** The name in the configuration, for log and metrics. */
  readonly name: string;
  readonly link: QueryLink;
  /** False while it is ejected and its queries go to others. */
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

const none: ReadonlySet<Backend> = new Set();

/** Backends that serve the same databases. Health checks run if there are several. */
export class BackendGroup {
  readonly targets: readonly Backend[];
  readonly queries: QueryClient;
  readonly #balancer: LoadBalancer<Backend>;

  constructor(targets: readonly UpstreamTarget[], options: BackendOptions) {
    const isSingle = targets.length === 1;
    this.targets = targets.map((target) => new Backend(target, isSingle, options));
    this.#balancer = new LoadBalancer(this.targets);
    this.queries = new QueryClient(this.#balancer);
  }

  /**
   * Forwards a stream to the first live backend. Streams stay on it while it is live, and nothing
   * is sent twice.
   *
   * @throws Refusal as a reverse proxy does
   */
  async forward(stream: StreamForward): Promise<void> {
    const backend = this.#balancer.first() ?? this.#balancer.leastRecentlyFailed(none);
    try {
      await backend?.forward(stream);
    } catch (error) {
      const isFailure = error instanceof Refusal && error.code === "upstream_unreachable";
      if (isFailure) backend?.noteFailure();
      throw error;
    }
  }

  async isUp(): Promise<boolean> {
    const answers = await Promise.all(this.targets.map((backend) => backend.isUp()));
    return answers.includes(true);
  }

  close(): void {
    for (const backend of this.targets) backend.close();
  }
}

const NAMED = 8;

function listed(names: readonly string[]): string {
  const shown = names.slice(0, NAMED).join(", ");
  return names.length > NAMED ? `${shown} and ${names.length - NAMED} more` : shown;
}

/** Maps each database to its backends. */
export class DatabaseRouting {
  readonly #home: BackendGroup;
  readonly #elsewhere: ReadonlyMap<string, BackendGroup>;

  /** @param elsewhere databases with other backends than `home`, by exact name */
  constructor(home: BackendGroup, elsewhere: ReadonlyMap<string, BackendGroup>) {
    this.#home = home;
    this.#elsewhere = elsewhere;
  }

  get isOne(): boolean {
    return this.#elsewhere.size === 0;
  }

  /** @throws Refusal `batch_across_upstreams` if the query's databases are in different groups */
  queriesOf(query: Query): QueryClient {
    if (this.isOne) return this.#home.queries;
    const places = new Set(query.accesses.map(({ database }) => this.groupOf(database)));
    const [place = this.#home] = places;
    if (places.size <= 1) return place.queries;
    const names = [...new Set(query.accesses.map(({ database }) => database))];
    const message = `A Batch goes to one upstream, and these databases live on several: ${listed(names)}`;
    throw new Refusal("batch_across_upstreams", { message });
  }

  groupOf(database: string | undefined): BackendGroup {
    return (database === undefined ? undefined : this.#elsewhere.get(database)) ?? this.#home;
  }

  get places(): { queries: QueryClient; holds(database: string): boolean }[] {
    return this.#groups.map((group) => ({
      queries: group.queries,
      holds: (database) => this.groupOf(database) === group,
    }));
  }

  get #groups(): BackendGroup[] {
    return [this.#home, ...new Set(this.#elsewhere.values())];
  }

  get targets(): Backend[] {
    return this.#groups.flatMap(({ targets }) => targets);
  }

  /** The databases that are configured for a target by name. Undefined for the default target. */
  databasesAt(target: Backend): string[] | undefined {
    if (this.#home.targets.includes(target)) return undefined;
    const here = this.#elsewhere.entries().filter(([, group]) => group.targets.includes(target));
    return here.map(([database]) => database).toArray();
  }

  async isUp(): Promise<boolean> {
    const answers = await Promise.all(this.#groups.map((group) => group.isUp()));
    return !answers.includes(false);
  }
}
