import { runAtOnce, type Steps, visitEach } from "../cooperative-scheduling.ts";
import { entriesIn, isSamePlace, type UserGrants, withGrant } from "./entries.ts";
import { type Boundary, type Grant, type User, type UserUpdate, updatedUser } from "./grant.ts";
import { type AccessRecord, type AccessRecords, RecordsError } from "./records.ts";
import { EVERY_DATABASE } from "./roles.ts";
import {
  type AccessIndex,
  changeIndex,
  grantsOf,
  indexRecords,
  LayeredMap,
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

export function endsTokens(changes: readonly Change[]): boolean {
  return changes.some(
    (change) =>
      change.kind === "remove-user" ||
      (change.kind === "add-user" && change.user.disabled) ||
      (change.kind === "update-user" &&
        ("passwordHash" in change.update || "disabled" in change.update)),
  );
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

/**
 * The records after the changes, which the edited text is verified against. No change may refer to
 * a record that another one adds.
 */
export function* applyChanges(
  { users, grants, boundaries }: AccessRecords,
  changes: readonly Change[],
): Steps<AccessRecords> {
  const about = Map.groupBy(changes, usernameOf);
  const after = { users: [] as User[], grants: [] as Grant[], boundaries };
  yield* visitEach(users, (user) => {
    const changed = changedUser(user, about.get(user.username) ?? []);
    if (changed !== undefined) after.users.push(changed);
  });
  yield* visitEach(grants, (grant) => {
    const changed = changedGrant(grant, about.get(grant.username) ?? []);
    if (changed !== undefined) after.grants.push(changed);
  });
  for (const change of changes) {
    if (change.kind === "add-user") after.users.push(change.user);
    else if (change.kind === "add-grant") after.grants.push(change.grant);
  }
  return after;
}

/** A change after which the next one can be judged without reading the file again. */
type DraftedChange = Exclude<Change, { kind: "remove-user" | "remove-grant" }>;

/** False for a change that removes a record. */
export function isDrafted(change: Change): change is DraftedChange {
  return change.kind !== "remove-user" && change.kind !== "remove-grant";
}

/** The state after changes that are not written yet. */
export class Draft {
  readonly #users = new Map<string, User>();
  readonly #grants = new Map<string, UserGrants>();
  readonly #databases = new Map<string, string>();
  /** The future state, with the version of the current file. */
  readonly snapshot: Snapshot;

  constructor({ version, users, grants, databases, boundaries }: Snapshot) {
    this.snapshot = {
      version,
      users: new LayeredMap(users, this.#users),
      grants: new LayeredMap(grants, this.#grants),
      databases: new LayeredMap(databases, this.#databases),
      boundaries,
    };
  }

  #give(grant: Grant): void {
    const { username, database } = grant;
    this.#grants.set(username, withGrant(grantsOf(this.snapshot, username), grant));
    if (database !== EVERY_DATABASE) this.#databases.set(database.toLowerCase(), database);
  }

  make(change: DraftedChange): void {
    switch (change.kind) {
      case "add-user":
        this.#users.set(change.user.username, change.user);
        break;
      case "update-user": {
        const user = this.snapshot.users.get(change.username);
        if (user !== undefined) this.#users.set(change.username, updatedUser(user, change.update));
        break;
      }
      case "add-grant":
      case "set-grant":
        this.#give(change.grant);
        break;
    }
  }
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

export function isGone({ user, grants }: UserRecords): boolean {
  return user === undefined && grants.length === 0;
}

export function replacementOf(snapshot: Snapshot, changes: readonly Change[]): Replacement {
  const names = new Set(changes.map(usernameOf));
  const touched = Array.from(names, (name) => recordsOf(snapshot, name));
  const before = allOf(touched, snapshot.boundaries);
  const after = runAtOnce(applyChanges(before, changes));
  const users = after.users.map((user): [string, User] => [user.username, user]);
  const byName = new Map(users);
  const grants = Map.groupBy(after.grants, ({ username }) => username);
  const left = Array.from(names, (name): [string, UserRecords] => [
    name,
    { user: byName.get(name), grants: grants.get(name) ?? [] },
  ]);
  return { users: new Map(left) };
}

function allOf(
  records: Iterable<UserRecords>,
  boundaries: readonly Boundary[],
): AccessRecords & { users: User[]; grants: Grant[] } {
  const all = { users: [] as User[], grants: [] as Grant[], boundaries };
  for (const { user, grants } of records) {
    if (user !== undefined) all.users.push(user);
    all.grants.push(...grants);
  }
  return all;
}

function listed({ users, grants, boundaries }: AccessRecords): AccessRecord[] {
  return [...users, ...grants, ...boundaries];
}

export function namesIn({ users, grants }: Snapshot): Set<string> {
  return new Set([...users.keys(), ...grants.keys()]);
}

/** @throws RecordsError if records conflict */
function* indexAnew(records: AccessRecords, version: string): Steps<AccessIndex> {
  const index = yield* indexRecords(records, version, (problem) => {
    throw new RecordsError([problem]);
  });
  return index;
}

/** Indexes the records of each name. @throws RecordsError if records conflict */
export function indexOf(
  users: Iterable<UserRecords>,
  boundaries: readonly Boundary[],
  version: string,
): Steps<AccessIndex> {
  return indexAnew(allOf(users, boundaries), version);
}

/**
 * The index with records replaced. It shares everything unchanged with the earlier index.
 *
 * @throws RecordsError if records conflict
 */
export function* replaceRecords(
  index: AccessIndex,
  { users, boundaries: given }: Replacement,
  version: string,
): Steps<AccessIndex> {
  const { snapshot } = index;
  const boundaries = given ?? snapshot.boundaries;
  const known = Array.from(users.keys(), (name) => recordsOf(snapshot, name));
  const added = allOf(users.values(), boundaries);
  const changes = {
    removed: listed(allOf(known, snapshot.boundaries)),
    added: listed(added),
  };
  const changed = yield* changeIndex(index, changes, added, version);
  if (changed !== undefined) return changed;
  const all = Array.from(
    namesIn(snapshot).union(new Set(users.keys())),
    (name) => users.get(name) ?? recordsOf(snapshot, name),
  );
  return yield* indexAnew(allOf(all, boundaries), version);
}
