/** Reads what Prometheus reads: the text format of version 0.0.4. */
import { ask } from "../kit/client.ts";

/** One figure, under all its labels. */
export interface ServedFigure {
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

/** Sorts the lines of a page of figures by the figure's name. */
export function readExposition(text: string): Map<string, ServedFigure> {
  const figures = new Map<string, ServedFigure>();
  let current: ServedFigure | undefined;
  for (const line of text.split("\n")) {
    const [, name, type] = /^# TYPE (\w+) (\w+)$/.exec(line) ?? [];
    if (name !== undefined && type !== undefined) {
      current = { type, labels: new Set(), samples: [] };
      figures.set(name, current);
    } else if (line !== "" && !line.startsWith("#") && current !== undefined) {
      current.samples.push(line);
      for (const label of labelsOf(line)) if (label !== "le") current.labels.add(label);
    }
  }
  return figures;
}

/** The page of figures at `host:port`. */
export async function fetchMetrics(address: string): Promise<string> {
  const { status, body } = await ask(`http://${address}/metrics`);
  if (status !== 200) throw new Error(`figures: ${status}`);
  return body.toString();
}
