import type { PermissionClass } from "../query/permissions.ts";
import type { Query } from "../query/query.ts";
import { DatabaseGrants } from "./database-grants.ts";
import { decidingEntry, entriesInForce } from "./deciding-entry.ts";
import type { Decision, DecisionContext, QueryDecision, QueryOrigin, Reason } from "./decision.ts";
import { isNarrowing } from "./grant.ts";
import { decideNarrowedQuery } from "./narrowed-query.ts";
import { boundariesFor, mayBeNarrowed } from "./rights.ts";
import type { EntryRole } from "./roles.ts";
import { EVERY_DATABASE, roleAllows } from "./roles.ts";
import { grantsOf, type Snapshot } from "./snapshot.ts";
import { judgeName, judgeToken, type Subject } from "./subject.ts";
import { lastingGrant, standingGrant } from "./user-grants.ts";

function deny(reason: Reason, role?: EntryRole, entry?: string): Decision {
  return { allowed: false, reason, role, entry };
}

/**
 * Decides whether `subject` may use `permission` on `database`. The entry for the named database
 * wins over the one for `*`. A name that differs only by case from one in the file is denied,
 * since an upstream may fold case.
 *
 * @param now epoch milliseconds; asked for only where something expires
 */
export function decide(
  snapshot: Snapshot,
  subject: Subject,
  permission: PermissionClass,
  database: string,
  now?: number,
): Decision {
  const limit = judgeToken(subject, permission, database);
  if (limit !== undefined) return deny(limit);
  const grants = grantsOf(snapshot, subject.username);
  let entry = database;
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
  if (!roleAllows(role, permission)) return deny("role_insufficient", role, entry);
  return { allowed: true, reason: "allowed", role, entry };
}

/** True if every entry through which a user reaches a database is plain and for good. */
function grantsUnrestricted(
  snapshot: Snapshot,
  username: string,
  database: string,
  now: number,
): boolean {
  const grants = grantsOf(snapshot, username);
  const place = lastingGrant(grants, database) === undefined ? EVERY_DATABASE : database;
  const isOwn = place === database || !grants.has(database);
  return isOwn && standingGrant(grants, place, now) !== undefined;
}

/**
 * Decides where a database has more than one plain entry of the subject. Where one of them is for
 * tables, gives nothing, asks for approval or is for a time, its holder grants nothing.
 */
function decideAmong(
  snapshot: Snapshot,
  { username }: Subject,
  permission: PermissionClass,
  database: string,
  now: number,
): Decision {
  const deciding = decidingEntry(snapshot, username, database, undefined, now);
  if (deciding === undefined) return deny("no_grant");
  const { name, isLapsed } = deciding;
  const { role } = deciding.grant;
  if (isLapsed) return deny("grant_expired", "None", name);
  const mayGrantThere =
    permission !== "GRANT" || grantsUnrestricted(snapshot, username, database, now);
  if (!mayGrantThere || !roleAllows(role, permission)) return deny("role_insufficient", role, name);
  return { allowed: true, reason: "allowed", role, entry: name };
}

/** True if there is anything on `database` for which the subject has the right `permission`. */
export function mayUseOn(
  snapshot: Snapshot,
  subject: Subject,
  permission: PermissionClass,
  database: string,
): boolean {
  const { username } = subject;
  const grants = grantsOf(snapshot, username);
  if (!grants.isNarrowed || permission === "GRANT") {
    return decide(snapshot, subject, permission, database).allowed;
  }
  if (judgeName(snapshot, subject, permission, database) !== undefined) return false;
  return entriesInForce(grants, database, Date.now()).some(
    ({ grant, isLapsed }) => !isLapsed && roleAllows(grant.role, permission),
  );
}

/**
 * True if there is anything anywhere for which the subject has the right `permission`.
 *
 * @param origin by whose boundaries it must pass too
 */
export function mayUseAnywhere(
  snapshot: Snapshot,
  subject: Subject,
  permission: PermissionClass,
  origin?: QueryOrigin,
): boolean {
  const { username, tokenDatabase } = subject;
  const databases = [tokenDatabase, ...grantsOf(snapshot, username).keys()];
  const passes = (database: string) =>
    origin === undefined ||
    boundariesFor(snapshot, username, database, origin).every(
      ({ role }) => role === undefined || roleAllows(role, permission),
    );
  return databases.some(
    (database) => mayUseOn(snapshot, subject, permission, database) && passes(database),
  );
}

/**
 * Decides on every access of `query`, in order, and stops at the first denial. A caller who may be
 * narrowed (`mayBeNarrowed`) is judged by what the query says in detail, and denied without.
 */
export function decideQuery(
  snapshot: Snapshot,
  subject: Subject,
  query: Query,
  context: DecisionContext,
): QueryDecision {
  if (mayBeNarrowed(snapshot, subject.username, context)) {
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
  return { allowed: reason === "allowed", reason, decisions, limits: none, approvals: none };
}

const none: readonly never[] = [];

/** Decides on several rights on one database: the first denial, or the last permission. */
export function decideAll(
  snapshot: Snapshot,
  subject: Subject,
  permissions: readonly PermissionClass[],
  database: string,
  now?: number,
): Decision {
  let decision: Decision | undefined;
  for (const permission of permissions) {
    decision = decide(snapshot, subject, permission, database, now);
    if (!decision.allowed) break;
  }
  return decision ?? deny("no_grant");
}

/** A database that is denied to everybody, since the access file names it in another case. */
export interface CaseConflict {
  /** The name in the file. */
  readonly named: string;
  /** The database that is there. */
  readonly database: string;
  /** Some of those who would have it by their entry for `*`. */
  readonly users: readonly string[];
}

/** Users that are named of one conflict; there may be many. */
const NAMED = 5;

/** Which of the databases that are there the file names in another case, and for whom. */
export function caseConflictsOf(snapshot: Snapshot, databases: Iterable<string>): CaseConflict[] {
  const conflicts = [...new Set(databases)].flatMap((database) => {
    const named = snapshot.databases.get(database.toLowerCase());
    return named === undefined || named === database ? [] : [{ named, database }];
  });
  return conflicts.map(({ named, database }) => ({
    named,
    database,
    users: snapshot.grants
      .entries()
      .filter(([, own]) => own.has(EVERY_DATABASE) && !own.has(named))
      .map(([username]) => username)
      .take(NAMED)
      .toArray(),
  }));
}
