import { once } from "node:events";
import { createServer, type Server } from "node:http";
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import { RequestCounts, type RequestLabels } from "./request-figures.ts";

/** The figures of one process at one moment. */
export type Figures = Awaited<ReturnType<Registry["getMetricsAsJSON"]>>;

/** The gateway's figures, as Prometheus reads them. */
export interface Metrics {
  /** Counts an answered request; `seconds` from its first byte to its last. */
  request(labels: RequestLabels, seconds: number): void;
  reloaded(version: string): void;
  reloadFailed(): void;
  /** Serves the figures on `host:port`. */
  listen(address: string): Promise<Server>;
  /** The figures as they are now, to be added to those of other processes. */
  figures(): Promise<Figures>;
}

/** Latency buckets in seconds, from a quick refusal to a slow query. */
const buckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/** Splits `host:port`, the host perhaps in brackets. */
function splitAddress(address: string): { host: string; port: number } {
  const at = address.lastIndexOf(":");
  return {
    host: address.slice(0, at).replace(/^\[|\]$/g, ""),
    port: Number(address.slice(at + 1)),
  };
}

/** Serves figures on `host:port`, in the form that Prometheus reads. */
export async function serveFigures(
  address: string,
  figures: () => Promise<string>,
): Promise<Server> {
  const server = createServer((request, response) => {
    if (request.url !== "/metrics" || request.method !== "GET") {
      response.writeHead(404).end();
      return;
    }
    figures().then(
      (text) =>
        response.writeHead(200, { "content-type": Registry.PROMETHEUS_CONTENT_TYPE }).end(text),
      () => response.writeHead(500).end(),
    );
  });
  server.listen(splitAddress(address));
  await once(server, "listening");
  return server;
}

/** Makes the figures; they cost next to nothing while nobody reads them. */
export function createMetrics(): Metrics {
  const registry = new Registry();
  const registers = [registry];
  collectDefaultMetrics({ register: registry });
  const counts = new RequestCounts();
  new Counter({
    name: "gatehouse_requests_total",
    help: "Requests answered, by route, status and reason",
    labelNames: ["route", "status", "reason"],
    registers,
    collect() {
      counts.moveTo(this);
    },
  });
  const duration = new Histogram({
    name: "gatehouse_request_duration_seconds",
    help: "Time from the first byte of a request to the last of its answer",
    labelNames: ["route"],
    buckets,
    registers,
  });
  const reloadGood = new Gauge({
    name: "gatehouse_access_file_last_reload_successful",
    help: "1 if the access file on disk is the one in force, 0 if the last good one is kept",
    aggregator: "min",
    registers,
  });
  const accessVersion = new Gauge({
    name: "gatehouse_access_file_info",
    help: "1 for the version of the access file in force",
    labelNames: ["version"],
    aggregator: "max",
    registers,
  });
  return {
    request(labels, seconds) {
      counts.add(labels);
      duration.observe({ route: labels.route }, seconds);
    },
    reloaded(version) {
      accessVersion.reset();
      accessVersion.set({ version }, 1);
      reloadGood.set(1);
    },
    reloadFailed() {
      reloadGood.set(0);
    },
    listen: (address) => serveFigures(address, () => registry.metrics()),
    figures: () => registry.getMetricsAsJSON(),
  };
}
