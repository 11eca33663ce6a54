import { Refusal } from "../refusal.ts";
import { isExternalUsername } from "./names.ts";
import { EVERY_DATABASE } from "./roles.ts";
import type { Snapshot } from "./snapshot.ts";

/** Databases that have an Owner who can act; entries for `*` do not count. */
function ownedDatabases(snapshot: Snapshot): Set<string> {
  const owned = new Set<string>();
  for (const [username, grants] of snapshot.grants) {
    const user = snapshot.users.get(username);
    const canAct = user === undefined ? isExternalUsername(username) : !user.disabled;
    if (!canAct) continue;
    for (const [database, role] of grants) if (role === "Owner") owned.add(database);
  }
  owned.delete(EVERY_DATABASE);
  return owned;
}

/** True if some administrator can log in. */
function hasAdministrator(snapshot: Snapshot): boolean {
  for (const [username, grants] of snapshot.grants) {
    const user = snapshot.users.get(username);
    const canLogIn = user?.passwordHash !== undefined && !user.disabled;
    if (canLogIn && grants.get(EVERY_DATABASE) === "Owner") return true;
  }
  return false;
}

/**
 * Keeps a change from taking the last Owner off a database, or the last administrator away.
 *
 * @throws Refusal `last_owner` or `last_administrator`
 */
export function requireSuccession(before: Snapshot, after: Snapshot): void {
  if (hasAdministrator(before) && !hasAdministrator(after)) throw new Refusal("last_administrator");
  const owned = ownedDatabases(after);
  for (const database of ownedDatabases(before)) {
    if (!owned.has(database)) throw new Refusal("last_owner");
  }
}
