/**
 * A name without what a database may not tell apart: case, Unicode's compatible forms, marks, and
 * characters that are not seen. Two names that fold alike may be one to the database.
 */
export function foldName(name: string): string {
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
