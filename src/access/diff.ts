import { runAtOnce, type Steps, visitEach } from "../cooperative-scheduling.ts";
import { LayeredMap } from "./layered-map.ts";
import { outranks } from "./roles.ts";
import { grantsOf, type Snapshot, type User } from "./snapshot.ts";

/** What differs between two states of the access file, as names that a log may show. */
export interface AccessDiff {
  usersAdded: string[];
  usersRemoved: string[];
  /** Records whose password, email, state or token limit changed. */
  usersChanged: string[];
  /** A grant reads `user database role`. */
  grantsAdded: string[];
  grantsRemoved: string[];
  grantsRaised: string[];
  grantsLowered: string[];
}

function isSameRecord(one: User, other: User): boolean {
  return (
    one === other ||
    (one.passwordHash === other.passwordHash &&
      one.email === other.email &&
      one.disabled === other.disabled &&
      one.tokensValidAfter === other.tokensValidAfter)
  );
}

function* compareUsers(before: Snapshot, after: Snapshot, diff: AccessDiff): Steps<void> {
  yield* visitEach(LayeredMap.differing(after.users, before.users), (name) => {
    const [old, user] = [before.users.get(name), after.users.get(name)];
    if (user === undefined) diff.usersRemoved.push(name);
    else if (old === undefined) diff.usersAdded.push(name);
    else if (!isSameRecord(old, user)) diff.usersChanged.push(name);
  });
}

function* compareGrants(before: Snapshot, after: Snapshot, diff: AccessDiff): Steps<void> {
  yield* visitEach(LayeredMap.differing(after.grants, before.grants), (name) => {
    const [old, current] = [grantsOf(before, name), grantsOf(after, name)];
    if (old === current) return;
    for (const [database, { role }] of current) {
      const was = old.get(database)?.role;
      if (was === role) continue;
      const entry = `${name} ${database} ${role}`;
      if (was === undefined) diff.grantsAdded.push(entry);
      else if (outranks(role, was)) diff.grantsRaised.push(entry);
      else diff.grantsLowered.push(entry);
    }
    for (const [database, { role }] of old) {
      if (!current.has(database)) diff.grantsRemoved.push(`${name} ${database} ${role}`);
    }
  });
}

/** Finds in steps what changed from `before` to `after`. */
export function* diffSteps(before: Snapshot, after: Snapshot): Steps<AccessDiff> {
  const diff: AccessDiff = {
    usersAdded: [],
    usersRemoved: [],
    usersChanged: [],
    grantsAdded: [],
    grantsRemoved: [],
    grantsRaised: [],
    grantsLowered: [],
  };
  yield* compareUsers(before, after, diff);
  yield* compareGrants(before, after, diff);
  return diff;
}

/** What changed from `before` to `after`. */
export function diffSnapshots(before: Snapshot, after: Snapshot): AccessDiff {
  return runAtOnce(diffSteps(before, after));
}
