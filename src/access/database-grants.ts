/** What a user has on one database, beyond one entry for the whole of it. */

import type { Grant } from "./grant.ts";
import {
  emptyPlace,
  FoldedNames,
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
