import type { PermissionClass } from "../query/permissions.ts";
import type { Query } from "../query/query.ts";
import { decidingEntry } from "./deciding-entry.ts";
import { type EntryRole, isNarrowing } from "./grant.ts";
import { EVERY_DATABASE, roleAllows } from "./roles.ts";
import { grantsOf, type Snapshot } from "./snapshot.ts";
import { DatabaseGrants, lastingGrant, standingGrant } from "./user-grants.ts";

/** Why a decision came out as it did; the codes are stable. */
export type Reason =
  | "allowed"
  | "no_grant"
  | "role_insufficient"
  | "grant_expired"
  | "database_case_mismatch"
  | "token_database"
  | "token_read_only";

/** The answer to one question of access, as data: audit, command line and HTTP show the same. */
export interface Decision {
  readonly allowed: boolean;
  readonly reason: Reason;
  /** The role that counts on this database, if the user has one. */
  readonly role: EntryRole | undefined;
  /** Which entry decided, such as `main`, `*` or `main.tickets`. */
  readonly entry: string | undefined;
}

/** Who asks: a user, and the database its token is limited to (`*` for no limit). */
export interface Subject {
  readonly username: string;
  readonly tokenDatabase: string;
  /** True if its token is limited to reading. */
  readonly tokenReadOnly?: boolean;
}

function deny(reason: Reason, role?: EntryRole, entry?: string): Decision {
  return { allowed: false, reason, role, entry };
}

/**
 * Decides whether `subject` may use `permission` on `database`. The entry for the named database
 * wins over the one for `*`. A name that differs only by case from one in the file is denied,
 * since an upstream may fold case.
 */
export function decide(
  snapshot: Snapshot,
  subject: Subject,
  permission: PermissionClass,
  database: string,
): Decision {
  if (subject.tokenDatabase !== EVERY_DATABASE && subject.tokenDatabase !== database) {
    return deny("token_database");
  }
  if (subject.tokenReadOnly === true && permission !== "SELECT") return deny("token_read_only");
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
    return decideAmong(snapshot, subject, permission, database);
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
): Decision {
  const now = Date.now();
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

/** True if there is any database on which the subject may use `permission`. */
export function mayUseAnywhere(
  snapshot: Snapshot,
  subject: Subject,
  permission: PermissionClass,
): boolean {
  const { username, tokenDatabase } = subject;
  const databases = [tokenDatabase, ...grantsOf(snapshot, username).keys()];
  return databases.some((database) => decide(snapshot, subject, permission, database).allowed);
}

/** The decision on a whole query: allowed only if every access in it is. */
export interface QueryDecision {
  readonly allowed: boolean;
  /** One decision an access, up to and including the first that is denied. */
  readonly decisions: readonly Decision[];
}

/** Decides on every access of `query`, in order, and stops at the first denial. */
export function decideQuery(snapshot: Snapshot, subject: Subject, query: Query): QueryDecision {
  const decisions: Decision[] = [];
  for (const access of query.accesses) {
    const { permissions, database } = access;
    const decision = decideAll(snapshot, subject, permissions, database);
    decisions.push(decision);
    if (!decision.allowed) return { allowed: false, decisions };
  }
  return { allowed: decisions.length > 0, decisions };
}

/** Decides on several rights on one database: the first denial, or the last permission. */
export function decideAll(
  snapshot: Snapshot,
  subject: Subject,
  permissions: readonly PermissionClass[],
  database: string,
): Decision {
  let decision = deny("no_grant");
  for (const permission of permissions) {
    decision = decide(snapshot, subject, permission, database);
    if (!decision.allowed) break;
  }
  return decision;
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
