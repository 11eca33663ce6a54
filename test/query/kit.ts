/** What the tests of the query scanner share. */

import { createGrammar, type Grammar } from "../../src/query/grammar.ts";
import type { Access, Query } from "../../src/query/query.ts";
import { QueryRefused } from "../../src/query/refusal.ts";
import { scan } from "../../src/query/scan.ts";

/** A grammar with an extra field `trace` and an extra operation `Truncate`. */
export const widened: Grammar = createGrammar({
  extraFields: ["trace"],
  operations: { Truncate: "DELETE" },
});

/** The grammar without configuration. */
export const plain: Grammar = createGrammar({ extraFields: [], operations: {} });

/** Scans a body given as bytes, as JSON text, or as a value to be serialised. */
export function scanBody(body: unknown, grammar = plain): Query {
  return scan(bytesOf(body), grammar);
}

/** The refusal of a body; throws if the body is accepted or the scanner fails otherwise. */
export function refusalOf(body: unknown, grammar = plain): QueryRefused {
  try {
    scan(bytesOf(body), grammar);
  } catch (error) {
    if (error instanceof QueryRefused) return error;
    throw error;
  }
  throw new Error(`accepted: ${bytesOf(body).toString()}`);
}

/** The code of a body's refusal, or `accepted`. */
export function verdict(body: unknown, grammar = plain): string {
  try {
    scan(bytesOf(body), grammar);
    return "accepted";
  } catch (error) {
    if (error instanceof QueryRefused) return error.code;
    throw error;
  }
}

/** An access without the offsets, for comparison. */
export function gist({ operation, permissions, database, tables }: Access) {
  return { operation, permission: permissions.join(" "), database, tables };
}

/** An Insert of one row with one cell, whose JSON text is given. */
export function insertOf(cell: string): string {
  return `{"Insert":{"database":"main","table":"users","values":[{"cell":${cell}}]}}`;
}

/** A Select that has, beside what every Select needs, these fields. */
export function select(fields: object = {}) {
  return { Select: { database: "main", from: "users", columns: ["*"], ...fields } };
}

function bytesOf(body: unknown): Buffer {
  if (Buffer.isBuffer(body)) return body;
  return Buffer.from(typeof body === "string" ? body : JSON.stringify(body));
}
