/** One that may be chosen. */
export interface Candidate {
  /** False while it is ejected. */
  readonly isLive: boolean;
  /** How much it carries just now. */
  readonly load: number;
  /** `performance.now()` of its last failure; lower is longer ago. */
  readonly failedAt: number;
}

/** Load balancing: chooses among candidates that serve the same. */
export class LoadBalancer<C extends Candidate> {
  readonly #candidates: readonly C[];
  /** Where the search begins, so that equals have their turns. */
  #next = 0;

  constructor(candidates: readonly C[]) {
    this.#candidates = candidates;
  }

  /** The live one with the least load, equals in turn; undefined if none is live. */
  leastBusy(except: ReadonlySet<C>): C | undefined {
    const count = this.#candidates.length;
    let chosen: C | undefined;
    let chosenAt = 0;
    for (let step = 0; step < count; step++) {
      const at = (this.#next + step) % count;
      const candidate = this.#candidates[at];
      if (candidate === undefined || !candidate.isLive || except.has(candidate)) continue;
      if (chosen !== undefined && candidate.load >= chosen.load) continue;
      chosen = candidate;
      chosenAt = at;
    }
    if (chosen !== undefined) this.#next = chosenAt + 1;
    return chosen;
  }

  /** The one whose failure is longest ago, live or not; undefined if all are excepted. */
  leastRecentlyFailed(except: ReadonlySet<C>): C | undefined {
    let chosen: C | undefined;
    for (const candidate of this.#candidates) {
      if (except.has(candidate)) continue;
      if (chosen === undefined || candidate.failedAt < chosen.failedAt) chosen = candidate;
    }
    return chosen;
  }

  /** The first live one, in the order in which they were given. */
  first(): C | undefined {
    return this.#candidates.find(({ isLive }) => isLive);
  }
}
