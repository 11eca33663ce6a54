import { Histogram, type Registry } from "prom-client";

/** Upper bounds in seconds, from a quick refusal to a slow query. */
const bounds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/** How often something took how long: a few additions each, by whoever measures it. */
export class Times {
  /** How many fell below each bound but not below the one before; the last have none above them. */
  readonly #counts = new Float64Array(bounds.length + 1);
  #sum = 0;

  add(seconds: number): void {
    let at = 0;
    while (seconds > (bounds[at] ?? Number.POSITIVE_INFINITY)) at++;
    this.#counts[at] = (this.#counts[at] ?? 0) + 1;
    this.#sum += seconds;
  }

  /** Seconds, all together. */
  get sum(): number {
    return this.#sum;
  }

  /** How many took at most as long as each bound in turn, and then all of them. */
  cumulated(): [bound: number | "+Inf", count: number][] {
    let count = 0;
    return Array.from(this.#counts, (counted, at) => {
      count += counted;
      return [bounds[at] ?? "+Inf", count];
    });
  }
}

/** Times by the value of one label. */
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

/**
 * Times as Prometheus reads them. The histogram of the library costs as much for each observation
 * as all the rest that is noted of a request, so this one is only ever read.
 */
export class TimesHistogram extends Histogram<string> {
  readonly #names: { readonly name: string; readonly help: string };
  readonly #times: () => Iterable<[labels: Readonly<Record<string, string>>, times: Times]>;

  /** @param label the name that tells the times apart, if they are by label */
  constructor(
    register: Registry,
    name: string,
    help: string,
    times: Times | TimesByLabel,
    label = "",
  ) {
    super({ name, help, buckets: bounds, registers: [register] });
    this.#names = { name, help };
    this.#times = () =>
      times instanceof Times
        ? [[{}, times]]
        : Array.from(times, ([value, each]) => [{ [label]: value }, each]);
  }

  /** What each way of reading a histogram comes to in the library; a test holds it to that. */
  async getForPromString() {
    const { name, help } = this.#names;
    const values = Array.from(this.#times(), ([sharedLabels, times]) => {
      const counts = times.cumulated();
      const [, all = 0] = counts.at(-1) ?? [];
      const buckets = counts.map(([le, value]) => ({ suffix: "bucket", labels: { le }, value }));
      const totals = [
        { suffix: "sum", labels: {}, value: times.sum },
        { suffix: "count", labels: {}, value: all },
      ];
      return [...buckets, ...totals].map(({ suffix, labels, value }) => ({
        ...{ metricName: `${name}_${suffix}`, labels, sharedLabels, value },
      }));
    });
    return { name, help, type: "histogram", aggregator: "sum", values: values.flat() };
  }
}
