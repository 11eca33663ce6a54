/** Most single-character edits between a name and the suggestion for it. */
const MOST_EDITS = 2;
/** Most characters of a name that are compared. */
const LONGEST_COMPARED = 64;
/** Fewest characters of a name that may be the beginning of the suggestion. */
const SHORTEST_BEGINNING = 4;

export function suggestion(name: string, names: Iterable<string>): string | undefined {
  const folded = fold(name);
  let best: string | undefined;
  let fewest = MOST_EDITS + 1;
  const longer: string[] = [];
  for (const candidate of names) {
    const mayBegin = folded.length >= SHORTEST_BEGINNING;
    if (mayBegin && fold(candidate).startsWith(folded)) longer.push(candidate);
    // Each character of difference in length is an edit by itself.
    if (Math.abs(candidate.length - name.length) > MOST_EDITS) continue;
    const edits = editDistance(folded, fold(candidate));
    if (edits >= fewest || edits > candidate.length / 2) continue;
    [best, fewest] = [candidate, edits];
  }
  return best ?? (longer.length === 1 ? longer[0] : undefined);
}

export function didYouMean(name: string, names: Iterable<string>): string {
  return formatHint(suggestion(name, names));
}

export function formatHint(meant: string | undefined): string {
  return meant === undefined ? "" : ` (did you mean ${meant}?)`;
}

function fold(name: string): string {
  return name.slice(0, LONGEST_COMPARED).toLowerCase().replaceAll("-", "_");
}

/** The Damerau-Levenshtein distance (optimal string alignment), row by row. */
function editDistance(from: string, to: string): number {
  let before: number[] = [];
  let row = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (let index = 0; index < from.length; index++) {
    const next = [index + 1];
    for (let column = 0; column < to.length; column++) {
      const replaced = (row[column] ?? 0) + (from[index] === to[column] ? 0 : 1);
      let edits = Math.min(replaced, (row[column + 1] ?? 0) + 1, (next[column] ?? 0) + 1);
      const isSwap = from[index] === to[column - 1] && from[index - 1] === to[column];
      if (isSwap) edits = Math.min(edits, (before[column - 1] ?? 0) + 1);
      next.push(edits);
    }
    [before, row] = [row, next];
  }
  return row.at(-1) ?? 0;
}

export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** Text in which each matching character is written as its code point: `\u{202e}`. */
export function escapeCharacters(text: string, characters: RegExp): string {
  return text.replace(characters, (one) => `\\u{${one.codePointAt(0)?.toString(16)}}`);
}
