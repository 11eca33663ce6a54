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

/** Upper bounds in seconds, from a quick refusal to a slow query. */
const BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/** Records durations in seconds. `createMetrics` replaces `add`; until then it does nothing. */
export interface Durations {
  add(seconds: number): void;
}

function histogram(register: Registry, name: string, help: string, labelNames: string[] = []) {
  return new Histogram({ name, help, labelNames, buckets: BUCKETS, registers: [register] });
}

function showDurations(register: Registry, name: string, help: string, durations: Durations): void {
  const shown = histogram(register, name, help);
  durations.add = (seconds) => shown.observe(seconds);
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

function registerRequests(register: Registry) {
  const registers = [register];
  const requests = new Counter({
    name: "gatehouse_requests_total",
    help: "Requests answered, by route, status and reason",
    ...{ labelNames: ["route", "status", "reason"], registers },
  });
  const decisions = new Counter({
    name: "gatehouse_decisions_total",
    help: "Decisions on requests, by what was asked for and the rule that decided",
    ...{ labelNames: ["operation", "decision", "reason"], registers },
  });
  const failures = new Counter({
    name: "gatehouse_upstream_failures_total",
    help: "Requests that failed at the upstream, by kind",
    ...{ labelNames: ["kind"], registers },
  });
  // Exported at 0 too, so that Prometheus sees the first failure as a rise.
  for (const kind of upstreamFailures) failures.inc({ kind }, 0);
  const userRequests = new Counter({
    name: "gatehouse_user_requests_total",
    help: "Decided requests by user, for a bounded number of users",
    ...{ labelNames: ["user", "decision"], registers },
  });
  const inFlight = new Gauge({
    name: "gatehouse_requests_in_flight",
    help: "Requests that are served just now",
    registers,
  });
  const durations = histogram(
    register,
    "gatehouse_request_duration_seconds",
    "Time from the head of a request to the end of its answer",
    ["route"],
  );
  const gatewayTimes = histogram(
    register,
    "gatehouse_request_gateway_seconds",
    "Time from the head of a request until it goes up, or is answered without that",
    ["route"],
  );
  const named = new Set<string>();

  function nameOf(user: string): string {
    if (named.has(user)) return user;
    if (named.size >= NAMED_USERS) return OTHER_USERS;
    named.add(user);
    return user;
  }

  return {
    /** Call `end` when the request completes. */
    begin: (): void => inFlight.inc(),
    end: (): void => inFlight.dec(),
    /** Counts a completed request, even if `begin` was never called for it. */
    request(request: CountedRequest): void {
      const { route, status, reason, decision, operation, user } = request;
      requests.inc({ route, status, reason });
      durations.observe({ route }, request.seconds);
      gatewayTimes.observe({ route }, request.gatewaySeconds);
      if (reason.startsWith(FAILURE_PREFIX)) {
        failures.inc({ kind: reason.slice(FAILURE_PREFIX.length) });
      }
      if (decision === undefined) return;
      if (decision === "allow" && reason === "allowed" && status >= 500) {
        failures.inc({ kind: "error" });
      }
      decisions.inc({ operation, decision, reason: decision === "allow" ? "allowed" : reason });
      if (user !== undefined) userRequests.inc({ user: nameOf(user), decision });
    },
    /** Counts a 5xx of the upstream that is reported in the response to a tool call. */
    upstreamError: (): void => failures.inc({ kind: "error" }),
  };
}

interface CertificateMetrics {
  onLoad(certificate: { readonly expires: Date }): void;
  onFailure(): void;
}

/** A gauge for which the lowest value of several processes counts. */
function leastGauge(register: Registry, name: string, help: string): Gauge {
  return new Gauge({ name, help, aggregator: "min", registers: [register] });
}

function registerCertificate(register: Registry): CertificateMetrics {
  const prefix = "gatehouse_tls_certificate";
  const until = "When the TLS certificate in force expires, in seconds since 1970";
  const expiry = leastGauge(register, `${prefix}_expiry_seconds`, until);
  const inForce =
    "1 if the TLS certificate on disk is the one in force, 0 if the last good one is kept";
  const isGood = leastGauge(register, `${prefix}_last_reload_successful`, inForce);
  return {
    onLoad({ expires }) {
      expiry.set(expires.getTime() / 1000);
      isGood.set(1);
    },
    onFailure() {
      isGood.set(0);
    },
  };
}

export interface TargetMetrics {
  /** The name in the configuration. */
  readonly name: string;
  /** Connections with a query in flight. */
  readonly busy: number;
  /** True if queries are sent to it. */
  isUp(): Promise<boolean>;
}

/** Registers metrics per target. A single target has only the upstream's own metrics. */
function registerTargets(register: Registry, targets: readonly TargetMetrics[]): void {
  if (targets.length < 2) return;
  const prefix = "gatehouse_upstream_target";
  new Gauge({
    name: `${prefix}_up`,
    help: "1 if the target of the upstream can be used, else 0",
    labelNames: ["target"],
    aggregator: "min",
    registers: [register],
    async collect() {
      const set = async (target: TargetMetrics) =>
        this.set({ target: target.name }, Number(await target.isUp()));
      await Promise.all(targets.map(set));
    },
  });
  new Gauge({
    name: `${prefix}_connections_busy`,
    help: "Connections to the target of the upstream in use",
    labelNames: ["target"],
    registers: [register],
    collect() {
      for (const { name, busy } of targets) this.set({ target: name }, busy);
    },
  });
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

/** A counter that collects its value when it is read. */
function counter<Label extends string>(
  register: Registry,
  name: string,
  help: string,
  labelNames: Label[],
  collect: (counter: Counter<Label>) => void,
): void {
  new Counter({
    ...{ name, help, labelNames, registers: [register] },
    collect() {
      collect(this);
    },
  });
}

/**
 * A gauge that collects its value when it is read.
 *
 * @param aggregator how the values of several processes are combined
 */
function gauge(
  register: Registry,
  name: string,
  help: string,
  read: () => number | Promise<number>,
  aggregator: "sum" | "min" | "max" = "sum",
): void {
  new Gauge({
    ...{ name, help, aggregator, registers: [register] },
    async collect() {
      this.set(await read());
    },
  });
}

/** @param isUp whether the upstream, or the engine's database, answers */
function registerUpstream(
  register: Registry,
  metrics: UpstreamMetrics,
  isUp: () => Promise<boolean>,
): void {
  const prefix = "gatehouse_upstream";
  const busy = "Connections to the upstream in use";
  gauge(register, `${prefix}_connections_busy`, busy, () => metrics.busy);
  const waiting = "Queries that wait for a connection";
  gauge(register, `${prefix}_queries_waiting`, waiting, () => metrics.waiting);
  const waits = "Time that queries waited for a connection, of those that had to";
  showDurations(register, `${prefix}_wait_seconds`, waits, metrics.waits);
  const answers = "Time from sending a query up to the head of its answer";
  showDurations(register, `${prefix}_answer_seconds`, answers, metrics.answers);
  const cut = "Answers of the upstream that broke off after they had begun";
  counter(register, `${prefix}_answers_cut_total`, cut, [], (total) => {
    total.reset();
    total.inc(metrics.cut);
  });
  const up = "1 if the database answers, else 0";
  gauge(register, `${prefix}_up`, up, async () => Number(await isUp()), "min");
}

function registerHashing(register: Registry, metrics: HashMetrics): void {
  const running = "Logins that are being hashed for";
  gauge(register, "gatehouse_hashes_running", running, () => metrics.running);
  const waiting = "Logins that wait for their turn to hash";
  gauge(register, "gatehouse_hashes_waiting", waiting, () => metrics.waiting);
  const took = "Time that one password hash took";
  showDurations(register, "gatehouse_hash_seconds", took, metrics.times);
}

function registerTokens(register: Registry, metrics: TokenMetrics): void {
  const help = "Login tokens that were shown, by what it took to tell whether they are good";
  counter(register, "gatehouse_token_checks_total", help, ["result"], (total) => {
    const { remembered, verified, refused } = metrics;
    total.reset();
    for (const [result, count] of Object.entries({ remembered, verified, refused })) {
      total.inc({ result }, count);
    }
  });
}

/** The result of the last key fetch of each external issuer, by its prefix. */
export type IssuerStates = Readonly<Record<string, "ok" | "unreachable" | "unused">>;

/** Shows issuers after their first fetch. The worst state of several processes counts. */
function registerIssuers(register: Registry, states: () => IssuerStates): void {
  new Gauge({
    name: "gatehouse_issuer_reachable",
    help: "1 if the last fetch of the external issuer's keys succeeded, else 0",
    labelNames: ["issuer"],
    aggregator: "min",
    registers: [register],
    collect() {
      for (const [issuer, state] of Object.entries(states())) {
        if (state !== "unused") this.set({ issuer }, Number(state === "ok"));
      }
    },
  });
}

export interface StoreMetrics {
  /** Milliseconds since the last successful poll was sent. */
  readonly leaseAge: number;
  readonly appliedVersion: number;
  /** Versions by which this replica was behind the store at the last poll. */
  readonly lag: number;
  /** True if the last poll succeeded. */
  readonly isReached: boolean;
}

/** The worst value of several processes counts. */
function registerStore(register: Registry, metrics: StoreMetrics): void {
  const prefix = "gatehouse_store";
  const age =
    "Seconds since the replica sent its last good poll; it decides nothing past store.max_staleness";
  gauge(register, `${prefix}_lease_age_seconds`, age, () => metrics.leaseAge / 1000, "max");
  const applied = "Version of the store that the replica has applied";
  gauge(register, `${prefix}_applied_version`, applied, () => metrics.appliedVersion, "min");
  const lag = "Versions that the store was ahead of the replica at its last poll";
  gauge(register, `${prefix}_lag_versions`, lag, () => metrics.lag, "max");
  const reached = "1 if the last poll of the store was a good one, else 0";
  gauge(register, `${prefix}_reached`, reached, () => Number(metrics.isReached), "min");
}

export type MetricValues = Awaited<ReturnType<Registry["getMetricsAsJSON"]>>;

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

function registerReloads(register: Registry) {
  const help = "1 if the access file on disk is the one in force, 0 if the last good one is kept";
  const isGood = leastGauge(register, "gatehouse_access_file_last_reload_successful", help);
  const inForce = new Gauge({
    name: "gatehouse_access_file_info",
    help: "1 for the version of the access file in force",
    labelNames: ["version"],
    aggregator: "max",
    registers: [register],
  });
  return {
    reloaded(version: string): void {
      inForce.reset();
      inForce.set({ version }, 1);
      isGood.set(1);
    },
    reloadFailed: (): void => isGood.set(0),
  };
}

function registerKeys(register: Registry) {
  const help = "1 if the signing keys on disk are those in force, 0 if the last good ones are kept";
  const isGood = leastGauge(register, "gatehouse_signing_keys_last_reload_successful", help);
  return { keysReloaded: (value: boolean): void => isGood.set(value ? 1 : 0) };
}

/** Creates the metrics. They cost almost nothing until they are read. */
export function createMetrics() {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  // promtool refuses these gauges, whose names have the suffix of counters. The same numbers by
  // type remain.
  for (const kind of ["handles", "requests", "resources"]) {
    registry.removeSingleMetric(`nodejs_active_${kind}_total`);
  }
  return {
    ...registerRequests(registry),
    ...registerReloads(registry),
    ...registerKeys(registry),
    showCertificate: () => registerCertificate(registry),
    showUpstream: (metrics: UpstreamMetrics, isUp: () => Promise<boolean>): void =>
      registerUpstream(registry, metrics, isUp),
    showTargets: (targets: readonly TargetMetrics[]): void => registerTargets(registry, targets),
    showHashing: (metrics: HashMetrics): void => registerHashing(registry, metrics),
    showTokens: (metrics: TokenMetrics): void => registerTokens(registry, metrics),
    showStore: (metrics: StoreMetrics): void => registerStore(registry, metrics),
    showIssuers: (states: () => IssuerStates): void => registerIssuers(registry, states),
    showApprovals: (count: CountApprovals): void => registerApprovals(registry, count),
    listen: (address: string): Promise<Server> => serveMetrics(address, () => registry.metrics()),
    /** The current values, to be aggregated with those of other processes. */
    values: (): Promise<MetricValues> => registry.getMetricsAsJSON(),
  };
}

export type Metrics = ReturnType<typeof createMetrics>;

/** Metrics of a process that serves no requests but hashes passwords for those that do. */
export function createHashMetrics(metrics: HashMetrics): Pick<Metrics, "values"> {
  const registry = new Registry();
  registerHashing(registry, metrics);
  return { values: () => registry.getMetricsAsJSON() };
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

const noApprovals = { pending: 0, approved: 0, denied: 0, expired: 0, used: 0, void: 0 };

/** Ended approvals are counted since the beginning. */
type CountApprovals = () => Promise<Readonly<typeof noApprovals> | undefined>;

/** All processes see the same numbers, so the highest counts. */
function registerApprovals(register: Registry, count: CountApprovals): void {
  let last: Readonly<typeof noApprovals> = noApprovals;
  // A failed read must not hide the other metrics or reset these to 0.
  const read = async () => {
    last = (await count().catch(() => undefined)) ?? last;
    return last;
  };
  const pending = "Approvals that wait to be decided";
  const readPending = async () => (await read()).pending;
  gauge(register, "gatehouse_approvals_pending", pending, readPending, "max");
  new Counter({
    name: "gatehouse_approvals_total",
    help: "Approvals by what became of them",
    labelNames: ["outcome"],
    aggregator: "max",
    registers: [register],
    async collect() {
      const { pending: _, ...outcomes } = await read();
      this.reset();
      for (const [outcome, total] of Object.entries(outcomes)) this.inc({ outcome }, total);
    },
  });
}
