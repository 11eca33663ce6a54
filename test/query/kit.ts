import { createGrammar, type Grammar } from "../../src/core/query/grammar.ts";
import { parseQuery } from "../../src/core/query/parse.ts";
import type { Access, Query } from "../../src/core/query/query.ts";
import { QueryRefused } from "../../src/core/query/refusal.ts";

export const widened: Grammar = createGrammar({
  extraFields: ["trace"],
  operations: { Truncate: "DELETE" },
});

export const plain: Grammar = createGrammar({ extraFields: [], operations: {} });

export function scanBody(body: unknown, grammar = plain): Query {
  return parseQuery(bytesOf(body), grammar);
}

export function refusalOf(body: unknown, grammar = plain): QueryRefused {
  try {
    parseQuery(bytesOf(body), grammar);
  } catch (error) {
    if (error instanceof QueryRefused) return error;
    throw error;
  }
  throw new Error(`accepted: ${bytesOf(body).toString()}`);
}

export function verdict(body: unknown, grammar = plain): string {
  try {
    parseQuery(bytesOf(body), grammar);
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

export function insertOf(cell: string): string {
  return `{"Insert":{"database":"main","table":"users","values":[{"cell":${cell}}]}}`;
}

export function select(fields: object = {}) {
  return { Select: { database: "main", from: "users", columns: ["*"], ...fields } };
}

function bytesOf(body: unknown): Buffer {
  if (Buffer.isBuffer(body)) return body;
  return Buffer.from(typeof body === "string" ? body : JSON.stringify(body));
}

/** A comparison in a condition. */
export function term(column: string, cmp: string, value: unknown) {
  return { column, cmp, value };
}
