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

/** What is counted of a request that was answered. */
export interface CountedRequest {
  /** The route's pattern. */
  readonly route: string;
  readonly status: number;
  /** `allowed`, or the code of what refused it or went wrong. */
  readonly reason: string;
  /** Undefined if nothing was decided: on public routes, and where the gateway itself failed. */
  readonly decision: "allow" | "deny" | undefined;
  /** What was asked for: an operation's name, `Batch` if several, `none` if that was not known. */
  readonly operation: string;
  /** A user that has shown a good token. */
  readonly user: string | undefined;
  /** From the request's head to the end of its answer. */
  readonly seconds: number;
  /** From the request's head until it went up, or to the end if it did not. */
  readonly gatewaySeconds: number;
}

/**
 * Failures of the upstream: the codes of refusals, without what they have in common, and `error`
 * for an answer of its own with a status of 5xx.
 */
const upstreamFailures = ["unreachable", "broken", "timeout", "overloaded", "error"] as const;
const FAILURE_PREFIX = "upstream_";

/** The metrics of requests: plain numbers while nobody reads them. */
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

  /** A request is served. */
  begin(): void {
    this.#inFlight++;
  }

  /** A request that was served is over. */
  end(): void {
    this.#inFlight--;
  }

  /** Counts a request that is over, also one that was never served. */
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

  /** Counts an answer of the upstream with a status of 5xx that is not the request's own answer. */
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
      // Also those that have not happened, so that the first one is seen as a rise.
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

/** How often the same labels came. */
interface Labelled {
  readonly first: string;
  readonly second: string | number;
  readonly third: string;
  count: number;
}

/** Counts by the values of three labels, few each; a counter learns of them when it is read. */
class CountsByLabels<Name extends string> {
  readonly #names: Names<Name>;
  readonly #counts = new Map<string, Labelled>();
  /** What was counted last: most of what comes is the same again. */
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

  /** Adds what was counted to `counter`, and begins anew. */
  moveTo(counter: Counter<Name>): void {
    for (const { first, second, third, count } of this.#counts.values()) {
      counter.labels(first, String(second), third).inc(count);
    }
    this.#counts.clear();
    this.#last = undefined;
  }

  /** The names of the labels, in the order of their values. */
  get names(): Name[] {
    return [...this.#names];
  }
}

/** Users that are counted by name; all others are counted together. */
export const NAMED_USERS = 200;
/** Those others. No user has that name: a username has no parenthesis. */
export const OTHER_USERS = "(other)";

/** Decisions on the requests of a user. */
interface Decided {
  allow: number;
  deny: number;
}

/** Counts the requests of users: by name of those that came first, up to a bound. */
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

  /** Adds what was counted to `counter`, and begins anew with the same names. */
  moveTo(counter: Counter<"user" | "decision">): void {
    for (const [user, count] of this.#counts) {
      for (const decision of ["allow", "deny"] as const) {
        if (count[decision] > 0) counter.inc({ user, decision }, count[decision]);
        count[decision] = 0;
      }
    }
  }
}

/** The metrics of one process at one moment. */
export type MetricValues = Awaited<ReturnType<Registry["getMetricsAsJSON"]>>;

/** Splits `host:port`, the host perhaps in brackets. */
function splitAddress(address: string): { host: string; port: number } {
  const at = address.lastIndexOf(":");
  return {
    host: address.slice(0, at).replace(/^\[|\]$/g, ""),
    port: Number(address.slice(at + 1)),
  };
}

/** Serves metrics on `host:port`, in the form that Prometheus reads. */
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

/** Notes what became of the access file. */
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

/** Notes whether the signing keys on disk are those in force. */
function registerKeys(register: Registry) {
  const help = "1 if the signing keys on disk are those in force, 0 if the last good ones are kept";
  const isGood = leastGauge(register, "gatehouse_signing_keys_last_reload_successful", help);
  return { keysReloaded: (value: boolean): void => isGood.set(value ? 1 : 0) };
}

/** Makes the metrics; they cost next to nothing while nobody reads them. */
export function createMetrics() {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  // Gauges with the suffix of counters, which promtool refuses. The same by type remain.
  for (const kind of ["handles", "requests", "resources"]) {
    registry.removeSingleMetric(`nodejs_active_${kind}_total`);
  }
  const requests = new RequestMetrics(registry);
  return {
    ...registerReloads(registry),
    ...registerKeys(registry),
    /** A request is served; to be followed by `end`. */
    begin: (): void => requests.begin(),
    end: (): void => requests.end(),
    /** Counts a request that was answered. */
    request: (request: CountedRequest): void => requests.count(request),
    /** Counts a 5xx of the upstream that the answer to a tool's call tells of. */
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
    /** Serves the metrics on `host:port`. */
    listen: (address: string): Promise<Server> => serveMetrics(address, () => registry.metrics()),
    /** The metrics as they are now, to be added to those of other processes. */
    values: (): Promise<MetricValues> => registry.getMetricsAsJSON(),
  };
}

/** The gateway's metrics, as Prometheus reads them. */
export type Metrics = ReturnType<typeof createMetrics>;

/** The metrics of a process that answers no request, but hashes for those that do. */
export function createHashMetrics(metrics: HashMetrics): Pick<Metrics, "values"> {
  const registry = new Registry();
  registerHashing(registry, metrics);
  return { values: () => registry.getMetricsAsJSON() };
}

/** Kinds of metrics that only grow, and must not fall when a process is gone. */
const growing: ReadonlySet<string> = new Set(["counter", "histogram"]);

function add(all: readonly MetricValues[]): Registry {
  return AggregatorRegistry.aggregate([...all]);
}

/** The metrics of several processes as one: counts are added up, those of processes past included. */
export class MetricsAggregation {
  /** The latest of each process. */
  readonly #latest = new Map<number, MetricValues>();
  #past: MetricValues = [];
  #retiring: Promise<void> = Promise.resolve();

  /** Notes the metrics of a process as they are now. */
  note(process: number, metrics: MetricValues): void {
    this.#latest.set(process, metrics);
  }

  /** Keeps what a process that is gone had counted when it was last looked at. */
  retire(process: number): Promise<void> {
    const last = this.#latest.get(process) ?? [];
    this.#latest.delete(process);
    const counted = last.filter(({ type }) => growing.has(String(type)));
    // One after the other, so that of two that end at one moment both are kept.
    this.#retiring = this.#retiring.then(async () => {
      this.#past = await add([this.#past, counted]).getMetricsAsJSON();
    });
    return this.#retiring;
  }

  /** All of it in the form that Prometheus reads. */
  async text(): Promise<string> {
    await this.#retiring;
    return add([...this.#latest.values(), this.#past]).metrics();
  }
}

const noApprovals = { pending: 0, approved: 0, denied: 0, expired: 0, used: 0, void: 0 };

/** How many approvals there are; of those that are over, all that there ever were. */
type CountApprovals = () => Promise<Readonly<typeof noApprovals> | undefined>;

/** All processes know the same numbers, so that of several the highest counts. */
function registerApprovals(register: Registry, count: CountApprovals): void {
  let last: Readonly<typeof noApprovals> = noApprovals;
  // Those that cannot be read must not take all other metrics away, or start anew at 0.
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
