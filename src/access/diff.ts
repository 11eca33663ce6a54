import { runAtOnce, type Steps, visitEach } from "../cooperative-scheduling.ts";
import type { EntryRole } from "./grant.ts";
import { LayeredMap } from "./layered-map.ts";
import { outranks } from "./roles.ts";
import { grantsOf, type Snapshot, type User } from "./snapshot.ts";
import { entriesIn } from "./user-grants.ts";

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

/** The user's roles by place: a database, and the tables if the entry is for some alone. */
function rolesOf(snapshot: Snapshot, username: string): Map<string, EntryRole> {
  const places = entriesIn(grantsOf(snapshot, username)).map(
    ({ database, tables, expires, role }): [string, EntryRole] => [
      `${database}${tables === undefined ? "" : `.${tables.join()}`}${expires === undefined ? "" : " for a time"}`,
      role,
    ],
  );
  return new Map(places);
}

function* compareGrants(before: Snapshot, after: Snapshot, diff: AccessDiff): Steps<void> {
  yield* visitEach(LayeredMap.differing(after.grants, before.grants), (name) => {
    if (before.grants.get(name) === after.grants.get(name)) return;
    const [old, current] = [rolesOf(before, name), rolesOf(after, name)];
    for (const [place, role] of current) {
      const was = old.get(place);
      if (was === role) continue;
      const entry = `${name} ${place} ${role}`;
      if (was === undefined) diff.grantsAdded.push(entry);
      else if (outranks(role, was)) diff.grantsRaised.push(entry);
      else diff.grantsLowered.push(entry);
    }
    for (const [place, role] of old) {
      if (!current.has(place)) diff.grantsRemoved.push(`${name} ${place} ${role}`);
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
