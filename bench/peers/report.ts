import type { Latency } from "../rig/open-loop.ts";
import { barPlot } from "../rig/plot.ts";
import { rangeText } from "../rig/statistics.ts";
import { markdownTable } from "../rig/table.ts";
import type { Cost } from "./measure.ts";

/** A table of costs, each relative to the first system's. */
export function costTable(costs: readonly Cost[]): string {
  const own = costs[0]?.cpu.median ?? Number.NaN;
  const rows = costs.map(({ name, checks, cpu, rate }) => [
    name,
    checks,
    cpu.median.toFixed(1),
    rangeText(cpu, 1),
    (own / cpu.median).toFixed(2),
    rate.median.toFixed(0),
  ]);
  const head = [
    "",
    "checks",
    "µs of CPU a request",
    "range",
    "Gatehouse takes",
    "requests a second",
  ];
  return markdownTable(head, rows);
}

export function costPlot(title: string, costs: readonly Cost[]): string {
  const unit = "µs of user and system time a request: median and range of the rounds";
  const bars = costs.map(({ name, cpu }) => ({ name, value: cpu, isOurs: name === "Gatehouse" }));
  return barPlot(title, unit, bars);
}

export function latencyTable(latencies: ReadonlyMap<string, Latency>): string {
  const rows = [...latencies].map(([name, { p50, p99, p999, failed }]) => [
    name,
    p50.toFixed(2),
    p99.toFixed(2),
    p999.toFixed(2),
    String(failed),
  ]);
  return markdownTable(["", "p50", "p99", "p99.9", "failed"], rows);
}
