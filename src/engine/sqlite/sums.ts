import type { DatabaseSync, SQLOutputValue } from "node:sqlite";
import { EngineRefusal } from "../refusal.ts";
import { has64Bits, placesOf } from "../sql/cell-text.ts";

/** The SQL functions that add a number to a column: SQLite's `+` makes a double of what overflows. */
export const sum = "gatehouse_sum";
export const decimalSum = "gatehouse_decimal_sum";

/** Gives a connection the functions. What they refuse, the statement throws. */
export function defineSums(connection: DatabaseSync): void {
  const options = { deterministic: true, directOnly: true, useBigIntArguments: true };
  connection.function(sum, options, (value, amount) => added(value, amount, addDoubles));
  connection.function(decimalSum, options, (value, amount) => added(value, amount, addDecimals));
}

function added(
  value: SQLOutputValue,
  amount: SQLOutputValue,
  addNumbers: (one: number, other: number) => number,
): bigint | number | null {
  if (value === null) return null;
  if (typeof value === "bigint" && typeof amount === "bigint") {
    const total = value + amount;
    if (!has64Bits(total)) throw outOfRange();
    return total;
  }
  if (isText(value) || isText(amount)) {
    throw new EngineRefusal("invalid_value", "A value that is there is no number to add to");
  }
  const total = addNumbers(Number(value), Number(amount));
  if (!Number.isFinite(total)) throw outOfRange();
  return total;
}

function isText(value: SQLOutputValue): boolean {
  return typeof value !== "bigint" && typeof value !== "number";
}

function addDoubles(one: number, other: number): number {
  return one + other;
}

/** The double next to the sum of the digits that stand for the two: 0.1 and 0.2 make 0.3. */
function addDecimals(one: number, other: number): number {
  const places = Math.max(0, placesOf(String(one)), placesOf(String(other)));
  return Number(`${scaled(one, places) + scaled(other, places)}e-${places}`);
}

/** A number's digits as a whole number, with so many places behind the point. */
function scaled(number: number, places: number): bigint {
  const [, digits = "0", fraction = "", exponent = "0"] =
    /^(-?\d+)\.?(\d*)(?:e([+-]?\d+))?$/.exec(String(number)) ?? [];
  const zeros = places + Number(exponent) - fraction.length;
  return BigInt(digits + fraction) * 10n ** BigInt(zeros);
}

function outOfRange(): EngineRefusal {
  return new EngineRefusal("number_out_of_range", "A number is out of its column's range");
}
