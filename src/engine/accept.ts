import type { RowForm } from "./row-output.ts";

/** The media types that rows are offered in; of those that are wanted alike the first is taken. */
const offers: readonly { readonly form: RowForm; readonly type: string }[] = [
  { form: "json", type: "application/json" },
  { form: "ndjson", type: "application/x-ndjson" },
  { form: "csv", type: "text/csv" },
];

/** A media range of an `Accept` header. */
interface Range {
  readonly type: string;
  /** From 0, not at all, to 1. */
  readonly quality: number;
}

/**
 * The form that an `Accept` header wants most (RFC 9110, section 12.5.1); of several that are wanted
 * alike one that is named before one that a wildcard stands for. JSON if it wants none of them.
 */
export function formOf(accept: string | undefined): RowForm {
  if (accept === undefined) return "json";
  const ranges = accept.split(",").flatMap(rangeOf);
  let best: { form: RowForm; quality: number; precision: number } | undefined;
  for (const { form, type } of offers) {
    const found = matchOf(type, ranges);
    if (found === undefined || found.quality === 0) continue;
    const isBetter =
      best === undefined ||
      found.quality > best.quality ||
      (found.quality === best.quality && found.precision > best.precision);
    if (isBetter) best = { form, ...found };
  }
  return best?.form ?? "json";
}

/** What the most precise range says of a media type. */
function matchOf(
  type: string,
  ranges: readonly Range[],
): { readonly quality: number; readonly precision: number } | undefined {
  const patterns = ["*/*", `${type.slice(0, type.indexOf("/"))}/*`, type];
  for (const precision of [2, 1, 0]) {
    const range = ranges.find((one) => one.type === patterns[precision]);
    if (range !== undefined) return { quality: range.quality, precision };
  }
  return undefined;
}

/** None for what is no media range, and for one with a parameter that no offer has. */
function rangeOf(text: string): Range[] {
  const [type = "", ...parameters] = text.split(";").map((part) => part.trim().toLowerCase());
  let quality = 1;
  for (const parameter of parameters) {
    const weight = /^q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)$/.exec(parameter)?.[1];
    if (weight !== undefined) quality = Number(weight);
    else if (!/^(charset="?utf-8"?|header=present)$/.test(parameter)) return [];
  }
  return [{ type, quality }];
}
