import type { UpstreamMetrics } from "../observe/component-metrics.ts";
import { Times } from "../observe/time-histogram.ts";
import type { FairLimiter } from "./fair-limiter.ts";

/** What is counted on the queries' ways to the upstream, all of them together. */
export class QueryMetrics implements UpstreamMetrics {
  readonly waits = new Times();
  readonly answers = new Times();
  cut = 0;
  readonly #limiter: FairLimiter[] = [];

  /** Counts the limiter of one more way. */
  include(limiter: FairLimiter): void {
    this.#limiter.push(limiter);
  }

  get busy(): number {
    return this.#limiter.reduce((sum, { busy }) => sum + busy, 0);
  }

  get waiting(): number {
    return this.#limiter.reduce((sum, { waiting }) => sum + waiting, 0);
  }
}
