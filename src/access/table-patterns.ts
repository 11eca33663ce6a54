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
export const noPatterns: Patterns = new Patterns();
