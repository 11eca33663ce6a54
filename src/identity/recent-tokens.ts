/** Tokens of one bucket, at most. */
const BUCKET_SIZE = 8;

interface Entry<T> {
  readonly token: string;
  /** Compared first: tokens of one gateway begin alike. */
  readonly hash: number;
  readonly value: T;
}

/**
 * What is known of a bounded number of tokens: an LRU cache. It is asked with every request, by a text that is new
 * each time: a map would first look such a text up in the table of all strings.
 *
 * A token's bucket comes of the end of its signature, where no two are alike but by chance; in a
 * bucket, those used last come first, and the last one makes room.
 */
export class RecentTokens<T> {
  readonly #buckets: Entry<T>[][];

  /** @param buckets how many there are, of eight tokens each */
  constructor(buckets: number) {
    this.#buckets = Array.from({ length: buckets }, () => []);
  }

  /** How many tokens are known. */
  get size(): number {
    return this.#buckets.reduce((sum, { length }) => sum + length, 0);
  }

  get(token: string): T | undefined {
    const hash = hashOf(token);
    const bucket = this.#bucketOf(hash);
    for (let at = 0; at < bucket.length; at++) {
      const entry = bucket[at];
      if (entry?.hash !== hash || entry.token !== token) continue;
      if (at > 0) moveToFront(bucket, at);
      return entry.value;
    }
    return undefined;
  }

  /** Takes a token in that is not known. */
  add(token: string, value: T): void {
    const hash = hashOf(token);
    const bucket = this.#bucketOf(hash);
    bucket.unshift({ token, hash, value });
    if (bucket.length > BUCKET_SIZE) bucket.pop();
  }

  delete(token: string): void {
    const bucket = this.#bucketOf(hashOf(token));
    const at = bucket.findIndex((entry) => entry.token === token);
    if (at !== -1) bucket.splice(at, 1);
  }

  #bucketOf(hash: number): Entry<T>[] {
    return this.#buckets[hash % this.#buckets.length] ?? [];
  }
}

/** Of the end of the signature; its very last character may hold as little as two bits. */
function hashOf(token: string): number {
  const end = token.length - 1;
  let hash = 0;
  for (let at = end - 3; at < end; at++) hash = hash * 97 + (token.charCodeAt(at) || 0);
  return hash;
}

function moveToFront<T>(list: T[], at: number): void {
  const [moved] = list.splice(at, 1);
  if (moved !== undefined) list.unshift(moved);
}
