import type { AccessRecords } from "./records.ts";
import type { Role } from "./roles.ts";
import type { Grant, User } from "./snapshot.ts";

/** What a machine may change in a user's record; `undefined` takes the key out. */
export type UserUpdate = Partial<Omit<User, "username">>;

/** One change to the access file, in the terms of its records. */
export type Change =
  | { readonly kind: "add-user"; readonly user: User }
  | { readonly kind: "update-user"; readonly username: string; readonly update: UserUpdate }
  | { readonly kind: "remove-user"; readonly username: string }
  | { readonly kind: "add-grant"; readonly grant: Grant }
  | {
      readonly kind: "set-role";
      readonly username: string;
      readonly database: string;
      readonly role: Role;
    }
  | { readonly kind: "remove-grant"; readonly username: string; readonly database: string };

function isGrantOf(username: string, database: string): (grant: Grant) => boolean {
  return (grant) => grant.username === username && grant.database === database;
}

/** The records as they must be once `change` is made: what the edited text is checked against. */
export function applyChange({ users, grants }: AccessRecords, change: Change): AccessRecords {
  switch (change.kind) {
    case "add-user":
      return { users: [...users, change.user], grants };
    case "update-user": {
      const updated = users.map((user) =>
        user.username === change.username ? { ...user, ...change.update } : user,
      );
      return { users: updated, grants };
    }
    case "remove-user":
      return {
        users: users.filter((user) => user.username !== change.username),
        grants: grants.filter((grant) => grant.username !== change.username),
      };
    case "add-grant":
      return { users, grants: [...grants, change.grant] };
    case "set-role": {
      const isTarget = isGrantOf(change.username, change.database);
      const updated = grants.map((grant) =>
        isTarget(grant) ? { ...grant, role: change.role } : grant,
      );
      return { users, grants: updated };
    }
    case "remove-grant": {
      const isTarget = isGrantOf(change.username, change.database);
      return { users, grants: grants.filter((grant) => !isTarget(grant)) };
    }
  }
}
