/** Coverage of a running process from V8, for a guided fuzzer. */

import { readFileSync } from "node:fs";
import { type Profiler, Session } from "node:inspector";
import { fileURLToPath } from "node:url";

/** A range of source text that has not run, by offsets. */
interface Stretch {
  readonly start: number;
  readonly end: number;
}

/** Finds cases that run code that no earlier case has run. */
export class CoverageGuide {
  readonly #session = new Session();
  readonly #directory: string;
  /** Blocks that ran, with the largest count in one case, rounded up to a power of two. */
  readonly #reached = new Set<string>();
  /** Ranges of each called function that have not run yet. */
  readonly #missing = new Map<string, readonly Stretch[]>();

  /** @param directory part of the URL of modules to cover */
  constructor(directory: string) {
    this.#directory = directory;
    this.#session.connect();
    this.#session.post("Profiler.enable");
    this.#session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });
  }

  get size(): number {
    return this.#reached.size;
  }

  /** True if something new was reached since the last call. */
  isNews(): boolean {
    const before = this.#reached.size;
    this.#session.post("Profiler.takePreciseCoverage", (error, coverage) => {
      if (error !== null) throw error;
      for (const { url, functions } of coverage.result) {
        if (!url.includes(this.#directory)) continue;
        for (const { ranges } of functions) this.#note(url, ranges);
      }
    });
    return this.#reached.size > before;
  }

  #note(url: string, ranges: readonly Profiler.CoverageRange[]): void {
    const [whole] = ranges;
    if (whole === undefined || whole.count === 0) return;
    for (const { startOffset, endOffset, count } of ranges) {
      if (count > 0) {
        this.#reached.add(`${url} ${startOffset} ${endOffset} ${Math.ceil(Math.log2(count))}`);
      }
    }
    const idle = ranges
      .filter(({ count }) => count === 0)
      .map(({ startOffset, endOffset }) => ({ start: startOffset, end: endOffset }));
    const name = `${url} ${whole.startOffset}`;
    this.#missing.set(name, common(this.#missing.get(name) ?? idle, idle));
  }

  /** Lines of called functions that were never reached. */
  unreached(): string[] {
    const lines = [...this.#missing].flatMap(([name, stretches]) => {
      const [url = ""] = name.split(" ");
      const text = readFileSync(fileURLToPath(url), "utf8");
      const file = url.slice(url.indexOf(this.#directory) + 1);
      return stretches.map(({ start }) => `${file}:${text.slice(0, start).split("\n").length}`);
    });
    return [...new Set(lines)].sort();
  }
}

/** The intersection of two lists of ranges. */
function common(one: readonly Stretch[], other: readonly Stretch[]): Stretch[] {
  return one
    .flatMap((left) =>
      other.map((right) => ({
        start: Math.max(left.start, right.start),
        end: Math.min(left.end, right.end),
      })),
    )
    .filter(({ start, end }) => start < end);
}
