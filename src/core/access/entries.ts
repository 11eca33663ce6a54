import { displayName, type Grant, hasExpired, isNarrowing } from "./grant.ts";
import { EVERY_DATABASE } from "./roles.ts";

const isAscii = (text: string) => /^[\0-\x7f]*$/.test(text);

/**
 * Removes what a database may not distinguish: case, Unicode compatibility forms, marks, invisible
 * characters, and spaces at the ends. Two names that fold alike may be the same name to the database.
 */
export function foldName(name: string): string {
  const plain = isAscii(name)
    ? name
    : name.normalize("NFKD").replace(/[\p{M}\p{Default_Ignorable_Code_Point}]/gu, "");
  // Upper case first: some letters that fold alike differ only in lower case.
  return (isAscii(plain) ? plain.toLowerCase() : plain.toUpperCase().toLowerCase()).trim();
}

/** Finds names of tables or columns, and patterns of tables, that fold like a given name. */
export class FoldedNames {
  readonly #names = new Map<string, string[]>();

  add(name: string): void {
    const folded = foldName(name);
    // Sorted, so that the result does not depend on the order of the calls.
    this.#names.set(folded, [...(this.#names.get(folded) ?? []), name].sort());
  }

  /** A known name that differs from `name` only by case or Unicode form. */
  otherSpelling(name: string): string | undefined {
    return this.#names.get(foldName(name))?.find((known) => known !== name);
  }

  /** A known pattern that would match `name` but for case or Unicode form. */
  otherPattern(name: string): string | undefined {
    const folded = foldName(name);
    for (let length = 0; length <= folded.length; length++) {
      const patterns = this.#names.get(`${folded.slice(0, length)}*`);
      const other = patterns?.find((known) => !name.startsWith(known.slice(0, -1)));
      if (other !== undefined) return other;
    }
    return undefined;
  }
}

export interface DecidingEntry {
  readonly grant: Grant;
  /** `main`, `*`, `main.tickets` or `*.customer_*`. */
  readonly place: string;
  /** The display name: the place, for a group's entry as in `main (group analysts)`. */
  readonly name: string;
  /** True if it has expired and has no permanent one beside it. It then decides as `None`. */
  readonly isExpired: boolean;
  /** The groups whose entries for this place differ. The entry then decides as `None`. */
  readonly conflict?: readonly string[];
}

/** A permanent entry for one place, and a temporary one that wins until it expires. */
export interface EntrySlot {
  permanent?: Grant;
  temporary?: Grant;
  /** Instead, the entries of several holders at a certain time, the deciding one first. */
  merged?: readonly DecidingEntry[];
}

/** The entries of a slot, the deciding one first. */
export function slotEntries(
  { permanent, temporary, merged }: EntrySlot,
  place: string,
  now: number,
): readonly DecidingEntry[] {
  if (merged !== undefined) return merged;
  const isOver = temporary === undefined || hasExpired(temporary, now);
  const grant = isOver ? (permanent ?? temporary) : temporary;
  if (grant === undefined) return [];
  const isExpired = isOver && permanent === undefined;
  const deciding = { grant, place, name: displayName(place, grant), isExpired };
  return permanent === undefined || permanent === grant
    ? [deciding]
    : [deciding, { ...deciding, grant: permanent }];
}

/** False if the slot has an entry of this kind already. */
function fill(slot: EntrySlot, grant: Grant): boolean {
  const kind = grant.expires === undefined ? "permanent" : "temporary";
  if (slot[kind] !== undefined) return false;
  slot[kind] = grant;
  return true;
}

export function patternPrefix(table: string): string | undefined {
  return table.endsWith("*") ? table.slice(0, -1) : undefined;
}

export type GrantConflict = "database_taken" | "table_taken" | "patterns_overlap";

/** With its table or pattern, or undefined for the whole database. */
export type NamedSlot = readonly [string | undefined, EntrySlot];

/** The entries of a user, or of all holders, on one database (or `*`). */
export class DatabaseGrants {
  readonly all: Grant[] = [];
  readonly #whole: EntrySlot = {};
  /** By table or pattern. No two patterns of one holder match the same name. */
  readonly #tables = new Map<string, EntrySlot>();
  readonly #folded = new FoldedNames();
  #hasPatterns = false;

