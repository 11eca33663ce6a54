import { once } from "node:events";
import type { Server } from "node:http";
import { AggregatorRegistry, Counter, collectDefaultMetrics, Gauge, Registry } from "prom-client";
import { http } from "../node-http.ts";
import {
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
  type TokenMetrics,
  type UpstreamMetrics,
} from "./component-metrics.ts";
import { type CountedRequest, RequestMetrics } from "./request-metrics.ts";

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
