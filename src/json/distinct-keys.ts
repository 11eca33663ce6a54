/**
 * A set of very many keys at about twelve bytes each. It stores their offsets instead of their
 * text, and hashes that nobody can make collide on purpose.
 */

import { randomFillSync } from "node:crypto";
import type { ByteText } from "./bytes.ts";
import type { JsonReader } from "./reader.ts";

const SHARD_BITS = 6;
const SMALLEST_SHARD = 16;

/**
 * The distinct keys after some offset in the body. Keys before it count as forgotten, which makes
 * forgetting free.
 *
 * The upper bits of the hash choose one of several hash tables. A single large one would block the
 * event loop whenever it grows.
 */
export class DistinctKeys {
  readonly #reader: JsonReader;
  readonly #shards: (Shard | undefined)[] = new Array(1 << SHARD_BITS).fill(undefined);
  #since = 1;

  constructor(reader: JsonReader) {
    this.#reader = reader;
  }

  forgetBefore(offset: number): void {
    this.#since = offset;
  }

  /**
   * Adds the key whose string token begins at `start`. False if the set contains it in any
   * spelling.
   *
   * @param hash the result of `hashKey`
   */
  add(start: number, hash: number): boolean {
    const index = hash >>> (32 - SHARD_BITS);
    let shard = this.#shards[index];
    if (shard === undefined) {
      shard = new Shard(this.#reader);
      this.#shards[index] = shard;
    }
    return shard.add(start, hash, this.#since);
  }
}

/** Hash table with open addressing. */
class Shard {
  readonly #reader: JsonReader;
  /** Byte offsets of string tokens. 0, where no key can be, marks a slot that was never used. */
  #starts = new Int32Array(SMALLEST_SHARD);
  #hashes = new Int32Array(SMALLEST_SHARD);
  #count = 0;
  /** The offset before which keys were forgotten when `#count` began. */
  #since = 0;

  constructor(reader: JsonReader) {
    this.#reader = reader;
  }

  add(start: number, hash: number, since: number): boolean {
    this.#forgetBefore(since);
    if (this.#count * 4 >= this.#starts.length * 3) this.#grow();
    let slot = this.#firstSlot(hash);
    for (let other = this.#startAt(slot); other !== 0; other = this.#startAt(slot)) {
      if (this.#hashes[slot] === hash && this.#reader.sameStrings(start, other)) return false;
      slot = (slot + 1) & (this.#starts.length - 1);
    }
    this.#starts[slot] = start;
    this.#hashes[slot] = hash;
    this.#count++;
    return true;
  }

  #forgetBefore(since: number): void {
    if (this.#since === since) return;
    this.#since = since;
    this.#count = 0;
  }

  /** The offset in a slot, or 0 if it is free. */
  #startAt(slot: number): number {
    const start = this.#starts[slot] ?? 0;
    return start < this.#since ? 0 : start;
  }

  /** Uses the upper bits of the hash, which are better distributed. */
  #firstSlot(hash: number): number {
    return (hash << SHARD_BITS) >>> (Math.clz32(this.#starts.length) + 1);
  }

  #grow(): void {
    const starts = this.#starts;
    const hashes = this.#hashes;
    this.#starts = new Int32Array(2 * starts.length);
    this.#hashes = new Int32Array(2 * starts.length);
    for (let index = 0; index < starts.length; index++) {
      const start = starts[index] ?? 0;
      if (start < this.#since || start === 0) continue;
      const hash = hashes[index] ?? 0;
      let slot = this.#firstSlot(hash);
      while (this.#starts[slot] !== 0) slot = (slot + 1) & (this.#starts.length - 1);
      this.#starts[slot] = start;
      this.#hashes[slot] = hash;
    }
  }
}

/** Maximum bytes of a key that is hashed, the limit of a column name. */
export const LONGEST_HASHED = 512;

const multipliers = randomFillSync(new Int32Array(LONGEST_HASHED + 1));

/**
 * Hashes a column name to 32 bits, of which the upper ones are better distributed.
 *
 * This is multilinear hashing: the sum of the bytes, each times a random number for its position.
 * Texts chosen without knowing the numbers collide in the upper 25 bits only by chance (Lemire and
 * Kaser, "Strongly universal string hashing is fast", The Computer Journal 57, 2014). Each process
 * draws its own numbers. No byte of a column name is 0, so texts of different lengths differ too.
 */
export function hashKey({ bytes, start, end }: ByteText): number {
  let sum = 0;
  for (let position = start; position < end; position++) {
    sum = (sum + Math.imul(multipliers[position - start] ?? 0, bytes[position] ?? 0)) | 0;
  }
  return sum;
}
