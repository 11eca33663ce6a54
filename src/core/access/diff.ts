import { isDeepStrictEqual } from "node:util";
import { runAtOnce, type Steps, visitEach } from "../base/cooperative-scheduling.ts";
import { placeName } from "../query/names.ts";
import { type PermissionClass, permissionClasses, tableRights } from "../query/permissions.ts";
import { entriesIn } from "./entries.ts";
import { viewEntry } from "./entry-view.ts";
import {
  describePlace,
  type Grant,
  type Group,
  type Holder,
  holderText,
  membersGone,
  userHolder,
  userOf,
} from "./grant.ts";
import { allEntries, callerFor, effectiveGrants } from "./groups.ts";
import { decide } from "./policy.ts";
import { boundaryName, decidingEntry } from "./rights.ts";
import { type EntryRole, EVERY_DATABASE, outranks, roleAllows } from "./roles.ts";
import {
  accountObstacle,
  differingHolders,
  differingKeys,
  ownGrants,
  type Snapshot,
} from "./snapshot.ts";

/** The deciding entry for a place. Undefined if none applies. */
interface Effect {
  readonly role: EntryRole;
  readonly entry: string | undefined;
  /** The entry's other keys, as named in the file. */
  readonly limits: Readonly<Record<string, unknown>>;
}

export interface EffectChange {
  readonly holder: Holder;
  /** `main`, `main.tickets`, `*.customer_*`. */
  readonly place: string;
  readonly gains: readonly PermissionClass[];
  readonly loses: readonly PermissionClass[];
  /** The file's keys of limits that changed, for rights held both before and after. */
  readonly limits: readonly string[];
  readonly before: Effect;
  readonly after: Effect;
}

/** Such as `max_rows from no limit to 20`. */
export function limitChange({ before, after }: EffectChange, key: string): string {
  const [from, to] = [before, after].map(({ limits }) => JSON.stringify(limits[key]) ?? "no limit");
  return `${key} from ${from} to ${to}`;
}

const noEffect: Effect = { role: "None", entry: undefined, limits: {} };

function effectAt(
  snapshot: Snapshot,
  holder: Holder,
  database: string,
  table: string | undefined,
  now: number,
): Effect {
  const username = userOf(holder);
  if (username !== undefined && accountObstacle(snapshot, username) !== undefined) return noEffect;
  // No table name contains a star, so a pattern decides like any name that matches it.
  const found = decidingEntry(snapshot, callerFor(holder), database, table, now);
  if (found === undefined || found.isExpired) return noEffect;
  const { database: _, role: __, tables: ___, ...limits } = viewEntry(found.grant);
  return { role: found.grant.role, entry: found.name, limits };
}

function tablesNamed(snapshot: Snapshot, holder: Holder, database: string): string[] {
  return allEntries(snapshot, callerFor(holder))
    .filter((grant) => grant.database === database || grant.database === EVERY_DATABASE)
    .flatMap(({ tables = [] }) => tables)
    .toArray();
}

function changeAt(
  [old, current]: readonly [Snapshot, Snapshot],
  holder: Holder,
  database: string,
  table: string | undefined,
  now: number,
): EffectChange | undefined {
  const before = effectAt(old, holder, database, table, now);
  const after = effectAt(current, holder, database, table, now);
  const rights = table === undefined ? permissionClasses : tableRights;
  const subject = { ...callerFor(holder), tokenDatabase: EVERY_DATABASE };
  // Entries with limits or an expiry do not let their holder grant.
  const rightsIn = (snapshot: Snapshot, { role }: Effect) =>
    rights.filter(
      (right) =>
        roleAllows(role, right) &&
        (right !== "GRANT" || decide(snapshot, subject, right, database, now).allowed),
    );
  const had = rightsIn(old, before);
  const has = rightsIn(current, after);
  const gains = has.filter((right) => !had.includes(right));
  const loses = had.filter((right) => !has.includes(right));
  const keys = new Set([...Object.keys(before.limits), ...Object.keys(after.limits)]);
  const isKept = had.some((right) => has.includes(right));
  const limits = [...keys].filter(
    (key) => isKept && !isDeepStrictEqual(before.limits[key], after.limits[key]),
  );
  if (gains.length + loses.length + limits.length === 0) return undefined;
  return { holder, place: placeName(database, table), gains, loses, limits, before, after };
}

export function* effectsOn(
  holders: Iterable<Holder>,
  before: Snapshot,
  after: Snapshot,
  now: number,
): Generator<EffectChange, undefined> {
  const states = [before, after] as const;
  for (const holder of holders) {
    const databases = new Set(
      states.flatMap((state) => [...effectiveGrants(state, callerFor(holder), now).keys()]),
    );
    for (const database of databases) {
      const named = states.flatMap((state) => tablesNamed(state, holder, database));
      for (const table of new Set([undefined, ...named])) {
        const change = changeAt(states, holder, database, table, now);
        if (change !== undefined) yield change;
      }
    }
  }
}

