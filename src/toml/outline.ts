import { readKey, skipBlank, skipSpaces, skipValue } from "./scanner.ts";

interface Span {
  /** The full key path, quotes and escapes resolved. */
  readonly path: readonly string[];
  /** Offset of the statement's first character, after its indentation. */
  readonly start: number;
  /** Offset after its last character, before trailing spaces, comment and line end. */
  readonly end: number;
  /** The line that it starts on, from 1. */
  readonly line: number;
}

/** A `[table]` header. */
export interface TableStatement extends Span {
  readonly kind: "table";
}

/** An `[[array.of.tables]]` header. */
export interface ArrayTableStatement extends Span {
  readonly kind: "array-table";
  /** How many headers of the same path stand before this one. */
  readonly index: number;
}

/** A `key = value` pair; `path` starts with the path of the header that it stands under. */
export interface KeyStatement extends Span {
  readonly kind: "key";
  readonly valueStart: number;
  readonly valueEnd: number;
}

export type Statement = TableStatement | ArrayTableStatement | KeyStatement;

/**
 * Lists the statements of a TOML document in order, with their places in the text, in linear time.
 * @param text valid TOML; a text that a parser refuses gives an outline without meaning
 * @throws SyntaxError where a key is missing altogether
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

/** Gives the line of a position; positions must be asked for in rising order. */
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

/** Of the mark as a character, or as its three bytes in a text of a character for each byte. */
function byteOrderMarkLength(text: string): number {
  return /^(?:\uFEFF|\xEF\xBB\xBF)/.exec(text)?.[0].length ?? 0;
}

/** Where a value stands: names of keys, and numbers of elements from 0. */
export type ValuePath = readonly PropertyKey[];

/** What stands at a path; undefined if nothing does. */
export function valueAt(values: unknown, path: ValuePath): unknown {
  let value = values;
  for (const step of path) {
    if (typeof value !== "object" || value === null) return undefined;
    value = Object.getOwnPropertyDescriptor(value, step)?.value;
  }
  return value;
}

/**
 * Makes a function that gives the line of a value: where it is first written, else where the
 * nearest value or table around it is.
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

/** The statement's path with the number of the element behind each array of tables. */
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
