import { once } from "node:events";
import type { Server } from "node:http";
import {
  AggregatorRegistry,
  Counter,
  collectDefaultMetrics,
  Gauge,
  Histogram,
  Registry,
} from "prom-client";
import { http } from "../node-http.ts";

export interface TargetMetrics {
  /** The name in the configuration. */
  readonly name: string;
  /** Connections with a query in flight. */
  readonly busy: number;
  /** True if queries are sent to it. */
  isUp(): Promise<boolean>;
}

/** Records durations in seconds. `Metrics` replaces `add`; until then it does nothing. */
export interface Durations {
  add(seconds: number): void;
}

export interface UpstreamMetrics {
  /** Connections with a query in flight. */
  readonly busy: number;
  readonly waiting: number;
  /** Only queries that had to wait for a connection. */
  readonly waits: Durations;
  /** From sending a query upstream to the head of its response. */
  readonly answers: Durations;
  /** Responses that broke off after their head had been sent to the client. */
  readonly cut: number;
}

export interface HashMetrics {
  readonly running: number;
  readonly waiting: number;
  readonly times: Durations;
}

/** Outcomes of verifying login tokens. */
export interface TokenMetrics {
  /** Already verified, so the signature was not checked again. */
  readonly remembered: number;
  readonly verified: number;
  readonly refused: number;
}

/** The result of the last key fetch of each external issuer, by its prefix. */
export type IssuerStates = Readonly<Record<string, "ok" | "unreachable" | "unused">>;

export interface StoreMetrics {
  /** Milliseconds since the last successful poll was sent. */
  readonly leaseAge: number;
  readonly appliedVersion: number;
  /** Versions by which this replica was behind the store at the last poll. */
  readonly lag: number;
  /** True if the last poll succeeded. */
  readonly isReached: boolean;
}

export interface CountedRequest {
  /** The route's pattern. */
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

/** Codes of refusals without `upstream_`, and `error` for a 5xx response of the upstream. */
const upstreamFailures = ["unreachable", "broken", "timeout", "overloaded", "error"] as const;
const FAILURE_PREFIX = "upstream_";

/** Users counted by name. All others share `OTHER_USERS`. */
export const NAMED_USERS = 200;
/** Cannot be a username, because usernames contain no parentheses. */
export const OTHER_USERS = "(other)";

const noApprovals = { pending: 0, approved: 0, denied: 0, expired: 0, used: 0, void: 0 };

/** Ended approvals are counted since the beginning. */
type CountApprovals = () => Promise<Readonly<typeof noApprovals> | undefined>;

export type MetricValues = Awaited<ReturnType<Registry["getMetricsAsJSON"]>>;

/** Upper bounds in seconds, from a quick refusal to a slow query. */
const buckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/** Metrics of a process that serves no requests but hashes passwords for those that do. */
export class HashingMetrics {
  protected readonly registry = new Registry();

  protected counter(name: string, help: string, labelNames: string[] = [], read?: () => void) {
    const collect = read === undefined ? {} : { collect: read };
    return new Counter({ name, help, labelNames, registers: [this.registry], ...collect });
  }

  /** @param aggregator how the values of several processes are combined */
  protected gauge(
    name: string,
    help: string,
    aggregator: "sum" | "min" | "max",
    read?: () => number | Promise<number>,
  ): Gauge {
    const gauge: Gauge = new Gauge({
      ...{ name, help, aggregator, registers: [this.registry] },
      ...(read && { collect: async () => gauge.set(await read()) }),
    });
    return gauge;
  }

  protected histogram(name: string, help: string, labelNames: string[] = []) {
    return new Histogram({ name, help, labelNames, buckets, registers: [this.registry] });
  }

  protected showDurations(name: string, help: string, durations: Durations): void {
    const histogram = this.histogram(name, help);
    durations.add = (seconds) => histogram.observe(seconds);
  }

  showHashing(metrics: HashMetrics): void {
    const running = "Logins that are being hashed for";
    this.gauge("gatehouse_hashes_running", running, "sum", () => metrics.running);
    const waiting = "Logins that wait for their turn to hash";
    this.gauge("gatehouse_hashes_waiting", waiting, "sum", () => metrics.waiting);
    this.showDurations("gatehouse_hash_seconds", "Time that one password hash took", metrics.times);
  }

