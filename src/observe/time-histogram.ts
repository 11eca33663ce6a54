import { Histogram, type Registry } from "prom-client";
import { bounds, Times, type TimesByLabel } from "./times.ts";

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
