import { once } from "node:events";
import type { Server } from "node:http";
import { isIP } from "node:net";
import {
  AggregatorRegistry,
  Counter,
  collectDefaultMetrics,
  Gauge,
  Histogram,
  type HistogramConfiguration,
  Registry,
} from "prom-client";
import { http } from "../base/node-http.ts";
import { isLoopback, parseListenAddress } from "../config/addresses.ts";
import { limitConnections } from "../http/system-limits.ts";
import type { Log } from "./log.ts";

export interface TargetMetrics {
  readonly name: string;
  /** Connections with a query in flight. */
  readonly busy: number;
  isUp(): Promise<boolean>;
}

/** Records durations. `add` does nothing until `Metrics` replaces it. */
export interface Durations {
  add(seconds: number): void;
}

export interface UpstreamMetrics {
  readonly busy: number;
  readonly waiting: number;
  /** Only queries that had to wait for a connection. */
  readonly waits: Durations;
  /** From sending a query upstream to the head of its response. */
  readonly answers: Durations;
  /** Called for a response that breaks off after its head has been sent to the client. */
  onCut(): void;
}

export interface HashMetrics {
  readonly running: number;
  readonly waiting: number;
  readonly times: Durations;
}

/** `remembered` tokens are in the cache, so their signature is not checked again. */
type TokenMetrics = Readonly<Record<"remembered" | "verified" | "refused", number>>;

/** The result of the last key fetch, by prefix of the external issuer. */
export type IssuerStates = Readonly<Record<string, "ok" | "unreachable" | "unused">>;

export interface StoreMetrics {
  /** Milliseconds since the last successful poll was sent. */
  readonly leaseAge: number;
  readonly appliedVersion: number;
  /** Versions by which this replica was behind the store at the last poll. */
  readonly lag: number;
  readonly isReachable: boolean;
}

export interface CountedRequest {
  readonly route: string;
  readonly status: number;
  /** `allowed`, or the code of the refusal or failure. */
  readonly reason: string;
  /** Undefined if nothing was decided: on public routes, and if the gateway failed. */
  readonly decision: "allow" | "deny" | undefined;
  /** An operation's name, `Batch` for several, `none` if unknown. */
  readonly operation: string;
  /** Set only if the caller presented a valid token. */
  readonly user: string | undefined;
  /** From the request's head to the end of its response. */
  readonly seconds: number;
  /** From the request's head until it was forwarded upstream, or to the end if it was not. */
  readonly gatewaySeconds: number;
}

function isCountedAlike(one: CountedRequest, other: CountedRequest): boolean {
  return (
    one.route === other.route &&
    one.status === other.status &&
    one.reason === other.reason &&
    one.decision === other.decision &&
    one.operation === other.operation
  );
}

/** Codes of refusals without their prefix, and `error` for a 5xx response of the upstream. */
const upstreamFailures = ["unreachable", "broken", "timeout", "overloaded", "error"] as const;
const FAILURE_PREFIX = "upstream_";

/** Users counted by name. All others share `OTHER_USERS`. */
export const NAMED_USERS = 200;
/** Cannot be a username, because usernames contain no parentheses. */
export const OTHER_USERS = "(other)";

const noApprovals = { pending: 0, approved: 0, denied: 0, expired: 0, used: 0, void: 0 };

