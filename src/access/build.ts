import { type Steps, visitEach } from "../slices.ts";
import { type AccessRecords, RecordError } from "./records.ts";
import { EVERY_DATABASE } from "./roles.ts";
import type { Grant, Snapshot, User } from "./snapshot.ts";

function* indexUsers(users: readonly User[]): Steps<Map<string, User>> {
  const byName = new Map<string, User>();
  yield* visitEach(users, (user, index) => {
    if (byName.has(user.username)) {
      throw new RecordError("users", index, "username", "this user has a record already");
    }
    byName.set(user.username, user);
  });
  return byName;
}

function* indexDatabases(grants: readonly Grant[]): Steps<Map<string, string>> {
  const databases = new Map<string, string>();
  yield* visitEach(grants, ({ database }, index) => {
    const folded = database.toLowerCase();
    const known = databases.get(folded);
    if (known !== undefined && known !== database) {
      const reason = "another entry names a database that differs from this one only by case";
      throw new RecordError("acl", index, "database", reason);
    }
    if (known === undefined && database !== EVERY_DATABASE) databases.set(folded, database);
  });
  return databases;
}

function* indexGrants(grants: readonly Grant[]): Steps<Map<string, Map<string, Grant>>> {
  const byUser = new Map<string, Map<string, Grant>>();
  yield* visitEach(grants, (grant, index) => {
    const { username, database } = grant;
    const own = byUser.get(username);
    if (own === undefined) byUser.set(username, new Map([[database, grant]]));
    else if (own.has(database)) {
      const reason = "this user has an entry for this database already";
      throw new RecordError("acl", index, undefined, reason);
    } else own.set(database, grant);
  });
  return byUser;
}

/** Indexes the records for the decisions. @throws RecordError if two of them contradict */
export function* buildSnapshot({ users, grants }: AccessRecords, version: string): Steps<Snapshot> {
  return {
    version,
    users: yield* indexUsers(users),
    databases: yield* indexDatabases(grants),
    grants: yield* indexGrants(grants),
  };
}