  /** The current values, to be aggregated with those of other processes. */
  values(): Promise<MetricValues> {
    return this.registry.getMetricsAsJSON();
  }
}

/** The metrics of a gateway process. Gauges take the worst value of several processes. */
export class Metrics extends HashingMetrics {
  readonly #requests = this.counter(
    "gatehouse_requests_total",
    "Requests answered, by route, status and reason",
    ["route", "status", "reason"],
  );
  readonly #decisions = this.counter(
    "gatehouse_decisions_total",
    "Decisions on requests, by what was asked for and the rule that decided",
    ["operation", "decision", "reason"],
  );
  readonly #failures = this.counter(
    "gatehouse_upstream_failures_total",
    "Requests that failed at the upstream, by kind",
    ["kind"],
  );
  readonly #userRequests = this.counter(
    "gatehouse_user_requests_total",
    "Decided requests by user, for a bounded number of users",
    ["user", "decision"],
  );
  readonly #inFlight = this.gauge(
    "gatehouse_requests_in_flight",
    "Requests that are served just now",
    "sum",
  );
  readonly #durations = this.histogram(
    "gatehouse_request_duration_seconds",
    "Time from the head of a request to the end of its answer",
    ["route"],
  );
  readonly #gatewayTimes = this.histogram(
    "gatehouse_request_gateway_seconds",
    "Time from the head of a request until it goes up, or is answered without that",
    ["route"],
  );
  readonly #isAccessGood = this.gauge(
    "gatehouse_access_file_last_reload_successful",
    "1 if the access file on disk is the one in force, 0 if the last good one is kept",
    "min",
  );
  readonly #accessVersion = new Gauge({
    name: "gatehouse_access_file_info",
    help: "1 for the version of the access file in force",
    labelNames: ["version"],
    aggregator: "max",
    registers: [this.registry],
  });
  readonly #areKeysGood = this.gauge(
    "gatehouse_signing_keys_last_reload_successful",
    "1 if the signing keys on disk are those in force, 0 if the last good ones are kept",
    "min",
  );
  readonly #named = new Set<string>();

  constructor() {
    super();
    const { registry } = this;
    collectDefaultMetrics({ register: registry });
    // promtool refuses these gauges, whose names have the suffix of counters. The same numbers by
    // type remain.
    for (const kind of ["handles", "requests", "resources"]) {
      registry.removeSingleMetric(`nodejs_active_${kind}_total`);
    }
    // Exported at 0 too, so that Prometheus sees the first failure as a rise.
    for (const kind of upstreamFailures) this.#failures.inc({ kind }, 0);
  }

  /** Call `end` when the request completes. */
  begin(): void {
    this.#inFlight.inc();
  }

  end(): void {
    this.#inFlight.dec();
  }

  /** Counts a completed request, even if `begin` was never called for it. */
  request(request: CountedRequest): void {
    const { route, status, reason, decision, operation, user } = request;
    this.#requests.inc({ route, status, reason });
    this.#durations.observe({ route }, request.seconds);
    this.#gatewayTimes.observe({ route }, request.gatewaySeconds);
    if (reason.startsWith(FAILURE_PREFIX)) {
      this.#failures.inc({ kind: reason.slice(FAILURE_PREFIX.length) });
    }
    if (decision === undefined) return;
    const isAllowed = decision === "allow";
    if (isAllowed && reason === "allowed" && status >= 500) this.upstreamError();
    this.#decisions.inc({ operation, decision, reason: isAllowed ? "allowed" : reason });
    if (user !== undefined) this.#userRequests.inc({ user: this.#nameOf(user), decision });
  }

  #nameOf(user: string): string {
    if (this.#named.has(user)) return user;
    if (this.#named.size >= NAMED_USERS) return OTHER_USERS;
    this.#named.add(user);
    return user;
  }

  /** Counts a 5xx of the upstream, also one that is reported in the response to a tool call. */
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

  showCertificate() {
    const prefix = "gatehouse_tls_certificate";
    const until = "When the TLS certificate in force expires, in seconds since 1970";
    const expiry = this.gauge(`${prefix}_expiry_seconds`, until, "min");
    const inForce =
      "1 if the TLS certificate on disk is the one in force, 0 if the last good one is kept";
    const isGood = this.gauge(`${prefix}_last_reload_successful`, inForce, "min");
    return {
      onLoad({ expires }: { readonly expires: Date }): void {
        expiry.set(expires.getTime() / 1000);
        isGood.set(1);
      },
      onFailure: (): void => isGood.set(0),
    };
  }

  /** @param isUp whether the upstream, or the engine's database, answers */
  showUpstream(metrics: UpstreamMetrics, isUp: () => Promise<boolean>): void {
    const prefix = "gatehouse_upstream";
    const busy = "Connections to the upstream in use";
    this.gauge(`${prefix}_connections_busy`, busy, "sum", () => metrics.busy);
    const waiting = "Queries that wait for a connection";
    this.gauge(`${prefix}_queries_waiting`, waiting, "sum", () => metrics.waiting);
    const waits = "Time that queries waited for a connection, of those that had to";
    this.showDurations(`${prefix}_wait_seconds`, waits, metrics.waits);
    const answers = "Time from sending a query up to the head of its answer";
    this.showDurations(`${prefix}_answer_seconds`, answers, metrics.answers);
    const cut = "Answers of the upstream that broke off after they had begun";
    const total = this.counter(`${prefix}_answers_cut_total`, cut, [], () => {
      total.reset();
      total.inc(metrics.cut);
    });
    const up = "1 if the database answers, else 0";
    this.gauge(`${prefix}_up`, up, "min", async () => Number(await isUp()));
  }

  /** Shows metrics per target. A single target has only the upstream's own metrics. */
  showTargets(targets: readonly TargetMetrics[]): void {
    if (targets.length < 2) return;
    const prefix = "gatehouse_upstream_target";
    const common = { labelNames: ["target"], registers: [this.registry] };
    new Gauge({
      name: `${prefix}_up`,
      help: "1 if the target of the upstream can be used, else 0",
      ...common,
      aggregator: "min",
      async collect() {
        const set = async (target: TargetMetrics) =>
          this.set({ target: target.name }, Number(await target.isUp()));
        await Promise.all(targets.map(set));
      },
    });
    new Gauge({
      name: `${prefix}_connections_busy`,
      help: "Connections to the target of the upstream in use",
      ...common,
      collect() {
        for (const { name, busy } of targets) this.set({ target: name }, busy);
      },
    });
  }

  showTokens(metrics: TokenMetrics): void {
    const help = "Login tokens that were shown, by what it took to tell whether they are good";
    const total = this.counter("gatehouse_token_checks_total", help, ["result"], () => {
      const { remembered, verified, refused } = metrics;
      total.reset();
      for (const [result, count] of Object.entries({ remembered, verified, refused })) {
        total.inc({ result }, count);
      }
    });
  }

  showStore(metrics: StoreMetrics): void {
    const prefix = "gatehouse_store";
    const age =
      "Seconds since the replica sent its last good poll; it decides nothing past store.max_staleness";
    this.gauge(`${prefix}_lease_age_seconds`, age, "max", () => metrics.leaseAge / 1000);
    const applied = "Version of the store that the replica has applied";
    this.gauge(`${prefix}_applied_version`, applied, "min", () => metrics.appliedVersion);
    const lag = "Versions that the store was ahead of the replica at its last poll";
    this.gauge(`${prefix}_lag_versions`, lag, "max", () => metrics.lag);
    const reached = "1 if the last poll of the store was a good one, else 0";
    this.gauge(`${prefix}_reached`, reached, "min", () => Number(metrics.isReached));
  }

  /** Shows issuers after their first fetch. */
  showIssuers(states: () => IssuerStates): void {
    new Gauge({
      name: "gatehouse_issuer_reachable",
      help: "1 if the last fetch of the external issuer's keys succeeded, else 0",
      labelNames: ["issuer"],
      aggregator: "min",
      registers: [this.registry],
      collect() {
        for (const [issuer, state] of Object.entries(states())) {
          if (state !== "unused") this.set({ issuer }, Number(state === "ok"));
        }
      },
    });
  }

  /** All processes see the same numbers, so the highest counts. */
  showApprovals(count: CountApprovals): void {
    let last: Readonly<typeof noApprovals> = noApprovals;
    // A failed read must not hide the other metrics or reset these to 0.
    const read = async () => {
      last = (await count().catch(() => undefined)) ?? last;
      return last;
    };
    const pending = "Approvals that wait to be decided";
    this.gauge("gatehouse_approvals_pending", pending, "max", async () => (await read()).pending);
    new Counter({
      name: "gatehouse_approvals_total",
      help: "Approvals by what became of them",
      labelNames: ["outcome"],
      aggregator: "max",
      registers: [this.registry],
      async collect() {
        const { pending: _, ...outcomes } = await read();
        this.reset();
        for (const [outcome, total] of Object.entries(outcomes)) this.inc({ outcome }, total);
      },
    });
  }

  listen(address: string): Promise<Server> {
    return serveMetrics(address, () => this.registry.metrics());
  }
}

