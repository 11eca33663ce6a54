/** What is decided without a query of the grammar: whole databases, and tables as they are listed. */

import type { PermissionClass } from "../query/permissions.ts";
import { boundaryName, mayBeNarrowed } from "./boundaries.ts";
import type { Decision, DecisionContext } from "./decision.ts";
import type { Limits } from "./grant.ts";
import { narrowingOn } from "./narrowed-access.ts";
import { decide } from "./policy.ts";
import { denied, granted, judgeRights } from "./rights.ts";
import type { Snapshot } from "./snapshot.ts";
import type { Subject } from "./subject.ts";

/**
 * Decides on rights on a table of a database, or on the database itself without one, as far as that
 * can be said before it is known which columns and rows are meant.
 */
export function decideOnTable(
  snapshot: Snapshot,
  subject: Subject,
  permissions: readonly PermissionClass[],
  database: string,
  table: string | undefined,
  context: DecisionContext,
): Decision {
  const given = judgeRights(snapshot, subject, database, [{ table, permissions }], context);
  return "reason" in given ? given : granted(given);
}

/**
 * Decides on what reaches a whole database in ways that nobody can narrow: a configured route, a
 * tool of a foreign MCP server. It takes a caller who is not narrowed there, and needs no approval.
 */
export function decideUnnarrowed(
  snapshot: Snapshot,
  subject: Subject,
  permission: PermissionClass,
  database: string,
  context: DecisionContext,
): Decision {
  const { username } = subject;
  const { now } = context;
  if (!mayBeNarrowed(snapshot, username, context)) {
    return decide(snapshot, subject, permission, database, now);
  }
  const wanted = [{ table: undefined, permissions: [permission] }];
  const given = judgeRights(snapshot, subject, database, wanted, context);
  if ("reason" in given) return given;
  const asks = ({ requireApproval = [] }: Limits) => requireApproval.includes(permission);
  const entry = given.rights.find((right) => asks(right.entry.grant))?.entry;
  const boundary = given.boundaries.find(asks);
  const narrowing =
    narrowingOn(snapshot, username, database, given.boundaries, now) ??
    (entry && { entry }) ??
    (boundary && { boundary: boundaryName(boundary) });
  if (narrowing === undefined) return granted(given);
  const message = `Use queries instead: this reaches all of ${database}, of which the caller may use a part`;
  return denied({ entry: given.rights[0]?.entry, reason: "not_narrowable", message, ...narrowing });
}

/** What a caller may read of a table. */
export interface VisibleTable {
  /** The columns; undefined for all. */
  readonly columns: readonly string[] | undefined;
}

/** What a caller may read of a table; undefined for nothing: then the table is not there for it. */
export function visibleTable(
  snapshot: Snapshot,
  subject: Subject,
  database: string,
  table: string,
  context: DecisionContext,
): VisibleTable | undefined {
  const wanted = [{ table, permissions: ["SELECT" as const] }];
  const given = judgeRights(snapshot, subject, database, wanted, context);
  return "reason" in given ? undefined : { columns: given.rights[0]?.entry.grant.columns };
}
