/** The kinds of values that keys take; each knows in words what it allows. */
import { z } from "zod";

/** The longest timeout or window, in seconds: a day. */
const longestSeconds = 86_400;

/**
 * A string that `rule` accepts; `allowed` says in words which ones those are. An expression stands
 * in the JSON Schema of the file too, a function cannot.
 */
export function text(allowed: string, rule: RegExp | ((text: string) => boolean)): z.ZodString {
  const string = rule instanceof RegExp ? z.string().regex(rule) : z.string().refine(rule);
  return string.meta({ title: allowed });
}

/** A whole number with both its ends. */
export function wholeNumber(lowest: number, highest: number): z.ZodInt {
  return z.int().min(lowest).max(highest);
}

/** A whole number of seconds, up to a day. */
export function seconds(): z.ZodInt {
  return wholeNumber(1, longestSeconds);
}

/** A path of a file, absolute or relative to the configuration file. */
export function filePath(): z.ZodString {
  return text("a path", (path) => path !== "" && !path.includes("\0"));
}

/**
 * Reports a rule between keys, in the words that stand after `allowed:`. A rule of one key alone
 * needs no words here: they come with its kind.
 */
export function refuse(context: z.core.$RefinementCtx, path: PropertyKey[], allowed: string): void {
  context.addIssue({ code: "custom", path, params: { allowed } });
}
