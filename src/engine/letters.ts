import { memoize } from "../core/base/memoize.ts";

/** Case of all letters by simple mappings, one letter for one (Unicode, UnicodeData.txt). */

type LetterCase = "lower" | "upper";

/** Letters that Unicode has added after version 14, which servers do not know yet. */
const tooNew =
  /[\u{19b}\u{264}\u{1c89}\u{1c8a}\u{a7cb}-\u{a7cf}\u{a7d2}-\u{a7d5}\u{a7da}-\u{a7dc}\u{10d50}-\u{10d85}\u{16ea0}-\u{16ed3}]/u;

const LAST_LETTER = 0x1ffff;

function mappingsTo(wanted: string): Map<string, string> {
  const mappings = new Map<string, string>();
  for (let code = 0; code <= LAST_LETTER; code++) {
    const letter = String.fromCodePoint(code);
    const mapped = wanted === "lower" ? letter.toLowerCase() : letter.toUpperCase();
    if (mapped === letter || tooNew.test(letter)) continue;
    if ([...mapped].length === 1) mappings.set(letter, mapped);
  }
  // The full mappings of these have several letters.
  if (wanted === "lower") return mappings.set("\u0130", "i");
  for (const [upper, lower] of mappingsTo("lower")) {
    if (/[\u1f80-\u1fff]/.test(lower) && !mappings.has(lower)) mappings.set(lower, upper);
  }
  return mappings;
}

/** Made when first needed, since most queries fold only ASCII. */
const mappings = memoize(mappingsTo);

export function withCase(text: string, wanted: LetterCase): string {
  const byLetter = mappings(wanted);
  return Array.from(text, (letter) => byLetter.get(letter) ?? letter).join("");
}

/** The letters to replace, and their replacements in the same order. */
export function lettersTo(wanted: LetterCase): readonly [from: string, to: string] {
  const byLetter = mappings(wanted);
  return [[...byLetter.keys()].join(""), [...byLetter.values()].join("")];
}

export type LetterPairs = readonly (readonly [letter: string, mapped: string])[];

/** Letters whose mappings take more bytes in UTF-8. */
export const longerLetters = memoize((wanted): LetterPairs => {
  return [...mappings(wanted)].filter(
    ([letter, mapped]) => Buffer.byteLength(mapped) > Buffer.byteLength(letter),
  );
});
