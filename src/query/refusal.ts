/** Why a query body is refused: stable codes, and the error that carries one. */

/** Every code of a refused query body, with what it means. */
export const queryRefusals = {
  invalid_utf8: "The body is not valid UTF-8.",
  byte_order_mark: "The body begins with a byte-order mark.",
  invalid_json: "The body is not JSON as RFC 8259 has it.",
  lone_surrogate: "A string escapes one half of a surrogate pair without the other.",
  nesting_too_deep: "Arrays and objects are nested more than 64 deep.",
  trailing_data: "Something follows the end of the query object.",
  not_an_object: "The body is JSON, but not an object.",
  no_operation: "An object that should name an operation is empty.",
  unknown_operation: "The operation is neither of the grammar nor configured.",
  several_operations: "An object that should name one operation names more.",
  not_in_batch: "The operation cannot be an element of a Batch.",
  batch_size: "A Batch has no elements or more than 1000.",
  duplicate_key: "A key is given twice in one object.",
  missing_field: "A field that the operation needs is left out.",
  unknown_field: "A field is not one of those that the grammar has in this place.",
  wrong_type: "A value is of a type that the grammar does not have in this place.",
  invalid_name: "A database or table name is not a plain name.",
  invalid_column:
    "A column name breaks the rules for columns, is repeated, or is of a foreign table.",
  invalid_type: "A column type is not a word with an optional length or precision.",
  invalid_value: "A value is of the right type, but not one of those allowed in this place.",
} as const satisfies Record<string, string>;
export type QueryRefusalCode = keyof typeof queryRefusals;

/** A place in a query body. */
export interface BodyLocation {
  /** Such as `Batch[2].Insert.values[0]`; empty for the body itself. Never reaches into a cell. */
  readonly path: string;
  /** Byte offset from the start of the body. */
  readonly offset: number;
}

/** A query body that breaks the grammar; the message is fit for the client and tells no cell's value. */
export class QueryRefused extends Error {
  override readonly name = "QueryRefused";
  readonly code: QueryRefusalCode;
  /** What is wrong, and what is allowed, without the place. */
  readonly problem: string;
  readonly location: BodyLocation;

  constructor(code: QueryRefusalCode, problem: string, location: BodyLocation) {
    super(`${location.path || "query body"}, byte ${location.offset}: ${problem}`);
    this.code = code;
    this.problem = problem;
    this.location = location;
  }
}

const longestQuotedName = 64;

/** A name out of a body for use in a message: JSON-escaped and cut to 64 characters. */
export function quoteName(name: string): string {
  // A character takes at most two UTF-16 units, so a huge name is never spread as a whole.
  const characters = [...name.slice(0, 2 * longestQuotedName + 2)];
  const cut = characters.length > longestQuotedName;
  const shown = characters.slice(0, longestQuotedName).join("");
  const quoted = JSON.stringify(shown).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, escapeCharacter);
  return cut ? `${quoted}...` : quoted;
}

// JSON leaves line separators, C1 controls and direction marks as they are; a terminal or log may not.
function escapeCharacter(character: string): string {
  return character
    .split("")
    .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`)
    .join("");
}
