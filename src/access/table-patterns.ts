import type { Grant } from "./grant.ts";

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
