/** A concurrency limiter: slots for a limited number of tasks; who finds none waits in turn. */
export class ConcurrencyLimiter {
  #free: number;
  readonly #waiting = new Set<() => void>();

  constructor(count: number) {
    this.#free = count;
  }

  /** Does the work in a slot. @throws the reason of `signal` if that is aborted while it waits */
  async hold<Result>(signal: AbortSignal, work: () => Promise<Result>): Promise<Result> {
    const turn = this.take(signal);
    if (turn !== undefined) await turn;
    try {
      return await work();
    } finally {
      this.giveBack();
    }
  }

  /**
   * Takes a slot, which is given back once the work in it is done; undefined if there is one at once.
   * @throws as `hold` does
   */
  take(signal: AbortSignal): Promise<void> | undefined {
    signal.throwIfAborted();
    if (this.#free === 0) return this.#wait(signal);
    this.#free -= 1;
    return undefined;
  }

  async #wait(signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const leave = (): void => {
      this.#waiting.delete(resolve);
      reject(signal.reason);
    };
    this.#waiting.add(resolve);
    signal.addEventListener("abort", leave);
    try {
      await promise;
    } finally {
      signal.removeEventListener("abort", leave);
    }
  }

  /** Gives a slot to who waits first. */
  giveBack(): void {
    const [next] = this.#waiting;
    if (next === undefined) {
      this.#free += 1;
      return;
    }
    this.#waiting.delete(next);
    next();
  }
}
