/** Judges queries of callers who may be narrowed by entries or boundaries. */

import type { PermissionClass } from "../query/permissions.ts";
import type { Access, Query } from "../query/query.ts";
import { boundariesFor, boundaryName } from "./boundaries.ts";
import { type DecidingEntry, decidingEntry, otherSpellingOf } from "./deciding-entry.ts";
import type {
  ApprovalRule,
  Decision,
  DecisionContext,
  Objection,
  QueryDecision,
} from "./decision.ts";
import type { Boundary, EntryRole } from "./grant.ts";
import { judgeNarrowed, type RightOnTable } from "./narrowed-access.ts";
import { LimitTally } from "./query-limits.ts";
import { outranks, roleAllows } from "./roles.ts";
import { grantsOf, type Snapshot } from "./snapshot.ts";
import { judgeName, type Subject } from "./subject.ts";

/** A table, and the rights that are needed on it; on the database itself without one. */
interface WantedRight {
  readonly table: string | undefined;
  readonly permissions: readonly PermissionClass[];
}

/** What an access needs where: a new table refers to others, which have to be readable alone. */
function wantedRights({ permissions, tables, detail }: Access): readonly WantedRight[] {
  if (tables.length === 0) return [{ table: undefined, permissions }];
  const references = [...(detail?.uses.get("references") ?? [])];
  const own = references.length === 0 ? permissions : permissions.filter((one) => one !== "SELECT");
  return [
    ...tables.map((table) => ({ table, permissions: own })),
    ...references.map((column) => ({
      table: column.slice(0, column.indexOf(".")),
      permissions: ["SELECT" as const],
    })),
  ];
}

function insufficient(permission: PermissionClass, where: string, role: EntryRole): Objection {
  const message = `${permission} is not among the rights of ${role} on ${where}`;
  return { reason: "role_insufficient", message };
}

/** The entry that decides on a table, in force and in this spelling, or why there is none. */
function findEntry(
  snapshot: Snapshot,
  username: string,
  database: string,
  table: string | undefined,
  now: number,
): DecidingEntry | Objection {
  const grants = grantsOf(snapshot, username);
  const other = table === undefined ? undefined : otherSpellingOf(grants, database, table, now);
  if (other !== undefined) {
    const { spelling, entry } = other;
    const message = `The table ${table} differs by case alone from ${spelling}: write it so`;
    return { reason: "name_case_mismatch", message, entry };
  }
  const entry = decidingEntry(snapshot, username, database, table, now);
  if (entry === undefined) {
    const where = table === undefined ? database : `${database}.${table}`;
    return { reason: "no_grant", message: `There is no grant for ${where}` };
  }
  if (!entry.isLapsed) return entry;
  const message = `The grant for ${entry.name} has expired: ask for a new one`;
  return { reason: "grant_expired", message, entry };
}

/** What is wrong with the use of some rights by a role and within boundaries, if anything is. */
function judgeRoles(
  permissions: readonly PermissionClass[],
  entry: DecidingEntry,
  boundaries: readonly Boundary[],
): Objection | undefined {
  const { role } = entry.grant;
  const lacking = permissions.find((permission) => !roleAllows(role, permission));
  if (lacking !== undefined) return { ...insufficient(lacking, entry.name, role), entry };
  for (const boundary of boundaries) {
    const most = boundary.role;
    if (most === undefined) continue;
    const beyond = permissions.find((permission) => !roleAllows(most, permission));
    if (beyond === undefined) continue;
    const name = boundaryName(boundary);
    return { ...insufficient(beyond, `what comes by ${name}`, most), entry, boundary: name };
  }
  return undefined;
}

function denied({ reason, message, entry, boundary }: Objection): Decision {
  return {
    allowed: false,
    reason,
    role: entry?.isLapsed ? "None" : entry?.grant.role,
    entry: entry?.name,
    message,
    ...(boundary === undefined ? {} : { boundary }),
  };
}

