/** Judges queries of callers who may be narrowed by entries or boundaries. */

import type { PermissionClass } from "../query/permissions.ts";
import type { Access, Query } from "../query/query.ts";
import type { ApprovalRule, Decision, DecisionContext, QueryDecision } from "./decision.ts";
import type { Limits } from "./grant.ts";
import { judgeNarrowed } from "./narrowed-access.ts";
import { LimitTally } from "./query-limits.ts";
import {
  boundaryName,
  denied,
  type GivenRights,
  granted,
  judgeRights,
  type WantedRight,
} from "./rights.ts";
import type { Snapshot } from "./snapshot.ts";
import type { Subject } from "./subject.ts";

/** What an access needs where: a new table refers to others, which have to be readable alone. */
function wantedRights({ permissions, tables, detail }: Access): readonly WantedRight[] {
  if (tables.length === 0) return [{ table: undefined, permissions }];
  const { referenced = [] } = detail ?? {};
  if (referenced.length === 0) return tables.map((table) => ({ table, permissions }));
  const own = permissions.filter((permission) => permission !== "SELECT");
  const read = ["SELECT"] as const;
  return [
    ...tables.map((table) => ({ table, permissions: own })),
    ...referenced.map((table) => ({ table, permissions: read })),
  ];
}

/** Whole numbers past a double's reach, which JSON has no other form for, as their digits. */
function digitsOfLarge(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? `${value}n` : value;
}

/** The rules that ask for an approval of what is used. */
export function approvalsOf(
  database: string,
  { rights, boundaries }: GivenRights,
): readonly ApprovalRule[] {
  const rules: ApprovalRule[] = [];
  const add = (
    { requireApproval, approvers }: Limits,
    used: readonly PermissionClass[],
    by: Pick<ApprovalRule, "entry" | "boundary">,
  ) => {
    if (requireApproval === undefined) return;
    const permissions = used.filter((permission) => requireApproval.includes(permission));
    if (permissions.length === 0) return;
    rules.push({ database, ...by, permissions, ...(approvers === undefined ? {} : { approvers }) });
  };
  for (const { entry, permissions } of rights) add(entry.grant, permissions, { entry: entry.name });
  for (const boundary of boundaries) {
    const used = new Set(rights.flatMap(({ permissions }) => permissions));
    add(boundary, [...used], { boundary: boundaryName(boundary) });
  }
  return rules;
}

/** What was decided by, as text: the entries that decide, their boundaries and row filters. */
function basisOf(given: readonly GivenRights[], decisions: readonly Decision[]): string {
  const grounds = given.map(({ rights, boundaries }, at) => [
    { rights: rights.map(({ fitting: _, ...right }) => right), boundaries },
    decisions[at]?.filters ?? [],
  ]);
  return JSON.stringify(grounds, digitsOfLarge);
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
  const all: GivenRights[] = [];
  const deny = (decision: Decision): QueryDecision => {
    decisions.push(decision);
    return { allowed: false, reason: decision.reason, decisions, limits: [], approvals: [] };
  };
  for (const [element, access] of accesses.entries()) {
    const given = judgeRights(snapshot, subject, access.database, wantedRights(access), context);
    if ("reason" in given) return deny(given);
    const { rights, boundaries } = given;
    const judged = { snapshot, username, context, access, element, tally, rights, boundaries };
    const narrowed = judgeNarrowed(judged);
    if ("reason" in narrowed) return deny(denied({ entry: rights[0]?.entry, ...narrowed }));
    const { filters, additions } = narrowed;
    const decision = granted(given);
    decisions.push(filters.length === 0 ? decision : { ...decision, filters, additions });
    approvals.push(...approvalsOf(access.database, given));
    all.push(given);
  }
  const isPending = approvals.length > 0 && context.isApproved !== true;
  const reason = decisions.length === 0 ? "no_grant" : isPending ? "approval_required" : "allowed";
  return {
    allowed: reason === "allowed",
    reason,
    decisions,
    limits: tally.limits(),
    bytewise: tally.bytewise(),
    approvals,
    ...(approvals.length === 0 ? {} : { basis: basisOf(all, decisions) }),
  };
}
