/** Reads what Prometheus reads: the text format of version 0.0.4. */
import { ask } from "../kit/client.ts";

/** One metric, under all its labels. */
export interface ServedMetric {
  readonly type: string;
  /** The labels that its samples carry, without those that every histogram has. */
  readonly labels: Set<string>;
  /** The lines of its samples. */
  readonly samples: string[];
}

function labelsOf(sample: string): string[] {
  const [, inside = ""] = /^\w+\{(.*)\} \S+$/.exec(sample) ?? [];
  return Array.from(inside.matchAll(/(\w+)="(?:[^"\\]|\\.)*"/g), ([, name = ""]) => name);
}

/** Sorts the lines of a page of metrics by the metric's name. */
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

/** The page of metrics at `host:port`. */
export async function fetchMetrics(address: string): Promise<string> {
  const { status, body } = await ask(`http://${address}/metrics`);
  if (status !== 200) throw new Error(`metrics: ${status}`);
  return body.toString();
}
