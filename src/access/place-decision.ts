/** Decisions without a query: what a user may do on a database, or on one of its tables. */

import type { PermissionClass } from "../query/permissions.ts";
import { entriesInForce } from "./deciding-entry.ts";
import type { ApprovalRule, Decision, QueryOrigin } from "./decision.ts";
import type { Boundary, Grant } from "./grant.ts";
import { approvalsOf } from "./narrowed-query.ts";
import { decideAll } from "./policy.ts";
import { granted, judgeRights } from "./rights.ts";
import { EVERY_DATABASE } from "./roles.ts";
import { grantsOf, type Snapshot } from "./snapshot.ts";

/** What is asked. */
export interface PlaceQuestion {
  readonly permissions: readonly PermissionClass[];
  readonly database: string;
  readonly table?: string | undefined;
}

/** How it would be asked of the gateway, and when. */
export interface PlaceContext extends QueryOrigin {
  /** Epoch milliseconds. */
  readonly now: number;
}

/** The answer, and the limits within which a query is allowed. */
export interface PlaceDecision extends Decision {
  /** The deciding entry, with the limits that boundaries leave of it. */
  readonly grant?: Grant;
  readonly approvals?: readonly ApprovalRule[];
}

/** The lower of the limits that are set. */
function lowest(limits: readonly (number | undefined)[]): number | undefined {
  const set = limits.filter((limit) => limit !== undefined);
  return set.length === 0 ? undefined : Math.min(...set);
}

function within(grant: Grant, boundaries: readonly Boundary[]): Grant {
  const { tables: _, maxRows, maxChanges, ...rest } = grant;
  const rows = lowest([maxRows, ...boundaries.map((one) => one.maxRows)]);
  const changes = lowest([maxChanges, ...boundaries.map((one) => one.maxChanges)]);
  return {
    ...rest,
    ...(rows === undefined ? {} : { maxRows: rows }),
    ...(changes === undefined ? {} : { maxChanges: changes }),
  };
}

/** Decides whether a user may do something there at all, and within which limits. */
export function decidePlace(
  snapshot: Snapshot,
  username: string,
  { permissions, database, table }: PlaceQuestion,
  context: PlaceContext,
): PlaceDecision {
  const subject = { username, tokenDatabase: EVERY_DATABASE };
  // What is no query's is judged by whole databases alone.
  if (permissions.includes("GRANT")) {
    return decideAll(snapshot, subject, permissions, database, context.now);
  }
  const wanted = [{ table, permissions }];
  const given = judgeRights(snapshot, subject, database, wanted, context);
  if ("reason" in given) return given;
  const grant = given.rights[0]?.entry.grant;
  const approvals = [...approvalsOf(database, given)];
  return {
    ...granted(given),
    ...(grant === undefined ? {} : { grant: within(grant, given.boundaries) }),
    ...(approvals.length === 0 ? {} : { approvals }),
  };
}

/**
 * The entries by which a user may do something on a database: the one that decides on a table, or,
 * if none is named, all that decide on some of its tables.
 */
export function* waysTo(
  snapshot: Snapshot,
  username: string,
  question: PlaceQuestion,
  context: PlaceContext,
): Generator<PlaceDecision, undefined> {
  const { permissions, database, table } = question;
  const isOfTables = !permissions.some((one) => one === "GRANT" || one.endsWith(" DATABASE"));
  const places = new Set([table]);
  if (table === undefined && isOfTables) {
    for (const { name } of entriesInForce(grantsOf(snapshot, username), database, context.now)) {
      const dot = name.indexOf(".");
      if (dot !== -1) places.add(name.slice(dot + 1));
    }
  }
  const seen = new Set<string | undefined>();
  for (const place of places) {
    const decision = decidePlace(snapshot, username, { ...question, table: place }, context);
    if (decision.allowed && !seen.has(decision.entry)) yield decision;
    seen.add(decision.entry);
  }
}
