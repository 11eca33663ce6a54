/** The column names that the rows of a body have had. */

import type { ByteText } from "../json/byte-text.ts";

/** Past so many, no further one is remembered, so that memory stays bounded. */
const mostKeys = 4096;
const smallestSize = 16;

/** A key that is known to be a column name. */
export class RowKey {
  readonly text: ByteText;
  readonly hash: number;
  /** Byte offset of the key's string token, quotes included, where it was first met. */
  readonly start: number;
  readonly end: number;
  /** The number of the row that had it last. */
  row = 0;
  /** The keys that followed it last, the latest first. */
  next: RowKey | undefined = undefined;
  alternative: RowKey | undefined = undefined;

  constructor(text: ByteText, hash: number, start: number, end: number) {
    this.text = text;
    this.hash = hash;
    this.start = start;
    this.end = end;
  }

  /** Notes that another key followed this one. */
  precede(next: RowKey): void {
    this.alternative = this.next;
    this.next = next;
  }
}

/** The keys by their text: a hash table with open addressing. */
export class RowKeys {
  #slots: (RowKey | undefined)[] = new Array(smallestSize).fill(undefined);
  #count = 0;

  get isFull(): boolean {
    return this.#count >= mostKeys;
  }

  find(text: ByteText, hash: number): RowKey | undefined {
    let slot = this.#firstSlot(hash);
    for (let key = this.#slots[slot]; key !== undefined; key = this.#slots[slot]) {
      if (key.hash === hash && key.text.equals(text)) return key;
      slot = (slot + 1) & (this.#slots.length - 1);
    }
    return undefined;
  }

  /** Adds a key that is not there. */
  add(key: RowKey): void {
    if (this.#count * 2 >= this.#slots.length) this.#grow();
    this.#place(key);
    this.#count++;
  }

  #grow(): void {
    const slots = this.#slots;
    this.#slots = new Array(2 * slots.length).fill(undefined);
    for (const key of slots) {
      if (key !== undefined) this.#place(key);
    }
  }

  #place(key: RowKey): void {
    let slot = this.#firstSlot(key.hash);
    while (this.#slots[slot] !== undefined) slot = (slot + 1) & (this.#slots.length - 1);
    this.#slots[slot] = key;
  }

  /** The upper bits of a hash choose, since they are the better ones. */
  #firstSlot(hash: number): number {
    return hash >>> (Math.clz32(this.#slots.length) + 1);
  }
}
