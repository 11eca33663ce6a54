/** Group membership, and the entries that a caller has from groups. */

import { isDeepStrictEqual } from "node:util";
import { memoizeByObject } from "../base/memoize.ts";
import { placeName } from "../query/names.ts";
import {
  DatabaseGrants,
  type DecidingEntry,
  entriesIn,
  GrantCollection,
  slotEntries,
  type UserEntries,
  type UserGrants,
} from "./entries.ts";
import {
  type Grant,
  type Group,
  groupHolder,
  groupOf,
  type Holder,
  holderText,
  isNarrowing,
  type Subject,
  userHolder,
} from "./grant.ts";
import { outranks, prefixWithColon } from "./roles.ts";
import { ownGrants, type Snapshot } from "./snapshot.ts";

/** A user, with the groups and attributes of the token if there is one. */
export type Caller = Pick<Subject, "username" | "groups" | "attributes">;

const membershipsIn = memoizeByObject((groups: ReadonlyMap<string, Group>) => {
  const memberships = new Map<string, readonly string[]>();
  for (const { name, members } of groups.values()) {
    for (const member of members)
      memberships.set(member, [...(memberships.get(member) ?? []), name]);
  }
  return memberships;
});

/** The names of the local groups that have a user as a member. */
export function listLocalGroups({ groups }: Snapshot, username: string): readonly string[] {
  return groups.size === 0 ? [] : (membershipsIn(groups).get(username) ?? []);
}

const issuersOfGroups = memoizeByObject((grants: Snapshot["grants"]) => {
  const groups = grants.keys().flatMap((holder) => [groupOf(holder) ?? ""]);
  return new Set(groups.map(prefixWithColon).filter((prefix) => prefix !== ""));
});

/** True for a user of an issuer whose groups have entries. Only a token tells its groups. */
export function mayHaveTokenGroups({ grants }: Snapshot, username: string): boolean {
  return issuersOfGroups(grants).has(prefixWithColon(username));
}

/** The caller's local groups, and the groups of the token. */
function callerGroups(snapshot: Snapshot, { username, groups = [] }: Caller): readonly string[] {
  const local = listLocalGroups(snapshot, username);
  if (groups.length === 0) return local;
  return local.length === 0 ? groups : [...local, ...groups];
}

/** A caller with the entries of this holder, to ask what a user or a group alone may do. */
export function callerFor(holder: Holder): Caller {
  return { username: holderText(holder) };
}

/** True for the caller, also one of `callerFor`, and for each of the caller's groups. */
export function isMeant(snapshot: Snapshot, caller: Caller, holder: Holder): boolean {
  if (holder === userHolder(caller.username)) return true;
  const group = groupOf(holder);
  return group !== undefined && callerGroups(snapshot, caller).includes(group);
}

interface Merged {
  readonly username: string;
  readonly grants: UserGrants;
  /** When the result is valid, in epoch milliseconds: entries may expire. */
  readonly from: number;
  readonly until: number;
}

interface Cache {
  /** Of users whose tokens have no groups. */
  readonly byName: Map<string, Merged>;
  readonly byGroups: WeakMap<readonly string[], Merged>;
}

const cacheFor = memoizeByObject((_: Snapshot): Cache => {
  return { byName: new Map(), byGroups: new WeakMap() };
});

/**
 * The caller's entries, merged with those of the caller's groups.
 *
 * @param now epoch milliseconds, read only if something expires
 */
export function effectiveGrants(snapshot: Snapshot, caller: Caller, now?: number): UserGrants {
  const { username, groups } = caller;
  const hasGroups = groups !== undefined && groups.length > 0;
  if (!hasGroups && listLocalGroups(snapshot, username).length === 0) {
    return ownGrants(snapshot, userHolder(username));
  }
  const cache = cacheFor(snapshot);
  const known = hasGroups ? cache.byGroups.get(groups) : cache.byName.get(username);
  if (known?.username === username) {
    const isTimed = known.from > 0 || known.until < Number.POSITIVE_INFINITY;
    const at = isTimed ? (now ?? Date.now()) : 0;
    if (at >= known.from && at < known.until) return known.grants;
  }
  const merged = mergeFor(snapshot, caller, now ?? Date.now());
  if (hasGroups) cache.byGroups.set(groups, merged);
  else cache.byName.set(username, merged);
  return merged.grants;
}

/** As `effectiveGrants`, with other entries in the place of the caller's own. */
export function grantsWith(
  snapshot: Snapshot,
  caller: Caller,
  own: UserGrants,
  now: number,
): UserGrants {
  return merge(own, groupEntries(snapshot, caller), now);
}

/** All entries of the caller and the caller's groups, also those that decide nothing now. */
export function* allEntries(snapshot: Snapshot, caller: Caller): Generator<Grant, undefined> {
  yield* entriesIn(ownGrants(snapshot, userHolder(caller.username)));
  for (const grants of groupEntries(snapshot, caller)) yield* entriesIn(grants);
}

