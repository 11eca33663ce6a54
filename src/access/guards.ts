import { Refusal } from "../refusal.ts";
import { type Steps, visitEach } from "../slices.ts";
import { isExternalUsername } from "./names.ts";
import { EVERY_DATABASE } from "./roles.ts";
import type { Snapshot } from "./snapshot.ts";

/** Who is left to run things: what a change may not take away. */
interface Succession {
  /** Databases that have an Owner who can act; entries for `*` do not count. */
  readonly owned: Set<string>;
  /** True if some administrator can log in. */
  readonly hasAdministrator: boolean;
}

function* successionOf(snapshot: Snapshot): Steps<Succession> {
  const owned = new Set<string>();
  let hasAdministrator = false;
  yield* visitEach(snapshot.grants, ([username, grants]) => {
    const user = snapshot.users.get(username);
    const canAct = user === undefined ? isExternalUsername(username) : !user.disabled;
    if (!canAct) return;
    for (const [database, { role }] of grants) {
      if (role !== "Owner") continue;
      if (database !== EVERY_DATABASE) owned.add(database);
      else hasAdministrator ||= user?.passwordHash !== undefined;
    }
  });
  return { owned, hasAdministrator };
}

/**
 * Keeps a change from taking the last Owner off a database, or the last administrator away.
 *
 * @throws Refusal `last_owner` or `last_administrator`
 */
export function* requireSuccession(before: Snapshot, after: Snapshot): Steps<void> {
  const past = yield* successionOf(before);
  const future = yield* successionOf(after);
  if (past.hasAdministrator && !future.hasAdministrator) throw new Refusal("last_administrator");
  if (!past.owned.isSubsetOf(future.owned)) throw new Refusal("last_owner");
}
