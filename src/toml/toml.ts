/** TOML (https://toml.io/en/v1.0.0): values, and the positions of statements. */
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

const tab = 0x09;
const lineFeed = 0x0a;
const carriageReturn = 0x0d;
const space = 0x20;
const quotationMark = 0x22;
const numberSign = 0x23;
const apostrophe = 0x27;
const dot = 0x2e;
const openBracket = 0x5b;
const backslash = 0x5c;
const closeBracket = 0x5d;
const openBrace = 0x7b;
const closeBrace = 0x7d;

const shortEscapes: Readonly<Record<string, string>> = {
  b: "\b",
  t: "\t",
  n: "\n",
  f: "\f",
  r: "\r",
  e: "\x1b",
  '"': '"',
  "\\": "\\",
};

function skipSpaces(text: string, position: number): number {
  let at = position;
  while (text.charCodeAt(at) === space || text.charCodeAt(at) === tab) at += 1;
  return at;
}

function lineEnd(text: string, position: number): number {
  const found = text.indexOf("\n", position);
  return found === -1 ? text.length : found;
}

/** The position of the next statement, past comments and empty lines. */
function skipBlank(text: string, position: number): number {
  let at = position;
  for (;;) {
    const code = text.charCodeAt(at);
    if (code === numberSign) at = lineEnd(text, at);
    else if (isBlank(code)) at += 1;
    else return at;
  }
}

function skipValue(text: string, position: number): number {
  const code = text.charCodeAt(position);
  if (isQuote(code)) return skipString(text, position);
  if (code === openBracket || code === openBrace) return skipNested(text, position);
  return skipScalar(text, position);
}

/**
 * Reads a dotted key and appends its names, unquoted and unescaped, to `path`.
 *
 * @returns the position after the last name
 * @throws SyntaxError if there is no key
 */
function readKey(text: string, position: number, path: string[]): number {
  let at = position;
  for (;;) {
    const end = skipName(text, at);
    path.push(nameOf(text.slice(at, end)));
    at = skipSpaces(text, end);
    if (text.charCodeAt(at) !== dot) return end;
    at = skipSpaces(text, at + 1);
  }
}

function skipName(text: string, position: number): number {
  if (isQuote(text.charCodeAt(position))) return skipString(text, position);
  let at = position;
  while (isBareKeyCharacter(text.charCodeAt(at))) at += 1;
  if (at === position) throw new SyntaxError("A key was expected");
  return at;
}

function nameOf(written: string): string {
  const quote = written.charCodeAt(0);
  if (!isQuote(quote)) return written;
  const inner = written.slice(1, -1);
  return quote === apostrophe || !inner.includes("\\") ? inner : resolveEscapes(inner);
}

function resolveEscapes(text: string): string {
  return text.replace(
    /\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|x([0-9A-Fa-f]{2})|(.))/g,
    (whole, four?: string, eight?: string, two?: string, letter?: string) => {
      const hexadecimal = four ?? eight ?? two;
      if (hexadecimal !== undefined) return String.fromCodePoint(Number.parseInt(hexadecimal, 16));
      return shortEscapes[letter ?? ""] ?? whole;
    },
  );
}

function skipString(text: string, position: number): number {
  const quote = text.charCodeAt(position);
  const isMultiline =
    text.charCodeAt(position + 1) === quote && text.charCodeAt(position + 2) === quote;
  const width = isMultiline ? 3 : 1;
  const close = (quote === apostrophe ? "'" : '"').repeat(width);
  const end = closingQuote(text, position + width, close, quote !== apostrophe) + width;
  return isMultiline ? skipExtraQuotes(text, end, quote) : end;
}

function closingQuote(text: string, from: number, close: string, escapes: boolean): number {
  let at = text.indexOf(close, from);
  while (escapes && at !== -1 && isEscaped(text, at, from)) at = text.indexOf(close, at + 1);
  return at === -1 ? text.length : at;
}

/** True after an odd number of backslashes, counted back to `from`. */
function isEscaped(text: string, position: number, from: number): boolean {
  let at = position;
  while (at > from && text.charCodeAt(at - 1) === backslash) at -= 1;
  return (position - at) % 2 === 1;
}

/** A multi-line string may end in one or two quotes of its own, right before the closing three. */
function skipExtraQuotes(text: string, position: number, quote: number): number {
  let at = position;
  while (at < position + 2 && text.charCodeAt(at) === quote) at += 1;
  return at;
}

function skipNested(text: string, position: number): number {
  let at = position;
  let depth = 0;
  while (at < text.length) {
    const code = text.charCodeAt(at);
    if (isQuote(code)) {
      at = skipString(text, at);
      continue;
    }
    if (code === numberSign) {
      at = lineEnd(text, at);
      continue;
    }
    if (code === openBracket || code === openBrace) depth += 1;
    else if (code === closeBracket || code === closeBrace) depth -= 1;
    at += 1;
    if (depth === 0) return at;
  }
  return text.length;
}

/** Numbers, booleans and dates extend to the end of their line. A date may contain one space. */
function skipScalar(text: string, position: number): number {
  let end = position;
  for (let at = position; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === lineFeed || code === numberSign) break;
    if (!isBlank(code)) end = at + 1;
  }
  return end;
}

function isQuote(code: number): boolean {
  return code === quotationMark || code === apostrophe;
}

