import type { AttributeValue, Literal } from "./grant.ts";

export const attributeName = "[A-Za-z_][A-Za-z0-9_-]{0,63}";
export const attributeReference = new RegExp(`^@${attributeName}$`);
const wholeName = new RegExp(`^(?!username$)${attributeName}$`);
/** In characters, for filters and attributes. */
const LONGEST_TEXT = 1024;

/** True for a whole number that lost no digits. */
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

export const attributesForm =
  "names (letters, digits, _ and -; not username) with text, whole numbers, true, false, or lists of one of these";
