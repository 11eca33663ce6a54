import { setImmediate as nextTurn } from "node:timers/promises";

/** The longest that a query keeps the event loop to itself, in milliseconds. */
const slice = 10;

/** Steps between two looks at the clock. */
const stepsPerLook = 64;

/**
 * Divides long work on the synchronous database into slices, so that other clients are heard
 * meanwhile and work for a client that is gone ends.
 */
export class Pace {
  readonly #signal: AbortSignal;
  #steps = 0;
  #sliceStart = performance.now();

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  /** True after a step that used the slice up: then `rest` is due. */
  step(): boolean {
    this.#steps += 1;
    return this.#steps % stepsPerLook === 0 && performance.now() - this.#sliceStart > slice;
  }

  /** Lets the event loop turn; throws the signal's reason if the client is gone. */
  async rest(): Promise<void> {
    await nextTurn();
    this.#signal.throwIfAborted();
    this.#sliceStart = performance.now();
  }
}
