/** Places that entries hold, and the patterns of tables among them. */

import type { Grant } from "./grant.ts";
import { FoldedNames } from "./name-folding.ts";

/** The entries for one place: one for good, and one that wins while it lasts. */
export interface Place {
  lasting: Grant | undefined;
  temporary: Grant | undefined;
}

/** Puts an entry in its place. False if one of its kind is there already. */
export function settle(place: Place, grant: Grant): boolean {
  const kind = grant.expires === undefined ? "lasting" : "temporary";
  if (place[kind] !== undefined) return false;
  place[kind] = grant;
  return true;
}

/** A place that nobody holds. */
export function emptyPlace(): Place {
  return { lasting: undefined, temporary: undefined };
}

/** The part of a pattern that a name begins with; undefined for a name. */
export function prefixOf(table: string): string | undefined {
  return table.endsWith("*") ? table.slice(0, -1) : undefined;
}

/** Patterns of table names, no two of which fit one name: each as what a name begins with. */
export class Patterns {
  readonly places = new Map<string, Place>();
  readonly folded = new FoldedNames((prefix) => this.places.has(prefix));
  readonly #lengths = new Set<number>();
  /** The beginnings of longer patterns, of the lengths that patterns have. */
  readonly #beginnings = new Set<string>();

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
    if (this.#beginnings.has(prefix) || this.fitting(prefix) !== undefined) return false;
    for (const length of this.#lengths) {
      if (length < prefix.length) this.#beginnings.add(prefix.slice(0, length));
    }
    this.places.set(prefix, emptyPlace());
    this.folded.add(prefix);
    return true;
  }

  #noteLength(length: number): void {
    if (this.#lengths.has(length)) return;
    this.#lengths.add(length);
    for (const known of this.places.keys()) {
      if (known.length > length) this.#beginnings.add(known.slice(0, length));
    }
  }
}

/** Stands for the patterns of all who have none, which are most. */
export const noPatterns: Patterns = new Patterns();
