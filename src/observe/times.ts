/** Upper bounds in seconds, from a quick refusal to a slow query. */
export const bounds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/** A histogram of durations that costs a few additions per observation. */
export class Times {
  /** One count per bucket. The last bucket has no upper bound. */
  readonly #counts = new Float64Array(bounds.length + 1);
  #sum = 0;

  add(seconds: number): void {
    let at = 0;
    while (seconds > (bounds[at] ?? Number.POSITIVE_INFINITY)) at++;
    this.#counts[at] = (this.#counts[at] ?? 0) + 1;
    this.#sum += seconds;
  }

  /** Seconds. */
  get sum(): number {
    return this.#sum;
  }

  /** Cumulative counts per bound, with the total as `+Inf`. */
  cumulated(): [bound: number | "+Inf", count: number][] {
    let count = 0;
    return Array.from(this.#counts, (counted, at) => {
      count += counted;
      return [bounds[at] ?? "+Inf", count];
    });
  }
}

export class TimesByLabel extends Map<string, Times> {
  add(value: string, seconds: number): void {
    const times = this.get(value);
    if (times !== undefined) times.add(seconds);
    else this.#open(value).add(seconds);
  }

  #open(value: string): Times {
    const times = new Times();
    this.set(value, times);
    return times;
  }
}