const help = {
  gatehouse_requests_total: "Completed requests by route, status and reason",
  gatehouse_decisions_total: "Decisions by operation, decision and reason",
  gatehouse_user_requests_total: "Decided requests by user, for a bounded number of users",
  gatehouse_requests_in_flight: "Requests in progress",
  gatehouse_request_duration_seconds: "Time from the head of a request to the end of its response",
  gatehouse_request_gateway_seconds:
    "Time from the head of a request until it is forwarded upstream or, otherwise, answered",
  gatehouse_access_file_last_reload_successful:
    "1 if the access file on disk is in force, 0 if the last valid one is kept",
  gatehouse_access_file_info: "1 for the version of the access file in force",
  gatehouse_signing_keys_last_reload_successful:
    "1 if the signing keys on disk are in force, 0 if the last valid ones are kept",
  gatehouse_tls_certificate_expiry_seconds:
    "Expiry of the TLS certificate in force, in seconds since 1970",
  gatehouse_tls_certificate_last_reload_successful:
    "1 if the TLS certificate on disk is in force, 0 if the last valid one is kept",
  gatehouse_hashes_running: "Logins whose password is being hashed",
  gatehouse_hashes_waiting: "Logins that wait until their password is hashed",
  gatehouse_hash_seconds: "Duration of one password hash",
  gatehouse_token_checks_total: "Login tokens by result: remembered, verified or refused",
  gatehouse_issuer_reachable: "1 if the last fetch of the external issuer's keys succeeded, else 0",
  gatehouse_upstream_up: "1 if the database answers, else 0",
  gatehouse_upstream_failures_total: "Requests that failed at the upstream, by kind",
  gatehouse_upstream_connections_busy: "Connections to the upstream in use",
  gatehouse_upstream_queries_waiting: "Queries that wait for a connection",
  gatehouse_upstream_wait_seconds:
    "Time that queries waited for a connection, without those that did not wait",
  gatehouse_upstream_answer_seconds:
    "Time from sending a query upstream to the head of its response",
  gatehouse_upstream_answers_cut_total: "Upstream responses that broke off after they had begun",
  gatehouse_upstream_target_up: "1 if the upstream target can be used, else 0",
  gatehouse_upstream_target_connections_busy: "Connections to the upstream target in use",
  gatehouse_approvals_pending: "Approvals that wait for a decision",
  gatehouse_approvals_total: "Approvals by outcome",
  gatehouse_approval_notifications_total: "Notifications of approvals by outcome: sent or failed",
  gatehouse_store_lease_age_seconds:
    "Seconds since the replica sent its last successful poll; past store.max_staleness it stops deciding",
  gatehouse_store_applied_version: "Store version that the replica has applied",
  gatehouse_store_lag_versions:
    "Versions by which the replica was behind the store at its last poll",
  gatehouse_store_reached: "1 if the last poll of the store succeeded, else 0",
} as const;
type Name = keyof typeof help;

export type MetricValues = Awaited<ReturnType<Registry["getMetricsAsJSON"]>>;

type Aggregator = "sum" | "min" | "max";

/** Upper bounds in seconds, from a quick refusal to a slow query. */
const buckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/**
 * A histogram of durations. To observe one in prom-client's costs a request more than its decision,
 * because it looks up series and buckets by text.
 */
class DurationHistogram extends Histogram {
  /** Has name and help, and no observations. */
  readonly #empty: Histogram;
  readonly #label: string | undefined;
  readonly #series = new Map<string, { readonly counts: number[]; sum: number }>();

  constructor(description: HistogramConfiguration<string>) {
    super(description);
    this.#empty = new Histogram({ ...description, registers: [] });
    [this.#label] = description.labelNames ?? [];
    if (this.#label === undefined) this.#seriesOf("");
  }

  #seriesOf(value: string) {
    let series = this.#series.get(value);
    if (series === undefined) {
      // The last one counts what exceeds every bound.
      series = { counts: [...buckets, 0].fill(0), sum: 0 };
      this.#series.set(value, series);
    }
    return series;
  }

  /** @param value of the label */
  add(seconds: number, value = ""): void {
    const series = this.#seriesOf(value);
    let at = 0;
    while (at < buckets.length && seconds > (buckets[at] ?? 0)) at++;
    series.counts[at] = (series.counts[at] ?? 0) + 1;
    series.sum += seconds;
  }

  override async get() {
    const metric = await this.#empty.get();
    const { name } = metric;
    const values = [...this.#series].flatMap(([value, { counts, sum }]) => {
      const labels = this.#label === undefined ? {} : { [this.#label]: value };
      let count = 0;
      const bounded = counts.map((more, at) => {
        count += more;
        const le = buckets[at] ?? "+Inf";
        return { labels: { le, ...labels }, value: count, metricName: `${name}_bucket` };
      });
      return [
        ...bounded,
        { labels, value: sum, metricName: `${name}_sum` },
        { labels, value: count, metricName: `${name}_count` },
      ];
    });
    return { ...metric, values };
  }

