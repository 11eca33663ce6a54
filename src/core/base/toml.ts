/** TOML (https://toml.io/en/v1.0.0): values, and the positions of statements. */
import { parse, TomlError, type TomlTable } from "smol-toml";

/** The file is not valid TOML. Contains no text of the file, which may be a secret. */
export class TomlSyntaxError extends Error {
  readonly line: number;
  readonly reason: string;

  constructor(file: string, line: number, reason: string) {
    super(`${file}:${line}: ${reason}`);
    this.name = "TomlSyntaxError";
    this.line = line;
    this.reason = reason;
  }
}

/** Integers beyond 2^53 become bigint. @throws TomlSyntaxError */
export function parseToml(text: string, file: string): TomlTable {
  try {
    return parse(text, { integersAsBigInt: "asNeeded" });
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    throw new TomlSyntaxError(file, error.line, describeFailure(error));
  }
}

/** The likely cause of some parser messages. */
const hints: ReadonlyMap<string, string> = new Map([
  ["invalid value", "text needs quotes"],
  ["illegal character in numeric literal", "text needs quotes"],
  ["control characters are not allowed in strings", "is its closing quote missing?"],
]);

/** Drops the excerpt of the file after the parser's sentence, which must not reach a log. */
function describeFailure(error: TomlError): string {
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

/** An element of an array of tables, such as `[[users]]`. */
export function renderTable(name: string, table: object): string {
  const members = Object.entries(table);
  const lines = members.map(([key, value]) => `${renderName(key)} = ${renderValue(value)}`);
  return [`[[${name}]]`, ...lines, ""].join("\n");
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

export interface Statement {
  readonly kind: "table" | "array-table" | "key";
  /** The full key path with the names of its header, quotes and escapes resolved. */
  readonly path: readonly string[];
  /** The first character, after the indentation. */
  readonly start: number;
  /** The first character of the value of a key. */
  readonly valueStart: number;
  /** Exclusive, before trailing spaces, comment and line end. */
  readonly end: number;
  /** From 1. */
  readonly line: number;
}

const string = [
  `"""[^"\\\\]*(?:(?:\\\\[^]|"(?!""))[^"\\\\]*)*"{3,5}`,
  `'''[^']*(?:'(?!'')[^']*)*'{3,5}`,
  `"[^"\\\\\n]*(?:\\\\.[^"\\\\\n]*)*"`,
  "'[^'\n]*'",
].join("|");
const name = `(?:[\\w-]+|${string})`;

/** Tokens of valid TOML. Each is matched only where it is looked for. */
const tokens = {
  /** `\s` includes a byte order mark. */
  blank: /\s*(?:#[^\n]*)?/y,
  bracket: /\[{1,2}[ \t]*/y,
  key: new RegExp(`${name}(?:[ \\t]*\\.[ \\t]*${name})*`, "y"),
  equals: /[ \t]*=[ \t]*/y,
  closingBracket: /[ \t]*\]{1,2}/y,
  string: new RegExp(string, "y"),
  /** A part of an array or inline table. */
  part: new RegExp(`${string}|#[^\\n]*|[^"'#[\\]{}]+|[^]`, "y"),
  /** Numbers, booleans and dates, which may contain one space. */
  scalar: /[^\n#]*/y,
  /** A number or boolean in an array. */
  word: /[^\s,#\]]*/y,
};

function skip(token: RegExp, text: string, at: number): number {
  token.lastIndex = at;
  return token.test(text) ? token.lastIndex : at;
}

function skipBlank(text: string, position: number): number {
  for (let at = position; ; ) {
    const end = skip(tokens.blank, text, at);
    if (end === at) return at;
    at = end;
  }
}

function skipValue(text: string, start: number): number {
  if (/["']/.test(text.charAt(start))) return skip(tokens.string, text, start);
  if (!/[[{]/.test(text.charAt(start))) {
    return start + text.slice(start, skip(tokens.scalar, text, start)).trimEnd().length;
  }
  let at = start;
  let depth = 0;
  do {
    if (/[[{]/.test(text.charAt(at))) depth += 1;
    else if (/[\]}]/.test(text.charAt(at))) depth -= 1;
    at = skip(tokens.part, text, at);
  } while (depth > 0 && at < text.length);
  return at;
}

interface Element {
  readonly start: number;
  /** Exclusive. */
  readonly end: number;
  /** The position of the comma that follows, if one does. */
  readonly comma: number | undefined;
}

/** The elements of an array, except dates. */
export function elementsIn(text: string, { valueStart, end: arrayEnd }: Statement): Element[] {
  const elements: Element[] = [];
  for (let start = skipBlank(text, valueStart + 1); start < arrayEnd - 1; ) {
    const isWord = !/["'[{]/.test(text.charAt(start));
    const end = isWord ? skip(tokens.word, text, start) : skipValue(text, start);
    const at = skipBlank(text, end);
    const isLast = text[at] !== ",";
    elements.push({ start, end, comma: isLast ? undefined : at });
    start = isLast ? arrayEnd : skipBlank(text, at + 1);
  }
  return elements;
}

/** The names of a dotted key. The parser resolves quotes and escapes. */
function splitKey(key: string): string[] {
  if (/^[\w-]+$/.test(key)) return [key];
  const names: string[] = [];
  let inner: unknown = parse(`${key} = 0`);
  while (typeof inner === "object" && inner !== null) {
    const [[name, value] = []] = Object.entries(inner);
    names.push(String(name));
    inner = value;
  }
  return names;
}

/** The statements of valid TOML in order. @throws SyntaxError if a key is missing */
export function outline(text: string): Statement[] {
  const statements: Statement[] = [];
  let table: readonly string[] = [];
  let line = 1;
  let counted = 0;
  for (let start = skipBlank(text, 0); start < text.length; ) {
    line += text.slice(counted, start).split("\n").length - 1;
    counted = start;
    const keyStart = skip(tokens.bracket, text, start);
    const keyEnd = skip(tokens.key, text, keyStart);
    if (keyEnd === keyStart) throw new SyntaxError("A key was expected");
    const names = splitKey(text.slice(keyStart, keyEnd));
    if (keyStart === start) {
      const valueStart = skip(tokens.equals, text, keyEnd);
      const end = skipValue(text, valueStart);
      statements.push({ kind: "key", path: [...table, ...names], start, valueStart, end, line });
    } else {
      table = names;
      const end = skip(tokens.closingBracket, text, keyEnd);
      const kind = text[start + 1] === "[" ? "array-table" : "table";
      statements.push({ kind, path: table, start, valueStart: end, end, line });
    }
    start = skipBlank(text, statements.at(-1)?.end ?? text.length);
  }
  return statements;
}

export type ValuePath = readonly PropertyKey[];

export function valueAt(values: unknown, path: ValuePath): unknown {
  let value = values;
  for (const step of path) {
    if (typeof value !== "object" || value === null) return undefined;
    value = Object.getOwnPropertyDescriptor(value, step)?.value;
  }
  return value;
}

/** Finds the line where a value is first written, or else the nearest value or table around it. */
export function lineLocator(text: string): (path: ValuePath) => number | undefined {
  const lines = new Map<string, number>();
  const elements = new Map<string, number>();
  for (const { kind, path, line } of outline(text)) {
    const numbered: PropertyKey[] = [];
    for (const [index, name] of path.entries()) {
      numbered.push(name);
      const place = JSON.stringify(numbered);
      const isNewElement = kind === "array-table" && index === path.length - 1;
      if (isNewElement) elements.set(place, (elements.get(place) ?? -1) + 1);
      const element = elements.get(place);
      if (element !== undefined) numbered.push(element);
      for (const one of [place, JSON.stringify(numbered)]) {
        if (!lines.has(one)) lines.set(one, line);
      }
    }
  }
  return (path) =>
    path
      .map((_, index) => lines.get(JSON.stringify(path.slice(0, index + 1))))
      .findLast((line) => line !== undefined);
}
