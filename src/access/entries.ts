import { type Grant, isNarrowing } from "./grant.ts";
import { EVERY_DATABASE } from "./roles.ts";

/**
 * Removes what a database may not distinguish: case, Unicode compatibility forms, marks and
 * invisible characters. Two names that fold alike may be the same name to the database.
 */
function foldName(name: string): string {
  const plain = isAscii(name)
    ? name
    : name.normalize("NFKD").replace(/[\p{M}\p{Default_Ignorable_Code_Point}]/gu, "");
  // Upper case first: some letters that fold alike differ only in lower case.
  return isAscii(plain) ? plain.toLowerCase() : plain.toUpperCase().toLowerCase();
}

function isAscii(text: string): boolean {
  for (let at = 0; at < text.length; at++) if (text.charCodeAt(at) > 0x7f) return false;
  return true;
}

interface Names {
  has(name: string): boolean;
}

/** Finds names that fold alike. Names in lower case, which are most, take almost no memory. */
export class FoldedNames {
  readonly #names: Names;
  /** By folded form, the names that differ from it. */
  #odd: Map<string, string[]> | undefined = undefined;

  constructor(names: Names) {
    this.#names = names;
  }

  /** Must be called for each of the names. */
  add(name: string): void {
    const folded = foldName(name);
    if (folded === name) return;
    this.#odd ??= new Map();
    const known = this.#odd.get(folded);
    if (known === undefined) this.#odd.set(folded, [name]);
    // Sorted, so that the result does not depend on the order of the calls.
    else known.splice(0, Number.POSITIVE_INFINITY, ...[...known, name].sort());
  }

