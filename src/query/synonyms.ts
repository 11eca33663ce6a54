/** What was probably meant where a query writes what other query languages say. */

import { suggestion } from "../suggestion.ts";

const comparisons: ReadonlyMap<string, string> = new Map([
  ["==", "="],
  ["===", "="],
  ["EQ", "="],
  ["IS", "="],
  ["<>", "!="],
  ["!==", "!="],
  ["≠", "!="],
  ["NE", "!="],
  ["NEQ", "!="],
  ["IS NOT", "!="],
  ["GT", ">"],
  ["LT", "<"],
  ["=>", ">="],
  ["≥", ">="],
  ["GTE", ">="],
  ["GE", ">="],
  ["=<", "<="],
  ["≤", "<="],
  ["LTE", "<="],
  ["LE", "<="],
  ["NOTIN", "NOT IN"],
  ["NIN", "NOT IN"],
]);

const fields: ReadonlyMap<string, string> = new Map([
  ["op", "cmp"],
  ["operator", "cmp"],
  ["table", "from"],
  ["from", "table"],
  ["primary", "primary_key"],
]);

/** The operator of `allowed` that means the same: one that is only spelled alike may mean the opposite. */
export function meantComparison(found: string, allowed: readonly string[]): string | undefined {
  const folded = found
    .slice(0, 64)
    .trim()
    .toUpperCase()
    .split(/[\s_]+/)
    .join(" ");
  const meant = comparisons.get(folded) ?? folded;
  return allowed.find((word) => word === meant);
}

/** The field of `allowed` that means the same, or is spelled alike. */
export function meantField(found: string, allowed: readonly string[]): string | undefined {
  const meant = fields.get(found.toLowerCase());
  return allowed.find((name) => name === meant) ?? suggestion(found, allowed);
}
