/** Judges queries of callers who may be narrowed by entries or boundaries. */

import type { PermissionClass } from "../query/permissions.ts";
import type { Access, Query } from "../query/query.ts";
import { boundaryName } from "./boundaries.ts";
import type { ApprovalRule, Decision, DecisionContext, QueryDecision } from "./decision.ts";
import type { Limits } from "./grant.ts";
import { judgeNarrowed } from "./narrowed-access.ts";
import { LimitTally } from "./query-limits.ts";
import { denied, type GivenRights, granted, judgeRights, type WantedRight } from "./rights.ts";
import type { Snapshot } from "./snapshot.ts";
import type { Subject } from "./subject.ts";

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

/** Whole numbers past a double's reach, which JSON has no other form for, as their digits. */
function digitsOfLarge(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? `${value}n` : value;
}

function* approvalBy(
  { requireApproval, approvers }: Limits,
  permissions: readonly PermissionClass[],
  rule: Pick<ApprovalRule, "database" | "entry" | "boundary">,
): Generator<ApprovalRule, undefined> {
  const needing = permissions.filter((permission) => requireApproval?.includes(permission));
  if (needing.length === 0) return;
  yield { ...rule, permissions: needing, ...(approvers === undefined ? {} : { approvers }) };
}

/** The rules that ask for an approval of what is used. */
export function* approvalsOf(
  database: string,
  { rights, boundaries }: GivenRights,
): Generator<ApprovalRule, undefined> {
  for (const { entry, permissions } of rights) {
    yield* approvalBy(entry.grant, permissions, { database, entry: entry.name });
  }
  const used = [...new Set(rights.flatMap(({ permissions }) => permissions))];
  for (const boundary of boundaries) {
    yield* approvalBy(boundary, used, { database, boundary: boundaryName(boundary) });
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
  const grounds: unknown[] = [];
  const deny = (decision: Decision): QueryDecision => {
    decisions.push(decision);
    return { allowed: false, reason: decision.reason, decisions, limits: [], approvals: [] };
  };
  for (const [element, access] of accesses.entries()) {
    const { database } = access;
    const given = judgeRights(snapshot, subject, database, wantedRights(access), context);
    if ("reason" in given) return deny(given);
    const judged = { snapshot, username, context, access, element, tally, ...given };
    const narrowed = judgeNarrowed(judged);
    if ("reason" in narrowed) return deny(denied({ entry: given.rights[0]?.entry, ...narrowed }));
    approvals.push(...approvalsOf(database, given));
    const { filters } = narrowed;
    grounds.push([given, filters]);
    decisions.push({ ...granted(given), ...(filters.length === 0 ? {} : narrowed) });
  }
  const isPending = approvals.length > 0 && context.isApproved !== true;
  const reason = decisions.length === 0 ? "no_grant" : isPending ? "approval_required" : "allowed";
  return {
    allowed: reason === "allowed",
    reason,
    decisions,
    limits: tally.limits(),
    approvals,
    ...(approvals.length === 0 ? {} : { basis: JSON.stringify(grounds, digitsOfLarge) }),
  };
}