/**
 * Lists what changes for each user, on every database and table that the user's entries name before
 * or after. Anything they do not name follows `*`. Users count as changed if they join or leave a
 * group, and groups as users of their own.
 *
 * @param now epoch milliseconds at which both states are evaluated
 */
export function effectDiff(
  before: Snapshot,
  after: Snapshot,
  now: number,
): Generator<EffectChange, undefined> {
  const holders = runAtOnce(differingHolders(before, after));
  const moved = runAtOnce(differingKeys(before.groups, after.groups)).flatMap((name) => {
    const [old, current] = [before, after].map((state) => state.groups.get(name)?.members ?? []);
    return [...new Set(old).symmetricDifference(new Set(current))].map(userHolder);
  });
  return effectsOn(holders.union(new Set(moved)), before, after, now);
}

export interface AccessDiff {
  usersAdded: string[];
  usersRemoved: string[];
  usersChanged: string[];
  groupsAdded: Group[];
  groupsRemoved: Group[];
  /** Other members. */
  groupsChanged: (Group & { readonly left: readonly string[] })[];
  grantsAdded: Grant[];
  grantsRemoved: Grant[];
  grantsRaised: Grant[];
  grantsLowered: Grant[];
  /** Same role, but different columns, filters, limits or expiry. */
  grantsChanged: Grant[];
  /** Names from `boundaryName`. A changed boundary is listed as removed and added. */
  boundariesAdded: string[];
  boundariesRemoved: string[];
}

function timedPlace(grant: Grant): string {
  return grant.expires === undefined ? describePlace(grant) : `${describePlace(grant)} for a time`;
}

export type DiffItem = string | Group | Grant;

/** A name, or a grant as `user database role`. */
export function describeItem(item: DiffItem): string {
  if (typeof item === "string") return item;
  return "name" in item ? item.name : `${holderText(item.holder)} ${timedPlace(item)} ${item.role}`;
}

function grantsByPlace(snapshot: Snapshot, holder: Holder): Map<string, Grant> {
  const grants = entriesIn(ownGrants(snapshot, holder));
  return new Map(grants.map((grant) => [timedPlace(grant), grant]));
}

function boundariesMissing(from: Snapshot, { boundaries }: Snapshot): string[] {
  const known = new Set(from.boundaries.map((boundary) => JSON.stringify(boundary)));
  return boundaries.filter((one) => !known.has(JSON.stringify(one))).map(boundaryName);
}

export function* diffSteps(before: Snapshot, after: Snapshot): Steps<AccessDiff> {
  const diff: AccessDiff = {
    usersAdded: [],
    usersRemoved: [],
    usersChanged: [],
    groupsAdded: [],
    groupsRemoved: [],
    groupsChanged: [],
    grantsAdded: [],
    grantsRemoved: [],
    grantsRaised: [],
    grantsLowered: [],
    grantsChanged: [],
    boundariesAdded: boundariesMissing(before, after),
    boundariesRemoved: boundariesMissing(after, before),
  };
  yield* visitEach(yield* differingKeys(before.users, after.users), (name) => {
    const [old, user] = [before.users.get(name), after.users.get(name)];
    if (user === undefined) diff.usersRemoved.push(name);
    else if (old === undefined) diff.usersAdded.push(name);
    else if (!isDeepStrictEqual(old, user)) diff.usersChanged.push(name);
  });
  yield* visitEach(yield* differingKeys(before.groups, after.groups), (name) => {
    const [old, group] = [before.groups.get(name), after.groups.get(name)];
    if (old === undefined) {
      if (group !== undefined) diff.groupsAdded.push(group);
    } else if (group === undefined) diff.groupsRemoved.push(old);
    else if (!isDeepStrictEqual(old, group)) {
      diff.groupsChanged.push({ ...group, left: membersGone(old, group) });
    }
  });
  yield* visitEach(yield* differingKeys(before.grants, after.grants), (name) => {
    const [old, current] = [grantsByPlace(before, name), grantsByPlace(after, name)];
    for (const [place, grant] of current) {
      const was = old.get(place);
      if (was === undefined) diff.grantsAdded.push(grant);
      else if (outranks(grant.role, was.role)) diff.grantsRaised.push(grant);
      else if (outranks(was.role, grant.role)) diff.grantsLowered.push(grant);
      else if (!isDeepStrictEqual(was, grant)) diff.grantsChanged.push(grant);
    }
    for (const [place, grant] of old) if (!current.has(place)) diff.grantsRemoved.push(grant);
  });
  return diff;
}

export function diffSnapshots(before: Snapshot, after: Snapshot): AccessDiff {
  return runAtOnce(diffSteps(before, after));
}
