import { placeName } from "../query/names.ts";
import { type PermissionClass, tableRights } from "../query/permissions.ts";
import type { Query } from "../query/query.ts";
import { DatabaseGrants, type DecidingEntry, unrestrictedGrant } from "./entries.ts";
import {
  type Boundary,
  displayName,
  type Grant,
  holderText,
  isNarrowing,
  type Limits,
  lowest,
  type Subject,
} from "./grant.ts";
import { type Caller, effectiveGrants } from "./groups.ts";
import { decideNarrowedQuery, narrowingOn, neededApprovals } from "./narrowed-query.ts";
import {
  type ApprovalRule,
  boundariesFor,
  boundaryName,
  checkRights,
  conflictMessage,
  type Decision,
  type DecisionContext,
  type Denial,
  type DeniedDecision,
  decidingEntry,
  deniedBy,
  entriesInForce,
  entriesInside,
  granted,
  mayBeNarrowed,
  type Objection,
  type QueryDecision,
  type QueryOrigin,
  type Reason,
} from "./rights.ts";
import { type EntryRole, EVERY_DATABASE, type Role, roleAllows, widestRole } from "./roles.ts";
import { missingAttribute } from "./row-filter.ts";
import { nameDenial, type Snapshot, tokenDenial } from "./snapshot.ts";

function deny(reason: Reason, role?: EntryRole, entry?: string, message?: string): Decision {
  return { allowed: false, reason, role, entry, ...(message && { message }) };
}

/**
 * Decides whether `subject` may use `permission` on `database`. The entry for the named database
 * wins over the one for `*`. A name that differs only by case from one in the file is denied, since
 * an upstream may fold case.
 *
 * @param now epoch milliseconds, read only if something expires
 */
export function decide(
  snapshot: Snapshot,
  subject: Subject,
  permission: PermissionClass,
  database: string,
  now?: number,
): Decision {
  const limit = tokenDenial(subject, permission, database);
  if (limit !== undefined) return deny(limit);
  const grants = effectiveGrants(snapshot, subject, now);
  let entry = placeName(database);
  let grant = grants.get(database);
  if (grant === undefined) {
    const known = snapshot.databases.get(database.toLowerCase());
    if (known !== undefined && known !== database) return deny("database_case_mismatch");
    entry = EVERY_DATABASE;
    grant = grants.get(EVERY_DATABASE);
  }
  if (grant === undefined) return deny("no_grant");
  if (grant instanceof DatabaseGrants || (permission === "GRANT" && isNarrowing(grant))) {
    return decideAmong(snapshot, subject, permission, database, now ?? Date.now());
  }
  const { role } = grant;
  entry = displayName(entry, grant);
  if (!roleAllows(role, permission)) return deny("role_insufficient", role, entry);
  return { allowed: true, reason: "allowed", role, entry };
}

/**
 * Decides if the subject has more than a single plain entry. GRANT is denied unless every entry
 * through which the subject reaches the database is permanent and without limits.
 */
function decideAmong(
  snapshot: Snapshot,
  subject: Subject,
  permission: PermissionClass,
  database: string,
  now: number,
): Decision {
  const deciding = decidingEntry(snapshot, subject, database, undefined, now);
  if (deciding === undefined) return deny("no_grant");
  const { name, isExpired, conflict } = deciding;
  const { role } = deciding.grant;
  if (isExpired) return deny("grant_expired", "None", name);
  if (conflict !== undefined) return deny("group_conflict", role, name, conflictMessage(conflict));
  const grants = effectiveGrants(snapshot, subject, now);
  const place = grants.has(database) ? database : EVERY_DATABASE;
  const isUnrestricted = unrestrictedGrant(grants, place, now) !== undefined;
  if ((permission === "GRANT" && !isUnrestricted) || !roleAllows(role, permission)) {
    return deny("role_insufficient", role, name);
  }
  return { allowed: true, reason: "allowed", role, entry: name };
}

/** A permanent Owner on `*`, without limits. */
export function isAdministrator(snapshot: Snapshot, caller: Caller): boolean {
  return unrestrictedGrant(effectiveGrants(snapshot, caller), EVERY_DATABASE)?.role === "Owner";
}

