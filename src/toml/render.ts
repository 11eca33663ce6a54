/** Control and formatting characters, which could make a message look like something else. */
const unprintable = /[\p{Cc}\p{Cf}\u2028\u2029]/gu;
const bareKey = /^[A-Za-z0-9_-]+$/;

/** `value` in TOML on one line; what TOML cannot hold is `undefined`'s spelling, `nothing`. */
export function renderValue(value: unknown): string {
  if (value === undefined) return "nothing";
  if (typeof value === "string") return renderString(value);
  if (typeof value === "number") return renderNumber(value);
  if (value instanceof Date) return value.toISOString();
  if (Array.isArray(value)) return `[${value.map(renderValue).join(", ")}]`;
  if (typeof value === "object" && value !== null) return renderInlineTable(value);
  return String(value);
}

/** One name of a key, in quotes if it needs them. */
export function renderName(name: string): string {
  return bareKey.test(name) ? name : renderString(name);
}

function renderString(text: string): string {
  return JSON.stringify(text).replace(unprintable, (character) => {
    const code = (character.codePointAt(0) ?? 0).toString(16);
    return code.length > 4 ? `\\U${code.padStart(8, "0")}` : `\\u${code.padStart(4, "0")}`;
  });
}

function renderNumber(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  return String(value);
}

function renderInlineTable(table: object): string {
  const members = Object.entries(table).map(
    ([name, value]) => `${renderName(name)} = ${renderValue(value)}`,
  );
  return members.length === 0 ? "{}" : `{ ${members.join(", ")} }`;
}
