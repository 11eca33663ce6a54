import { type Steps, visitEach } from "../cooperative-scheduling.ts";

/** Names that are gathered between two sortings, at least. */
const GATHERED = 1024;

/**
 * Finds in steps the first `count` by name of those that `isMeant` takes, without sorting all.
 *
 * @param after only names behind this one; all if it is undefined
 */
export function* firstNames<T>(
  items: ReadonlyMap<string, T>,
  count: number,
  after: string | undefined,
  isMeant: (item: T) => boolean,
): Steps<string[]> {
  const most = Math.max(GATHERED, 4 * count);
  let gathered: string[] = [];
  let bound: string | undefined;
  yield* visitEach(items, ([name, item]) => {
    if (after !== undefined && name <= after) return;
    if ((bound !== undefined && name > bound) || !isMeant(item)) return;
    gathered.push(name);
    if (gathered.length < most) return;
    gathered = gathered.sort().slice(0, count);
    bound = gathered.at(-1);
  });
  return gathered.sort().slice(0, count);
}