  /** `Registry.metrics` prefers it to `get`. */
  getForPromString() {
    return this.get();
  }
}

/** Metrics of a process that serves no requests but hashes passwords for workers. */
export class HashingMetrics {
  protected readonly registry = new Registry();

  protected describe(name: Name, ...labelNames: string[]) {
    return { name, help: help[name], labelNames, registers: [this.registry] };
  }

  protected counter(name: Name, ...labelNames: string[]): Counter {
    return new Counter(this.describe(name, ...labelNames));
  }

  protected gauge(name: Name, aggregator: Aggregator, read?: () => number | Promise<number>) {
    const gauge: Gauge = new Gauge({
      ...this.describe(name),
      aggregator,
      ...(read && { collect: async () => gauge.set(await read()) }),
    });
    return gauge;
  }

  protected histogram(name: Name, ...labelNames: string[]): DurationHistogram {
    return new DurationHistogram(this.describe(name, ...labelNames));
  }

  protected exportDurations(name: Name, durations: Durations): void {
    const histogram = this.histogram(name);
    durations.add = (seconds) => histogram.add(seconds);
  }

  exportHashing(metrics: HashMetrics): void {
    this.gauge("gatehouse_hashes_running", "sum", () => metrics.running);
    this.gauge("gatehouse_hashes_waiting", "sum", () => metrics.waiting);
    this.exportDurations("gatehouse_hash_seconds", metrics.times);
  }

  values(): Promise<MetricValues> {
    return this.registry.getMetricsAsJSON();
  }
}

