import { isDeepStrictEqual } from "node:util";
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
import { isExternalUsername } from "./identifiers.ts";
import type { Change } from "./record-change.ts";
import type { Role } from "./roles.ts";
import { blankUser, type Grant, grantsOf, type Snapshot, type User } from "./snapshot.ts";
import { requireNoConflict } from "./snapshot-index.ts";
import { entriesAt, entriesIn, isSamePlace, saysMore } from "./user-grants.ts";
import { updatedUser } from "./user-record.ts";

/** Each function judges an intention against the file as it is, and says what to change. */

/** @throws Refusal `database_case_conflict` if the file names the database in another case */
function requireSameCase(snapshot: Snapshot, database: string): void {
  const known = snapshot.databases.get(database.toLowerCase());
  if (known !== undefined && known !== database) throw new Refusal("database_case_conflict");
}

/** The entries in whose place another one would be. @throws Refusal `entry_lists_tables` */
function heldAt(
  snapshot: Snapshot,
  { username, database }: Pick<Grant, "username" | "database">,
  table: string | undefined,
): readonly Grant[] {
  const held = entriesAt(grantsOf(snapshot, username), database, table);
  if (held.some(({ tables = [] }) => tables.length > 1)) throw new Refusal("entry_lists_tables");
  return held;
}

/** @throws Refusal `entry_narrowed` if a role alone would take the place of more, `invalid_entry` */
function grantChanges(
  snapshot: Snapshot,
  grant: Grant,
  held: readonly Grant[],
  isWhole: boolean,
): Change[] {
  requireSameCase(snapshot, grant.database);
  const isRoleAlone = !isWhole && !saysMore(grant);
  if (isRoleAlone && held.some(saysMore)) throw new Refusal("entry_narrowed");
  requireNoConflict(grantsOf(snapshot, grant.username), grant, held);
  const replaced = held.find((known) => isSamePlace(known, grant));
  const others = held.filter((known) => known !== replaced);
  const removals = others.map((known): Change => ({ kind: "remove-grant", grant: known }));
  if (replaced === undefined) return [...removals, { kind: "add-grant", grant }];
  if (isDeepStrictEqual(replaced, grant)) return removals;
  return [...removals, { kind: "set-grant", grant }];
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
  const given = grant && { username, ...grant };
  if (given !== undefined) requireMayGrant(snapshot, actor, given, []);
  else requireAdministrator(snapshot, actor);
  if (snapshot.users.has(username)) throw new Refusal("user_exists");
  for (const held of entriesIn(grantsOf(snapshot, username))) {
    requireGrantable(snapshot, actor, held);
  }
  const granted =
    given === undefined
      ? []
      : grantChanges(snapshot, given, heldAt(snapshot, given, undefined), false);
  return [{ kind: "add-user", user }, ...granted];
}

/** @throws Refusal `user_not_found` if there is no record of that name */
function requireUser(snapshot: Snapshot, username: string): User {
  const user = snapshot.users.get(username);
  if (user === undefined) throw new Refusal("user_not_found");
  return user;
}

/** Sets a password's hash. @throws Refusal `external_user` or `user_not_found` */
export function planSetPassword(
  snapshot: Snapshot,
  username: string,
  passwordHash: string,
): Change[] {
  if (isExternalUsername(username)) throw new Refusal("external_user");
  requireUser(snapshot, username);
  return [{ kind: "update-user", username, update: { passwordHash } }];
}

/** What may be changed of a user besides its password; what is left out stays. */
export interface UserPatch {
  /** Null takes it out. */
  readonly email?: string | null | undefined;
  readonly disabled?: boolean | undefined;
  /** All of them; an empty map takes them out. */
  readonly attributes?: User["attributes"] | undefined;
}

/**
 * Changes a user's email (its own, or an administrator anybody's), or disables and enables it or
 * sets its attributes (an administrator). A user of an issuer needs no record before.
 *
 * @param prefixes those of the configured issuers
 * @returns nothing if all is so already
 * @throws Refusal `user_not_found` or a 403 code
 */
export function planPatchUser(
  snapshot: Snapshot,
  actor: Actor,
  username: string,
  { email, disabled, attributes }: UserPatch,
  prefixes: readonly string[] = [],
): Change[] {
  requireSelfOrAdministrator(snapshot, actor, username);
  if (disabled !== undefined || attributes !== undefined) requireAdministrator(snapshot, actor);
  const isExternal = prefixes.some((prefix) => username.startsWith(`${prefix}:`));
  const isNew = isExternal && !snapshot.users.has(username);
  const user = isNew ? blankUser(username) : requireUser(snapshot, username);
  const areSame = isDeepStrictEqual(attributes ?? new Map(), user.attributes ?? new Map());
  const update = {
    ...(email === undefined || email === (user.email ?? null) ? {} : { email: email ?? undefined }),
    ...(disabled === undefined || disabled === user.disabled ? {} : { disabled }),
    ...(attributes === undefined || areSame ? {} : { attributes }),
  };
  if (Object.keys(update).length === 0) return [];
  if (isNew) return [{ kind: "add-user", user: updatedUser(user, update) }];
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

/** How an entry is given. */
export interface GrantOptions {
  /** Of an entry that expires and one that does not, the other one is left as it is. */
  readonly isBeside?: boolean;
  /** Whoever gives it has seen all of what is held, so that a role alone may take its place. */
  readonly isWhole?: boolean;
}

/**
 * Gives an entry, in the place of what is held there: on a database, or on the one table or pattern
 * that it names.
 *
 * @throws Refusal `user_not_found` for a name without a record that is not external,
 *   `entry_lists_tables`, `entry_narrowed`, or a 403 code
 */
export function planGrant(
  snapshot: Snapshot,
  actor: Actor,
  grant: Grant,
  { isBeside = false, isWhole = false }: GrantOptions = {},
): Change[] {
  const held = heldAt(snapshot, grant, grant.tables?.[0]).filter(
    (known) => !isBeside || isSamePlace(known, grant),
  );
  requireMayGrant(snapshot, actor, grant, held);
  if (!isExternalUsername(grant.username)) requireUser(snapshot, grant.username);
  return grantChanges(snapshot, grant, held, isWhole);
}

/**
 * Takes away what is held on a database, or on one of its tables or patterns.
 *
 * @throws Refusal `user_not_found`, `grant_not_found`, `entry_lists_tables` or a 403 code
 */
export function planRevoke(
  snapshot: Snapshot,
  actor: Actor,
  username: string,
  database: string,
  table?: string,
): Change[] {
  const held = heldAt(snapshot, { username, database }, table);
  requireMayRevoke(snapshot, actor, { username, database }, held);
  const grants = grantsOf(snapshot, username);
  if (grants.size === 0 && !isExternalUsername(username)) requireUser(snapshot, username);
  if (held.length === 0) throw new Refusal("grant_not_found");
  return held.map((grant) => ({ kind: "remove-grant", grant }));
}

/** The grant that makes an administrator. */
export const administratorGrant: { database: string; role: Role } = {
  database: "*",
  role: "Owner",
};
