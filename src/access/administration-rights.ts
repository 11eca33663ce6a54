import { Refusal } from "../refusal.ts";
import { decide, mayUseAnywhere } from "./policy.ts";
import {
  type EntryRole,
  EVERY_DATABASE,
  mayGrant,
  outranks,
  type Role,
  widestRole,
} from "./roles.ts";
import {
  type Grant,
  grantsOf,
  isAdministrator,
  type Snapshot,
  type User,
  type UserView,
  viewUser,
} from "./snapshot.ts";
import type { Subject } from "./subject.ts";
import { collectGrants, entriesIn, reachingEntries, saysMore } from "./user-grants.ts";

/**
 * Who changes the access file: a caller with administration rights of its own, or the operator at the
 * command line, who could as well edit the file by hand.
 */
export type Actor = Subject | "operator";

/** The widest role that counts for a user on a database: the named entry's, else that for `*`. */
function effectiveRole(snapshot: Snapshot, username: string, database: string): Role | undefined {
  return widestRole(reachingEntries(grantsOf(snapshot, username), database));
}

/** @throws Refusal `token_database` unless the actor's token is for every database */
export function requireUnlimitedToken(actor: Actor): void {
  if (actor !== "operator" && actor.tokenDatabase !== EVERY_DATABASE) {
    throw new Refusal("token_database");
  }
}

/** @throws Refusal `token_database` unless the actor's token is for `database` or for every one */
function requireTokenFor(actor: Subject, database: string): void {
  if (actor.tokenDatabase !== database) requireUnlimitedToken(actor);
}

/** @throws Refusal `role_insufficient` unless the actor is an administrator */
export function requireAdministrator(snapshot: Snapshot, actor: Actor): void {
  if (actor === "operator") return;
  requireUnlimitedToken(actor);
  if (!isAdministrator(snapshot, actor.username)) throw new Refusal("role_insufficient");
}

/** The actor's role on `database`, if it is one that grants. */
function grantingRole(snapshot: Snapshot, actor: Subject, database: string): EntryRole {
  const known = snapshot.databases.get(database.toLowerCase()) ?? database;
  const { reason, role } = decide(snapshot, actor, "GRANT", known);
  if (reason !== "allowed") throw new Refusal(reason);
  if (role === undefined) throw new Refusal("no_grant");
  return role;
}

/** A grant on `*` reaches every database, also those on which the actor's own role is narrower. */
function reachesBeyond(snapshot: Snapshot, actor: Subject, role: EntryRole): boolean {
  if (isAdministrator(snapshot, actor.username)) return false;
  return entriesIn(grantsOf(snapshot, actor.username)).some((own) => !mayGrant(own.role, role));
}

/** True if the file does not name the database yet; `*` is no database's name. */
function isNewName(snapshot: Snapshot, database: string): boolean {
  return database !== EVERY_DATABASE && !snapshot.databases.has(database.toLowerCase());
}

/**
 * Judges the giving of a role to anybody. A name that is new to the file denies every other
 * spelling of it to everybody, so it is brought in by administrators alone.
 *
 * @throws Refusal with a 403 code
 */
export function requireGrantable(
  snapshot: Snapshot,
  actor: Actor,
  { database, role }: Omit<Grant, "username">,
): void {
  if (actor === "operator") return;
  requireTokenFor(actor, database);
  const own = grantingRole(snapshot, actor, database);
  const reaches = database === EVERY_DATABASE && reachesBeyond(snapshot, actor, role);
  const bringsIn = isNewName(snapshot, database) && !isAdministrator(snapshot, actor.username);
  if (!mayGrant(own, role) || reaches || bringsIn) throw new Refusal("role_insufficient");
}

/**
 * @throws Refusal unless the actor outranks what the user holds on `database` now; for `*`, on
 *   every database that it reaches
 */
function requireOutranked(
  snapshot: Snapshot,
  actor: Subject,
  username: string,
  database: string,
): void {
  const held = effectiveRole(snapshot, username, database);
  if (held === undefined || username === actor.username) return;
  if (isAdministrator(snapshot, actor.username)) return;
  const reaches = database === EVERY_DATABASE && reachesBeyond(snapshot, actor, held);
  if (!outranks(grantingRole(snapshot, actor, database), held) || reaches) {
    throw new Refusal("role_insufficient");
  }
}

/**
 * True if an entry of the user's own on the database is for tables, gives nothing, asks for approval
 * or is for a time: then it grants, changes and revokes nothing there.
 */
function isRestricted(snapshot: Snapshot, username: string, database: string): boolean {
  return reachingEntries(grantsOf(snapshot, username), database).some(
    ({ role, tables, requireApproval, expires }) =>
      role === "None" ||
      tables !== undefined ||
      requireApproval !== undefined ||
      (expires !== undefined && expires > Date.now()),
  );
}

