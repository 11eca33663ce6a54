/** How long it counts that a place tells, or does not tell, what it holds, in milliseconds. */
const FRESH_MS = 5000;

/** What a look has found: whether the place tells; undefined: it cannot be said just now. */
export type Found = boolean | undefined;

/**
 * Whether a place tells what it holds. It is asked when somebody wants to know, and again after a
 * few seconds, so that one that came up later, or was replaced, is noticed.
 */
export class SchemaOffer<Caller> {
  readonly #look: (caller: Caller, signal: AbortSignal) => Promise<Found>;
  #known: Found;
  /** `performance.now()` until which that counts. */
  #freshUntil = Number.NEGATIVE_INFINITY;

  /** @param look throws a Refusal for a place that is out of reach */
  constructor(look: (caller: Caller, signal: AbortSignal) => Promise<Found>) {
    this.#look = look;
  }

  /**
   * True if the place tells; while it is out of reach, what was so before, and undefined if
   * nothing was. Never rejects: whoever asks for more learns why it is out of reach.
   */
  async isMade(caller: Caller, signal: AbortSignal): Promise<Found> {
    if (performance.now() < this.#freshUntil) return this.#known;
    const found = await this.#look(caller, signal).catch(() => undefined);
    if (found !== undefined) {
      this.#known = found;
      this.#freshUntil = performance.now() + FRESH_MS;
    }
    return this.#known;
  }
}
