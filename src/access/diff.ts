import { isDeepStrictEqual } from "node:util";
import { runAtOnce, type Steps, visitEach } from "../cooperative-scheduling.ts";
import { boundaryName } from "./boundaries.ts";
import type { Grant } from "./grant.ts";
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
  /** Of the same role, but with other columns, filters, limits or another expiry. */
  grantsChanged: string[];
  /** A boundary reads as `boundaryName` has it. One that changed is removed and added. */
  boundariesAdded: string[];
  boundariesRemoved: string[];
}

function isSameRecord(one: User, other: User): boolean {
  return (
    one === other ||
    (one.passwordHash === other.passwordHash &&
      one.email === other.email &&
      one.disabled === other.disabled &&
      one.tokensValidAfter === other.tokensValidAfter &&
      isDeepStrictEqual(one.attributes, other.attributes))
  );
}

function* compareUsers(before: Snapshot, after: Snapshot, diff: AccessDiff): Steps<void> {
  yield* visitEach(LayeredMap.differing(after.users, before.users), (name) => {
    const [old, user] = [before.users.get(name), after.users.get(name)];
    if (user === undefined) {
      // A name that was removed earlier may differ from neither.
      if (old !== undefined) diff.usersRemoved.push(name);
    } else if (old === undefined) diff.usersAdded.push(name);
    else if (!isSameRecord(old, user)) diff.usersChanged.push(name);
  });
}

/** The user's entries by place: a database, and the tables if the entry is for some alone. */
function placesOf(snapshot: Snapshot, username: string): Map<string, Grant> {
  const places = entriesIn(grantsOf(snapshot, username)).map((grant): [string, Grant] => {
    const { database, tables, expires } = grant;
    const place = tables === undefined ? database : `${database}.${tables.join()}`;
    return [expires === undefined ? place : `${place} for a time`, grant];
  });
  return new Map(places);
}

function* compareGrants(before: Snapshot, after: Snapshot, diff: AccessDiff): Steps<void> {
  yield* visitEach(LayeredMap.differing(after.grants, before.grants), (name) => {
    if (before.grants.get(name) === after.grants.get(name)) return;
    const [old, current] = [placesOf(before, name), placesOf(after, name)];
    for (const [place, grant] of current) {
      const was = old.get(place);
      const entry = `${name} ${place} ${grant.role}`;
      if (was === undefined) diff.grantsAdded.push(entry);
      else if (outranks(grant.role, was.role)) diff.grantsRaised.push(entry);
      else if (outranks(was.role, grant.role)) diff.grantsLowered.push(entry);
      else if (!isDeepStrictEqual(was, grant)) diff.grantsChanged.push(entry);
    }
    for (const [place, { role }] of old) {
      if (!current.has(place)) diff.grantsRemoved.push(`${name} ${place} ${role}`);
    }
  });
}

/** The boundaries of one state that the other has not. */
function boundariesMissing(from: Snapshot, { boundaries }: Snapshot): string[] {
  if (from.boundaries === boundaries) return [];
  const known = new Set(from.boundaries.map((boundary) => JSON.stringify(boundary)));
  return boundaries.filter((one) => !known.has(JSON.stringify(one))).map(boundaryName);
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
    grantsChanged: [],
    boundariesAdded: boundariesMissing(before, after),
    boundariesRemoved: boundariesMissing(after, before),
  };
  yield* compareUsers(before, after, diff);
  yield* compareGrants(before, after, diff);
  return diff;
}

/** What changed from `before` to `after`. */
export function diffSnapshots(before: Snapshot, after: Snapshot): AccessDiff {
  return runAtOnce(diffSteps(before, after));
}