/** Splits `host:port`. An IPv6 host is in brackets. */
function splitAddress(address: string): { host: string; port: number } {
  const at = address.lastIndexOf(":");
  return {
    host: address.slice(0, at).replace(/^\[|\]$/g, ""),
    port: Number(address.slice(at + 1)),
  };
}

/** Serves metrics on `host:port` in the Prometheus text format. */
export async function serveMetrics(
  address: string,
  metrics: () => Promise<string>,
): Promise<Server> {
  const server = http.createServer((request, response) => {
    if (request.url !== "/metrics" || request.method !== "GET") {
      response.writeHead(404).end();
      return;
    }
    metrics().then(
      (text) =>
        response.writeHead(200, { "content-type": Registry.PROMETHEUS_CONTENT_TYPE }).end(text),
      () => response.writeHead(500).end(),
    );
  });
  server.listen(splitAddress(address));
  await once(server, "listening");
  return server;
}

/** Must not fall when a process ends. */
const growing: ReadonlySet<string> = new Set(["counter", "histogram"]);

function add(all: readonly MetricValues[]): Registry {
  return AggregatorRegistry.aggregate([...all]);
}

/** Adds up the metrics of several processes, including processes that have ended. */
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
    const counted = last.filter(({ type }) => growing.has(String(type)));
    // Serialized, so that both are kept when two processes end at once.
    this.#retiring = this.#retiring.then(async () => {
      this.#past = await add([this.#past, counted]).getMetricsAsJSON();
    });
    return this.#retiring;
  }

  /** All metrics in the Prometheus text format. */
  async text(): Promise<string> {
    await this.#retiring;
    return add([...this.#latest.values(), this.#past]).metrics();
  }
}
