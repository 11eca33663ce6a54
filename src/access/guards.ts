import { type Steps, visitEach } from "../cooperative-scheduling.ts";
import { Refusal } from "../refusal.ts";
import { isExternalUsername } from "./identifiers.ts";
import { LayeredMap } from "./layered-map.ts";
import { EVERY_DATABASE } from "./roles.ts";
import { grantsOf, type Snapshot } from "./snapshot.ts";

/** Who is left to run things: what a change may not take away. */
interface Succession {
  /** Databases that have an Owner who can act; entries for `*` do not count. */
  readonly owned: Set<string>;
  /** True if some administrator can log in. */
  readonly hasAdministrator: boolean;
}

function* successionOf(snapshot: Snapshot, among: Iterable<string>): Steps<Succession> {
  const owned = new Set<string>();
  let hasAdministrator = false;
  yield* visitEach(among, (username) => {
    const user = snapshot.users.get(username);
    const canAct = user === undefined ? isExternalUsername(username) : !user.disabled;
    if (!canAct) return;
    for (const [database, { role }] of grantsOf(snapshot, username)) {
      if (role !== "Owner") continue;
      if (database !== EVERY_DATABASE) owned.add(database);
      else hasAdministrator ||= user?.passwordHash !== undefined;
    }
  });
  return { owned, hasAdministrator };
}

function isContinued(past: Succession, future: Succession): boolean {
  return (future.hasAdministrator || !past.hasAdministrator) && past.owned.isSubsetOf(future.owned);
}

/**
 * Keeps a change from taking the last Owner off a database, or the last administrator away.
 *
 * @throws Refusal `last_owner` or `last_administrator`
 */
export function* requireSuccession(before: Snapshot, after: Snapshot): Steps<void> {
  const changed = new Set([
    ...LayeredMap.differing(before.users, after.users),
    ...LayeredMap.differing(before.grants, after.grants),
  ]);
  const isKept = isContinued(
    yield* successionOf(before, changed),
    yield* successionOf(after, changed),
  );
  // Whom those who changed have left behind is looked for only where they did.
  if (isKept) return;
  const past = yield* successionOf(before, before.grants.keys());
  const future = yield* successionOf(after, after.grants.keys());
  if (past.hasAdministrator && !future.hasAdministrator) throw new Refusal("last_administrator");
  if (!past.owned.isSubsetOf(future.owned)) throw new Refusal("last_owner");
}
