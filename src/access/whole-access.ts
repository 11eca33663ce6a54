/** What is decided without a query: on whole databases, and on tables as they are listed. */

import type { PermissionClass } from "../query/permissions.ts";
import type { DecidingEntry } from "./deciding-entry.ts";
import type { Decision, Denial, Objection, QueryOrigin } from "./decision.ts";
import type { Limits } from "./grant.ts";
import { narrowingOn } from "./narrowed-access.ts";
import { decide, mayUseOn } from "./policy.ts";
import {
  boundariesFor,
  boundaryName,
  type DeniedDecision,
  denied,
  granted,
  judgeRights,
  mayBeNarrowed,
} from "./rights.ts";
import { roleAllows } from "./roles.ts";
import type { Snapshot } from "./snapshot.ts";
import { judgeName, type Subject } from "./subject.ts";

/**
 * Decides whether `subject` may use `permission` on all of a database, by something that nobody can
 * keep within rows and columns: a route, or a tool of another server.
 */
export function decideWhole(
  snapshot: Snapshot,
  subject: Subject,
  permission: PermissionClass,
  database: string,
  origin: QueryOrigin,
): Decision {
  const now = Date.now();
  const { username } = subject;
  if (!mayBeNarrowed(snapshot, username, origin)) {
    return decide(snapshot, subject, permission, database, now);
  }
  const wanted = [{ table: undefined, permissions: [permission] }];
  const given = judgeRights(snapshot, subject, database, wanted, { ...origin, now });
  if ("reason" in given) return given;
  const asks = ({ requireApproval = [] }: Limits) => requireApproval.includes(permission);
  const entry = given.rights[0]?.entry;
  const boundary = given.boundaries.find(asks);
  const narrowing =
    narrowingOn(snapshot, username, database, given.boundaries, now) ??
    (entry && asks(entry.grant) ? { entry } : undefined) ??
    (boundary && { boundary: boundaryName(boundary) });
  return narrowing === undefined ? granted(given) : unnarrowable(database, narrowing, entry);
}

/** Decides whether a subject has rights on some tables, as far as these can be judged without a query. */
export function decideOnTables(
  snapshot: Snapshot,
  subject: Subject,
  permissions: readonly PermissionClass[],
  database: string,
  tables: readonly string[],
  origin: QueryOrigin,
): Decision {
  const wanted = tables.map((table) => ({ table, permissions }));
  const context = { ...origin, now: Date.now() };
  const given = judgeRights(snapshot, subject, database, wanted, context);
  return "reason" in given ? given : granted(given);
}

function unnarrowable(
  database: string,
  narrowing: Pick<Objection, "entry" | "boundary">,
  entry?: DecidingEntry,
): DeniedDecision {
  const message = `Use queries instead: this reaches all of ${database}, of which the caller may use a part`;
  return denied({ entry, reason: "not_narrowable", message, ...narrowing });
}

/**
 * What keeps a subject from what needs no right on a database but may reach all of it: being
 * narrowed there. Undefined if nothing does.
 */
export function whyNotWhole(
  snapshot: Snapshot,
  { username }: Subject,
  database: string,
  origin: QueryOrigin,
): DeniedDecision | undefined {
  if (!mayBeNarrowed(snapshot, username, origin)) return undefined;
  const boundaries = boundariesFor(snapshot, username, database, origin);
  const narrowing = narrowingOn(snapshot, username, database, boundaries, Date.now());
  return narrowing && unnarrowable(database, narrowing);
}

/** Why a subject may see nothing of a database; undefined if it may see something. */
export function whyUnseen(
  snapshot: Snapshot,
  subject: Subject,
  database: string,
  origin: QueryOrigin,
): Denial | undefined {
  const { username } = subject;
  if (!mayBeNarrowed(snapshot, username, origin)) {
    const { reason } = decide(snapshot, subject, "SELECT", database);
    return reason === "allowed" ? undefined : reason;
  }
  const isBound = boundariesFor(snapshot, username, database, origin).some(
    ({ role = "Owner" }) => !roleAllows(role, "SELECT"),
  );
  if (isBound) return "role_insufficient";
  if (mayUseOn(snapshot, subject, "SELECT", database)) return undefined;
  return judgeName(snapshot, subject, "SELECT", database) ?? "no_grant";
}

/** What a subject may see of a table. */
export interface SeenTable {
  readonly sees: (column: string) => boolean;
  /** False if some rows may be hidden: how many there are is not to be told. */
  readonly seesAllRows: boolean;
}

/** What a subject may see of a table that may be there or not; why, if it may see nothing of it. */
export function seeTable(
  snapshot: Snapshot,
  subject: Subject,
  database: string,
  table: string,
  origin: QueryOrigin,
): SeenTable | Denial {
  const wanted = [{ table, permissions: ["SELECT" as const] }];
  const given = judgeRights(snapshot, subject, database, wanted, { ...origin, now: Date.now() });
  if ("reason" in given) return given.reason;
  const grants = given.rights.map(({ entry }) => entry.grant);
  return {
    sees: (column) => grants.every(({ columns }) => columns?.includes(column) ?? true),
    seesAllRows: grants.every(({ rowFilter }) => rowFilter === undefined),
  };
}