function isBlank(code: number): boolean {
  return code === space || code === tab || code === lineFeed || code === carriageReturn;
}

function isBareKeyCharacter(code: number): boolean {
  return (
    (code >= 0x61 && code <= 0x7a) ||
    (code >= 0x41 && code <= 0x5a) ||
    (code >= 0x30 && code <= 0x39) ||
    code === 0x5f ||
    code === 0x2d
  );
}

interface Span {
  /** The full key path, with quotes and escapes resolved. */
  readonly path: readonly string[];
  /** The first character, after the indentation. */
  readonly start: number;
  /** Exclusive, before trailing spaces, comment and line end. */
  readonly end: number;
  /** From 1. */
  readonly line: number;
}

interface TableStatement extends Span {
  readonly kind: "table";
}

interface ArrayTableStatement extends Span {
  readonly kind: "array-table";
  /** Number of earlier headers with the same path. */
  readonly index: number;
}

/** A `key = value` pair. `path` starts with the path of its header. */
export interface KeyStatement extends Span {
  readonly kind: "key";
  readonly valueStart: number;
  readonly valueEnd: number;
}

export type Statement = TableStatement | ArrayTableStatement | KeyStatement;

/**
 * Lists the statements of a TOML document in order, with their positions, in linear time.
 *
 * @param text valid TOML. For invalid text the outline is meaningless
 * @throws SyntaxError if a key is missing
 */
export function outline(text: string): Statement[] {
  const statements: Statement[] = [];
  const ordinals = new Map<string, number>();
  const lineAt = lineCounter(text);
  let table: readonly string[] = [];
  let at = skipBlank(text, byteOrderMarkLength(text));
  while (at < text.length) {
    const statement =
      text[at] === "["
        ? readHeader(text, at, lineAt(at), ordinals)
        : readPair(text, at, lineAt(at), table);
    if (statement.kind !== "key") table = statement.path;
    statements.push(statement);
    at = skipBlank(text, statement.end);
  }
  return statements;
}

function readHeader(
  text: string,
  start: number,
  line: number,
  ordinals: Map<string, number>,
): TableStatement | ArrayTableStatement {
  const width = text[start + 1] === "[" ? 2 : 1;
  const path: string[] = [];
  const keyEnd = readKey(text, skipSpaces(text, start + width), path);
  const end = skipSpaces(text, keyEnd) + width;
  if (width === 1) return { kind: "table", path, start, end, line };
  const identity = JSON.stringify(path);
  const index = ordinals.get(identity) ?? 0;
  ordinals.set(identity, index + 1);
  return { kind: "array-table", path, index, start, end, line };
}

function readPair(
  text: string,
  start: number,
  line: number,
  table: readonly string[],
): KeyStatement {
  const path = [...table];
  const equals = skipSpaces(text, readKey(text, start, path));
  const valueStart = skipSpaces(text, equals + 1);
  const valueEnd = skipValue(text, valueStart);
  return { kind: "key", path, start, end: valueEnd, valueStart, valueEnd, line };
}

/** Returns the line of a position. Positions must be queried in ascending order. */
function lineCounter(text: string): (position: number) => number {
  let line = 1;
  let next = text.indexOf("\n");
  return (position) => {
    while (next !== -1 && next < position) {
      line += 1;
      next = text.indexOf("\n", next + 1);
    }
    return line;
  };
}

/** The mark is one character, or three in text with one character per byte. */
function byteOrderMarkLength(text: string): number {
  return /^(?:\uFEFF|\xEF\xBB\xBF)/.exec(text)?.[0].length ?? 0;
}

/** Key names and element indices that lead to a value. */
export type ValuePath = readonly PropertyKey[];

export function valueAt(values: unknown, path: ValuePath): unknown {
  let value = values;
  for (const step of path) {
    if (typeof value !== "object" || value === null) return undefined;
    value = Object.getOwnPropertyDescriptor(value, step)?.value;
  }
  return value;
}

/**
 * Returns a function that finds the line where a value is first written, or else the nearest value
 * or table around it.
 */
export function lineLocator(text: string): (path: ValuePath) => number | undefined {
  const lines = new Map<string, number>();
  const elements = new Map<string, number>();
  for (const statement of outline(text)) {
    const path = valuePath(statement, elements);
    for (let length = path.length; length > 0; length -= 1) {
      const identity = identityOf(path.slice(0, length));
      if (!lines.has(identity)) lines.set(identity, statement.line);
    }
  }
  return (path) => {
    for (let length = path.length; length > 0; length -= 1) {
      const line = lines.get(identityOf(path.slice(0, length)));
      if (line !== undefined) return line;
    }
    return undefined;
  };
}

/** The statement's path, with the element index after each array of tables. */
function valuePath({ kind, path }: Statement, elements: Map<string, number>): ValuePath {
  const numbered: PropertyKey[] = [];
  for (const [index, name] of path.entries()) {
    numbered.push(name);
    const identity = identityOf(numbered);
    const isNewElement = kind === "array-table" && index === path.length - 1;
    if (isNewElement) elements.set(identity, (elements.get(identity) ?? -1) + 1);
    const element = elements.get(identity);
    if (element !== undefined) numbered.push(element);
  }
  return numbered;
}

function identityOf(path: ValuePath): string {
  return JSON.stringify(path);
}
