import type { UpstreamFigures } from "../observe/component-metrics.ts";
import { Times } from "../observe/histogram.ts";
import type { Slots } from "./fair-limiter.ts";

/** What is counted on the queries' ways to the upstream, all of them together. */
export class QueryFigures implements UpstreamFigures {
  readonly waits = new Times();
  readonly answers = new Times();
  cut = 0;
  readonly #slots: Slots[] = [];

  /** Counts the slots of one more way. */
  include(slots: Slots): void {
    this.#slots.push(slots);
  }

  get busy(): number {
    return this.#slots.reduce((sum, { busy }) => sum + busy, 0);
  }

  get waiting(): number {
    return this.#slots.reduce((sum, { waiting }) => sum + waiting, 0);
  }
}