/** The widest role by which a user reaches anything in a database now, or anywhere for `*`. */
export function roleInForce(
  snapshot: Snapshot,
  caller: Caller,
  database: string,
): Role | undefined {
  const now = Date.now();
  const grants = effectiveGrants(snapshot, caller, now);
  const names = database === EVERY_DATABASE ? [...grants.keys()] : [database];
  return widestRole(
    names
      .flatMap((name) => [...entriesInForce(grants, name, now)])
      .flatMap(({ entry: { grant, isExpired } }) => (isExpired ? [] : grant)),
  );
}

function mayUseOn(
  snapshot: Snapshot,
  subject: Subject,
  permission: PermissionClass,
  database: string,
): boolean {
  const grants = effectiveGrants(snapshot, subject);
  if (!grants.isNarrowed || permission === "GRANT") {
    return decide(snapshot, subject, permission, database).allowed;
  }
  if (nameDenial(snapshot, subject, permission, database) !== undefined) return false;
  return entriesInForce(grants, database, Date.now()).some(
    ({ entry: { grant, isExpired } }) => !isExpired && roleAllows(grant.role, permission),
  );
}

export function mayUseAnywhere(
  snapshot: Snapshot,
  subject: Subject,
  permission: PermissionClass,
  origin?: QueryOrigin,
): boolean {
  const databases = [subject.tokenDatabase, ...effectiveGrants(snapshot, subject).keys()];
  return databases.some((database) =>
    origin === undefined
      ? mayUseOn(snapshot, subject, permission, database)
      : mayUseInside(snapshot, subject, permission, database, origin),
  );
}

/**
 * Decides on every access of `query`, in order, and stops at the first denial. For a caller who may
 * be narrowed (`mayBeNarrowed`), tables, columns and rows are checked too.
 */
export function decideQuery(
  snapshot: Snapshot,
  subject: Subject,
  query: Query,
  context: DecisionContext,
): QueryDecision {
  if (mayBeNarrowed(snapshot, subject, context)) {
    return decideNarrowedQuery(snapshot, subject, query, context);
  }
  const { now } = context;
  const decisions: Decision[] = [];
  let reason: Reason = "no_grant";
  for (const { permissions, database } of query.accesses) {
    const decision = decideAll(snapshot, subject, permissions, database, now);
    decisions.push(decision);
    reason = decision.reason;
    if (!decision.allowed) break;
  }
  return { allowed: reason === "allowed", reason, decisions, limits: [], approvals: [] };
}

function decideAll(
  snapshot: Snapshot,
  subject: Subject,
  permissions: readonly PermissionClass[],
  database: string,
  now: number,
): Decision {
  let decision: Decision | undefined;
  for (const permission of permissions) {
    decision = decide(snapshot, subject, permission, database, now);
    if (!decision.allowed) break;
  }
  return decision ?? deny("no_grant");
}

const MOST_NAMED_USERS = 5;

/**
 * Finds existing databases that are denied to everyone because the file names them in another case,
 * and some of the users who would reach them by their entry for `*`.
 */
export function findCaseConflicts(snapshot: Snapshot, databases: Iterable<string>) {
  return [...new Set(databases)].flatMap((database) => {
    const named = snapshot.databases.get(database.toLowerCase());
    if (named === undefined || named === database) return [];
    const users = snapshot.grants
      .entries()
      .filter(([, own]) => own.has(EVERY_DATABASE) && !own.has(named))
      .map(([holder]) => holderText(holder))
      .take(MOST_NAMED_USERS)
      .toArray();
    return [{ named, database, users }];
  });
}

/** For routes and tools of other servers, whose access cannot be limited to rows and columns. */
export function decideWholeDatabase(
  snapshot: Snapshot,
  subject: Subject,
  permission: PermissionClass,
  database: string,
  origin: QueryOrigin,
  table?: string,
): Decision {
  const now = Date.now();
  if (!mayBeNarrowed(snapshot, subject, origin)) {
    return decide(snapshot, subject, permission, database, now);
  }
  const wanted = [{ table, permissions: [permission] }];
  const given = checkRights(snapshot, subject, database, wanted, { ...origin, now });
  if ("reason" in given) return given;
  const needsApproval = ({ requireApproval = [] }: Limits) => requireApproval.includes(permission);
  const entry = given.rights[0]?.entry;
  const boundary = given.boundaries.find(needsApproval);
  const narrowing =
    narrowingOn(snapshot, subject, database, given.boundaries, now, table ? entry : undefined) ??
    (entry && needsApproval(entry.grant) ? { entry } : undefined) ??
    (boundary && { boundary: boundaryName(boundary) });
  const place = placeName(database, table);
  return narrowing === undefined ? granted(given) : denyWholePlace(place, narrowing, entry);
}

