import { decide } from "../access/policy.ts";
import { EVERY_DATABASE, type Role, widestRole } from "../access/roles.ts";
import { grantsOf, type Snapshot } from "../access/snapshot.ts";
import { entriesIn } from "../access/user-grants.ts";
import { Refusal } from "../refusal.ts";

/**
 * The role that the token names: the one on its database, or the widest of all.
 *
 * @throws Refusal if there is none on the database that was asked for
 */
export function tokenRole(
  snapshot: Snapshot,
  username: string,
  database: string,
): Role | undefined {
  if (database === EVERY_DATABASE) return widestRole(entriesIn(grantsOf(snapshot, username)));
  // Every role may read, so this asks whether there is any.
  const subject = { username, tokenDatabase: database };
  const { reason, role } = decide(snapshot, subject, "SELECT", database);
  if (reason !== "allowed") throw new Refusal(reason);
  return role === "None" ? undefined : role;
}
