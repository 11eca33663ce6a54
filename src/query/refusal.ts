import { ClientError } from "../client-error.ts";
import { jsonFaults } from "../json/fault.ts";

/** Every refusal code, with its meaning. */
export const queryRefusals = {
  ...jsonFaults,
  not_an_object: "The body is JSON, but not an object.",
  no_operation: "An object that should name an operation is empty.",
  unknown_operation: "The operation is neither of the grammar nor configured.",
  several_operations: "An object that should name one operation names more.",
  not_in_batch: "The operation cannot be an element of a Batch.",
  batch_size: "A Batch has no elements or more than 1000.",
  missing_field: "A field that the operation needs is left out.",
  unknown_field: "A field is not one of those that the grammar has in this place.",
  invalid_name: "A database or table name is not a plain name.",
  invalid_column:
    "A column name breaks the rules for columns, is repeated, or is of a foreign table.",
  duplicate_column:
    'A column is named twice where each stands once, or an "as" of an aggregate is taken.',
  invalid_type: "A column type is not a word with an optional length or precision.",
} as const satisfies Record<string, string>;
export type QueryRefusalCode = keyof typeof queryRefusals;

export interface BodyLocation {
  /**
   * Such as `Batch[2].Insert.values[0]`, or empty for the body itself. Never points into a cell.
   */
  readonly path: string;
  /** Byte offset from the start of the body. */
  readonly offset: number;
}

/**
 * A query body that breaks the grammar. The message is safe for the client and contains no cell
 * value.
 */
export class QueryRefused extends ClientError {
  readonly status = 400;
  readonly code: QueryRefusalCode;
  /** What is wrong and what is allowed, without the place. */
  readonly problem: string;
  readonly location: BodyLocation;

  constructor(code: QueryRefusalCode, problem: string, location: BodyLocation) {
    super(`${location.path || "query body"}, byte ${location.offset}: ${problem}`);
    this.code = code;
    this.problem = problem;
    this.location = location;
  }
}
