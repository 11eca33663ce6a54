/** `JSON` with ECMAScript's "JSON.parse source text access", which the library types lack. */
interface ExactJson extends JSON {
  /** A value that `JSON.stringify` writes as this very text. */
  rawJSON(text: string): object;
}

function isExact(json: JSON): json is ExactJson {
  return "rawJSON" in json;
}

function requireExact(json: JSON): ExactJson {
  if (isExact(json)) return json;
  throw new Error("this version of Node would round numbers");
}

const exact = requireExact(JSON);

/** Called for each value from the inside out, with the text that a primitive was spelled as. */
function keepSpelling(_key: string, value: unknown, context?: { readonly source?: string }) {
  const source = context?.source;
  if (typeof value !== "number" || source === undefined || String(value) === source) return value;
  return exact.rawJSON(source);
}

/**
 * Parses JSON so that writing it again keeps every number as it was spelled: one that a double
 * cannot hold, such as an integer of 64 bits, stays its own text.
 *
 * @throws SyntaxError
 */
export function parseExactly(text: string): unknown {
  return exact.parse(text, keepSpelling);
}
