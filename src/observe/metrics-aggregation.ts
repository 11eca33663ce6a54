import { AggregatorRegistry, type Registry } from "prom-client";
import type { MetricValues } from "./metrics.ts";

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
