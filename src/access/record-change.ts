import { type Steps, visitEach } from "../cooperative-scheduling.ts";
import { LayeredMap } from "./layered-map.ts";
import type { AccessRecords } from "./records.ts";
import { EVERY_DATABASE } from "./roles.ts";
import { type Grant, grantsOf, type Snapshot, type User } from "./snapshot.ts";
import { isSamePlace, type UserGrants, withGrant } from "./user-grants.ts";
import { type UserUpdate, updatedUser } from "./user-record.ts";

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
export type DraftedChange = Exclude<Change, { kind: "remove-user" | "remove-grant" }>;

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
