/** Who gains and loses what between two states of the access file, as it decides. */

import { isDeepStrictEqual } from "node:util";
import { type PermissionClass, permissionClasses } from "../query/permissions.ts";
import { decidingEntry } from "./deciding-entry.ts";
import { viewEntry } from "./entry-view.ts";
import type { Grant } from "./grant.ts";
import { isExternalUsername } from "./identifiers.ts";
import { LayeredMap } from "./layered-map.ts";
import type { EntryRole } from "./roles.ts";
import { EVERY_DATABASE, roleAllows } from "./roles.ts";
import { grantsOf, type Snapshot } from "./snapshot.ts";
import { entriesIn } from "./user-grants.ts";

/** What decides at a place in one state; nothing if `entry` is undefined. */
export interface Standing {
  readonly role: EntryRole;
  readonly entry: string | undefined;
  /** What the entry says besides, by the keys of the file. */
  readonly limits: Readonly<Record<string, unknown>>;
}

/** What differs for a user on a database, or on one of its tables. */
export interface EffectChange {
  readonly username: string;
  /** `main`, `main.tickets`, `*.customer_*`. */
  readonly place: string;
  readonly gains: readonly PermissionClass[];
  readonly loses: readonly PermissionClass[];
  /** Limits that are others, by the keys of the file, for rights that are held before and after. */
  readonly limits: readonly string[];
  readonly before: Standing;
  readonly after: Standing;
}

const nothing: Standing = { role: "None", entry: undefined, limits: {} };

/** True for a user whose entries count. */
function canAct({ users }: Snapshot, username: string): boolean {
  const user = users.get(username);
  return user === undefined ? isExternalUsername(username) : !user.disabled;
}

function limitsOf(grant: Grant): Record<string, unknown> {
  const { database: _, role: __, tables: ___, ...limits } = viewEntry(grant);
  return limits;
}

function standingAt(
  snapshot: Snapshot,
  username: string,
  database: string,
  table: string | undefined,
  now: number,
): Standing {
  if (!canAct(snapshot, username)) return nothing;
  // A pattern is as good as any name that it fits: no name has its star.
  const found = decidingEntry(snapshot, username, database, table, now);
  if (found === undefined || found.isLapsed) return nothing;
  return { role: found.grant.role, entry: found.name, limits: limitsOf(found.grant) };
}

/** The tables and patterns that the user's entries for a database, or for `*`, name. */
function tablesNamed(snapshot: Snapshot, username: string, database: string): string[] {
  return entriesIn(grantsOf(snapshot, username))
    .filter((grant) => grant.database === database || grant.database === EVERY_DATABASE)
    .flatMap(({ tables = [] }) => tables)
    .toArray();
}

/** The rights that concern a table; all concern a database. */
const tableRights: readonly PermissionClass[] = [
  ...(["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP"] as const),
];

function changeAt(
  [old, current]: readonly [Snapshot, Snapshot],
  username: string,
  database: string,
  table: string | undefined,
  now: number,
): EffectChange | undefined {
  const before = standingAt(old, username, database, table, now);
  const after = standingAt(current, username, database, table, now);
  const rights = table === undefined ? permissionClasses : tableRights;
  const had = rights.filter((right) => roleAllows(before.role, right));
  const has = rights.filter((right) => roleAllows(after.role, right));
  const gains = has.filter((right) => !had.includes(right));
  const loses = had.filter((right) => !has.includes(right));
  const keys = new Set([...Object.keys(before.limits), ...Object.keys(after.limits)]);
  const isKept = had.some((right) => has.includes(right));
  const limits = [...keys].filter(
    (key) => isKept && !isDeepStrictEqual(before.limits[key], after.limits[key]),
  );
  if (gains.length + loses.length + limits.length === 0) return undefined;
  const place = table === undefined ? database : `${database}.${table}`;
  return { username, place, gains, loses, limits, before, after };
}

/** What differs for some users, as `effectDiff` has it for all. */
export function* effectsOn(
  usernames: Iterable<string>,
  before: Snapshot,
  after: Snapshot,
  now: number,
): Generator<EffectChange, undefined> {
  const states = [before, after] as const;
  for (const username of usernames) {
    const databases = new Set(states.flatMap((state) => [...grantsOf(state, username).keys()]));
    for (const database of databases) {
      const named = states.flatMap((state) => tablesNamed(state, username, database));
      for (const table of new Set([undefined, ...named])) {
        const change = changeAt(states, username, database, table, now);
        if (change !== undefined) yield change;
      }
    }
  }
}

/**
 * What differs for whom, place by place: the databases and tables that a user's entries name before
 * or after. What they do not name is as it is for `*`.
 *
 * @param now epoch milliseconds at which both states are asked
 */
export function effectDiff(
  before: Snapshot,
  after: Snapshot,
  now: number,
): Generator<EffectChange, undefined> {
  const names = new Set([
    ...LayeredMap.differing(after.users, before.users),
    ...LayeredMap.differing(after.grants, before.grants),
  ]);
  return effectsOn(names, before, after, now);
}
