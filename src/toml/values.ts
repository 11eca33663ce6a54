import { parse, TomlError, type TomlTable } from "smol-toml";

/** A TOML file as text and as values, so that a value can be traced to its line. */
export interface TomlDocument {
  /** For messages. */
  readonly file: string;
  readonly text: string;
  readonly values: TomlTable;
}

/** The file is not valid TOML. Contains no text of the file, which may be a secret. */
export class TomlSyntaxError extends Error {
  readonly file: string;
  /** From 1. */
  readonly line: number;
  readonly reason: string;

  constructor(file: string, line: number, reason: string) {
    super(`${file}:${line}: ${reason}`);
    this.name = "TomlSyntaxError";
    this.file = file;
    this.line = line;
    this.reason = reason;
  }
}

/**
 * Parses TOML 1.0. Integers beyond 2^53 become bigint, so that they keep all digits.
 *
 * @throws TomlSyntaxError
 */
export function parseToml(text: string, file: string): TomlDocument {
  try {
    return { file, text, values: parse(text, { integersAsBigInt: "asNeeded" }) };
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    throw new TomlSyntaxError(file, error.line, reasonOf(error));
  }
}

/** The likely cause of some parser messages. */
const hints: ReadonlyMap<string, string> = new Map([
  ["invalid value", "text stands in quotes"],
  ["illegal character in numeric literal", "text stands in quotes"],
  ["control characters are not allowed in strings", "is its closing quote missing?"],
]);

/**
 * Keeps the parser's fixed sentence and drops the excerpt of the file after it. The error cause is
 * dropped too, since it would carry the excerpt into a log.
 */
function reasonOf(error: TomlError): string {
  const [sentence = ""] = error.message.split("\n", 1);
  const reason = sentence.replace("Invalid TOML document: ", "");
  const hint = hints.get(reason);
  if (hint !== undefined) return `${reason}: ${hint}`;
  return /^[a-z(][a-z0-9 _(),:;.'-]*$/i.test(reason) ? reason : "invalid TOML";
}

/** Control and formatting characters, which could disguise a message. */
const unprintable = /[\p{Cc}\p{Cf}\u2028\u2029]/gu;
const bareKey = /^[A-Za-z0-9_-]+$/;

export type Writable = string | number | bigint | boolean | object;

/** Renders a value as TOML on one line, and `undefined` as `nothing`, which TOML cannot express. */
export function renderValue(value: unknown): string {
  if (value === undefined) return "nothing";
  if (typeof value === "string") return renderString(value);
  if (typeof value === "number") return renderNumber(value);
  if (value instanceof Date) return value.toISOString();
  if (Array.isArray(value)) return `[${value.map(renderValue).join(", ")}]`;
  if (typeof value === "object" && value !== null) return renderInlineTable(value);
  return String(value);
}

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