/** The metrics of a gateway process. Gauges take the worst value of several processes. */
export class Metrics extends HashingMetrics {
  readonly #requests = this.counter("gatehouse_requests_total", "route", "status", "reason");
  readonly #decisions = this.counter(
    "gatehouse_decisions_total",
    "operation",
    "decision",
    "reason",
  );
  readonly #failures = this.counter("gatehouse_upstream_failures_total", "kind");
  readonly #userRequests = this.counter("gatehouse_user_requests_total", "user", "decision");
  readonly #notifications = this.counter("gatehouse_approval_notifications_total", "outcome");
  readonly #inFlight = this.gauge("gatehouse_requests_in_flight", "sum");
  readonly #durations = this.histogram("gatehouse_request_duration_seconds", "route");
  readonly #gatewayTimes = this.histogram("gatehouse_request_gateway_seconds", "route");
  readonly #isAccessGood = this.gauge("gatehouse_access_file_last_reload_successful", "min");
  readonly #accessVersion = new Gauge({
    ...this.describe("gatehouse_access_file_info", "version"),
    aggregator: "max",
  });
  readonly #areKeysGood = this.gauge("gatehouse_signing_keys_last_reload_successful", "min");
  readonly #named = new Set<string>();
  /** Requests in a row that are counted alike: adding them up is cheaper than finding a series. */
  #run: { readonly first: CountedRequest; count: number } | undefined;

  constructor() {
    super();
    const { registry } = this;
    collectDefaultMetrics({ register: registry });
    // promtool refuses these gauges, because their names have the suffix of counters.
    for (const kind of ["handles", "requests", "resources"]) {
      registry.removeSingleMetric(`nodejs_active_${kind}_total`);
    }
    // Exported at 0, so that Prometheus sees the first failure as an increase.
    for (const kind of upstreamFailures) this.#failures.inc({ kind }, 0);
    for (const outcome of ["sent", "failed"]) this.#notifications.inc({ outcome }, 0);
  }

  /** Reads the values of a metric by its label whenever they are collected. */
  #readByLabel(
    Metric: typeof Counter | typeof Gauge,
    name: Name,
    label: string,
    aggregator: Aggregator,
    read: () => Promise<Readonly<Record<string, number>>>,
  ): void {
    const metric: Counter | Gauge = new Metric({
      ...this.describe(name, label),
      aggregator,
      async collect() {
        const values = Object.entries(await read());
        metric.reset();
        for (const [value, count] of values) metric.inc({ [label]: value }, count);
      },
    });
  }

  begin(): void {
    this.#inFlight.inc();
  }

  end(): void {
    this.#inFlight.dec();
  }

  /** Counts a completed request, even without `begin`. */
  request(request: CountedRequest): void {
    const { route, status, reason, decision, user } = request;
    if (this.#run !== undefined && isCountedAlike(this.#run.first, request)) this.#run.count++;
    else {
      this.#endRun();
      this.#run = { first: request, count: 1 };
    }
    this.#durations.add(request.seconds, route);
    this.#gatewayTimes.add(request.gatewaySeconds, route);
    if (reason.startsWith(FAILURE_PREFIX)) {
      this.#failures.inc({ kind: reason.slice(FAILURE_PREFIX.length) });
    }
    if (decision === undefined) return;
    if (decision === "allow" && reason === "allowed" && status >= 500) this.upstreamError();
    if (user !== undefined) this.#userRequests.inc({ user: this.#nameOf(user), decision });
  }

  #endRun(): void {
    if (this.#run === undefined) return;
    const { first, count } = this.#run;
    this.#run = undefined;
    const { route, status, reason, decision, operation } = first;
    this.#requests.inc({ route, status, reason }, count);
    if (decision === undefined) return;
    const why = decision === "allow" ? "allowed" : reason;
    this.#decisions.inc({ operation, decision, reason: why }, count);
  }

  override values(): Promise<MetricValues> {
    this.#endRun();
    return super.values();
  }

  #nameOf(user: string): string {
    if (this.#named.has(user)) return user;
    if (this.#named.size >= NAMED_USERS) return OTHER_USERS;
    this.#named.add(user);
    return user;
  }

  /** Counts a 5xx of the upstream, also in a tool call. */
  upstreamError(): void {
    this.#failures.inc({ kind: "error" });
  }

  reloaded(version: string): void {
    this.#accessVersion.reset();
    this.#accessVersion.set({ version }, 1);
    this.#isAccessGood.set(1);
  }

  reloadFailed(): void {
    this.#isAccessGood.set(0);
  }

  keysReloaded(isGood: boolean): void {
    this.#areKeysGood.set(Number(isGood));
  }

  exportCertificate() {
    const expiry = this.gauge("gatehouse_tls_certificate_expiry_seconds", "min");
    const isGood = this.gauge("gatehouse_tls_certificate_last_reload_successful", "min");
    return {
      onLoad({ expires }: { readonly expires: Date }): void {
        expiry.set(expires.getTime() / 1000);
        isGood.set(1);
      },
      onFailure: (): void => isGood.set(0),
    };
  }

  /** @param isUp true if the upstream, or the database of the engine, answers */
  exportUpstream(metrics: UpstreamMetrics, isUp: () => Promise<boolean>): void {
    this.gauge("gatehouse_upstream_connections_busy", "sum", () => metrics.busy);
    this.gauge("gatehouse_upstream_queries_waiting", "sum", () => metrics.waiting);
    this.exportDurations("gatehouse_upstream_wait_seconds", metrics.waits);
    this.exportDurations("gatehouse_upstream_answer_seconds", metrics.answers);
    const cut = this.counter("gatehouse_upstream_answers_cut_total");
    metrics.onCut = () => cut.inc();
    this.gauge("gatehouse_upstream_up", "min", async () => Number(await isUp()));
  }

  exportTargets(targets: readonly TargetMetrics[]): void {
    if (targets.length < 2) return;
    this.#readByLabel(Gauge, "gatehouse_upstream_target_up", "target", "min", async () => {
      const up = targets.map(async (one) => [one.name, Number(await one.isUp())] as const);
      return Object.fromEntries(await Promise.all(up));
    });
    const busy = "gatehouse_upstream_target_connections_busy";
    this.#readByLabel(Gauge, busy, "target", "sum", async () =>
      Object.fromEntries(targets.map(({ name, busy }) => [name, busy])),
    );
  }

  exportTokens(metrics: TokenMetrics): void {
    const name = "gatehouse_token_checks_total";
    this.#readByLabel(Counter, name, "result", "sum", async () => metrics);
  }

  exportStore(metrics: StoreMetrics): void {
    this.gauge("gatehouse_store_lease_age_seconds", "max", () => metrics.leaseAge / 1000);
    this.gauge("gatehouse_store_applied_version", "min", () => metrics.appliedVersion);
    this.gauge("gatehouse_store_lag_versions", "max", () => metrics.lag);
    this.gauge("gatehouse_store_reached", "min", () => Number(metrics.isReachable));
  }

  /** Issuers appear after their first fetch. */
  exportIssuers(states: () => IssuerStates): void {
    this.#readByLabel(Gauge, "gatehouse_issuer_reachable", "issuer", "min", async () => {
      const fetched = Object.entries(states()).filter(([, state]) => state !== "unused");
      return Object.fromEntries(fetched.map(([issuer, state]) => [issuer, Number(state === "ok")]));
    });
  }

  /** All processes read the same numbers, so the maximum counts. */
  exportApprovals(count: () => Promise<Readonly<typeof noApprovals> | undefined>): void {
    let last: Readonly<typeof noApprovals> = noApprovals;
    // A failed read must not hide the other metrics or reset these to 0.
    const read = async () => {
      last = (await count().catch(() => undefined)) ?? last;
      return last;
    };
    this.gauge("gatehouse_approvals_pending", "max", async () => (await read()).pending);
    this.#readByLabel(Counter, "gatehouse_approvals_total", "outcome", "max", async () => {
      const { pending: _, ...outcomes } = await read();
      return outcomes;
    });
  }

  notified(outcome: "sent" | "failed"): void {
    this.#notifications.inc({ outcome });
  }

  listen(address: string, log: Log): Promise<Server> {
    return serveMetrics(address, log, () => {
      this.#endRun();
      return this.registry.metrics();
    });
  }
}

