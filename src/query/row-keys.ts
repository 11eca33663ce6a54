/** The keys of the rows of a body, and which of them follow each other. */

import type { ByteText } from "../json/bytes.ts";

/** Who is told the columns of rows. */
export interface ColumnListener {
  use(column: ByteText): void;
}

/** Past so many, no further one is remembered, so that memory stays bounded. */
const MOST_KEYS = 4096;
const SMALLEST_SIZE = 16;
const WORD = 4;

/** A key that is known to be a column name. */
export class RowKey {
  readonly text: ByteText;
  readonly hash: number;
  /** Byte offset of the key's opening quote where it was first met, and of the value after it. */
  readonly start: number;
  end = 0;
  length = 0;
  /** Its first and last four bytes. */
  first = 0;
  last = 0;
  /** The number of the row that had it last. */
  row = 0;
  /** The keys that followed it last, the latest first. */
  next: RowKey | undefined = undefined;
  alternative: RowKey | undefined = undefined;

  constructor(text: ByteText, hash: number, start: number) {
    this.text = text;
    this.hash = hash;
    this.start = start;
  }

  /** Notes where it ends. */
  endAt(end: number, bytes: Buffer): void {
    this.end = end;
    this.length = end - this.start;
    this.first = bytes.readInt32LE(this.start);
    this.last = bytes.readInt32LE(end - WORD);
  }

  /** Whether the bytes between its first and last four stand at another offset, too. */
  isRepeated(words: DataView, position: number): boolean {
    const last = this.end - WORD;
    const distance = position - this.start;
    for (let offset = this.start + WORD; offset < last; offset += WORD) {
      if (words.getInt32(offset, true) !== words.getInt32(offset + distance, true)) return false;
    }
    return true;
  }

  /** Notes that another key followed this one. */
  precede(next: RowKey): void {
    this.alternative = this.next;
    this.next = next;
  }
}

/** The keys by their text: a hash table with open addressing. */
export class RowKeys {
  #slots: (RowKey | undefined)[] = new Array(SMALLEST_SIZE).fill(undefined);
  #count = 0;

  get isFull(): boolean {
    return this.#count >= MOST_KEYS;
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
