import type { UpstreamFigures } from "../observe/source-figures.ts";
import { Times } from "../observe/time-figures.ts";
import type { Slots } from "./slots.ts";

/** What is counted on the queries' way to the upstream. */
export class QueryFigures implements UpstreamFigures {
  readonly waits = new Times();
  readonly answers = new Times();
  cut = 0;
  readonly #slots: Slots;

  constructor(slots: Slots) {
    this.#slots = slots;
  }

  get busy(): number {
    return this.#slots.busy;
  }

  get waiting(): number {
    return this.#slots.waiting;
  }
}
