export interface Summary {
  readonly median: number;
  readonly least: number;
  readonly most: number;
}

export function rangeText({ least, most }: Summary, digits = 0): string {
  return `${least.toFixed(digits)} to ${most.toFixed(digits)}`;
}

/** The value below which `share` (0 to 1) of the sample lies. */
export function quantile(sample: readonly number[], share: number): number {
  const sorted = sample.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
}

export function summarize(values: readonly number[]): Summary {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length / 2;
  const low = sorted[Math.ceil(middle) - 1] ?? Number.NaN;
  const high = sorted[Math.floor(middle)] ?? Number.NaN;
  return {
    median: (low + high) / 2,
    least: sorted[0] ?? Number.NaN,
    most: sorted.at(-1) ?? Number.NaN,
  };
}
