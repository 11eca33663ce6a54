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

/** One change to the access file, in the terms of its records. */
export type Change =
  | { readonly kind: "add-user"; readonly user: User }
  | { readonly kind: "update-user"; readonly username: string; readonly update: UserUpdate }
  | { readonly kind: "remove-user"; readonly username: string }
  | { readonly kind: "add-grant"; readonly grant: Grant }
  /** In the place of the one that the user has there. */
  | { readonly kind: "set-grant"; readonly grant: Grant }
  | { readonly kind: "remove-grant"; readonly grant: Grant };

/** Whom a change is about. */
export function usernameOf(change: Change): string {
  if (change.kind === "add-user") return change.user.username;
  return "grant" in change ? change.grant.username : change.username;
}

/** True if what was issued to the user before must never work again. */
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
 * The records as they must be once the changes are made to them: what the edited text is checked
 * against. No change is about what another one adds.
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

/** A change after which another one can be judged without reading the file again. */
type DraftedChange = Exclude<Change, { kind: "remove-user" | "remove-grant" }>;

/** True unless the change takes a record away. */
export function isDrafted(change: Change): change is DraftedChange {
  return change.kind !== "remove-user" && change.kind !== "remove-grant";
}

/** What the file will say once changes are made that are not written yet. */
export class Draft {
  readonly #users = new Map<string, User>();
  readonly #grants = new Map<string, UserGrants>();
  readonly #databases = new Map<string, string>();
  /** The state as it will be; the version is that of the file as it is. */
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

/** All that is held of one name. */
export interface UserRecords {
  readonly user: User | undefined;
  readonly grants: readonly Grant[];
}

/** What a change leaves of the records that it touches, in whose place they come. */
export interface Replacement {
  readonly users: ReadonlyMap<string, UserRecords>;
  /** Undefined if they stay. */
  readonly boundaries?: readonly Boundary[] | undefined;
}

/** All that a snapshot holds of a name. */
export function recordsOf(snapshot: Snapshot, username: string): UserRecords {
  const grants = [...entriesIn(grantsOf(snapshot, username))];
  return { user: snapshot.users.get(username), grants };
}

/** True if nothing is held of a name. */
export function isGone({ user, grants }: UserRecords): boolean {
  return user === undefined && grants.length === 0;
}

/** What changes leave of the records that they touch. */
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

/** Every name of which something is held, in order. */
export function namesIn({ users, grants }: Snapshot): Set<string> {
  return new Set([...users.keys(), ...grants.keys()]);
}

/** Indexes records of which it is known that they do not contradict each other, or throws. */
function* indexAnew(records: AccessRecords, version: string): Steps<AccessIndex> {
  const index = yield* indexRecords(records, version, (problem) => {
    throw new RecordsError([problem]);
  });
  return index;
}

/** The index of what is held of each name. @throws RecordsError if records contradict each other */
export function indexOf(
  users: Iterable<UserRecords>,
  boundaries: readonly Boundary[],
  version: string,
): Steps<AccessIndex> {
  return indexAnew(allOf(users, boundaries), version);
}

/**
 * The index with records replaced, which shares with the one before all that stays.
 *
 * @throws RecordsError if records contradict each other
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