/** The widest role that the user has on a database once these entries are gone. */
function roleBehind(
  snapshot: Snapshot,
  { username, database }: Pick<Grant, "username" | "database">,
  held: readonly Grant[],
): Role | undefined {
  const others = entriesIn(grantsOf(snapshot, username)).filter((grant) => !held.includes(grant));
  return widestRole(reachingEntries(collectGrants(others), database));
}

/** @throws Refusal `role_insufficient` unless the actor could give each of these roles */
function requireGiveable(
  snapshot: Snapshot,
  actor: Subject,
  database: string,
  roles: readonly (EntryRole | undefined)[],
): void {
  if (isAdministrator(snapshot, actor.username)) return;
  const own = grantingRole(snapshot, actor, database);
  if (roles.some((role) => role !== undefined && !mayGrant(own, role))) {
    throw new Refusal("role_insufficient");
  }
}

/**
 * Judges the giving of a grant, new or in the place of others. To change one that says more than a
 * role takes the right to give what is held, what is given, and what shows behind it.
 *
 * @throws Refusal with a 403 code
 */
export function requireMayGrant(
  snapshot: Snapshot,
  actor: Actor,
  grant: Grant,
  held: readonly Grant[],
): void {
  if (actor === "operator") return;
  const { username, database, role } = grant;
  requireTokenFor(actor, database);
  if (isRestricted(snapshot, actor.username, database)) throw new Refusal("role_insufficient");
  const isMore = [grant, ...held].some((one) => one.tables !== undefined || saysMore(one));
  // Only an entry of one's own can be given up: one behind `*` would bring a new name into the file.
  const [own] = held;
  const givesUp =
    !isMore && username === actor.username && own !== undefined && outranks(own.role, role);
  if (!givesUp) requireGrantable(snapshot, actor, grant);
  requireOutranked(snapshot, actor, username, database);
  if (!isMore) return;
  const heldRoles = held.map((one) => one.role);
  requireGiveable(snapshot, actor, database, [...heldRoles, roleBehind(snapshot, grant, held)]);
}

/**
 * Judges the taking away of what is held at a place. One's own may be given up; to remove a narrowing
 * entry is to give the wider role that shows behind it.
 *
 * @throws Refusal with a 403 code
 */
export function requireMayRevoke(
  snapshot: Snapshot,
  actor: Actor,
  place: Pick<Grant, "username" | "database">,
  held: readonly Grant[],
): void {
  if (actor === "operator") return;
  const { username, database } = place;
  requireTokenFor(actor, database);
  if (isRestricted(snapshot, actor.username, database)) throw new Refusal("role_insufficient");
  const behind = roleBehind(snapshot, place, held);
  if (username === actor.username) {
    const before = held.some(saysMore) ? undefined : effectiveRole(snapshot, username, database);
    const raises = behind !== undefined && (before === undefined || outranks(behind, before));
    if (raises) throw new Refusal("role_insufficient");
    return;
  }
  requireGiveable(snapshot, actor, database, [behind]);
  requireOutranked(snapshot, actor, username, database);
}

/** Judges an act on oneself, or on another by an administrator. @throws Refusal a 403 code */
export function requireSelfOrAdministrator(
  snapshot: Snapshot,
  actor: Actor,
  username: string,
): void {
  requireUnlimitedToken(actor);
  if (actor === "operator" || actor.username === username) return;
  requireAdministrator(snapshot, actor);
}

/** True if the actor may see who has which role on `database`: whoever may grant there. */
export function maySeeGrants(snapshot: Snapshot, actor: Subject, database: string): boolean {
  return decide(snapshot, actor, "GRANT", database).allowed;
}

/** @throws Refusal `role_insufficient` unless the actor may grant on some database */
export function requireManager(snapshot: Snapshot, actor: Subject): void {
  if (!mayUseAnywhere(snapshot, actor, "GRANT")) throw new Refusal("role_insufficient");
}

/** The users that a caller may manage, and what of them it may see. */
interface Manageable {
  isVisible(database: string): boolean;
  isManageable(user: Pick<User, "username">): boolean;
  /** A user with no grants but those that the caller may see. */
  view(user: User): UserView;
}

/** @throws Refusal `role_insufficient` unless the actor may grant on some database */
export function manageableBy(snapshot: Snapshot, actor: Subject): Manageable {
  requireManager(snapshot, actor);
  const { username, tokenDatabase } = actor;
  const isOverAll = isAdministrator(snapshot, username) && tokenDatabase === EVERY_DATABASE;
  const isVisible = (database: string) => maySeeGrants(snapshot, actor, database);
  return {
    isVisible,
    isManageable: (user) => isOverAll || grantsOf(snapshot, user.username).keys().some(isVisible),
    view(user) {
      const { access, ...rest } = viewUser(snapshot, user);
      return { ...rest, access: access.filter(({ database }) => isVisible(database)) };
    },
  };
}
