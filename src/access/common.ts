/** Characters that are compared at a time, by the engine's own comparison. */
const CHUNK = 1 << 16;

/** How many characters from the start are the same in both texts. */
export function commonPrefix(one: string, other: string): number {
  const most = Math.min(one.length, other.length);
  let at = 0;
  while (at < most && one.slice(at, at + CHUNK) === other.slice(at, at + CHUNK)) at += CHUNK;
  while (at < most && one[at] === other[at]) at++;
  return Math.min(at, most);
}

/** How many characters from the end are the same in both texts, of at most `most`. */
export function commonSuffix(one: string, other: string, most: number): number {
  const tail = (text: string, from: number, to: number) =>
    text.slice(text.length - to, text.length - from);
  let count = 0;
  while (count + CHUNK <= most) {
    const next = count + CHUNK;
    if (tail(one, count, next) !== tail(other, count, next)) break;
    count = next;
  }
  while (count < most && one[one.length - count - 1] === other[other.length - count - 1]) count++;
  return count;
}
