import type { CellValue } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import { ExactNumber, isBeyondIntegers, type PresentValue } from "./cell-text.ts";
import type { Column, ColumnKind } from "./scope.ts";

const wholeNumber = "a whole number of 64 bits";

/** What a column takes, by its declared type, for messages. */
const forms: readonly (readonly [type: RegExp, form: string])[] = [
  [/^(?:enum|set)\(/, "one of its labels"],
  [/\[\]$/, "an array"],
  [/^(?:tinyint\(1\)|bool)/, "true or false"],
  [/^(?:(?:tiny|small|medium|big)?int|(?:big|small)?serial|year)/, wholeNumber],
  [/^(?:float|double|real|numeric|decimal)/, "a number"],
  [/^date$/, "text such as 2026-01-31"],
  [/^(?:timestamp|datetime)/, "text such as 2026-01-31T13:45:00"],
  [/^time/, "text such as 13:45:00"],
  [/^uuid/, "text such as 5f3d3a1c-7a43-4f57-9a3c-0b9c3bd18f3f"],
  [/^json/, "any JSON"],
  [/^bytea|^bytes|blob|binary/, "bytes as base64 text"],
  [/char|text|^string|^name$/, "text"],
];

function formOf(type: string): string | undefined {
  const folded = type.toLowerCase();
  return forms.find(([of]) => of.test(folded))?.[1];
}

/** `; allowed: text` for the end of a message; nothing where the type does not tell. */
export function allowedForm(type: string): string {
  const form = formOf(type);
  return form === undefined ? "" : `; allowed: ${form}`;
}

/** Labels that a message lists. */
const MOST_LABELS = 30;

function labelsOf({ kind: { labels } }: { readonly kind: Pick<ColumnKind, "labels"> }) {
  if (labels === undefined) return undefined;
  const more = labels.length > MOST_LABELS ? ", ..." : "";
  return `; allowed: ${labels.slice(0, MOST_LABELS).join(", ")}${more}`;
}

/** The same for what the column compares with: any number where it holds whole ones. */
function comparableForm(type: string): string {
  return allowedForm(type).replace(wholeNumber, "a number");
}

/** Characters of a whole number of 64 bits. */
const LONGEST_INTEGER = 20;

/**
 * What a column that does not take a string makes of the whole number beyond 2^53 - 1 whose digits
 * the string is: so clients spell it whose numbers are doubles.
 */
function ofDigits<Taken>(
  value: PresentValue,
  take: (number: PresentValue) => Taken | undefined,
): Taken | undefined {
  if (typeof value !== "string" || value.length > LONGEST_INTEGER) return undefined;
  const isRounded = /^-?[1-9]\d{15,}$/.test(value) && !Number.isSafeInteger(Number(value));
  return isRounded ? take(BigInt(value)) : undefined;
}

/** A column that stores its values as `Stored`. */
interface Storing<Stored> {
  readonly name: string;
  readonly type: string;
  readonly kind: Pick<ColumnKind, "labels"> & { store(value: PresentValue): Stored | undefined };
}

/** A cell's value as the column stores it. @throws EngineRefusal `invalid_value` or `number_out_of_range` if it does not */
export function storedValue<Stored>(column: Storing<Stored>, value: CellValue): Stored | null {
  if (value === null) return null;
  const stored = column.kind.store(value) ?? ofDigits(value, column.kind.store);
  if (stored !== undefined) return stored;
  const isTooLarge = formOf(column.type) === wholeNumber && isBeyondIntegers(value);
  throw new EngineRefusal(
    isTooLarge ? "number_out_of_range" : "invalid_value",
    `Column "${column.name}" (${column.type}) does not take ${describe(value)}${labelsOf(column) ?? allowedForm(column.type)}`,
  );
}

/** A value as the column compares with it. @throws EngineRefusal `invalid_value` if it does not */
export function comparedValue(column: Column, value: CellValue): unknown {
  const { compare } = column.kind;
  const compared = value === null ? undefined : (compare(value) ?? ofDigits(value, compare));
  if (compared !== undefined) return compared;
  throw new EngineRefusal(
    "invalid_value",
    `Column "${column.name}" (${column.type}) cannot be compared in this way with ${describe(value)}${labelsOf(column) ?? comparableForm(column.type)}`,
  );
}

function describe(value: PresentValue | null): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (value instanceof ExactNumber) return "this number";
  switch (typeof value) {
    case "object":
      return "an object";
    case "bigint":
    case "number":
      return "this number";
    default:
      return `this ${typeof value}`;
  }
}
