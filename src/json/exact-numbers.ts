/** Numbers of JSON that a double cannot hold. */

declare global {
  interface JSON {
    /** A value that `JSON.stringify` writes as this very text (ECMAScript's source text access). */
    rawJSON(text: string): object;
  }
}

/** For `JSON.parse`: reads whole numbers that a double cannot hold as bigint. */
export function keepDigits(
  _key: string,
  value: unknown,
  context?: { readonly source?: string },
): unknown {
  const source = context?.source ?? "";
  const isLarge = typeof value === "number" && !Number.isSafeInteger(value);
  return isLarge && /^-?\d+$/.test(source) ? BigInt(source) : value;
}

/**
 * For `JSON.parse`: has every number written again as it was spelled. One that a double cannot
 * hold, such as an integer of 64 bits, stays its own text.
 */
export function keepSpelling(
  _key: string,
  value: unknown,
  context?: { readonly source?: string },
): unknown {
  const source = context?.source;
  if (typeof value !== "number" || source === undefined || String(value) === source) return value;
  return JSON.rawJSON(source);
}
