/** Adds conditions to the tree of a query, and to its bytes where a database runs the bytes. */

import { isDeepStrictEqual } from "node:util";
import type { Steps } from "../base/cooperative-scheduling.ts";
import { Deferred, ExactNumber, type Parsed } from "../json/exact.ts";
import { LETTER_N } from "../json/lexical.ts";
import { termText } from "./conditions.ts";
import type { Grammar } from "./grammar.ts";
import type { OperationNode } from "./node.ts";
import { parseQueryInSteps } from "./parse.ts";
import { ParsedOperations, type ParsedQuery, type Query } from "./query.ts";
import { QueryRefused } from "./refusal.ts";
import type { Term } from "./tree.ts";

/** Conditions that an operation's rows must meet in addition to its own `where`. */
export interface Addition {
  readonly node: OperationNode;
  readonly conditions: readonly Term[];
}

/** Values of these members contain no operations. */
const values: ReadonlySet<string> = new Set(["value", "values", "set", "add", "bind"]);

/** Copies a part of a tree with the conditions, and shares its rows and values. */
function withConditions(part: Parsed, added: ReadonlyMap<object, readonly Term[]>): Parsed {
  if (typeof part !== "object" || part === null || part instanceof ExactNumber) return part;
  if (Array.isArray(part)) return part.map((one) => withConditions(one, added));
  const copy: Parsed = {};
  for (const [key, member] of Object.entries(part)) {
    copy[key] = values.has(key) ? member : withConditions(member, added);
  }
  const conditions = added.get(part);
  if (conditions === undefined) return copy;
  const terms = copy.where == null ? conditions : [...conditions, copy.where];
  copy.where = terms.length === 1 ? terms[0] : { and: terms };
  return copy;
}

/** The query with the conditions in its tree. Its bytes stay the client's. */
export function* addToTree(query: Query, additions: readonly Addition[]): Steps<Query> {
  const added = new Map(additions.map(({ node, conditions }) => [node.fields, conditions]));
  const { body, isBatch, all } = query.operations;
  const operations: Parsed[] = [];
  for (const { name, fields } of all) {
    operations.push({ name, fields: withConditions(fields, added) });
    yield;
  }
  return { ...query, operations: new ParsedOperations(body, isBatch, operations) };
}

/**
 * The query with the conditions between the client's bytes, which are parsed again: they must give
 * the very tree to which the conditions were added.
 *
 * @throws QueryRefused `nesting_too_deep`
 */
export function* addToBytes(
  { body, query }: ParsedQuery,
  additions: readonly Addition[],
  grammar: Grammar,
  bytesPerStep: number,
): Steps<ParsedQuery> {
  const texts = additions.map(({ node, conditions }) => ({
    node,
    conditions: conditions.map(termText),
  }));
  const spliced = splice(body, texts);
  const expected = yield* addToTree(query, additions);
  const found = yield* readAgain(spliced, grammar, bytesPerStep);
  yield* requireSameTree(query, expected, found);
  return { body: spliced, query: found };
}

function* readAgain(body: Buffer, grammar: Grammar, bytesPerStep: number): Steps<Query> {
  try {
    return yield* parseQueryInSteps(body, grammar, bytesPerStep);
  } catch (error) {
    if (!(error instanceof QueryRefused) || error.code !== "nesting_too_deep") throw error;
    // The place in the body with filters would mislead the caller.
    const problem = `${error.problem} with the caller's row filters; each takes 2 levels`;
    throw new QueryRefused(error.code, problem, { path: "", offset: 0 });
  }
}

function* requireSameTree(original: Query, expected: Query, found: Query): Steps<void> {
  const sources = original.operations.sources();
  const others = found.operations.unread;
  const isSame = (one: Parsed, other: Parsed): boolean => {
    if (other instanceof Deferred) {
      const source = sources.get(one);
      return source === undefined ? isDeepStrictEqual(one, other.value()) : source.equals(other);
    }
    const isTree = typeof one === "object" && one !== null && !(one instanceof ExactNumber);
    if (!isTree || typeof other !== "object" || other === null) {
      return isDeepStrictEqual(one, other);
    }
    const entries = Object.entries(one);
    return (
      Array.isArray(one) === Array.isArray(other) &&
      entries.length === Object.keys(other).length &&
      entries.every(([key, member]) => Object.hasOwn(other, key) && isSame(member, other[key]))
    );
  };
  const { all } = expected.operations;
  let isEqual =
    all.length === others.length && isDeepStrictEqual(placesIn(found), placesIn(original));
  for (const [index, operation] of all.entries()) {
    isEqual &&= isSame(operation, others[index]);
    yield;
  }
  if (!isEqual) throw new Error("A query is another one once filters are added");
}

function placesIn({ accesses }: Query) {
  return accesses.map(({ operation, database, tables }) => [operation, database, ...tables]);
}

interface AddedText {
  readonly node: OperationNode;
  readonly conditions: readonly string[];
}

function all(conditions: readonly string[]): string {
  const [first = "", ...others] = conditions;
  return others.length === 0 ? first : `{"and":[${conditions.join(",")}]}`;
}

interface Edit {
  readonly at: number;
  readonly text: string;
  /** Where the body continues. */
  readonly next: number;
}

/**
 * Adds conditions to operations, which may contain each other. The client's `where` becomes one
 * of the terms, or is replaced if it is null. No other byte changes.
 */
export function splice(body: Buffer, additions: readonly AddedText[]): Buffer {
  const pieces: Buffer[] = [];
  let copied = 0;
  const edits: Edit[] = [];
  const insert = (at: number, text: string, next = at) => edits.push({ at, text, next });
  for (const { node, conditions } of additions) {
    const {
      range: { start },
      where,
    } = node;
    if (where === undefined) insert(start + 1, `"where":${all(conditions)},`);
    else if (body[where.start] === LETTER_N) insert(where.start, all(conditions), where.end);
    else {
      insert(where.start, `{"and":[${conditions.join(",")},`);
      insert(where.end, "]}");
    }
  }
  for (const { at, text, next } of edits.sort((one, other) => one.at - other.at)) {
    pieces.push(body.subarray(copied, at), Buffer.from(text));
    copied = next;
  }
  return Buffer.concat([...pieces, body.subarray(copied)]);
}
