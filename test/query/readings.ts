/** What upstreams with habits of their own would see in a query body. */

import { operationNames } from "../../src/query/operations.ts";
import type { JsonNode } from "./plain-json.ts";

/** What a parser takes a body to ask for. */
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
  /** What it makes of a key before it compares it with a name that it knows. */
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

/** What a parser of this habit sees; undefined if it finds no operation, or more readings than one. */
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
