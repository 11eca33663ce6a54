/** Limits of a judged query, which the engine counts or compares while it runs. */
import type { Literal } from "./tree.ts";

/**
 * A limit that some elements of a query share. `touched` makes a Preview report the digest of all
 * affected rows (`tell`), or is the digest that a single change must match.
 */
export interface CountedLimit {
  /** Positions in a Batch, or 0 for a single query; all if absent. */
  readonly elements?: readonly number[];
  readonly changes?: number;
  /** Of `returning` and Preview. */
  readonly rows?: number;
  /** The only columns that a Preview shows. */
  readonly columns?: readonly string[];
  readonly touched?: string;
}

export const rowComparisons = ["=", "!=", ">", ">=", "<", "<=", "IN"] as const;

/** A condition of a row filter. */
export interface RowCondition {
  readonly column: string;
  readonly cmp: (typeof rowComparisons)[number];
  /** A list for `IN`. */
  readonly value: NonNullable<Literal> | readonly NonNullable<Literal>[];
}

/** Columns that comparisons in the query distinguish by bytes. */
export interface BytewiseColumns {
  readonly database: string;
  readonly table: string;
  readonly bytewise: readonly string[];
  /** The row filter that inserted and updated rows must satisfy. */
  readonly written?: readonly RowCondition[];
}

export type QueryLimit = CountedLimit | BytewiseColumns;