/**
 * Decides on a name that means every table whose name has a beginning. It needs an entry that
 * covers all of them, and no entry of the caller among them that allows less.
 *
 * @param prefix empty for all tables of the database
 */
export function decideEveryTable(
  snapshot: Snapshot,
  subject: Subject,
  permission: PermissionClass,
  database: string,
  prefix: string,
  origin: QueryOrigin,
): Decision {
  const covering = `${prefix}*`;
  const decision = decideWholeDatabase(snapshot, subject, permission, database, origin, covering);
  if (!mayBeNarrowed(snapshot, subject, origin)) return decision;
  const now = Date.now();
  const grants = effectiveGrants(snapshot, subject, now);
  const inside = entriesInside(grants, database, prefix, now);
  const message = `${placeName(database, covering)} includes names that the caller may not use: name each one`;
  const mayNameOthers =
    (decision.reason === "no_grant" && entriesInForce(grants, database, now).some(() => true)) ||
    (decision.reason === "role_insufficient" &&
      mayUseInside(snapshot, subject, permission, database, origin) &&
      inside.some((entry) => !entry.isExpired && roleAllows(entry.grant.role, permission)));
  if (mayNameOthers) return deny("name_too_wide", decision.role, decision.entry, message);
  if (!decision.allowed) return decision;
  const less = inside.find(
    ({ grant: { tables: _, requireApproval, ...grant }, isExpired, conflict }) =>
      isExpired ||
      conflict !== undefined ||
      isNarrowing(grant) ||
      requireApproval?.includes(permission) ||
      !roleAllows(grant.role, permission),
  );
  if (less === undefined) return decision;
  return deniedBy({ entry: less, reason: "name_too_wide", message });
}

/** True if the subject may use a permission on anything in a database, such as one of its tables. */
export function mayUseInside(
  snapshot: Snapshot,
  subject: Subject,
  permission: PermissionClass,
  database: string,
  origin: QueryOrigin,
): boolean {
  return (
    mayUseOn(snapshot, subject, permission, database) &&
    boundariesFor(snapshot, subject, database, origin).every(({ role = "Owner" }) =>
      roleAllows(role, permission),
    )
  );
}

function denyWholePlace(
  place: string,
  narrowing: Pick<Objection, "entry" | "boundary">,
  entry?: DecidingEntry,
): DeniedDecision {
  const message = `Use queries instead: this reaches all of ${place}, but the caller may use only a part of it`;
  return deniedBy({ entry, reason: "not_narrowable", message, ...narrowing });
}

/** Denies narrowed callers what needs no right on a database but may reach all of it. */
export function wholeDatabaseDenial(
  snapshot: Snapshot,
  subject: Subject,
  database: string,
  origin: QueryOrigin,
): DeniedDecision | undefined {
  if (!mayBeNarrowed(snapshot, subject, origin)) return undefined;
  const boundaries = boundariesFor(snapshot, subject, database, origin);
  const narrowing = narrowingOn(snapshot, subject, database, boundaries, Date.now());
  return narrowing && denyWholePlace(database, narrowing);
}

export function visibilityDenial(
  snapshot: Snapshot,
  subject: Subject,
  database: string,
  origin: QueryOrigin,
): Denial | undefined {
  if (!mayBeNarrowed(snapshot, subject, origin)) {
    const { reason } = decide(snapshot, subject, "SELECT", database);
    return reason === "allowed" ? undefined : reason;
  }
  const isBound = boundariesFor(snapshot, subject, database, origin).some(
    ({ role = "Owner" }) => !roleAllows(role, "SELECT"),
  );
  if (isBound) return "role_insufficient";
  if (mayUseOn(snapshot, subject, "SELECT", database)) return undefined;
  return nameDenial(snapshot, subject, "SELECT", database) ?? "no_grant";
}

