import { type Steps, visitEach } from "../cooperative-scheduling.ts";
import { entriesIn, GrantCollection, isSamePlace } from "./entries.ts";
import { type Boundary, type Grant, type User, type UserUpdate, updatedUser } from "./grant.ts";
import { type AccessRecords, RecordsError, type TableName } from "./records.ts";
import {
  addDatabase,
  caseConflict,
  conflicts,
  grantsOf,
  indexRecords,
  type Snapshot,
} from "./snapshot.ts";

export type Change =
  | { readonly kind: "add-user"; readonly user: User }
  | { readonly kind: "update-user"; readonly username: string; readonly update: UserUpdate }
  | { readonly kind: "remove-user"; readonly username: string }
  | { readonly kind: "add-grant"; readonly grant: Grant }
  | { readonly kind: "set-grant"; readonly grant: Grant }
  | { readonly kind: "remove-grant"; readonly grant: Grant };

export function usernameOf(change: Change): string {
  if (change.kind === "add-user") return change.user.username;
  return "grant" in change ? change.grant.username : change.username;
}

/** The user whose tokens end with these changes, which concern one user. */
export function userLosingTokens(changes: readonly Change[]): string | undefined {
  const ending = changes.find(
    (change) =>
      change.kind === "remove-user" ||
      (change.kind === "add-user" && change.user.disabled) ||
      (change.kind === "update-user" &&
        ("passwordHash" in change.update || "disabled" in change.update)),
  );
  return ending && usernameOf(ending);
}

function changedUser(user: User, changes: readonly Change[]): User | undefined {
  let changed = user;
  for (const change of changes) {
    if (change.kind === "remove-user") return undefined;
    if (change.kind === "update-user") changed = updatedUser(changed, change.update);
  }
  return changed;
}

function changedGrant(grant: Grant, changes: readonly Change[]): Grant | undefined {
  let changed = grant;
  for (const change of changes) {
    if (change.kind === "remove-user") return undefined;
    if (change.kind === "remove-grant" && isSamePlace(change.grant, grant)) return undefined;
    if (change.kind === "set-grant" && isSamePlace(change.grant, grant)) changed = change.grant;
  }
  return changed;
}

/** No change may refer to a record that another one adds. */
export function applyChanges(
  { users, grants, boundaries }: AccessRecords,
  changes: readonly Change[],
): AccessRecords {
  const about = Map.groupBy(changes, usernameOf);
  const kept = users.flatMap((one) => changedUser(one, about.get(one.username) ?? []) ?? []);
  const held = grants.flatMap((one) => changedGrant(one, about.get(one.username) ?? []) ?? []);
  const added = changes.flatMap((change) => (change.kind === "add-user" ? change.user : []));
  const given = changes.flatMap((change) => (change.kind === "add-grant" ? change.grant : []));
  return { users: [...kept, ...added], grants: [...held, ...given], boundaries };
}

export interface UserRecords {
  readonly user: User | undefined;
  readonly grants: readonly Grant[];
}

export interface Replacement {
  readonly users: ReadonlyMap<string, UserRecords>;
  /** Undefined if unchanged. */
  readonly boundaries?: readonly Boundary[] | undefined;
}

export function recordsOf(snapshot: Snapshot, username: string): UserRecords {
  const grants = [...entriesIn(grantsOf(snapshot, username))];
  return { user: snapshot.users.get(username), grants };
}

export function isEmpty({ user, grants }: UserRecords): boolean {
  return user === undefined && grants.length === 0;
}

export function replacementOf(snapshot: Snapshot, changes: readonly Change[]): Replacement {
  const names = [...new Set(changes.map(usernameOf))];
  const before = names.map((name) => recordsOf(snapshot, name));
  const after = applyChanges(allOf(before, snapshot.boundaries), changes);
  const left = names.map((name): [string, UserRecords] => [
    name,
    {
      user: after.users.find(({ username }) => username === name),
      grants: after.grants.filter(({ username }) => username === name),
    },
  ]);
  return { users: new Map(left) };
}

function allOf(records: Iterable<UserRecords>, boundaries: readonly Boundary[]): AccessRecords {
  const all = [...records];
  const users = all.flatMap(({ user = [] }) => user);
  return { users, grants: all.flatMap(({ grants }) => grants), boundaries };
}

export function namesIn({ users, grants }: Snapshot): Set<string> {
  return new Set([...users.keys(), ...grants.keys()]);
}

/** Indexes the records of each name. @throws RecordsError if records conflict */
export function indexOf(
  users: Iterable<UserRecords>,
  boundaries: readonly Boundary[],
  version: string,
): Steps<Snapshot> {
  return indexRecords(allOf(users, boundaries), version, (problem) => {
    throw new RecordsError([problem]);
  });
}

/** The snapshot with the records of some users replaced. @throws RecordsError if records conflict */
export function* replaceRecords(
  snapshot: Snapshot,
  { users: replaced, boundaries = snapshot.boundaries }: Replacement,
  version: string,
): Steps<Snapshot> {
  const fail = (table: TableName, reason: string) => {
    throw new RecordsError([{ table, index: 0, key: undefined, reason }]);
  };
  const users = new Map(snapshot.users);
  yield;
  const grants = new Map(snapshot.grants);
  yield;
  for (const [name, records] of replaced) {
    if (records.user === undefined) users.delete(name);
    else users.set(name, records.user);
    const own = new GrantCollection();
    for (const grant of records.grants) {
      const conflict = own.add(grant);
      if (conflict !== undefined) fail("acl", conflicts[conflict]);
    }
    if (own.size === 0) grants.delete(name);
    else grants.set(name, own);
    yield;
  }
  const databases = new Map<string, string>();
  yield* visitEach(grants.values(), (own) => {
    for (const name of own.keys()) if (!addDatabase(databases, name)) fail("acl", caseConflict);
  });
  for (const { database } of boundaries) {
    if (!addDatabase(databases, database)) fail("boundaries", caseConflict);
  }
  return { version, users, databases, grants, boundaries };
}
