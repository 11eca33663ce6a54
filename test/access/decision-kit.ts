/** Grants and queries for tests of the decision by examples. */

import type { AttributeValue, Boundary, Grant } from "../../src/access/grant.ts";
import { decideQuery } from "../../src/access/policy.ts";
import type { DecisionContext } from "../../src/access/rights.ts";
import { createGrammar } from "../../src/query/grammar.ts";
import { scan } from "../../src/query/scan.ts";
import { now, snapshotOf, username } from "./decision-worlds.ts";

const grammar = createGrammar({ extraFields: [], operations: {}, level: "full" });
export const subject = { username, tokenDatabase: "*" };

/** Entries of one user, each on `main` as ReadWrite unless it says otherwise. */
export interface Rules {
  readonly grants?: readonly Partial<Grant>[];
  readonly boundaries?: readonly Boundary[];
  readonly attributes?: Readonly<Record<string, AttributeValue>>;
}

/** The rules as a snapshot. */
export function snapshotBy({ grants = [{}], boundaries = [], attributes = {} }: Rules) {
  const place = { username, database: "main", role: "ReadWrite" } as const;
  return snapshotOf({
    grants: grants.map((grant) => ({ ...place, ...grant })),
    boundaries,
    attributes,
  });
}

/** Decides on a query, given as a value or as JSON text. */
export function decideOn(rules: Rules, body: unknown, context: Partial<DecisionContext> = {}) {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const query = scan(Buffer.from(text), grammar, true);
  const how = { via: "query", now, isEngine: true, ...context } as const;
  return decideQuery(snapshotBy(rules), subject, query, how);
}

/** Why a query comes out as it does. */
export function codeOf(rules: Rules, body: unknown, context?: Partial<DecisionContext>): string {
  return decideOn(rules, body, context).reason;
}

/** The table that changes are made to. */
export const place = { database: "main", table: "tickets" };

/** A Select of one table. */
export function select(fields: object = {}) {
  return { Select: { database: "main", from: "tickets", columns: ["id"], ...fields } };
}
/** An Insert. */
export function insert(...values: object[]) {
  return { Insert: { ...place, values } };
}
/** An Update of all rows unless it says which. */
export function update(fields: object) {
  return { Update: { ...place, where: null, ...fields } };
}
/** A condition, as the field `where`. */
export function where(column: string, cmp: string, value: unknown) {
  return { where: { column, cmp, value } };
}
/** A Select of two tables. */
export function inner(fields: object = {}) {
  const join = { table: "orders", on: "tickets.id = orders.id", join_type: "INNER" };
  return select({ columns: ["tickets.id"], join, ...fields });
}
