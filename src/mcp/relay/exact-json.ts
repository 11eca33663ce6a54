/** What `JSON` has of ECMAScript's "JSON.parse source text access", which the library types lack. */
declare global {
  interface JSON {
    parse(
      text: string,
      reviver: (key: string, value: unknown, context: { readonly source?: string }) => unknown,
    ): unknown;
    /** A value that `JSON.stringify` writes as this very text. */
    rawJSON(text: string): object;
  }
}

/**
 * Parses JSON so that writing it again keeps every number as it was spelled: one that a double
 * cannot hold, such as an integer of 64 bits, stays its own text.
 *
 * @throws SyntaxError
 */
export function parseExactly(text: string): unknown {
  return JSON.parse(text, (_key, value, { source }) => {
    if (typeof value !== "number" || source === undefined || String(value) === source) return value;
    return JSON.rawJSON(source);
  });
}
