export const jsonFaults = {
  invalid_utf8: "The body is not valid UTF-8.",
  byte_order_mark: "The body begins with a byte-order mark.",
  invalid_json: "The body is not valid JSON (RFC 8259).",
  lone_surrogate: "A string escapes one half of a surrogate pair without the other.",
  nesting_too_deep: "Arrays and objects are nested more than 64 deep.",
  trailing_data: "Something follows the end of the query object.",
  duplicate_key: "A key is given twice in one object.",
  invalid_value: "A value has the right type but is not allowed here.",
  wrong_type: "A value has a type that the grammar does not allow here.",
} as const satisfies Record<string, string>;
type JsonFaultCode = keyof typeof jsonFaults;

/** Faults of bytes that are not JSON at all (RFC 8259). */
const syntaxFaults: ReadonlySet<JsonFaultCode> = new Set<JsonFaultCode>([
  "invalid_utf8",
  "byte_order_mark",
  "invalid_json",
  "lone_surrogate",
]);

/** Bytes that are not JSON, or JSON that two parsers could read differently. */
export class JsonFault extends Error {
  override readonly name = "JsonFault";
  readonly code: JsonFaultCode;
  /** Without the place. Never contains a value. */
  readonly problem: string;
  /** In bytes from the start of the body. */
  readonly offset: number;

  constructor(code: JsonFaultCode, problem: string, offset: number) {
    super(`byte ${offset}: ${problem}`);
    this.code = code;
    this.problem = problem;
    this.offset = offset;
  }

  get isSyntax(): boolean {
    return syntaxFaults.has(this.code);
  }
}

const LONGEST_QUOTED_NAME = 64;

/** A name from a body for use in a message: JSON-escaped and cut to 64 characters. */
export function quoteName(name: string): string {
  // A character has at most two UTF-16 units. The slice avoids spreading a huge name as a whole.
  const characters = [...name.slice(0, 2 * LONGEST_QUOTED_NAME + 2)];
  const cut = characters.length > LONGEST_QUOTED_NAME;
  const shown = characters.slice(0, LONGEST_QUOTED_NAME).join("");
  const quoted = JSON.stringify(shown).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, escapeCharacter);
  return cut ? `${quoted}...` : quoted;
}

// A terminal or log may interpret line separators, C1 controls and direction marks, which JSON
// leaves unescaped.
function escapeCharacter(character: string): string {
  return character
    .split("")
    .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`)
    .join("");
}
