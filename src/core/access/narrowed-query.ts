import { writeDigits } from "../json/exact.ts";
import { termText } from "../query/conditions.ts";
import type { OperationNode } from "../query/node.ts";
import { definitions, isOperationName } from "../query/operations.ts";
import type { PermissionClass } from "../query/permissions.ts";
import type { Access, Query } from "../query/query.ts";
import { checkColumns, type TableRight } from "./column-checks.ts";
import type { DecidingEntry } from "./entries.ts";
import { type Boundary, type Grant, isNarrowing, type Limits, type Subject } from "./grant.ts";
import { type Caller, effectiveGrants } from "./groups.ts";
import {
  type ApprovalRule,
  boundaryName,
  checkRights,
  type Decision,
  type DecisionContext,
  Denied,
  deniedBy,
  entriesInForce,
  type GivenRight,
  type GivenRights,
  granted,
  type KnownEntries,
  type Objection,
  type QueryDecision,
  type TableFilter,
  unnarrowable,
  type WantedRight,
} from "./rights.ts";
import { type FilteredAccess, filterRows, type RowFilters, tableNames } from "./row-filter.ts";
import { checkNumbers, findLimiters, isLimiting, LimitTotals } from "./row-limits.ts";
import type { Snapshot } from "./snapshot.ts";

/** An access of a query, whose tables the caller may use. */
interface NarrowedAccess extends FilteredAccess, GivenRights<WantedTable & GivenRight> {
  readonly context: DecisionContext;
  /** Index in a Batch. */
  readonly element: number;
  readonly totals: LimitTotals;
}

/** A table that an access names, or its database without one. */
interface WantedTable extends WantedRight {
  readonly name: string;
  readonly node: OperationNode | undefined;
}

/**
 * The entry or boundary that keeps a caller from everything the role would allow on a database.
 *
 * @param ofTable the deciding entry of a table, if only that table is reached
 */
export function narrowingOn(
  snapshot: Snapshot,
  caller: Caller,
  database: string,
  boundaries: readonly Boundary[],
  now: number,
  ofTable?: DecidingEntry,
): Pick<Objection, "entry" | "boundary"> | undefined {
  const grants = effectiveGrants(snapshot, caller, now);
  const inForce = entriesInForce(grants, database, now).map(({ entry }) => entry);
  const entries = ofTable ? [ofTable] : [...inForce];
  const [entry] = entries
    .filter(({ grant: { requireApproval, tables, ...grant }, isExpired }) => {
      const isOfPart = ofTable === undefined && tables !== undefined;
      return isExpired || isOfPart || isNarrowing(grant);
    })
    .sort((one, other) => (one.name < other.name ? -1 : 1));
  if (entry !== undefined) return { entry };
  const boundary = boundaries.find((one) => one.role === "None" || isLimiting(one));
  return boundary && { boundary: boundaryName(boundary) };
}

function remedyFor({ operation, node }: Access, { isEngine }: DecisionContext): string | undefined {
  if (!isOperationName(operation)) {
    return `Use Select, Insert, Update or Delete instead of ${operation}`;
  }
  if (operation === "Preview" && !isEngine) return "Do not use Preview with this database";
  // Another database may take a column of the condition for one of the tables around it.
  if (node.nested.length > 0 && !isEngine) {
    return "Omit exists, select and include with this database";
  }
  return node.hasExtraFields ? "Omit the fields that the configuration adds" : undefined;
}

/** Requires an operation that can be narrowed, if something narrows the caller. @throws Denied */
function requireNarrowable(judged: NarrowedAccess): void {
  const { snapshot, subject, access, boundaries, context } = judged;
  const remedy = remedyFor(access, context);
  if (remedy === undefined) return;
  const narrowing = narrowingOn(snapshot, subject, access.database, boundaries, context.now);
  if (narrowing !== undefined)
    throw new Denied({ ...unnarrowable(remedy, undefined), ...narrowing });
}

/** Other databases may let a new name hide a column, even that of a row filter. @throws Denied */
function checkAliases({ context, access }: NarrowedAccess, own: readonly TableRight[]): void {
  const { isAggregate, computed } = access.node;
  const isComputed = computed.length > 0;
  if (context.isEngine || !(isAggregate || isComputed)) return;
  const narrowed = own.find(
    ({ entry: { grant } }) =>
      grant.columns !== undefined || (isComputed && grant.rowFilter !== undefined),
  );
  if (narrowed === undefined) return;
  const what = `Do not use ${isComputed ? "compute" : "aggregate"} with this database`;
  throw new Denied(unnarrowable(what, narrowed.entry));
}

/** A new table that refers to a filtered one could point at hidden rows. @throws Denied */
function checkReferences(referenced: readonly TableRight[]): void {
  const filtered = referenced.find(({ entry }) => entry.grant.rowFilter !== undefined);
  if (filtered === undefined) return;
  throw new Denied(unnarrowable(`Omit references to ${filtered.table}`, filtered.entry));
}

