import { type Steps, visitEach } from "../base/cooperative-scheduling.ts";
import { entriesIn, GrantCollection, isSamePlace } from "./entries.ts";
import {
  type Boundary,
  type Grant,
  type Group,
  groupHolder,
  groupOf,
  type Holder,
  type User,
  type UserUpdate,
  updatedUser,
  userHolder,
  userOf,
} from "./grant.ts";
import { type AccessRecords, indexRecords, RecordsError, type TableName } from "./records.ts";
import { addDatabase, caseConflict, conflictReason, ownGrants, type Snapshot } from "./snapshot.ts";

export type Change =
  | { readonly kind: "add-user"; readonly user: User }
  | { readonly kind: "update-user"; readonly username: string; readonly update: UserUpdate }
  | { readonly kind: "remove-user"; readonly username: string }
  | { readonly kind: "add-group"; readonly group: Group }
  | { readonly kind: "update-group"; readonly group: Group; readonly left?: readonly string[] }
  /** With the group's entries. */
  | { readonly kind: "remove-group"; readonly group: Group }
  | { readonly kind: "add-grant"; readonly grant: Grant }
  | { readonly kind: "set-grant"; readonly grant: Grant }
  | { readonly kind: "remove-grant"; readonly grant: Grant };

/** Whose records the change concerns. */
export function changedHolder(change: Change): Holder {
  if ("group" in change) return groupHolder(change.group.name);
  if ("grant" in change) return change.grant.holder;
  return userHolder(change.kind === "add-user" ? change.user.username : change.username);
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
  return ending && userOf(changedHolder(ending));
}

/** The latest issue time that tokens of a user can have, unless it has passed. */
export function latestIssue(user: User | undefined): number {
  return (user?.tokensValidAfter ?? 0) + 1;
}

function applyChange(records: AccessRecords, change: Change): AccessRecords {
  const { users, groups, grants } = records;
  switch (change.kind) {
    case "add-user":
      return { ...records, users: [...users, change.user] };
    case "update-user": {
      const { username, update } = change;
      const changed = users.map((known) =>
        known.username === username ? updatedUser(known, update) : known,
      );
      return { ...records, users: changed };
    }
    case "add-group":
      return { ...records, groups: [...groups, change.group] };
    case "update-group": {
      const { group } = change;
      const changed = groups.map((known) => (known.name === group.name ? group : known));
      return { ...records, groups: changed };
    }
    case "remove-user":
    case "remove-group": {
      const holder = changedHolder(change);
      return {
        ...records,
        users: users.filter(({ username }) => userHolder(username) !== holder),
        groups: groups.filter(({ name }) => groupHolder(name) !== holder),
        grants: grants.filter((grant) => grant.holder !== holder),
      };
    }
    case "add-grant":
      return { ...records, grants: [...grants, change.grant] };
    case "set-grant": {
      const { grant } = change;
      const changed = grants.map((known) => (isSamePlace(known, grant) ? grant : known));
      return { ...records, grants: changed };
    }
    case "remove-grant":
      return { ...records, grants: grants.filter((known) => !isSamePlace(known, change.grant)) };
  }
}

export function applyChanges(records: AccessRecords, changes: readonly Change[]): AccessRecords {
  return changes.reduce(applyChange, records);
}

export interface HolderRecords {
  readonly user: User | undefined;
  readonly group?: Group | undefined;
  readonly grants: readonly Grant[];
}

export interface Replacement {
  readonly records: ReadonlyMap<Holder, HolderRecords>;
  /** Undefined if unchanged. */
  readonly boundaries?: readonly Boundary[] | undefined;
}

export function holderRecords(snapshot: Snapshot, holder: Holder): HolderRecords {
  const grants = [...entriesIn(ownGrants(snapshot, holder))];
  const group = snapshot.groups.get(groupOf(holder) ?? "");
  return { user: snapshot.users.get(userOf(holder) ?? ""), ...(group && { group }), grants };
}

export function isEmpty({ user, group, grants }: HolderRecords): boolean {
  return (user ?? group) === undefined && grants.length === 0;
}

export function planReplacement(snapshot: Snapshot, changes: readonly Change[]): Replacement {
  const left = Array.from(Map.groupBy(changes, changedHolder), ([holder, some]) => {
    const before = joinRecords([holderRecords(snapshot, holder)], snapshot.boundaries);
    const { users, groups, grants } = applyChanges(before, some);
    return [holder, { user: users[0], group: groups[0], grants }] as const;
  });
  return { records: new Map(left) };
}

function joinRecords(
  records: Iterable<HolderRecords>,
  boundaries: readonly Boundary[],
): AccessRecords {
  const all = [...records];
  const users = all.flatMap(({ user = [] }) => user);
  const groups = all.flatMap(({ group = [] }) => group);
  return { users, groups, grants: all.flatMap(({ grants }) => grants), boundaries };
}

/** All users and groups with a record or an entry. */
export function holdersIn({ users, groups, grants }: Snapshot): Set<Holder> {
  return new Set([
    ...users.keys().map(userHolder),
    ...groups.keys().map(groupHolder),
    ...grants.keys(),
  ]);
}

/** Indexes the records of each user and group. @throws RecordsError if records conflict */
export function indexHolders(
  records: Iterable<HolderRecords>,
  boundaries: readonly Boundary[],
  version: string,
): Steps<Snapshot> {
  return indexRecords(joinRecords(records, boundaries), version, (problem) => {
    throw new RecordsError([problem]);
  });
}

/** The snapshot with the records of some users and groups replaced. @throws RecordsError if records conflict */
export function* replaceRecords(
  snapshot: Snapshot,
  { records: replaced, boundaries = snapshot.boundaries }: Replacement,
  version: string,
): Steps<Snapshot> {
  const fail = (table: TableName, reason: string) => {
    throw new RecordsError([{ table, index: 0, key: undefined, reason }]);
  };
  const users = new Map(snapshot.users);
  yield;
  const groups = new Map(snapshot.groups);
  const grants = new Map(snapshot.grants);
  yield;
  for (const [holder, records] of replaced) {
    const username = userOf(holder);
    if (records.user !== undefined) users.set(records.user.username, records.user);
    else if (username !== undefined) users.delete(username);
    const group = groupOf(holder);
    if (records.group !== undefined) groups.set(records.group.name, records.group);
    else if (group !== undefined) groups.delete(group);
    const own = new GrantCollection();
    for (const grant of records.grants) {
      const conflict = own.add(grant);
      if (conflict !== undefined) fail("acl", conflictReason(conflict, grant));
    }
    if (own.size === 0) grants.delete(holder);
    else grants.set(holder, own);
    yield;
  }
  const databases = new Map<string, string>();
  yield* visitEach(grants.values(), (own) => {
    for (const name of own.keys()) if (!addDatabase(databases, name)) fail("acl", caseConflict);
  });
  for (const { database } of boundaries) {
    if (!addDatabase(databases, database)) fail("boundaries", caseConflict);
  }
  return { version, users, groups, databases, grants, boundaries };
}
