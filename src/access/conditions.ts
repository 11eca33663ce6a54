import type { CellValue, Condition } from "../query/operation-types.ts";
import type { AttributeValue, Literal } from "./grant.ts";

/** Attributes of users: what row filters refer to, and the values that both may have. */

/** What attributes are called, as a regular expression without its ends. */
export const attributeName = "[A-Za-z_][A-Za-z0-9_-]{0,63}";
/** Text that stands for an attribute. */
export const attributeReference = new RegExp(`^@${attributeName}$`);
const wholeName = new RegExp(`^(?!username$)${attributeName}$`);
/** Characters of a text that a filter compares with, or an attribute holds, at the most. */
const LONGEST_TEXT = 1024;

/** True for a whole number, exact as it came. */
export function isWhole(value: unknown): value is number | bigint {
  return typeof value === "bigint" || Number.isSafeInteger(value);
}

/** True for a value that filters compare with: text, a whole number, true or false. */
export function isLiteral(value: unknown): value is Literal {
  return (
    isWhole(value) ||
    typeof value === "boolean" ||
    (typeof value === "string" && value.length <= LONGEST_TEXT && value.isWellFormed())
  );
}

/** Reads a user's attributes; undefined if they are none. */
export function readAttributes(value: unknown): Map<string, AttributeValue> | undefined {
  if (typeof value !== "object" || value === null || value instanceof Date) return undefined;
  const isValue = (one: unknown): one is AttributeValue =>
    isLiteral(one) ||
    (Array.isArray(one) &&
      one.every(isLiteral) &&
      new Set(one.map((each) => (isWhole(each) ? "number" : typeof each))).size <= 1);
  const attributes = new Map<string, AttributeValue>();
  for (const [name, one] of Object.entries(value)) {
    if (!wholeName.test(name) || !isValue(one)) return undefined;
    attributes.set(name, one);
  }
  return attributes;
}

/** What attributes must be, in words that go on after "must be". */
export const attributesForm =
  "names (letters, digits, _ and -; not username) with text, whole numbers, true, false, or lists of one of these";

/** What a query's `where` demands of every row: the terms of its top-level `and`, or itself. */

/** A comparison of one column. */
type Term = Extract<Condition, { readonly column: string }>;

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
