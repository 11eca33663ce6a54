import { type Grant, isNarrowing } from "./grant.ts";
import { EVERY_DATABASE } from "./roles.ts";

/**
 * A name without what a database may not tell apart: case, Unicode's compatible forms, marks, and
 * characters that are not seen. Two names that fold alike may be one to the database.
 */
function foldName(name: string): string {
  const plain = isAscii(name)
    ? name
    : name.normalize("NFKD").replace(/[\p{M}\p{Default_Ignorable_Code_Point}]/gu, "");
  // In upper case first: some letters that fold alike are told apart by their lower case alone.
  return isAscii(plain) ? plain.toLowerCase() : plain.toUpperCase().toLowerCase();
}

function isAscii(text: string): boolean {
  for (let at = 0; at < text.length; at++) if (text.charCodeAt(at) > 0x7f) return false;
  return true;
}

/** A set of names, or a map of them. */
interface Names {
  has(name: string): boolean;
}

/** Names by which others are judged that fold alike. Takes little room for names in lower case. */
export class FoldedNames {
  readonly #names: Names;
  /** Names that are not their own folded form, by that. */
  #odd: Map<string, string[]> | undefined = undefined;

  /** @param names the names, in their exact spelling */
  constructor(names: Names) {
    this.#names = names;
  }

  /** To be called for each of the names. */
  add(name: string): void {
    const folded = foldName(name);
    if (folded === name) return;
    this.#odd ??= new Map();
    const known = this.#odd.get(folded);
    if (known === undefined) this.#odd.set(folded, [name]);
    // In an order of their own, whatever the order in which they come.
    else known.splice(0, Number.POSITIVE_INFINITY, ...[...known, name].sort());
  }

  /** One of the names that differs from `name` by case or Unicode form alone. */
  otherSpelling(name: string): string | undefined {
    const folded = foldName(name);
    if (folded !== name && this.#names.has(folded)) return folded;
    return this.#odd?.get(folded)?.find((odd) => odd !== name);
  }

  /** One of the names with which `name` would begin, were it not for case or Unicode form. */
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

/** Places that entries hold, and the patterns of tables among them. */

/** The entries for one place: one for good, and one that wins while it lasts. */
export interface Place {
  lasting: Grant | undefined;
  temporary: Grant | undefined;
}

/** Puts an entry in its place. False if one of its kind is there already. */
function settle(place: Place, grant: Grant): boolean {
  const kind = grant.expires === undefined ? "lasting" : "temporary";
  if (place[kind] !== undefined) return false;
  place[kind] = grant;
  return true;
}

/** A place that nobody holds. */
function emptyPlace(): Place {
  return { lasting: undefined, temporary: undefined };
}

/** The part of a pattern that a name begins with; undefined for a name. */
export function prefixOf(table: string): string | undefined {
  return table.endsWith("*") ? table.slice(0, -1) : undefined;
}

/** Patterns of table names, no two of which fit one name: each as what a name begins with. */
class Patterns {
  readonly places = new Map<string, Place>();
  readonly folded = new FoldedNames(this.places);
  /** The lengths that patterns have, each once. */
  #lengths: readonly number[] = [];
  /** The beginnings of longer patterns, of these lengths; made with the first, since most have none. */
  #beginnings: Set<string> | undefined = undefined;

  /** The pattern that fits a name. */
  fitting(name: string): string | undefined {
    for (const length of this.#lengths) {
      const prefix = name.slice(0, length);
      if (prefix.length === length && this.places.has(prefix)) return prefix;
    }
    return undefined;
  }

  /** Adds a pattern. False if another one fits some of its names. */
  add(prefix: string): boolean {
    this.#noteLength(prefix.length);
    if (this.#beginnings?.has(prefix) === true || this.fitting(prefix) !== undefined) return false;
    for (const length of this.#lengths) {
      if (length < prefix.length) this.#noteBeginning(prefix.slice(0, length));
    }
    this.places.set(prefix, emptyPlace());
    this.folded.add(prefix);
    return true;
  }

  #noteLength(length: number): void {
    if (this.#lengths.includes(length)) return;
    this.#lengths = [...this.#lengths, length];
    for (const known of this.places.keys()) {
      if (known.length > length) this.#noteBeginning(known.slice(0, length));
    }
  }

  #noteBeginning(beginning: string): void {
    this.#beginnings ??= new Set();
    this.#beginnings.add(beginning);
  }
}

/** Stands for the patterns of all who have none, which are most. */
const noPatterns: Patterns = new Patterns();

/** What a user has on one database, beyond one entry for the whole of it. */

/** Why an entry cannot stand beside the others of its user. */
export type GrantConflict = "database_taken" | "table_taken" | "patterns_overlap";

/** A place and the table or pattern that it is for; undefined for the whole database. */
export type NamedPlace = readonly [string | undefined, Place];

/** The entries of a user on one database (or `*`) that are not just one for the whole of it. */
export class DatabaseGrants {
  readonly database: string;
  /** In the order of the file. */
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

  /** Adds an entry; what is wrong with it, if anything is. */
  add(grant: Grant): GrantConflict | undefined {
    // A list that has grown keeps room for many, and most are of one.
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