  add(grant: Grant): GrantConflict | undefined {
    this.all.push(grant);
    if (grant.tables === undefined) {
      return fill(this.#whole, grant) ? undefined : "database_taken";
    }
    for (const table of grant.tables) {
      let slot = this.#tables.get(table);
      if (slot === undefined) {
        const prefix = patternPrefix(table);
        if (prefix !== undefined && this.#overlaps(prefix)) return "patterns_overlap";
        this.#hasPatterns ||= prefix !== undefined;
        slot = {};
        this.#tables.set(table, slot);
        this.#folded.add(table);
      }
      if (!fill(slot, grant)) return "table_taken";
    }
    return undefined;
  }

  /** Holds the merged entries for a table, a pattern, or the whole database. */
  hold(table: string | undefined, merged: readonly DecidingEntry[]): void {
    const [deciding] = merged;
    if (deciding !== undefined && !this.all.includes(deciding.grant)) this.all.push(deciding.grant);
    if (table === undefined) {
      this.#whole.merged = merged;
      return;
    }
    this.#hasPatterns ||= patternPrefix(table) !== undefined;
    this.#tables.set(table, { merged });
    this.#folded.add(table);
  }

  tables(): Iterable<string> {
    return this.#tables.keys();
  }

  /** The slot of a table, of the pattern that matches a pattern, or of the whole database. */
  slotAt(table: string | undefined): NamedSlot | undefined {
    if (table === undefined) return [undefined, this.#whole];
    const name = patternPrefix(table) === undefined ? table : this.#patternFor(table);
    const slot = name === undefined ? undefined : this.#tables.get(name);
    return slot && [name, slot];
  }

  #overlaps(prefix: string): boolean {
    const isLonger = (known: string) => patternPrefix(known)?.startsWith(prefix) === true;
    return this.#patternFor(prefix) !== undefined || this.#tables.keys().some(isLonger);
  }

  #patternFor(name: string): string | undefined {
    // Merged patterns may match the same name. The longest one holds the entries of the others too.
    for (let length = name.length; this.#hasPatterns && length >= 0; length--) {
      const pattern = `${name.slice(0, length)}*`;
      if (this.#tables.has(pattern)) return pattern;
    }
    return undefined;
  }

  slotNamed(written: string): EntrySlot | undefined {
    return this.#tables.get(written);
  }

  /** The tables, then the patterns, then the whole database. */
  slots(): NamedSlot[] {
    const { named = [], patterns = [] } = Object.groupBy(this.#tables, ([table]) =>
      patternPrefix(table) === undefined ? "named" : "patterns",
    );
    return [...named, ...patterns, [undefined, this.#whole]];
  }

  /** The slots that match, the deciding one first. Without a table, only the whole database. */
  matchingSlots(table: string | undefined): NamedSlot[] {
    const names = table === undefined ? [] : [table, this.#patternFor(table)];
    const slots = names.flatMap((name): NamedSlot[] => {
      const slot = name === undefined ? undefined : this.#tables.get(name);
      return slot === undefined ? [] : [[name, slot]];
    });
    return [...slots, [undefined, this.#whole]];
  }

  /** An entry's table or pattern that matches this table but for case or Unicode form. */
  otherSpelling(table: string): string | undefined {
    const name = this.#folded.otherSpelling(table);
    return name ?? (this.#hasPatterns ? this.#folded.otherPattern(table) : undefined);
  }
}

/** A single entry for a whole database needs no collection. */
export type UserEntries = Grant | DatabaseGrants;

/** The entries of one user by database (or `*`). */
export interface UserGrants extends ReadonlyMap<string, UserEntries> {
  /** True if any entry narrows. Then queries are judged by more than roles. */
  readonly isNarrowed: boolean;
}

export class GrantCollection extends Map<string, UserEntries> implements UserGrants {
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
    const grants = new DatabaseGrants();
    if (known !== undefined) grants.add(known);
    this.set(database, grants);
    return grants.add(grant);
  }
}

export function collectGrants(grants: Iterable<Grant>): UserGrants {
  const collection = new GrantCollection();
  for (const grant of grants) collection.add(grant);
  return collection;
}

function heldEntries(held: UserEntries | undefined): readonly Grant[] {
  if (held === undefined) return [];
  return held instanceof DatabaseGrants ? held.all : [held];
}

export function* entriesIn(grants: UserGrants): Generator<Grant, undefined> {
  for (const held of grants.values()) yield* heldEntries(held);
}

/** True if a user can have only one of the two. */
export function isSamePlace(one: Grant, other: Grant): boolean {
  const placesOf = ({ tables = [] }: Grant) => new Set(tables);
  return (
    one.holder === other.holder &&
    one.database === other.database &&
    (one.expires === undefined) === (other.expires === undefined) &&
    placesOf(one).symmetricDifference(placesOf(other)).size === 0
  );
}

/** The entries for a whole database (or `*`), or those that name this table or pattern. */
export function entriesAt(
  grants: UserGrants,
  database: string,
  table: string | undefined,
): readonly Grant[] {
  return heldEntries(grants.get(database)).filter(({ tables }) =>
    table === undefined ? tables === undefined : tables?.includes(table),
  );
}

/** True for an entry with limits or an expiry beyond its role. */
export function hasLimits({ tables: _, ...grant }: Grant): boolean {
  return grant.expires !== undefined || (grant.role !== "None" && isNarrowing(grant));
}

/**
 * The permanent entry for a whole database (or `*`), if it narrows nothing and no other entry there
 * is in force.
 */
export function unrestrictedGrant(
  grants: UserGrants,
  database: string,
  now: number = Date.now(),
): Grant | undefined {
  const held = heldEntries(grants.get(database));
  const permanent = held.find((one) => (one.tables ?? one.expires) === undefined);
  if (permanent === undefined || isNarrowing(permanent)) return undefined;
  const others = held.filter((grant) => grant !== permanent);
  const areExpired = others.every((one) => one.tables === undefined && hasExpired(one, now));
  return areExpired ? permanent : undefined;
}

/**
 * The entries through which a user may reach anything in a database, expired or not. Entries for
 * `*` count only if no entry covers the whole named database.
 */
export function reachingEntries(grants: UserGrants, database: string): readonly Grant[] {
  const own = heldEntries(grants.get(database));
  const isWhole = own.some(({ tables }) => tables === undefined);
  return isWhole || database === EVERY_DATABASE
    ? own
    : [...own, ...heldEntries(grants.get(EVERY_DATABASE))];
}
