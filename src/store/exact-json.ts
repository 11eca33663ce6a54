/**
 * JSON as the store holds it. A whole number that a double cannot hold exactly stands as
 * `{"integer": "9007199254740993"}`; no record holds an object of that form otherwise.
 */

const KEY = "integer";

function isInteger(value: unknown): value is { [KEY]: string } {
  return (
    typeof value === "object" &&
    value !== null &&
    KEY in value &&
    typeof value.integer === "string" &&
    Object.keys(value).length === 1
  );
}

/** Writes a value, with every digit of its whole numbers. */
export function writeExact(value: unknown): string {
  return JSON.stringify(value, (_key, member: unknown) =>
    typeof member === "bigint" ? { [KEY]: String(member) } : member,
  );
}

/** Reads what `writeExact` has written. */
export function parseExact(text: string): unknown {
  if (!text.includes(`"${KEY}"`)) return JSON.parse(text);
  return JSON.parse(text, (_key, member: unknown) =>
    isInteger(member) ? BigInt(member.integer) : member,
  );
}
