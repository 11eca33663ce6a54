import { type Grant, isNarrowing } from "./grant.ts";
import { FoldedNames } from "./name-folding.ts";
import { EVERY_DATABASE } from "./roles.ts";
import {
  emptyPlace,
  noPatterns,
  Patterns,
  type Place,
  prefixOf,
  settle,
} from "./table-patterns.ts";

/** Why an entry cannot stand beside the others of its user. */
export type GrantConflict = "database_taken" | "table_taken" | "patterns_overlap";

/** A place and the table or pattern that it is for; undefined for the whole database. */
export type NamedPlace = readonly [string | undefined, Place];

/** The entries of a user on one database (or `*`) that are not just one for the whole of it. */
export class DatabaseGrants {
  /** In the order of the file. */
  readonly all: Grant[] = [];
  readonly whole = emptyPlace();
  readonly tables = new Map<string, Place>();
  #patterns = noPatterns;
  readonly #folded = new FoldedNames((name) => this.tables.has(name));

  get patterns(): Patterns {
    return this.#patterns;
  }

  /** Adds an entry; what is wrong with it, if anything is. */
  add(grant: Grant): GrantConflict | undefined {
    this.all.push(grant);
    if (grant.tables === undefined) {
      return settle(this.whole, grant) ? undefined : "database_taken";
    }
    for (const table of grant.tables) {
      const conflict = this.#addTable(table, grant);
      if (conflict !== undefined) return conflict;
    }
    return undefined;
  }

  #addTable(table: string, grant: Grant): GrantConflict | undefined {
    const prefix = prefixOf(table);
    if (prefix !== undefined) {
      if (this.#patterns === noPatterns) this.#patterns = new Patterns();
      const { places } = this.#patterns;
      if (!places.has(prefix) && !this.patterns.add(prefix)) return "patterns_overlap";
      return settle(places.get(prefix) ?? emptyPlace(), grant) ? undefined : "table_taken";
    }
    let place = this.tables.get(table);
    if (place === undefined) {
      place = emptyPlace();
      this.tables.set(table, place);
      this.#folded.add(table);
    }
    return settle(place, grant) ? undefined : "table_taken";
  }

  /** The place of a table or a pattern, as it is written. */
  placeOf(written: string): Place | undefined {
    const prefix = prefixOf(written);
    return prefix === undefined ? this.tables.get(written) : this.patterns.places.get(prefix);
  }

  /** Every place: tables and patterns with their names, and the whole, which has none, at the end. */
  *places(): Generator<NamedPlace, undefined> {
    yield* this.tables;
    for (const [prefix, place] of this.patterns.places) yield [`${prefix}*`, place];
    yield [undefined, this.whole];
  }

  /** Those that a table is in, the one that decides first; without a table the whole alone. */
  placesOf(table: string | undefined): readonly NamedPlace[] {
    const whole: NamedPlace = [undefined, this.whole];
    if (table === undefined) return [whole];
    const named = this.tables.get(table);
    const prefix = this.patterns.fitting(table);
    const fitting = prefix === undefined ? undefined : this.patterns.places.get(prefix);
    const places: NamedPlace[] = named === undefined ? [] : [[table, named]];
    if (fitting !== undefined) places.push([`${prefix}*`, fitting]);
    places.push(whole);
    return places;
  }

  /** A table or a pattern here that means this one but for case. */
  otherSpelling(table: string): string | undefined {
    const name = this.#folded.otherSpelling(table);
    if (name !== undefined || this.#patterns === noPatterns) return name;
    const prefix = this.#patterns.folded.otherBeginning(table);
    return prefix === undefined ? undefined : `${prefix}*`;
  }
}

/** The entries of one user, by database (or `*`): mostly one for the whole database, for good. */
export interface UserGrants extends ReadonlyMap<string, Grant | DatabaseGrants> {
  /** True if any of them narrows: then queries are judged by more than roles. */
  readonly isNarrowed: boolean;
}

/** Gathers the entries of one user. */
export class GrantCollection extends Map<string, Grant | DatabaseGrants> implements UserGrants {
  isNarrowed = false;

  /** Adds an entry; what is wrong with it, if anything is. */
  add(grant: Grant): GrantConflict | undefined {
    const { database } = grant;
    const known = this.get(database);
    this.isNarrowed ||= isNarrowing(grant);
    if (known === undefined && grant.tables === undefined && grant.expires === undefined) {
      this.set(database, grant);
      return undefined;
    }
    if (known instanceof DatabaseGrants) return known.add(grant);
    const grants = new DatabaseGrants();
    if (known !== undefined) grants.add(known);
    this.set(database, grants);
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
