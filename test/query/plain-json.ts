import { DEEPEST_NESTING } from "../../src/core/json/lexical.ts";
import { operationNames } from "../../src/core/query/operations.ts";

/** JSON (RFC 8259) read once more, plainly and from text, keeping every member of an object. */

/** A JSON value; of scalars that are no strings, as it is written. */
export type JsonNode =
  | { readonly kind: "object"; readonly members: readonly (readonly [string, JsonNode])[] }
  | { readonly kind: "array"; readonly elements: readonly JsonNode[] }
  | { readonly kind: "string"; readonly text: string }
  | { readonly kind: "scalar"; readonly written: string };

const token =
  /[\t\n\r ]*(?:([{}[\],:])|"((?:[ !#-[\]-\u{10ffff}]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*)"|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null)/uy;
const escapes = new Map(Object.entries({ b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" }));

class PlainParser {
  readonly #text: string;
  #at = 0;
  #token = "";
  #written = "";
  #string: string | undefined;

  constructor(text: string) {
    this.#text = text;
  }

  parse(): JsonNode {
    this.#advance();
    const node = this.#value(1);
    if (!/^[\t\n\r ]*$/.test(this.#text.slice(this.#at))) throw new SyntaxError("trailing data");
    return node;
  }

  #advance(): void {
    token.lastIndex = this.#at;
    const match = token.exec(this.#text);
    if (match === null) throw new SyntaxError(`no token at ${this.#at}`);
    this.#at = token.lastIndex;
    this.#written = match[0].trimStart();
    this.#token = match[1] ?? "scalar";
    this.#string = match[2] === undefined ? undefined : unescaped(match[2]);
  }

  #value(depth: number): JsonNode {
    if (this.#string !== undefined) return { kind: "string", text: this.#string };
    if (this.#token === "scalar") return { kind: "scalar", written: this.#written };
    if (this.#token !== "{" && this.#token !== "[") throw new SyntaxError("no value");
    if (depth > DEEPEST_NESTING) throw new SyntaxError("too deep");
    return this.#token === "{" ? this.#object(depth) : this.#array(depth);
  }

  #object(depth: number): JsonNode {
    const members: [string, JsonNode][] = [];
    this.#list("}", () => {
      const key = this.#string;
      if (key === undefined) throw new SyntaxError("no key");
      this.#advance();
      if (this.#token !== ":") throw new SyntaxError("no colon");
      this.#advance();
      members.push([key, this.#value(depth + 1)]);
    });
    return { kind: "object", members };
  }

  #array(depth: number): JsonNode {
    const elements: JsonNode[] = [];
    this.#list("]", () => elements.push(this.#value(depth + 1)));
    return { kind: "array", elements };
  }

  #list(end: string, read: () => void): void {
    this.#advance();
    if (this.#token === end) return;
    for (;;) {
      read();
      this.#advance();
      if (this.#token === end) return;
      if (this.#token !== ",") throw new SyntaxError("no comma");
      this.#advance();
    }
  }
}

function unescaped(text: string): string {
  const plain = text.replace(/\\(?:u(.{4})|(.))/g, (_, unit?: string, letter = "") =>
    unit === undefined
      ? (escapes.get(letter) ?? letter)
      : String.fromCharCode(Number.parseInt(unit, 16)),
  );
  if (!plain.isWellFormed()) throw new SyntaxError("half of a surrogate pair");
  return plain;
}

/** Parses JSON; undefined if it is invalid, has half a surrogate pair or is nested over 64 deep. */
export function parsePlainly(text: string): JsonNode | undefined {
  try {
    return new PlainParser(text).parse();
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/**
 * Whether a query has a fault that the values no longer show: a key given twice outside cells, or a
 * count of rows that is not written in digits.
 */
export function hasHiddenFault(node: JsonNode): boolean {
  if (node.kind === "array") return node.elements.some(hasHiddenFault);
  if (node.kind !== "object") return false;
  if (hasRepeatedKey(node)) return true;
  return node.members.some(([key, member]) => {
    if (key === "value") return false;
    if (key === "limit" || key === "offset") return isOddCount(member);
    if (key === "set") return hasRepeatedKey(member);
    if (key === "values" && member.kind === "array") return member.elements.some(hasRepeatedKey);
    return hasHiddenFault(member);
  });
}

function isOddCount(node: JsonNode): boolean {
  return node.kind === "scalar" && !/^[0-9]+$/.test(node.written);
}

function hasRepeatedKey(node: JsonNode): boolean {
  if (node.kind !== "object") return false;
  return new Set(node.members.map(([key]) => key)).size < node.members.length;
}

/** What upstreams with habits of their own would see in a query body. */

/** An access as a parser reads it. */
export interface SeenAccess {
  readonly operation: string;
  readonly database: string | undefined;
  readonly tables: readonly string[];
}

/** How a parser treats the keys of objects. */
export interface Habit {
  readonly name: string;
  /** Which of several members of one name it believes. */
  readonly wins: "first" | "last";
  /** Folds a key before it is compared with a known name. */
  readonly fold: (key: string) => string;
}

const folds: Readonly<Record<string, Habit["fold"]>> = {
  exact: (key) => key,
  "case-insensitive": (key) => key.toLowerCase(),
  trimming: (key) => key.trim(),
  "up to NUL": (key) => key.split("\0", 1)[0] ?? "",
  loose: (key) =>
    key
      .normalize("NFKC")
      .toLowerCase()
      .replace(/[\s_-]/g, ""),
};

/** First-key-wins and last-key-wins parsers of every way to fold a key. */
export const habits: readonly Habit[] = Object.entries(folds).flatMap(([name, fold]) => [
  { name: `${name}, first key wins`, wins: "first", fold },
  { name: `${name}, last key wins`, wins: "last", fold },
]);

/** The accesses that such a parser sees; undefined without an operation, or with several readings. */
export function seenBy(habit: Habit, body: JsonNode): readonly SeenAccess[] | undefined {
  // An engine that takes the operation from `op` would not look at the key at all.
  if (member(habit, body, "op") !== undefined) return undefined;
  const batch = member(habit, body, "Batch");
  const elements = batch?.kind === "array" ? batch.elements : [body];
  const accesses = elements.map((element) => accessIn(habit, element));
  return accesses.every((access) => access !== undefined) ? accesses : undefined;
}

function accessIn(habit: Habit, node: JsonNode): SeenAccess | undefined {
  for (const operation of operationNames) {
    const inner = member(habit, node, operation);
    if (inner === undefined) continue;
    const table = text(member(habit, inner, operation === "Select" ? "from" : "table"));
    const join = member(habit, inner, "join");
    const joined = join && text(member(habit, join, "table"));
    const tables = [table, joined].filter((name) => name !== undefined);
    return { operation, database: text(member(habit, inner, "database")), tables };
  }
  return undefined;
}

function member({ wins, fold }: Habit, node: JsonNode, name: string): JsonNode | undefined {
  if (node.kind !== "object") return undefined;
  const wanted = fold(name);
  const found = node.members.filter(([key]) => fold(key) === wanted);
  return found.at(wins === "first" ? 0 : -1)?.[1];
}

function text(node: JsonNode | undefined): string | undefined {
  return node?.kind === "string" ? node.text : undefined;
}
