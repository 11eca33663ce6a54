import { ClientError } from "../base/client-error.ts";
import { jsonFaults } from "../json/fault.ts";

/** Every refusal code, with its meaning. */
export const queryRefusals = {
  ...jsonFaults,
  escaped_key:
    "The caller's rights are limited, and a key is written with an escaped letter, digit or _, which some databases do not read.",
  not_an_object: "The body is JSON, but not an object.",
  no_operation: "An object that should name an operation is empty.",
  unknown_operation: "The operation is not in the grammar and not configured.",
  several_operations: "An object that should name one operation names several.",
  not_in_batch: "The operation cannot be an element of a Batch.",
  batch_size: "A Batch has no elements or more than 1000, or more than 20 in a Preview.",
  missing_field: "A required field is missing.",
  unknown_field: "The grammar does not allow this field here.",
  invalid_name: "A database or table name is not a plain name.",
  invalid_column: "A column name is invalid or repeated, or belongs to another table.",
  duplicate_column:
    'A column is named twice where each is allowed once, or an "as" of compute or aggregate is taken.',
  query_too_complex:
    "The operation has more than 50,000 parts, or its rows name more than 4,096 columns.",
  invalid_type: "A column type is not a word with an optional length or precision.",
} as const satisfies Record<string, string>;
export type QueryRefusalCode = keyof typeof queryRefusals;

export interface BodyLocation {
  /** Such as `Batch[2].Insert.values[0]`. Empty for the body itself. Never leads into a cell. */
  readonly path: string;
  /** In bytes. */
  readonly offset: number;
  /** The field that is missing there. */
  readonly missing?: string;
}

/** A query body that breaks the grammar. The message contains no cell value. */
export class QueryRefused extends ClientError {
  readonly status = 400;
  readonly code: QueryRefusalCode;
  /** The error and what is allowed, without the place. */
  readonly problem: string;
  readonly location: BodyLocation;

  constructor(code: QueryRefusalCode, problem: string, location: BodyLocation) {
    super(`${location.path || "query body"}, byte ${location.offset}: ${problem}`);
    this.code = code;
    this.problem = problem;
    this.location = location;
  }
}