/** The filters of all tables of an access, in the order of the query. @throws Denied */
function narrow(judged: NarrowedAccess): readonly TableFilter[] {
  const { access, rights, context, element, totals, operation } = judged;
  const { node } = access;
  requireNarrowable(judged);
  const tables = rights.flatMap(({ table, ...right }) =>
    table === undefined ? [] : [{ ...right, table }],
  );
  const [first] = tables;
  if (first === undefined || !isOperationName(node.operation)) return [];
  const byNode = Map.groupBy(tables, (one) => one.node);
  const own = byNode.get(node) ?? [];
  const referenced = byNode.get(undefined) ?? [];
  checkColumns(node, own, referenced);
  const isPreview = access.operation === "Preview";
  const hidden = own.find(({ entry }) => entry.grant.columns !== undefined);
  if (isPreview) totals.limitPreview(element, hidden?.entry.grant.columns);
  checkReferences(referenced);
  checkAliases(judged, own);
  const filters = [...filterRows(judged, node, own)];
  const nested = node.nested.map((inner) => ({ node: inner, tables: byNode.get(inner) ?? [] }));
  const limiters = findLimiters(judged);
  if (limiters.length > 0 || first.entry.grant.requireWhere !== undefined) {
    const counted = { element, totals, isEngine: context.isEngine, isPreview, operation };
    checkNumbers(counted, node, first, nested, limiters);
  }
  // Nested operations are judged as Selects of their own.
  for (const { node: inner, tables } of nested) {
    checkColumns(inner, tables, inner.isCorrelated ? (byNode.get(inner.outer) ?? []) : []);
    for (const filter of filterRows(judged, inner, tables)) filters.push(filter);
  }
  return filters;
}

/** Tables that a new table refers to and those of nested operations need only SELECT. */
function wantedRights({ operation, permissions, node }: Access): readonly WantedTable[] {
  const { referenced, nested } = node;
  const reads = isOperationName(operation) && definitions[operation].permissions.includes("SELECT");
  const isSimple = referenced.length + nested.length === 0;
  const own =
    isSimple || reads ? permissions : permissions.filter((permission) => permission !== "SELECT");
  const read = ["SELECT"] as const;
  const wanted = [
    ...wantedTables(node, own),
    ...nested.flatMap((inner) => wantedTables(inner, read)),
    ...referenced.map((table) => ({ table, name: table, node: undefined, permissions: read })),
  ];
  return wanted.length > 0 ? wanted : [{ table: undefined, name: "", node, permissions }];
}

function wantedTables(node: OperationNode, permissions: readonly PermissionClass[]): WantedTable[] {
  const names = tableNames(node);
  return node.tables.map((table, at) => ({ table, name: names[at] ?? table, node, permissions }));
}

export function neededApprovals(
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

/** A Preview changes nothing, so only the approval of what it shows counts. */
function onlyReading({ rights, boundaries }: GivenRights): GivenRights {
  const read = rights.map((right) => ({ ...right, permissions: ["SELECT"] as const }));
  return { rights: read, boundaries };
}

/** Stored approvals have a digest of this form. */
function rightBasis({ table, permissions, entry }: GivenRight) {
  const { grant, name, isExpired } = entry;
  return { table, permissions, entry: { grant: limitsBasis(grant), name, isLapsed: isExpired } };
}

/** With the holder as `username`, in the same place. */
function limitsBasis(limits: Grant | Boundary): object {
  const members = Object.entries(limits);
  return Object.fromEntries(
    members.map(([key, value]) => [key === "holder" ? "username" : key, value]),
  );
}

/** An approval is void if this text differs when it is used. */
function approvalBasis(given: readonly GivenRights[], decisions: readonly Decision[]): string {
  const grounds = given.map(({ rights, boundaries }, at) => {
    const filters = decisions[at]?.filters ?? [];
    const texts = filters.flatMap(({ conditions }) => conditions.map(termText));
    return [{ rights: rights.map(rightBasis), boundaries: boundaries.map(limitsBasis) }, texts];
  });
  return JSON.stringify(grounds, writeDigits);
}

export function decideNarrowedQuery(
  snapshot: Snapshot,
  subject: Subject,
  { accesses, operations }: Query,
  context: DecisionContext,
): QueryDecision {
  // Rows and lists are compared with row filters.
  operations.complete();
  const totals = new LimitTotals(context.isEngine);
  const known: KnownEntries = new Map();
  const rowFilters: RowFilters = new Map();
  const decisions: Decision[] = [];
  const approvals: ApprovalRule[] = [];
  const all: GivenRights[] = [];
  const deny = (decision: Decision): QueryDecision => {
    decisions.push(decision);
    return { allowed: false, reason: decision.reason, decisions, limits: [], approvals: [] };
  };
  for (const [element, access] of accesses.entries()) {
    const wanted = wantedRights(access);
    const given = checkRights(snapshot, subject, access.database, wanted, context, known);
    if ("reason" in given) return deny(given);
    const operation = access.node.operation === "Select" ? undefined : operations.at(element);
    const judging = { snapshot, subject, context, access, element, totals, operation };
    const judged = { ...given, ...judging, rowFilters };
    try {
      const filters = narrow(judged);
      decisions.push({ ...granted(given), ...(filters.length === 0 ? {} : { filters }) });
    } catch (error) {
      if (!(error instanceof Denied)) throw error;
      return deny(deniedBy({ entry: given.rights[0]?.entry, ...error.objection }));
    }
    const used = access.operation === "Preview" ? onlyReading(given) : given;
    for (const one of neededApprovals(access.database, used)) approvals.push(one);
    all.push(given);
  }
  let reason: QueryDecision["reason"] = decisions.length === 0 ? "no_grant" : "allowed";
  if (approvals.length > 0 && context.isApproved !== true) reason = "approval_required";
  return {
    allowed: reason === "allowed",
    reason,
    decisions,
    limits: totals.limits(),
    bytewise: totals.bytewise(),
    approvals,
    ...(approvals.length === 0 ? {} : { basis: approvalBasis(all, decisions) }),
  };
}