/** False for `Host` of a web page that has rebound its DNS name to this machine. */
function isOwnHost(authority: string): boolean {
  const { hostname = "" } = URL.parse(`http://${authority}`) ?? {};
  return hostname === "localhost" || isIP(hostname.replace(/^\[|\]$/g, "")) !== 0;
}

/** Serves metrics on `host:port`, an IPv6 host in brackets, in the Prometheus text format. */
export async function serveMetrics(
  address: string,
  log: Log,
  metrics: () => Promise<string>,
): Promise<Server> {
  const { host = "", port = 0 } = parseListenAddress(address) ?? {};
  const isLocal = isLoopback(host);
  const server = http.createServer((request, response) => {
    const [path] = request.url?.split("?", 1) ?? [];
    if (path !== "/metrics" || !/^(?:GET|HEAD)$/.test(request.method ?? "")) {
      response.writeHead(404).end();
      return;
    }
    // Every browser sends one.
    const { host: asked = "localhost" } = request.headers;
    if (isLocal && !isOwnHost(asked)) {
      response.writeHead(403).end("Host must be localhost or an IP address\n");
      return;
    }
    metrics().then(
      (text) =>
        response.writeHead(200, { "content-type": Registry.PROMETHEUS_CONTENT_TYPE }).end(text),
      () => response.writeHead(500).end(),
    );
  });
  limitConnections(server, log, true);
  server.listen({ host, port });
  await once(server, "listening");
  return server;
}

/** Their values must not fall when a process ends. */
const cumulative: ReadonlySet<string> = new Set(["counter", "histogram"]);

function add(all: readonly MetricValues[]): Registry {
  return AggregatorRegistry.aggregate([...all]);
}

/** Adds up the metrics of several processes, including those that have ended. */
export class MetricsAggregation {
  readonly #latest = new Map<number, MetricValues>();
  #past: MetricValues = [];
  #retiring: Promise<void> = Promise.resolve();

  note(process: number, metrics: MetricValues): void {
    this.#latest.set(process, metrics);
  }

  /** Keeps the last known counts of a process that has ended. */
  retire(process: number): Promise<void> {
    const last = this.#latest.get(process) ?? [];
    this.#latest.delete(process);
    const counted = last.filter(({ type }) => cumulative.has(String(type)));
    // One after the other, so that none is lost when two processes end at once.
    this.#retiring = this.#retiring.then(async () => {
      this.#past = await add([this.#past, counted]).getMetricsAsJSON();
    });
    return this.#retiring;
  }

  async text(): Promise<string> {
    await this.#retiring;
    return add([...this.#latest.values(), this.#past]).metrics();
  }
}
