import { DatabaseGrants, type GrantConflict } from "./database-grants.ts";
import { type Grant, isNarrowing } from "./grant.ts";
import { EVERY_DATABASE } from "./roles.ts";

/** What a user has on one database (or `*`). */
type Held = Grant | DatabaseGrants;

/** The entries of one user, by database (or `*`): mostly one for the whole database, for good. */
export interface UserGrants {
  /** How many databases they are for. */
  readonly size: number;
  /** True if any of them narrows: then queries are judged by more than roles. */
  readonly isNarrowed: boolean;
  get(database: string): Held | undefined;
  has(database: string): boolean;
  keys(): IteratorObject<string>;
  values(): IteratorObject<Held>;
}

/** Databases up to which a list is gone through: a map for each of very many users would take 200 bytes. */
const FEW = 8;
const none: readonly Held[] = [];

/** Gathers the entries of one user. */
export class GrantCollection implements UserGrants {
  isNarrowed = false;
  #few = none;
  #many: Map<string, Held> | undefined = undefined;

  get size(): number {
    return this.#many?.size ?? this.#few.length;
  }

  get(database: string): Held | undefined {
    if (this.#many !== undefined) return this.#many.get(database);
    for (const held of this.#few) if (held.database === database) return held;
    return undefined;
  }

  has(database: string): boolean {
    return this.get(database) !== undefined;
  }

  keys(): IteratorObject<string> {
    return this.values().map(({ database }) => database);
  }

  values(): IteratorObject<Held> {
    return (this.#many ?? this.#few).values();
  }

  #set(held: Held): void {
    const { database } = held;
    if (this.#many !== undefined) {
      this.#many.set(database, held);
      return;
    }
    const at = this.#few.findIndex((known) => known.database === database);
    // Made anew, since a list that grows takes room for many.
    this.#few = at === -1 ? this.#few.concat(held) : this.#few.with(at, held);
    if (this.#few.length <= FEW) return;
    this.#many = new Map(this.#few.map((known) => [known.database, known]));
    this.#few = none;
  }

  /** Adds an entry; what is wrong with it, if anything is. */
  add(grant: Grant): GrantConflict | undefined {
    const { database } = grant;
    const known = this.get(database);
    this.isNarrowed ||= isNarrowing(grant);
    if (known === undefined && grant.tables === undefined && grant.expires === undefined) {
      this.#set(grant);
      return undefined;
    }
    if (known instanceof DatabaseGrants) return known.add(grant);
    const grants = new DatabaseGrants(database);
    if (known !== undefined) grants.add(known);
    this.#set(grants);
    return grants.add(grant);
  }
}

/** Some entries of one user, as they are looked up. No two of them may contradict each other. */
export function collectGrants(grants: Iterable<Grant>): UserGrants {
  const collection = new GrantCollection();
  for (const grant of grants) collection.add(grant);
  return collection;
}

/** All of some entries, in the order of the file as far as they are for one database. */
export function* entriesIn(grants: UserGrants): Generator<Grant, undefined> {
  for (const held of grants.values()) {
    if (held instanceof DatabaseGrants) yield* held.all;
    else yield held;
  }
}

/** True for entries of which a user can have one alone: both for good, or both for a time. */
export function isSamePlace(one: Grant, other: Grant): boolean {
  const placesOf = ({ tables = [] }: Grant) => new Set(tables);
  return (
    one.username === other.username &&
    one.database === other.database &&
    (one.expires === undefined) === (other.expires === undefined) &&
    placesOf(one).symmetricDifference(placesOf(other)).size === 0
  );
}

/** The entries for the whole of a database (or `*`), or those that name one of its tables or patterns. */
export function entriesAt(
  grants: UserGrants,
  database: string,
  table: string | undefined,
): readonly Grant[] {
  return entriesIn(grants)
    .filter(
      (grant) =>
        grant.database === database &&
        (table === undefined ? grant.tables === undefined : grant.tables?.includes(table) === true),
    )
    .toArray();
}

/** True for an entry that says more than which role is given where. */
export function saysMore({ tables: _, ...grant }: Grant): boolean {
  return grant.expires !== undefined || (grant.role !== "None" && isNarrowing(grant));
}

/** The entries with another one, in the place of the one that is there. */
export function withGrant(grants: UserGrants, grant: Grant): UserGrants {
  const changed = new GrantCollection();
  let isPlaced = false;
  for (const own of entriesIn(grants)) {
    const isReplaced = isSamePlace(own, grant);
    changed.add(isReplaced ? grant : own);
    isPlaced ||= isReplaced;
  }
  if (!isPlaced) changed.add(grant);
  return changed;
}

/** The entry for the whole of a database (or `*`) that is for good. */
export function lastingGrant(grants: UserGrants, database: string): Grant | undefined {
  const held = grants.get(database);
  return held instanceof DatabaseGrants ? held.whole.lasting : held;
}

/**
 * The entry for the whole of a database (or `*`), if it is for good and narrows nothing, and no
 * other one there is in force.
 *
 * @param now epoch milliseconds
 */
export function standingGrant(
  grants: UserGrants,
  database: string,
  now: number = Date.now(),
): Grant | undefined {
  const held = grants.get(database);
  const standing = held instanceof DatabaseGrants ? held.whole.lasting : held;
  if (standing === undefined || isNarrowing(standing)) return undefined;
  const isAlone =
    !(held instanceof DatabaseGrants) ||
    held.all.every((grant) => grant === standing || hasGivenWay(grant, now));
  return isAlone ? standing : undefined;
}

/** True for an entry for the whole database that has lapsed. */
function hasGivenWay({ tables, expires }: Grant, now: number): boolean {
  return tables === undefined && expires !== undefined && expires <= now;
}

/**
 * The entries of the user through which it may reach something of a database, whether they have
 * lapsed or not: those for it, and those for `*` unless one is for the whole of it.
 */
export function reachingEntries(grants: UserGrants, database: string): readonly Grant[] {
  const allOf = (held: Grant | DatabaseGrants | undefined): readonly Grant[] =>
    held === undefined ? [] : held instanceof DatabaseGrants ? held.all : [held];
  const own = allOf(grants.get(database));
  const isWhole = own.some(({ tables }) => tables === undefined);
  return isWhole || database === EVERY_DATABASE
    ? own
    : [...own, ...allOf(grants.get(EVERY_DATABASE))];
}
