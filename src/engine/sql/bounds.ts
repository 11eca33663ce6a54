import { isInteger } from "../../core/json/exact.ts";
import type { Bounds, PresentValue } from "./scope.ts";
import { beginningOf, isLost, numberText, WHOLE_NUMBER, withoutEndingZeros } from "./values.ts";

export function integerBounds(bits: number, isUnsigned = false): Bounds {
  const size = 1n << BigInt(isUnsigned ? bits : bits - 1);
  const [least, most] = [isUnsigned ? 0n : -size, size - 1n];
  const isWidest = bits === 64 && !isUnsigned;
  return {
    code: "number_out_of_range",
    allowed: isWidest ? WHOLE_NUMBER : `a whole number from ${least} to ${most}`,
    exceeds(value) {
      const text = numberText(value);
      if (text === undefined || !isInteger(text)) return false;
      const integer = beginningOf(text);
      return integer < least || integer > most;
    },
  };
}

/** @param precision of all digits, of which `scale` follow the point */
export function decimalBounds(precision: number, scale: number): Bounds {
  const places = precision - scale;
  return {
    code: "number_out_of_range",
    allowed: `a number of at most ${places} digits before and ${Math.max(scale, 0)} after the point`,
    exceeds: (value) => placesBefore(numberText(value) ?? "") > places,
  };
}

export function doubleBounds(bits: 32 | 64): Bounds {
  return {
    code: "number_out_of_range",
    allowed: `a number that a float of ${bits} bits can hold`,
    exceeds(value) {
      const text = numberText(value);
      if (text === undefined) return false;
      const stored = bits === 32 ? Math.fround(Number(text)) : Number(text);
      return isLost(text, stored);
    },
  };
}

/** Lengths count code points, as the databases do. MySQL would strip spaces beyond the length. */
export function textBounds(length: number): Bounds {
  return {
    code: "invalid_value",
    allowed: `text of at most ${length} characters`,
    characters: length,
    exceeds: (value) =>
      typeof value === "string" && value.length > length && [...value].length > length,
  };
}

/** Dates with times, and times. `places` are the digits after the second. */
export function momentBounds(places: number, example: string): Bounds {
  const digits = places === 0 ? "no fraction of a second" : `at most ${places} digits of a second`;
  return {
    code: "invalid_value",
    allowed: `text such as ${example} with ${digits}`,
    exceeds(value) {
      const fraction = typeof value === "string" ? /:\d\d\.(\d+)/.exec(value)?.[1] : undefined;
      return withoutEndingZeros(fraction ?? "").length > places;
    },
  };
}

export function elementBounds({ code, allowed, exceeds }: Bounds): Bounds {
  const anyExceeds = (value: PresentValue): boolean =>
    Array.isArray(value)
      ? value.some((element) => element !== null && anyExceeds(element))
      : exceeds(value);
  return { code, allowed: `an array with values such as ${allowed}`, exceeds: anyExceeds };
}

/** How many digits a number has before its point; negative for zeros after it. */
function placesBefore(number: string): number {
  const [, whole = "", fraction = "", exponent = "0"] =
    /^-?0*(\d*)\.?(\d*?)(?:e([+-]?\d+))?$/i.exec(number) ?? [];
  if (!/[1-9]/.test(whole + fraction)) return Number.NEGATIVE_INFINITY;
  const zeros = whole === "" ? (/^0*/.exec(fraction)?.[0].length ?? 0) : 0;
  return whole.length - zeros + Number(exponent);
}
