import { once } from "node:events";
import type { Server } from "node:http";
import { AggregatorRegistry, Counter, collectDefaultMetrics, Gauge, Registry } from "prom-client";
import { http } from "../node-http.ts";
import {
  counter,
  gauge,
  type HashMetrics,
  type IssuerStates,
  leastGauge,
  registerCertificate,
  registerHashing,
  registerIssuers,
  registerStore,
  registerTargets,
  registerTokens,
  registerUpstream,
  type StoreMetrics,
  type TargetMetrics,
  TimesHistogram,
  type TokenMetrics,
  type UpstreamMetrics,
} from "./component-metrics.ts";
import { TimesByLabel } from "./times.ts";

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

/** Metrics of requests, kept as plain numbers until they are read. */
class RequestMetrics {
  readonly #requests = new CountsByLabels("route", "status", "reason");
  readonly #decisions = new CountsByLabels("operation", "decision", "reason");
  readonly #failures = new Map<string, number>();
  readonly #users = new UserCounts();
  readonly #durations = new TimesByLabel();
  readonly #gatewayTimes = new TimesByLabel();
  #inFlight = 0;

  constructor(register: Registry) {
    this.#registerCounts(register);
    const duration = "Time from the head of a request to the end of its answer";
    const name = "gatehouse_request_duration_seconds";
    new TimesHistogram(register, name, duration, this.#durations, "route");
    const gatewayTime =
      "Time from the head of a request until it goes up, or is answered without that";
    const gatewayName = "gatehouse_request_gateway_seconds";
    new TimesHistogram(register, gatewayName, gatewayTime, this.#gatewayTimes, "route");
  }

  begin(): void {
    this.#inFlight++;
  }

  end(): void {
    this.#inFlight--;
  }

  /** Counts a completed request, even if `begin` was never called for it. */
  count(request: CountedRequest): void {
    const { route, status, reason, decision, operation, user } = request;
    this.#requests.add(route, status, reason);
    this.#durations.add(route, request.seconds);
    this.#gatewayTimes.add(route, request.gatewaySeconds);
    if (reason.startsWith(FAILURE_PREFIX)) this.#fail(reason.slice(FAILURE_PREFIX.length));
    if (decision === undefined) return;
    if (decision === "allow" && reason === "allowed" && status >= 500) this.#fail("error");
    this.#decisions.add(operation, decision, decision === "allow" ? "allowed" : reason);
    if (user !== undefined) this.#users.add(user, decision);
  }

  /** Counts a 5xx response of the upstream that is not the request's own response. */
  upstreamError(): void {
    this.#fail("error");
  }

  #fail(kind: string): void {
    this.#failures.set(kind, (this.#failures.get(kind) ?? 0) + 1);
  }

  #registerCounts(register: Registry): void {
    const requests = "Requests answered, by route, status and reason";
    counter(register, "gatehouse_requests_total", requests, this.#requests.names, (total) =>
      this.#requests.moveTo(total),
    );
    const decisions = "Decisions on requests, by what was asked for and the rule that decided";
    counter(register, "gatehouse_decisions_total", decisions, this.#decisions.names, (total) =>
      this.#decisions.moveTo(total),
    );
    const failures = "Requests that failed at the upstream, by kind";
    counter(register, "gatehouse_upstream_failures_total", failures, ["kind"], (total) => {
      // Exported at 0 too, so that Prometheus sees the first failure as a rise.
      for (const kind of upstreamFailures) total.inc({ kind }, this.#failures.get(kind) ?? 0);
      this.#failures.clear();
    });
    const users = "Decided requests by user, for a bounded number of users";
    counter(register, "gatehouse_user_requests_total", users, ["user", "decision"], (total) =>
      this.#users.moveTo(total),
    );
    const inFlight = "Requests that are served just now";
    gauge(register, "gatehouse_requests_in_flight", inFlight, () => this.#inFlight);
  }
}

type Names<Name> = readonly [Name, Name, Name];

interface Labelled {
  readonly first: string;
  readonly second: string | number;
  readonly third: string;
  count: number;
}

/** Counts by the values of three labels. The counter is updated when it is read. */
class CountsByLabels<Name extends string> {
  readonly #names: Names<Name>;
  readonly #counts = new Map<string, Labelled>();
  /** Most requests have the same labels as the one before. */
  #last: Labelled | undefined;

  constructor(...names: Names<Name>) {
    this.#names = names;
  }

  add(first: string, second: string | number, third: string): void {
    const last = this.#last;
    const isSame = last?.first === first && last.second === second && last.third === third;
    this.#last = isSame ? last : this.#find(first, second, third);
    this.#last.count++;
  }

  #find(first: string, second: string | number, third: string): Labelled {
    const key = `${first}\n${second}\n${third}`;
    let found = this.#counts.get(key);
    if (found === undefined) {
      found = { first, second, third, count: 0 };
      this.#counts.set(key, found);
    }
    return found;
  }

  /** Adds the counts to `counter` and resets them. */
  moveTo(counter: Counter<Name>): void {
    for (const { first, second, third, count } of this.#counts.values()) {
      counter.labels(first, String(second), third).inc(count);
    }
    this.#counts.clear();
    this.#last = undefined;
  }

  get names(): Name[] {
    return [...this.#names];
  }
}

/** Users counted by name. All others share `OTHER_USERS`. */
export const NAMED_USERS = 200;
/** Cannot be a username, because usernames contain no parentheses. */
export const OTHER_USERS = "(other)";

interface Decided {
  allow: number;
  deny: number;
}

/** Counts requests per user, by name for the first `NAMED_USERS`. */
class UserCounts {
  readonly #counts = new Map<string, Decided>();

  add(user: string, decision: "allow" | "deny"): void {
    const count = this.#counts.get(user) ?? this.#open(user);
    count[decision]++;
  }

  #open(user: string): Decided {
    const name = this.#counts.size < NAMED_USERS ? user : OTHER_USERS;
    const known = this.#counts.get(name);
    if (known !== undefined) return known;
    const count = { allow: 0, deny: 0 };
    this.#counts.set(name, count);
    return count;
  }

  /** Adds the counts to `counter` and resets them, but keeps the names. */
  moveTo(counter: Counter<"user" | "decision">): void {
    for (const [user, count] of this.#counts) {
      for (const decision of ["allow", "deny"] as const) {
        if (count[decision] > 0) counter.inc({ user, decision }, count[decision]);
        count[decision] = 0;
      }
    }
  }
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
  const requests = new RequestMetrics(registry);
  return {
    ...registerReloads(registry),
    ...registerKeys(registry),
    /** Call `end` when the request completes. */
    begin: (): void => requests.begin(),
    end: (): void => requests.end(),
    request: (request: CountedRequest): void => requests.count(request),
    /** Counts a 5xx of the upstream that is reported in the response to a tool call. */
    upstreamError: (): void => requests.upstreamError(),
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