  /** A known name that differs from `name` only by case or Unicode form. */
  otherSpelling(name: string): string | undefined {
    const folded = foldName(name);
    if (folded !== name && this.#names.has(folded)) return folded;
    return this.#odd?.get(folded)?.find((odd) => odd !== name);
  }

  /** A known name that would be a prefix of `name` but for case or Unicode form. */
  otherBeginning(name: string): string | undefined {
    const folded = foldName(name);
    for (let length = 0; length <= folded.length; length++) {
      const beginning = folded.slice(0, length);
      if (this.#names.has(beginning) && !name.startsWith(beginning)) return beginning;
      const odd = this.#odd?.get(beginning)?.find((one) => !name.startsWith(one));
      if (odd !== undefined) return odd;
    }
    return undefined;
  }
}

/** The entries for one place: a permanent one, and a temporary one that wins until it expires. */
export interface Place {
  lasting: Grant | undefined;
  temporary: Grant | undefined;
}

/** False if the place already has an entry of this kind. */
function settle(place: Place, grant: Grant): boolean {
  const kind = grant.expires === undefined ? "lasting" : "temporary";
  if (place[kind] !== undefined) return false;
  place[kind] = grant;
  return true;
}

function emptyPlace(): Place {
  return { lasting: undefined, temporary: undefined };
}

export function prefixOf(table: string): string | undefined {
  return table.endsWith("*") ? table.slice(0, -1) : undefined;
}

/** Patterns of table names, stored by prefix. No two of them match the same name. */
class Patterns {
  readonly places = new Map<string, Place>();
  readonly folded = new FoldedNames(this.places);

  fitting(name: string): string | undefined {
    for (let length = 0; length <= name.length && this.places.size > 0; length++) {
      const prefix = name.slice(0, length);
      if (this.places.has(prefix)) return prefix;
    }
    return undefined;
  }

  /** Returns false if another pattern matches some of the same names. */
  add(prefix: string): boolean {
    const isShorter = (known: string) => known.startsWith(prefix);
    if (this.fitting(prefix) !== undefined || this.places.keys().some(isShorter)) return false;
    this.places.set(prefix, emptyPlace());
    this.folded.add(prefix);
    return true;
  }
}

/** Shared by all users without patterns, which are most. */
const noPatterns: Patterns = new Patterns();

export type GrantConflict = "database_taken" | "table_taken" | "patterns_overlap";

/** A place and its table or pattern, which is undefined for the whole database. */
export type NamedPlace = readonly [string | undefined, Place];

/** A user's entries on one database (or `*`), unless there is only one, for the whole database. */
export class DatabaseGrants {
  readonly database: string;
  all: Grant[] = [];
  readonly whole = emptyPlace();
  readonly tables = new Map<string, Place>();
  #patterns = noPatterns;
  readonly #folded = new FoldedNames(this.tables);

  constructor(database: string) {
    this.database = database;
  }

  get patterns(): Patterns {
    return this.#patterns;
  }

  /** Adds an entry and returns the conflict, if there is one. */
  add(grant: Grant): GrantConflict | undefined {
    // A list that has grown reserves room for many entries, and most have one.
    if (this.all.length === 0) this.all = [grant];
    else this.all.push(grant);
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

  placeOf(written: string): Place | undefined {
    const prefix = prefixOf(written);
    return prefix === undefined ? this.tables.get(written) : this.patterns.places.get(prefix);
  }

  *places(): Generator<NamedPlace, undefined> {
    yield* this.tables;
    for (const [prefix, place] of this.patterns.places) yield [`${prefix}*`, place];
    yield [undefined, this.whole];
  }

  /**
   * The places that match a table, the deciding one first. Without a table, only the whole
   * database.
   */
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

  /** An entry's table or pattern that matches this table but for case or Unicode form. */
  otherSpelling(table: string): string | undefined {
    const name = this.#folded.otherSpelling(table);
    if (name !== undefined || this.#patterns === noPatterns) return name;
    const prefix = this.#patterns.folded.otherBeginning(table);
    return prefix === undefined ? undefined : `${prefix}*`;
  }
}

type Held = Grant | DatabaseGrants;

/** The entries of one user by database (or `*`). */
export interface UserGrants extends ReadonlyMap<string, Held> {
  /** True if any entry narrows. Then queries are judged by more than roles. */
  readonly isNarrowed: boolean;
}

export class GrantCollection extends Map<string, Held> implements UserGrants {
  isNarrowed = false;

  add(grant: Grant): GrantConflict | undefined {
    const { database } = grant;
    const known = this.get(database);
    this.isNarrowed ||= isNarrowing(grant);
    if (known === undefined && grant.tables === undefined && grant.expires === undefined) {
      this.set(database, grant);
      return undefined;
    }
    if (known instanceof DatabaseGrants) return known.add(grant);
    const grants = new DatabaseGrants(database);
    if (known !== undefined) grants.add(known);
    this.set(database, grants);
    return grants.add(grant);
  }
}

/** Indexes a user's entries, which must not conflict. */
export function collectGrants(grants: Iterable<Grant>): UserGrants {
  const collection = new GrantCollection();
  for (const grant of grants) collection.add(grant);
  return collection;
}

/** All entries. Those for one database are in the order of the file. */
export function* entriesIn(grants: UserGrants): Generator<Grant, undefined> {
  for (const held of grants.values()) {
    if (held instanceof DatabaseGrants) yield* held.all;
    else yield held;
  }
}

/**
 * True if a user can have only one of the two: same place, and both permanent or both temporary.
 */
export function isSamePlace(one: Grant, other: Grant): boolean {
  const placesOf = ({ tables = [] }: Grant) => new Set(tables);
  return (
    one.username === other.username &&
    one.database === other.database &&
    (one.expires === undefined) === (other.expires === undefined) &&
    placesOf(one).symmetricDifference(placesOf(other)).size === 0
  );
}

/**
 * The entries for a whole database (or `*`), or, given a table, those that name this table or
 * pattern.
 */
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

/** True for an entry with limits or an expiry beyond its role. */
export function saysMore({ tables: _, ...grant }: Grant): boolean {
  return grant.expires !== undefined || (grant.role !== "None" && isNarrowing(grant));
}

export function lastingGrant(grants: UserGrants, database: string): Grant | undefined {
  const held = grants.get(database);
  return held instanceof DatabaseGrants ? held.whole.lasting : held;
}

/**
 * The permanent entry for a whole database (or `*`), if it narrows nothing and no other entry there
 * is in force.
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

function hasGivenWay({ tables, expires }: Grant, now: number): boolean {
  return tables === undefined && expires !== undefined && expires <= now;
}

/**
 * The entries through which a user may reach anything in a database, expired or not. Entries for
 * `*` count only if no entry covers the whole named database.
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