function groupEntries(snapshot: Snapshot, caller: Caller): UserGrants[] {
  const names = [...new Set(callerGroups(snapshot, caller))].sort();
  return names.flatMap((name) => snapshot.grants.get(groupHolder(name)) ?? []);
}

function mergeFor(snapshot: Snapshot, caller: Caller, now: number): Merged {
  const own = ownGrants(snapshot, userHolder(caller.username));
  const ofGroups = groupEntries(snapshot, caller);
  let from = 0;
  let until = Number.POSITIVE_INFINITY;
  for (const { expires } of [own, ...ofGroups].flatMap((grants) => [...entriesIn(grants)])) {
    if (expires === undefined) continue;
    if (expires <= now) from = Math.max(from, expires);
    else until = Math.min(until, expires);
  }
  return { username: caller.username, grants: merge(own, ofGroups, now), from, until };
}

/** @param ofGroups sorted by the groups' names */
function merge(own: UserGrants, ofGroups: readonly UserGrants[], now: number): UserGrants {
  if (ofGroups.length === 0) return own;
  const merged = new GrantCollection();
  for (const database of new Set([own, ...ofGroups].flatMap((grants) => [...grants.keys()]))) {
    const sources = ofGroups.flatMap((grants) => grants.get(database) ?? []);
    merged.set(database, mergeOn(database, own.get(database), sources, now));
  }
  // At any time, since queries are judged a moment later.
  merged.isNarrowed = [own, ...ofGroups].some(({ isNarrowed }) => isNarrowed);
  return merged;
}

function mergeOn(
  database: string,
  own: UserEntries | undefined,
  ofGroups: readonly UserEntries[],
  now: number,
): UserEntries {
  if (own !== undefined && ofGroups.length === 0) return own;
  const tables = [own, ...ofGroups].flatMap((source) =>
    source instanceof DatabaseGrants ? [...source.tables()] : [],
  );
  const merged = new DatabaseGrants();
  let whole: DecidingEntry | undefined;
  for (const table of new Set([...tables, undefined])) {
    const entriesFrom = (source: UserEntries) => entriesAtPlace(source, database, table, now);
    const entries = mergeEntries(own ? entriesFrom(own) : [], ofGroups.map(entriesFrom));
    if (entries.length > 0) merged.hold(table, entries);
    whole = entries[0];
  }
  const isPlain = tables.length === 0 && whole?.grant.expires === undefined;
  return isPlain && whole && !isNarrowing(whole.grant) ? whole.grant : merged;
}

/** The deciding entry of one holder for a table, a pattern or the whole database, then others. */
function entriesAtPlace(
  source: UserEntries,
  database: string,
  table: string | undefined,
  now: number,
): readonly DecidingEntry[] {
  if (!(source instanceof DatabaseGrants)) {
    return table === undefined ? slotEntries({ permanent: source }, placeName(database), now) : [];
  }
  const [name, slot] = source.slotAt(table) ?? [];
  return slot === undefined ? [] : slotEntries(slot, placeName(database, name), now);
}

/** The entries of all holders for one place, the deciding one first. */
function mergeEntries(
  own: readonly DecidingEntry[],
  ofGroups: readonly (readonly DecidingEntry[])[],
): readonly DecidingEntry[] {
  if (own[0]?.isExpired === false) return own;
  const inForce = ofGroups.flatMap(([first]) => (first?.isExpired === false ? [first] : []));
  if (inForce.length === 0) return own.length > 0 ? own : ofGroups.flat();
  const deciding = decideAmongGroups(inForce);
  const others = ofGroups.flat().filter((one) => one !== deciding && !one.isExpired);
  return [deciding, ...others];
}

function entryTerms({ holder: _, tables: __, expires: ___, ...limits }: Grant) {
  return limits;
}

/** Of equal roles, a permanent one is wider: only its holder may grant. */
function isWider({ role, expires }: Grant, other: Grant): boolean {
  if (role !== other.role) return outranks(role, other.role);
  return expires === undefined && other.expires !== undefined;
}

function decideAmongGroups(entries: readonly DecidingEntry[]): DecidingEntry {
  const [first, ...others] = entries as [DecidingEntry, ...DecidingEntry[]];
  const none = entries.find(({ grant }) => grant.role === "None");
  if (none !== undefined) return none;
  if (!entries.some(({ grant: { tables: _, ...grant } }) => isNarrowing(grant))) {
    return others.reduce((widest, one) => (isWider(one.grant, widest.grant) ? one : widest), first);
  }
  const limits = entryTerms(first.grant);
  if (others.every(({ grant }) => isDeepStrictEqual(entryTerms(grant), limits))) return first;
  const groups = entries.flatMap(({ grant }) => groupOf(grant.holder) ?? []);
  const { place, grant } = first;
  const { holder, database, tables } = grant;
  return {
    grant: { holder, database, role: "None", ...(tables && { tables }) },
    place,
    name: `${place} (groups ${groups.join(", ")})`,
    isExpired: false,
    conflict: groups,
  };
}
