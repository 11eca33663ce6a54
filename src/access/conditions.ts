/** What a query's `where` demands of every row: the terms of its top-level `and`, or itself. */

import type { CellValue, Condition } from "../query/operation-types.ts";
import type { Literal } from "./grant.ts";

/** A comparison of one column. */
export type Term = Extract<Condition, { readonly column: string }>;

/** The columns of a table as its operation may write them. */
export interface ColumnSpelling {
  readonly table: string;
  /** True in a join, where a column is a table's only if it says so. */
  readonly isQualified: boolean;
}

/** The comparisons that every row has to fulfil. */
export function termsOf(where: Condition | null | undefined): readonly Term[] {
  if (where === null || where === undefined) return [];
  const terms = "and" in where ? where.and : [where];
  return terms.filter((term): term is Term => "column" in term);
}

/** True if a column, as it is written, is this one of the table. */
export function isColumn(
  written: string,
  column: string,
  { table, isQualified }: ColumnSpelling,
): boolean {
  return written === `${table}.${column}` || (!isQualified && written === column);
}

/** True for a whole number, exact as it came. */
export function isWhole(value: CellValue | readonly Literal[]): value is number | bigint {
  return typeof value === "bigint" || Number.isSafeInteger(value);
}

/** True for the same JSON type and characters; whole numbers go by value. */
export function areEqual(one: Literal, other: CellValue): boolean {
  if (isWhole(one)) return isWhole(other) && BigInt(one) === BigInt(other);
  return one === other;
}

/**
 * How many values a `where` leaves to a column by `=` or `IN`, of text and whole numbers; undefined
 * if it leaves it free.
 */
export function pinnedValues(
  where: Condition | null | undefined,
  column: string,
  spelling: ColumnSpelling,
): number | undefined {
  const counts = termsOf(where).flatMap(({ column: written, cmp, value }) => {
    const values = cmp === "=" ? [value] : cmp === "IN" && Array.isArray(value) ? value : undefined;
    const isPin =
      isColumn(written, column, spelling) &&
      values?.every((one) => typeof one === "string" || isWhole(one));
    return isPin && values !== undefined ? [values.length] : [];
  });
  return counts.length === 0 ? undefined : Math.min(...counts);
}
