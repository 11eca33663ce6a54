/** A set of very many keys, in twelve bytes or so each: it holds where they stand, not what they are. */

import type { JsonReader } from "./json-reader.ts";

const smallestSize = 64;

/**
 * The keys met from a place in the body on: a hash table with open addressing. Keys before that
 * place count as forgotten, so that forgetting them costs nothing.
 */
export class DistinctKeys {
  readonly #reader: JsonReader;
  /** Byte offsets of the keys' string tokens. 0, where no key can stand, marks a free slot. */
  #starts = new Int32Array(smallestSize);
  #hashes = new Int32Array(smallestSize);
  #count = 0;
  #since = 1;

  constructor(reader: JsonReader) {
    this.#reader = reader;
  }

  /** Forgets all keys before a byte offset. */
  forgetBefore(offset: number): void {
    this.#since = offset;
    this.#count = 0;
  }

  /** Adds the key whose token begins at an offset; false if the set has it, in whatever spelling. */
  add(start: number, hash: number): boolean {
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

  /** The offset in a slot, 0 if it is free. */
  #startAt(slot: number): number {
    const start = this.#starts[slot] ?? 0;
    return start < this.#since ? 0 : start;
  }

  /** The upper bits of a hash choose, since they are the better ones. */
  #firstSlot(hash: number): number {
    return hash >>> (Math.clz32(this.#starts.length) + 1);
  }

  #grow(): void {
    const starts = this.#starts;
    const hashes = this.#hashes;
    this.#starts = new Int32Array(2 * starts.length);
    this.#hashes = new Int32Array(2 * starts.length);
    for (let index = 0; index < starts.length; index++) {
      const start = starts[index] ?? 0;
      if (start < this.#since) continue;
      const hash = hashes[index] ?? 0;
      let slot = this.#firstSlot(hash);
      while (this.#starts[slot] !== 0) slot = (slot + 1) & (this.#starts.length - 1);
      this.#starts[slot] = start;
      this.#hashes[slot] = hash;
    }
  }
}
