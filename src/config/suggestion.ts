/** The most single-character edits between a name and what was probably meant. */
const mostEdits = 2;

/** The one of `names` that `name` was probably meant to be, if one is close. */
export function suggestion(name: string, names: readonly string[]): string | undefined {
  const folded = fold(name);
  const ranked = names
    .map((candidate) => ({ candidate, edits: editDistance(folded, fold(candidate)) }))
    .filter(({ candidate, edits }) => edits <= mostEdits && edits <= candidate.length / 2)
    .sort((one, other) => one.edits - other.edits);
  return ranked[0]?.candidate;
}

function fold(name: string): string {
  return name.slice(0, 64).toLowerCase().replaceAll("-", "_");
}

/** The Levenshtein distance, row by row. */
function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (const [index, character] of [...from].entries()) {
    const next = [index + 1];
    for (const [column, other] of [...to].entries()) {
      const replaced = (row[column] ?? 0) + (character === other ? 0 : 1);
      next.push(Math.min(replaced, (row[column + 1] ?? 0) + 1, (next[column] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}
