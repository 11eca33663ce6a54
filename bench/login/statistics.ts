import { quantile } from "../rig/statistics.ts";

export function median(sample: readonly number[]): number {
  return quantile(sample, 0.5);
}

/** Two-sided tail of the normal distribution (Abramowitz and Stegun, 7.1.26; error under 2e-7). */
function twoSided(z: number): number {
  const x = Math.abs(z) / Math.SQRT2;
  const t = 1 / (1 + 0.3275911 * x);
  const series = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];
  const sum = series.reduce((sum, factor) => (sum + factor) * t, 0);
  return sum * Math.exp(-x * x);
}

/**
 * The Mann-Whitney U test with the normal approximation: the probability that two samples of the same
 * distribution differ in rank this much. Ranks, because login times are not normally distributed and
 * one stall would distort a mean.
 */
export function mannWhitney(one: readonly number[], other: readonly number[]): number {
  const all = [
    ...one.map((value) => ({ value, isOne: true })),
    ...other.map((value) => ({ value, isOne: false })),
  ].sort((a, b) => a.value - b.value);
  // Ties are ignored, since times in fractions of a microsecond are rarely equal.
  const ranks = all.reduce((sum, { isOne }, at) => sum + (isOne ? at + 1 : 0), 0);
  const u = ranks - (one.length * (one.length + 1)) / 2;
  const mean = (one.length * other.length) / 2;
  const deviation = Math.sqrt((mean * (one.length + other.length + 1)) / 6);
  return twoSided((u - mean) / deviation);
}
