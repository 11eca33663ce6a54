import { type Steps, visitEach } from "../cooperative-scheduling.ts";
import { Refusal } from "../refusal.ts";
import {
  type Actor,
  requireAdministrator,
  requireGrantable,
  requireMayGrant,
  requireMayRevoke,
  requireSelfOrAdministrator,
  requireUnlimitedToken,
} from "./administration-rights.ts";
import type { Change } from "./change.ts";
import { LayeredMap } from "./layered-map.ts";
import { isExternalUsername } from "./records.ts";
import { EVERY_DATABASE, type Role } from "./roles.ts";
import { type Grant, grantOn, grantsOf, type Snapshot, type User } from "./snapshot.ts";
import { entriesIn, lastingGrant, standingGrant } from "./user-grants.ts";

/** Each function judges an intention against the file as it is, and says what to change. */

/** @throws Refusal `database_case_conflict` if the file names the database in another case */
function requireSameCase(snapshot: Snapshot, database: string): void {
  const known = snapshot.databases.get(database.toLowerCase());
  if (known !== undefined && known !== database) throw new Refusal("database_case_conflict");
}

function grantChange(snapshot: Snapshot, grant: Grant): Change[] {
  requireSameCase(snapshot, grant.database);
  const held = grantOn(snapshot, grant.username, grant.database);
  if (held === undefined) return [{ kind: "add-grant", grant }];
  return held.role === grant.role ? [] : [{ kind: "set-grant", grant }];
}

/**
 * Adds a user, with a grant if one is meant. A name that has grants already needs the right to
 * give each of them.
 *
 * @throws Refusal `user_exists`, `database_case_conflict` or a 403 code
 */
export function planAddUser(
  snapshot: Snapshot,
  actor: Actor,
  user: User,
  grant: Omit<Grant, "username"> | undefined,
): Change[] {
  const { username } = user;
  requireUnlimitedToken(actor);
  if (grant !== undefined) requireMayGrant(snapshot, actor, { username, ...grant });
  else requireAdministrator(snapshot, actor);
  if (snapshot.users.has(username)) throw new Refusal("user_exists");
  for (const held of entriesIn(grantsOf(snapshot, username))) {
    requireGrantable(snapshot, actor, held);
  }
  const granted = grant === undefined ? [] : grantChange(snapshot, { username, ...grant });
  return [{ kind: "add-user", user }, ...granted];
}

/** @throws Refusal `user_not_found` if there is no record of that name */
function requireUser(snapshot: Snapshot, username: string): User {
  const user = snapshot.users.get(username);
  if (user === undefined) throw new Refusal("user_not_found");
  return user;
}

/** Sets a password's hash. @throws Refusal `user_not_found` */
export function planSetPassword(
  snapshot: Snapshot,
  username: string,
  passwordHash: string,
): Change[] {
  requireUser(snapshot, username);
  return [{ kind: "update-user", username, update: { passwordHash } }];
}

/** What may be changed of a user besides its password; what is left out stays. */
export interface UserPatch {
  /** Null takes it out. */
  readonly email?: string | null | undefined;
  readonly disabled?: boolean | undefined;
}

/**
 * Changes a user's email (its own, or an administrator anybody's), or disables and enables it (an
 * administrator).
 *
 * @throws Refusal `user_not_found` or a 403 code
 */
export function planPatchUser(
  snapshot: Snapshot,
  actor: Actor,
  username: string,
  { email, disabled }: UserPatch,
): Change[] {
  requireSelfOrAdministrator(snapshot, actor, username);
  if (disabled !== undefined) requireAdministrator(snapshot, actor);
  requireUser(snapshot, username);
  const update = {
    ...(email === undefined ? {} : { email: email ?? undefined }),
    ...(disabled === undefined ? {} : { disabled }),
  };
  return [{ kind: "update-user", username, update }];
}

/**
 * Removes a user with all its grants, for administrators: whoever could remove a record could make
 * it anew with a password of its own.
 *
 * @throws Refusal `user_not_found` or a 403 code
 */
export function planRemoveUser(snapshot: Snapshot, actor: Actor, username: string): Change[] {
  requireAdministrator(snapshot, actor);
  requireUser(snapshot, username);
  return [{ kind: "remove-user", username }];
}

/**
 * Gives a role on a database, in the place of the one that is held there.
 *
 * @throws Refusal `user_not_found` for a name without a record that is not external, or a 403 code
 */
export function planGrant(snapshot: Snapshot, actor: Actor, grant: Grant): Change[] {
  requireMayGrant(snapshot, actor, grant);
  if (!isExternalUsername(grant.username)) requireUser(snapshot, grant.username);
  return grantChange(snapshot, grant);
}

/** Takes a grant away. @throws Refusal `user_not_found`, `grant_not_found` or a 403 code */
export function planRevoke(
  snapshot: Snapshot,
  actor: Actor,
  username: string,
  database: string,
): Change[] {
  requireMayRevoke(snapshot, actor, username, database);
  const grants = grantsOf(snapshot, username);
  if (grants.size === 0 && !isExternalUsername(username)) requireUser(snapshot, username);
  if (lastingGrant(grants, database) === undefined) throw new Refusal("grant_not_found");
  return [{ kind: "remove-grant", username, database }];
}

/** The grant that makes an administrator. */
export const administratorGrant: { database: string; role: Role } = {
  database: "*",
  role: "Owner",
};

/** Who is left to administer: what a change may not take away. */
interface RemainingOwners {
  /** Databases that have an Owner for good who can act; entries for `*` do not count. */
  readonly owned: Set<string>;
  /** True if some administrator can log in. */
  readonly hasAdministrator: boolean;
}

function* remainingOwners(snapshot: Snapshot, among: Iterable<string>): Steps<RemainingOwners> {
  const owned = new Set<string>();
  let hasAdministrator = false;
  yield* visitEach(among, (username) => {
    const user = snapshot.users.get(username);
    const canAct = user === undefined ? isExternalUsername(username) : !user.disabled;
    if (!canAct) return;
    const grants = grantsOf(snapshot, username);
    for (const database of grants.keys()) {
      if (standingGrant(grants, database)?.role !== "Owner") continue;
      if (database !== EVERY_DATABASE) owned.add(database);
      else hasAdministrator ||= user?.passwordHash !== undefined;
    }
  });
  return { owned, hasAdministrator };
}

/** The code of what those `among` have lost, if they have lost anything. */
function* lossAmong(before: Snapshot, after: Snapshot, among: (of: Snapshot) => Iterable<string>) {
  const past = yield* remainingOwners(before, among(before));
  const future = yield* remainingOwners(after, among(after));
  if (past.hasAdministrator && !future.hasAdministrator) return "last_administrator";
  return past.owned.isSubsetOf(future.owned) ? undefined : "last_owner";
}

/**
 * Keeps a change from taking the last Owner off a database, or the last administrator away.
 *
 * @throws Refusal `last_owner` or `last_administrator`
 */
export function* requireRemainingOwners(before: Snapshot, after: Snapshot): Steps<void> {
  const changed = new Set([
    ...LayeredMap.differing(before.users, after.users),
    ...LayeredMap.differing(before.grants, after.grants),
  ]);
  // Whom those who changed have left behind is looked for only where they did.
  if ((yield* lossAmong(before, after, () => changed)) === undefined) return;
  const lost = yield* lossAmong(before, after, ({ grants }) => grants.keys());
  if (lost !== undefined) throw new Refusal(lost);
}