/** The visible columns of a table, which need not exist, or the denial. */
export function seeTable(
  snapshot: Snapshot,
  subject: Subject,
  database: string,
  table: string,
  origin: QueryOrigin,
): { sees(column: string): boolean; readonly seesAllRows: boolean } | Denial {
  const wanted = [{ table, permissions: ["SELECT" as const] }];
  const given = checkRights(snapshot, subject, database, wanted, { ...origin, now: Date.now() });
  if ("reason" in given) return given.reason;
  const grants = given.rights.map(({ entry }) => entry.grant);
  return {
    sees: (column) => grants.every(({ columns }) => columns?.includes(column) ?? true),
    seesAllRows: grants.every(({ rowFilter }) => rowFilter === undefined),
  };
}

export interface AccessQuestion {
  readonly permissions: readonly PermissionClass[];
  readonly database: string;
  readonly table?: string | undefined;
}

/** When a question is asked, and of which gateway. */
export interface QuestionSetting {
  readonly now: number;
  /** True if the upstream has a preset, whose requests cannot be limited to a part. */
  readonly hasPreset: boolean;
}

export type QuestionContext = QueryOrigin & QuestionSetting;

export function questionSetting({
  upstream,
}: {
  readonly upstream: { readonly preset?: string | undefined };
}): QuestionSetting {
  return { now: Date.now(), hasPreset: upstream.preset !== undefined };
}

export interface AccessExplanation extends Decision {
  /** The deciding entry, combined with the limits of boundaries. */
  readonly grant?: Grant;
  readonly approvals?: readonly ApprovalRule[];
}

function withBoundaries(grant: Grant, boundaries: readonly Boundary[]): Grant {
  const { tables: _, maxRows, maxChanges, ...rest } = grant;
  const rows = lowest([maxRows, ...boundaries.map((one) => one.maxRows)]);
  const changes = lowest([maxChanges, ...boundaries.map((one) => one.maxChanges)]);
  return {
    ...rest,
    ...(rows === undefined ? {} : { maxRows: rows }),
    ...(changes === undefined ? {} : { maxChanges: changes }),
  };
}

export function explainAccess(
  snapshot: Snapshot,
  caller: Caller,
  { permissions, database, table }: AccessQuestion,
  context: QuestionContext,
): AccessExplanation {
  const subject = { ...caller, tokenDatabase: EVERY_DATABASE };
  // GRANT is not a query's right, so only whole databases count.
  if (permissions.includes("GRANT")) {
    return decideAll(snapshot, subject, permissions, database, context.now);
  }
  const wanted = [{ table, permissions }];
  const given = checkRights(snapshot, subject, database, wanted, context);
  if ("reason" in given) return given;
  for (const permission of context.hasPreset ? permissions : []) {
    const decision = decideWholeDatabase(snapshot, subject, permission, database, context, table);
    if (!decision.allowed) return decision;
  }
  const entry = given.rights[0]?.entry;
  const missing = entry && missingAttribute(snapshot, caller, entry);
  if (missing !== undefined) return deniedBy(missing);
  const approvals = [...neededApprovals(database, given)];
  return {
    ...granted(given),
    ...(entry === undefined ? {} : { grant: withBoundaries(entry.grant, given.boundaries) }),
    ...(approvals.length === 0 ? {} : { approvals }),
  };
}

/** The entries that give a user access. Without a table, all that decide on some table. */
export function* grantingEntries(
  snapshot: Snapshot,
  caller: Caller,
  question: AccessQuestion,
  context: QuestionContext,
): Generator<AccessExplanation, undefined> {
  const { permissions, database, table } = question;
  const isOfTables = permissions.every((one) => tableRights.includes(one));
  const places = new Set([table]);
  if (table === undefined && isOfTables) {
    const grants = effectiveGrants(snapshot, caller, context.now);
    for (const { entry } of entriesInForce(grants, database, context.now)) {
      for (const name of entry.grant.tables ?? []) places.add(name);
    }
  }
  const seen = new Set<string | undefined>();
  for (const place of places) {
    const decision = explainAccess(snapshot, caller, { ...question, table: place }, context);
    if (decision.allowed && !seen.has(decision.entry)) yield decision;
    seen.add(decision.entry);
  }
}
