import { once } from "node:events";
import type { Server } from "node:http";
import { AggregatorRegistry, Counter, collectDefaultMetrics, Gauge, Registry } from "prom-client";
import { http } from "../node-http.ts";
import {
  type CertificateMetrics,
  type HashMetrics,
  leastGauge,
  registerCertificate,
  registerHashing,
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

/** The gateway's metrics, as Prometheus reads them. */
export interface Metrics {
  /** A request is served; to be followed by `end`. */
  begin(): void;
  end(): void;
  /** Counts a request that was answered. */
  request(request: CountedRequest): void;
  /** Counts a 5xx of the upstream that the answer to a tool's call tells of. */
  upstreamError(): void;
  reloaded(version: string): void;
  reloadFailed(): void;
  /** Shows the certificate of TLS from now on, as what it returns is told. */
  showCertificate(): CertificateMetrics;
  /** Notes whether the signing keys on disk are those in force. */
  keysReloaded(isGood: boolean): void;
  /** Shows what these tell from now on. @param isUp finds out whether the upstream is there */
  showUpstream(metrics: UpstreamMetrics, isUp: () => Promise<boolean>): void;
  /** Shows each of several targets. */
  showTargets(targets: readonly TargetMetrics[]): void;
  showHashing(metrics: HashMetrics): void;
  showTokens(metrics: TokenMetrics): void;
  /** Shows how well this replica knows what it shares with others. */
  showStore(metrics: StoreMetrics): void;
  /** Shows how many approvals there are. */
  showApprovals(count: () => Promise<ApprovalMetrics | undefined>): void;
  /** Serves the metrics on `host:port`. */
  listen(address: string): Promise<Server>;
  /** The metrics as they are now, to be added to those of other processes. */
  values(): Promise<MetricValues>;
}

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
function registerReloads(register: Registry): Pick<Metrics, "reloaded" | "reloadFailed"> {
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
    reloaded(version) {
      inForce.reset();
      inForce.set({ version }, 1);
      isGood.set(1);
    },
    reloadFailed: () => isGood.set(0),
  };
}

/** Notes what became of the signing keys. */
function registerKeys(register: Registry): Pick<Metrics, "keysReloaded"> {
  const help = "1 if the signing keys on disk are those in force, 0 if the last good ones are kept";
  const isGood = leastGauge(register, "gatehouse_signing_keys_last_reload_successful", help);
  return { keysReloaded: (value) => isGood.set(value ? 1 : 0) };
}

/** Makes the metrics; they cost next to nothing while nobody reads them. */
export function createMetrics(): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const requests = new RequestMetrics(registry);
  return {
    ...registerReloads(registry),
    ...registerKeys(registry),
    begin: () => requests.begin(),
    end: () => requests.end(),
    request: (request) => requests.count(request),
    upstreamError: () => requests.upstreamError(),
    showCertificate: () => registerCertificate(registry),
    showUpstream: (metrics, isUp) => registerUpstream(registry, metrics, isUp),
    showTargets: (targets) => registerTargets(registry, targets),
    showHashing: (metrics) => registerHashing(registry, metrics),
    showTokens: (metrics) => registerTokens(registry, metrics),
    showStore: (metrics) => registerStore(registry, metrics),
    showApprovals: (count) => registerApprovals(registry, count),
    listen: (address) => serveMetrics(address, () => registry.metrics()),
    values: () => registry.getMetricsAsJSON(),
  };
}

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

/** How many approvals there are; of those that are over, all that there ever were. */
interface ApprovalMetrics {
  readonly pending: number;
  readonly approved: number;
  readonly denied: number;
  readonly expired: number;
  readonly used: number;
  readonly void: number;
}

/** All processes know the same numbers, so that of several the highest counts. */
function registerApprovals(
  register: Registry,
  count: () => Promise<ApprovalMetrics | undefined>,
): void {
  let last: ApprovalMetrics = { pending: 0, approved: 0, denied: 0, expired: 0, used: 0, void: 0 };
  // Those that cannot be read must not take all other metrics away, or start anew at 0.
  const read = async () => {
    last = (await count().catch(() => undefined)) ?? last;
    return last;
  };
  new Gauge({
    name: "gatehouse_approvals_pending",
    help: "Approvals that wait to be decided",
    aggregator: "max",
    registers: [register],
    async collect() {
      this.set((await read()).pending);
    },
  });
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
