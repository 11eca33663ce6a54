import type { CellValue } from "../../query/operation-types.ts";

/** A value that is there: null is the same in every column and needs no kind. */
export type PresentValue = Exclude<CellValue, null>;

/** A cell's value as JSON text without white space, its numbers exact. */
export function cellText(value: CellValue): string {
  if (typeof value === "bigint") return value.toString();
  if (value instanceof ExactNumber) return value.source;
  if (Array.isArray(value)) return `[${value.map(cellText).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const members = Object.entries(value).map(
      ([key, member]) => `${JSON.stringify(key)}:${cellText(member)}`,
    );
    return `{${members.join(",")}}`;
  }
  return JSON.stringify(value);
}

/** JSON text without the white space between its tokens. */
export function withoutSpace(json: string): string {
  return json.replace(/("(?:[^"\\]|\\.)*")|\s+/g, "$1");
}

const SMALLEST_INTEGER = -(2n ** 63n);
const LARGEST_INTEGER = 2n ** 63n - 1n;

/** A whole number of 64 bits, digit for digit; undefined for any other value. */
export function integerOf(value: PresentValue): bigint | undefined {
  if (typeof value === "number") return Number.isSafeInteger(value) ? BigInt(value) : undefined;
  if (value instanceof ExactNumber) return wholeNumber(value.source);
  if (typeof value !== "bigint") return undefined;
  return has64Bits(value) ? value : undefined;
}

/** True for a whole number of 64 bits. */
export function has64Bits(integer: bigint): boolean {
  return integer >= SMALLEST_INTEGER && integer <= LARGEST_INTEGER;
}

/** True for a whole number, written as its digits alone, that has more than 64 bits. */
export function isBeyondIntegers(value: PresentValue): boolean {
  const text =
    typeof value === "object" || typeof value === "bigint" ? numberText(value) : undefined;
  return text !== undefined && /^-?\d+$/.test(text) && !has64Bits(BigInt(text));
}

/** A number's digits as they were written; undefined for what is no number. */
export function numberText(value: PresentValue): string | undefined {
  if (typeof value === "number" || typeof value === "bigint") return String(value);
  return value instanceof ExactNumber ? value.source : undefined;
}

/** How many places after the point a number needs; fewer than none for one that ends in zeros. */
export function placesOf(number: string): number {
  const [, whole = "", fraction = "", exponent = "0"] =
    /^-?(\d*)\.?(\d*?)0*(?:e([+-]?\d+))?$/i.exec(number) ?? [];
  const zeros = fraction === "" ? (/0*$/.exec(whole)?.[0].length ?? 0) : 0;
  if (zeros === whole.length && fraction === "") return Number.NEGATIVE_INFINITY;
  return fraction.length - zeros - Number(exponent);
}

/** True for a whole number that a double would give back with other digits. */
export function isRoundedInteger(value: PresentValue): boolean {
  if (typeof value === "bigint") return isRounded(value.toString());
  return value instanceof ExactNumber && /^-?\d+$/.test(value.source) && isRounded(value.source);
}

/** A whole number that was written like `1e3` or `1.0`, of few enough digits to be exact. */
function wholeNumber(source: string): bigint | undefined {
  const value = Number(source);
  const digits = source.replace(/e.*$/i, "").replace(/\D/g, "");
  const isTiny = value === 0 && /[1-9]/.test(digits);
  return Number.isSafeInteger(value) && digits.length <= 15 && !isTiny ? BigInt(value) : undefined;
}

/** The longest integers that a double can hold have 309 digits. */
function isRounded(digits: string): boolean {
  const double = Number(digits);
  if (String(double) === digits) return false;
  return digits.length > 310 || !Number.isFinite(double) || BigInt(double) !== BigInt(digits);
}

/** Digits without the zeros that end the places after a point. */
export function trimPlaces(digits: string): string {
  return digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits;
}

/** The bytes of base64 text (RFC 4648, section 4, with padding); undefined for anything else. */
export function decodeBase64(value: PresentValue): Buffer | undefined {
  if (typeof value !== "string") return undefined;
  const decoded = Buffer.from(value, "base64");
  return decoded.toString("base64") === value ? decoded : undefined;
}

/** A JSON number that a double would write otherwise, kept as it came. */
export class ExactNumber {
  /** The number's JSON text. */
  readonly source: string;

  constructor(source: string) {
    this.source = source;
  }
}
