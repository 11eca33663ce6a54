import { type Steps, visitEach } from "../cooperative-scheduling.ts";
import { Refusal } from "../refusal.ts";
import { entriesIn, GrantCollection, type GrantConflict, type UserGrants } from "./entries.ts";
import { type EntryView, viewEntry } from "./entry-view.ts";
import type { Boundary, Grant, Group, User } from "./grant.ts";
import type { ReadRecords, Report, TableName } from "./records.ts";
import {
  EVERY_DATABASE,
  groupOf,
  groupSubject,
  isExternalGroup,
  isExternalUsername,
} from "./roles.ts";

export type { Grant, User } from "./grant.ts";

/** Immutable. A request uses only one, so that it never sees half of a change. */
export interface Snapshot {
  /** A short hash of the file's content, for comparing replicas. */
  readonly version: string;
  readonly users: ReadonlyMap<string, User>;
  /** The local groups by name. */
  readonly groups: ReadonlyMap<string, Group>;
  /** Entries by username or `group:<name>`, in the order of the file. */
  readonly grants: ReadonlyMap<string, UserGrants>;
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

export function grantsOf(snapshot: Snapshot, username: string): UserGrants {
  return snapshot.grants.get(username) ?? none;
}

export function accessList(snapshot: Snapshot, username: string): EntryView[] {
  return Array.from(entriesIn(grantsOf(snapshot, username)), viewEntry);
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

/** True for a user with a record, a local group, and any name of an issuer. */
export function isKnownHolder({ users, groups }: Snapshot, name: string): boolean {
  const group = groupOf(name);
  if (group === undefined) return users.has(name) || isExternalUsername(name);
  return groups.has(group) || isExternalGroup(group);
}

const people = new WeakMap<Snapshot["users"], Map<string, ReadonlySet<string>>>();

/** All names of a person: those that `same_as` joins, in either direction and over several records. */
export function namesOfPerson({ users }: Snapshot, username: string): ReadonlySet<string> {
  let joined = people.get(users);
  if (joined === undefined) {
    joined = new Map();
    for (const { username, sameAs } of users.values()) {
      if (sameAs === undefined) continue;
      const names = new Set<string>();
      for (const name of [username, sameAs]) {
        names.add(name);
        for (const other of joined.get(name) ?? []) names.add(other);
      }
      for (const name of names) joined.set(name, names);
    }
    people.set(users, joined);
  }
  return joined.get(username) ?? new Set([username]);
}

/** External users with entries but no record. */
export function* usersWithoutRecord({ users, grants }: Snapshot): Generator<string, void> {
  for (const name of grants.keys()) if (isExternalUsername(name) && !users.has(name)) yield name;
}

/** A user as the API shows it, never with the password hash. */
export interface UserView {
  username: string;
  email: string | null;
  disabled: boolean;
  external?: true;
  same_as?: string;
  access: EntryView[];
}

export function viewUser(snapshot: Snapshot, user: User): UserView {
  return {
    username: user.username,
    email: user.email ?? null,
    disabled: user.disabled,
    ...(isExternalUsername(user.username) ? { external: true } : {}),
    ...(user.sameAs === undefined ? {} : { same_as: user.sameAs }),
    access: accessList(snapshot, user.username),
  };
}

/** Least number of names collected before a sort. */
const LEAST_COLLECTED = 1024;

/** The first `count` names after `after` that `isMeant` accepts, without sorting all. */
export function* firstNames<T>(
  items: ReadonlyMap<string, T>,
  count: number,
  after: string | undefined,
  isMeant: (item: T) => boolean,
): Steps<string[]> {
  const most = Math.max(LEAST_COLLECTED, 4 * count);
  let collected: string[] = [];
  let bound: string | undefined;
  yield* visitEach(items, ([name, item]) => {
    if (after !== undefined && name <= after) return;
    if ((bound !== undefined && name > bound) || !isMeant(item)) return;
    collected.push(name);
    if (collected.length < most) return;
    collected = collected.sort().slice(0, count);
    bound = collected.at(-1);
  });
  return collected.sort().slice(0, count);
}

export function* differingKeys<V>(
  before: ReadonlyMap<string, V>,
  after: ReadonlyMap<string, V>,
): Steps<string[]> {
  const keys: string[] = [];
  if (before === after) return keys;
  yield* visitEach(before, ([key, value]) => {
    if (after.get(key) !== value) keys.push(key);
  });
  yield* visitEach(after.keys(), (key) => {
    if (!before.has(key)) keys.push(key);
  });
  return keys;
}

export function* differingNames(before: Snapshot, after: Snapshot): Steps<Set<string>> {
  const users = yield* differingKeys(before.users, after.users);
  const groups = yield* differingKeys(before.groups, after.groups);
  const grants = yield* differingKeys(before.grants, after.grants);
  return new Set([...users, ...groups.map(groupSubject), ...grants]);
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

const conflicts: Record<GrantConflict, string> = {
  database_taken: "this user already has an entry for this database",
  table_taken: "this user already has an entry for one of these tables",
  patterns_overlap: "two patterns of this user match the same tables of this database",
};

export function conflictReason(conflict: GrantConflict, { username }: Grant): string {
  const reason = conflicts[conflict];
  return groupOf(username) === undefined ? reason : reason.replace("this user", "this group");
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

export function* indexRecords(read: ReadRecords, version: string, report: Report): Steps<Snapshot> {
  const users = new Map<string, User>();
  yield* visitEach(read.users, (user, index) => {
    if (user === undefined) return;
    const reason = "this user already has a record";
    if (users.has(user.username)) report({ table: "users", index, key: "username", reason });
    users.set(user.username, user);
  });
  const groups = new Map<string, Group>();
  yield* visitEach(read.groups, (group, index) => {
    if (group === undefined) return;
    const reason = "this group already has a record";
    if (groups.has(group.name)) report({ table: "groups", index, key: "name", reason });
    groups.set(group.name, group);
  });
  const databases = new Map<string, string>();
  const refused = new Set<string | undefined>();
  const note = (table: TableName) => (namer: Grant | Boundary | undefined, index: number) => {
    const database = namer?.database;
    if (addDatabase(databases, database) || refused.has(database)) return;
    refused.add(database);
    report({ table, index, key: "database", reason: caseConflict });
  };
  yield* visitEach(read.grants, note("acl"));
  yield* visitEach(read.boundaries, note("boundaries"));
  const grants = new Map<string, GrantCollection>();
  yield* visitEach(read.grants, (grant, index) => {
    if (grant === undefined) return;
    const own = grants.get(grant.username) ?? new GrantCollection();
    grants.set(grant.username, own);
    const conflict = own.add(grant);
    if (conflict === undefined) return;
    report({ table: "acl", index, key: undefined, reason: conflictReason(conflict, grant) });
  });
  const boundaries = read.boundaries.filter((boundary) => boundary !== undefined);
  return { version, users, groups, databases, grants, boundaries };
}
