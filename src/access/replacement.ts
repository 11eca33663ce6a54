import { runAtOnce, type Steps } from "../cooperative-scheduling.ts";
import type { Boundary, Grant } from "./grant.ts";
import { applyChanges, type Change, usernameOf } from "./record-change.ts";
import type { AccessRecord } from "./record-tables.ts";
import { type AccessRecords, RecordsError } from "./records.ts";
import type { Snapshot, User } from "./snapshot.ts";
import { grantsOf } from "./snapshot.ts";
import { type AccessIndex, changeIndex, indexRecords } from "./snapshot-index.ts";
import { entriesIn } from "./user-grants.ts";

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
