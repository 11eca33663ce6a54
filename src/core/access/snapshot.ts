import { epochSeconds } from "../base/clock.ts";
import { type Steps, visitEach } from "../base/cooperative-scheduling.ts";
import { memoizeByObject } from "../base/memoize.ts";
import { Refusal } from "../base/refusal.ts";
import type { PermissionClass } from "../query/permissions.ts";
import { entriesIn, GrantCollection, type GrantConflict, type UserGrants } from "./entries.ts";
import {
  type Boundary,
  type Grant,
  type Group,
  groupHolder,
  groupOf,
  type Holder,
  holderText,
  type Subject,
  type User,
  userHolder,
  userOf,
} from "./grant.ts";
import { EVERY_DATABASE, isExternalGroup, isExternalUsername } from "./roles.ts";

/** Immutable. A request uses only one, so that it never sees half of a change. */
export interface Snapshot {
  /** A short hash of the file's content, for comparing replicas. */
  readonly version: string;
  readonly users: ReadonlyMap<string, User>;
  /** The local groups by name. */
  readonly groups: ReadonlyMap<string, Group>;
  /** In the order of the file. */
  readonly grants: ReadonlyMap<Holder, UserGrants>;
  /** Databases named in entries and boundaries, by their lower-case form. */
  readonly databases: ReadonlyMap<string, string>;
  readonly boundaries: readonly Boundary[];
}

export const emptySnapshot: Snapshot = {
  version: "",
  users: new Map(),
  groups: new Map(),
  grants: new Map(),
  databases: new Map(),
  boundaries: [],
};

const none: UserGrants = new GrantCollection();

/** The entries of a user or group itself, without those of groups. */
export function ownGrants(snapshot: Snapshot, holder: Holder): UserGrants {
  return snapshot.grants.get(holder) ?? none;
}

export function blankUser(username: string): User {
  return {
    username,
    email: undefined,
    passwordHash: undefined,
    disabled: false,
    tokensValidAfter: 0,
  };
}

/**
 * `tokensValidAfter` of a new user without a password: only the time tells their tokens from those of
 * an earlier user with the name. Those of this second ended when that user was removed.
 */
export function endOfEarlierTokens(): number {
  return epochSeconds() - 1;
}

/** True for a user with a record, a local group, and any name of an issuer. */
export function isKnownHolder({ users, groups }: Snapshot, holder: Holder): boolean {
  const group = groupOf(holder);
  if (group !== undefined) return groups.has(group) || isExternalGroup(group);
  const username = holderText(holder);
  return users.has(username) || isExternalUsername(username);
}

const joinedNames = memoizeByObject((users: Snapshot["users"]) => {
  const joined = new Map<string, ReadonlySet<string>>();
  for (const { username, sameAs } of users.values()) {
    if (sameAs === undefined) continue;
    const names = new Set<string>();
    for (const name of [username, sameAs]) {
      names.add(name);
      for (const other of joined.get(name) ?? []) names.add(other);
    }
    for (const name of names) joined.set(name, names);
  }
  return joined;
});

/** All names of a person: those that `same_as` joins, in either direction and over several records. */
export function namesOfPerson({ users }: Snapshot, username: string): ReadonlySet<string> {
  return joinedNames(users).get(username) ?? new Set([username]);
}

/** External users with entries but no record. */
export function* usersWithoutRecord({ users, grants }: Snapshot): Generator<string, void> {
  for (const holder of grants.keys()) {
    const name = userOf(holder);
    if (isExternalUsername(name) && !users.has(name)) yield name;
  }
}

/** Least number of names collected before a sort. */
const LEAST_COLLECTED = 1024;

