/** Parses the Prometheus text format, version 0.0.4. */
import { ask } from "../kit/client.ts";
import { freePort } from "../kit/free-port.ts";

export interface ServedMetric {
  readonly type: string;
  /** Labels of its samples, without `le`. */
  readonly labels: Set<string>;
  readonly samples: string[];
}

function labelsOf(sample: string): string[] {
  const [, inside = ""] = /^\w+\{(.*)\} \S+$/.exec(sample) ?? [];
  return Array.from(inside.matchAll(/(\w+)="(?:[^"\\]|\\.)*"/g), ([, name = ""]) => name);
}

/** The metrics of a page by name. */
export function readExposition(text: string): Map<string, ServedMetric> {
  const metrics = new Map<string, ServedMetric>();
  let current: ServedMetric | undefined;
  for (const line of text.split("\n")) {
    const [, name, type] = /^# TYPE (\w+) (\w+)$/.exec(line) ?? [];
    if (name !== undefined && type !== undefined) {
      current = { type, labels: new Set(), samples: [] };
      metrics.set(name, current);
    } else if (line !== "" && !line.startsWith("#") && current !== undefined) {
      current.samples.push(line);
      for (const label of labelsOf(line)) if (label !== "le") current.labels.add(label);
    }
  }
  return metrics;
}

export async function fetchMetrics(address: string): Promise<string> {
  const { status, body } = await ask(`http://${address}/metrics`);
  if (status !== 200) throw new Error(`metrics: ${status}`);
  return body.toString();
}

/** The value of a sample by its name and labels; NaN if the page does not have it. */
export function valueIn(page: string, sample: string): number {
  const line = page.split("\n").find((line) => line.startsWith(`${sample} `));
  return Number(line?.slice(sample.length));
}

/** The metrics of a gateway that is started with the section. */
export async function reserveMetrics() {
  const address = `127.0.0.1:${await freePort()}`;
  const read = () => fetchMetrics(address);
  return {
    section: `[metrics]\nlisten = "${address}"\n`,
    read,
    value: async (sample: string) => valueIn(await read(), sample),
  };
}
