import { type Steps, visitEach } from "../cooperative-scheduling.ts";
import type { AccessRecords } from "./records.ts";
import type { Grant, User } from "./snapshot.ts";

/** What a machine may change in a user's record; `undefined` takes the key out. */
export type UserUpdate = Partial<Omit<User, "username">>;

/** One change to the access file, in the terms of its records. */
export type Change =
  | { readonly kind: "add-user"; readonly user: User }
  | { readonly kind: "update-user"; readonly username: string; readonly update: UserUpdate }
  | { readonly kind: "remove-user"; readonly username: string }
  | { readonly kind: "add-grant"; readonly grant: Grant }
  /** In the place of the one that the user has on this database. */
  | { readonly kind: "set-grant"; readonly grant: Grant }
  | { readonly kind: "remove-grant"; readonly username: string; readonly database: string };

/** Whom a change is about. */
export function usernameOf(change: Change): string {
  if (change.kind === "add-user") return change.user.username;
  return "grant" in change ? change.grant.username : change.username;
}

function changedUser(user: User, changes: readonly Change[]): User | undefined {
  let changed = user;
  for (const change of changes) {
    if (change.kind === "remove-user") return undefined;
    if (change.kind === "update-user") changed = { ...changed, ...change.update };
  }
  return changed;
}

function changedGrant(grant: Grant, changes: readonly Change[]): Grant | undefined {
  let changed = grant;
  for (const change of changes) {
    if (change.kind === "remove-user") return undefined;
    if (change.kind === "remove-grant" && change.database === grant.database) return undefined;
    if (change.kind === "set-grant" && change.grant.database === grant.database) {
      changed = change.grant;
    }
  }
  return changed;
}

/**
 * The records as they must be once the changes are made to them: what the edited text is checked
 * against. No change is about what another one adds.
 */
export function* applyChanges(
  { users, grants }: AccessRecords,
  changes: readonly Change[],
): Steps<AccessRecords> {
  const about = Map.groupBy(changes, usernameOf);
  const after: { users: User[]; grants: Grant[] } = { users: [], grants: [] };
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