/** The first `count` names after `after` that `isMeant` accepts, without sorting all. */
export function* firstNames<Name extends string | Holder>(
  names: Iterable<Name>,
  count: number,
  after: Name | undefined,
  isMeant: (name: Name) => boolean,
): Steps<Name[]> {
  const most = Math.max(LEAST_COLLECTED, 4 * count);
  let collected: Name[] = [];
  let bound: Name | undefined;
  yield* visitEach(names, (name) => {
    if (after !== undefined && name <= after) return;
    if ((bound !== undefined && name > bound) || !isMeant(name)) return;
    collected.push(name);
    if (collected.length < most) return;
    collected = collected.sort().slice(0, count);
    bound = collected.at(-1);
  });
  return collected.sort().slice(0, count);
}

export function* differingKeys<K, V>(
  before: ReadonlyMap<K, V>,
  after: ReadonlyMap<K, V>,
): Steps<K[]> {
  const keys: K[] = [];
  if (before === after) return keys;
  yield* visitEach(before, ([key, value]) => {
    if (after.get(key) !== value) keys.push(key);
  });
  yield* visitEach(after.keys(), (key) => {
    if (!before.has(key)) keys.push(key);
  });
  return keys;
}

/** The users and groups whose records or entries differ. */
export function* differingHolders(before: Snapshot, after: Snapshot): Steps<Set<Holder>> {
  const users = yield* differingKeys(before.users, after.users);
  const groups = yield* differingKeys(before.groups, after.groups);
  const grants = yield* differingKeys(before.grants, after.grants);
  return new Set([...users.map(userHolder), ...groups.map(groupHolder), ...grants]);
}

/** Returns false if the databases have this one in another case. */
export function addDatabase(databases: Map<string, string>, database: string | undefined): boolean {
  if (database === undefined || database === EVERY_DATABASE) return true;
  const folded = database.toLowerCase();
  const known = databases.get(folded);
  if (known === undefined) databases.set(folded, database);
  return known === undefined || known === database;
}

export const caseConflict =
  "another entry names a database that differs from this one only by case";

export function conflictReason(conflict: GrantConflict, { holder }: Grant): string {
  const kind = groupOf(holder) === undefined ? "user" : "group";
  switch (conflict) {
    case "database_taken":
      return `this ${kind} already has an entry for this database`;
    case "table_taken":
      return `this ${kind} already has an entry for one of these tables`;
    case "patterns_overlap":
      return `two patterns of this ${kind} match the same tables of this database`;
  }
}

/**
 * @throws Refusal `invalid_entry` if the entry that replaces `held` conflicts with a remaining one
 */
export function requireNoConflict(grants: UserGrants, grant: Grant, held: readonly Grant[]): void {
  const changed = new GrantCollection();
  for (const own of entriesIn(grants)) if (!held.includes(own)) changed.add(own);
  const conflict = changed.add(grant);
  if (conflict === undefined) return;
  throw new Refusal("invalid_entry", {
    message: `Invalid entry: ${conflictReason(conflict, grant)}`,
  });
}

/** Why a user is denied everything, regardless of entries. */
export function accountObstacle(
  { users }: Snapshot,
  username: string,
): "user_not_found" | "user_disabled" | undefined {
  const user = users.get(username);
  // External users need no record: their own authorization server knows them.
  if (user === undefined && !isExternalUsername(username)) return "user_not_found";
  return user?.disabled ? "user_disabled" : undefined;
}

/** Why a token denies a right on a database, regardless of the user's entries. */
export function tokenDenial(
  { tokenDatabase, tokenReadOnly }: Subject,
  permission: PermissionClass,
  database: string,
): "token_database" | "token_read_only" | undefined {
  if (tokenDatabase !== EVERY_DATABASE && tokenDatabase !== database) return "token_database";
  return tokenReadOnly === true && permission !== "SELECT" ? "token_read_only" : undefined;
}

/** As `tokenDenial`, and denies a database that the file spells in another case. */
export function nameDenial(
  snapshot: Snapshot,
  subject: Subject,
  permission: PermissionClass,
  database: string,
): "token_database" | "token_read_only" | "database_case_mismatch" | undefined {
  const known = snapshot.databases.get(database.toLowerCase());
  const isOther = known !== undefined && known !== database;
  return (
    tokenDenial(subject, permission, database) ?? (isOther ? "database_case_mismatch" : undefined)
  );
}