/** The rights of an access and the boundaries around it, or the decision that denies it. */
function judgeRights(
  snapshot: Snapshot,
  subject: Subject,
  access: Access,
  context: DecisionContext,
): { rights: RightOnTable[]; boundaries: readonly Boundary[] } | Decision {
  const { permissions, database } = access;
  const { username } = subject;
  const reason = permissions
    .values()
    .map((permission) => judgeName(snapshot, subject, permission, database))
    .find((refused) => refused !== undefined);
  if (reason !== undefined) return { allowed: false, reason, role: undefined, entry: undefined };
  const boundaries = boundariesFor(snapshot, username, database, context);
  const rights: RightOnTable[] = [];
  for (const { table, permissions: wanted } of wantedRights(access)) {
    const entry = findEntry(snapshot, username, database, table, context.now);
    if ("reason" in entry) return denied(entry);
    const objection = judgeRoles(wanted, entry, boundaries);
    if (objection !== undefined) return denied(objection);
    rights.push({ table, permissions: wanted, entry });
  }
  return { rights, boundaries };
}

/** The narrowest of the roles that count. */
function narrowestRole(rights: readonly RightOnTable[], boundaries: readonly Boundary[]) {
  const roles = [
    ...rights.map(({ entry }) => entry.grant.role),
    ...boundaries.map(({ role }) => role),
  ];
  return roles
    .filter((role) => role !== undefined)
    .reduce((narrowest, role) => (outranks(narrowest, role) ? role : narrowest));
}

/** The rules that ask for an approval of what is used. */
function* approvalsOf(
  database: string,
  rights: readonly RightOnTable[],
  boundaries: readonly Boundary[],
): Generator<ApprovalRule, undefined> {
  const used = [...new Set(rights.flatMap(({ permissions }) => permissions))];
  const asked = [
    ...rights.map(({ entry, permissions }) => ({
      rule: entry.grant,
      permissions,
      name: { entry: entry.name },
    })),
    ...boundaries.map((rule) => ({
      rule,
      permissions: used,
      name: { boundary: boundaryName(rule) },
    })),
  ];
  for (const { rule, permissions, name } of asked) {
    const { requireApproval = [], approvers } = rule;
    const needing = permissions.filter((permission) => requireApproval.includes(permission));
    if (needing.length === 0) continue;
    yield {
      ...name,
      database,
      permissions: needing,
      ...(approvers === undefined ? {} : { approvers }),
    };
  }
}

/**
 * Decides on every access of `query`, in order, and stops at the first denial. The accesses must
 * have been scanned in detail.
 */
export function decideNarrowedQuery(
  snapshot: Snapshot,
  subject: Subject,
  { accesses }: Query,
  context: DecisionContext,
): QueryDecision {
  const { username } = subject;
  const tally = new LimitTally(context.isEngine);
  const decisions: Decision[] = [];
  const approvals: ApprovalRule[] = [];
  const deny = (decision: Decision): QueryDecision => {
    decisions.push(decision);
    return { allowed: false, reason: decision.reason, decisions, limits: [], approvals: [] };
  };
  for (const [element, access] of accesses.entries()) {
    const given = judgeRights(snapshot, subject, access, context);
    if ("reason" in given) return deny(given);
    const { rights, boundaries } = given;
    const judged = { snapshot, username, context, access, element, rights, boundaries, tally };
    const narrowed = judgeNarrowed(judged);
    if ("reason" in narrowed) return deny(denied({ entry: rights[0]?.entry, ...narrowed }));
    const { filters, additions } = narrowed;
    approvals.push(...approvalsOf(access.database, rights, boundaries));
    decisions.push({
      allowed: true,
      reason: "allowed",
      role: narrowestRole(rights, boundaries),
      entry: [...new Set(rights.map(({ entry }) => entry.name))].join(", "),
      ...(filters.length === 0 ? {} : { filters, additions }),
    });
  }
  const isPending = approvals.length > 0 && context.isApproved !== true;
  const reason = decisions.length === 0 ? "no_grant" : isPending ? "approval_required" : "allowed";
  return { allowed: reason === "allowed", reason, decisions, limits: tally.limits(), approvals };
}
