import { type Steps, visitEach } from "../cooperative-scheduling.ts";
import { Refusal } from "../refusal.ts";
import { LayeredMap } from "./layered-map.ts";
import { EVERY_DATABASE } from "./roles.ts";
import { grantsOf, type Snapshot } from "./snapshot.ts";
import { obstacleOf } from "./subject.ts";
import { standingGrant } from "./user-grants.ts";

/** Who is left to administer: what a change may not take away. */
interface RemainingOwners {
  /** Databases that have an Owner for good who can act; entries for `*` do not count. */
  readonly owned: Set<string>;
  /** True if some administrator can log in. */
  readonly hasAdministrator: boolean;
}

function* remainingOwners(snapshot: Snapshot, among: Iterable<string>): Steps<RemainingOwners> {
  const owned = new Set<string>();
  let hasAdministrator = false;
  yield* visitEach(among, (username) => {
    if (obstacleOf(snapshot, username) !== undefined) return;
    const user = snapshot.users.get(username);
    const grants = grantsOf(snapshot, username);
    for (const database of grants.keys()) {
      if (standingGrant(grants, database)?.role !== "Owner") continue;
      if (database !== EVERY_DATABASE) owned.add(database);
      else hasAdministrator ||= user?.passwordHash !== undefined;
    }
  });
  return { owned, hasAdministrator };
}

/** True if anybody is left who administers, and can log in. */
export function* hasAdministrator(snapshot: Snapshot): Steps<boolean> {
  return (yield* remainingOwners(snapshot, snapshot.grants.keys())).hasAdministrator;
}

/** The code of what those `among` have lost, if they have lost anything. */
function* lossAmong(before: Snapshot, after: Snapshot, among: (of: Snapshot) => Iterable<string>) {
  const past = yield* remainingOwners(before, among(before));
  const future = yield* remainingOwners(after, among(after));
  if (past.hasAdministrator && !future.hasAdministrator) return "last_administrator";
  return past.owned.isSubsetOf(future.owned) ? undefined : "last_owner";
}

/**
 * Keeps a change from taking the last Owner off a database, or the last administrator away.
 *
 * @throws Refusal `last_owner` or `last_administrator`
 */
export function* requireRemainingOwners(before: Snapshot, after: Snapshot): Steps<void> {
  const changed = new Set([
    ...LayeredMap.differing(before.users, after.users),
    ...LayeredMap.differing(before.grants, after.grants),
  ]);
  // Whom those who changed have left behind is looked for only where they did.
  if ((yield* lossAmong(before, after, () => changed)) === undefined) return;
  const lost = yield* lossAmong(before, after, ({ grants }) => grants.keys());
  if (lost !== undefined) throw new Refusal(lost);
}
