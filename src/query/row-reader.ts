/** Objects of cells: a row of an Insert, the `set` of an Update. The hot path of the scanner. */

import type { Steps } from "../cooperative-scheduling.ts";
import { ByteText } from "../json/bytes.ts";
import { DistinctKeys, hashKey } from "../json/distinct-keys.ts";
import { quoteName } from "../json/fault.ts";
import type { Rest } from "../json/rest.ts";
import type { BodyReader } from "./body-reader.ts";
import { columnNameRule, isColumnName } from "./names.ts";
import type { QueryRefused } from "./refusal.ts";

const noText = ByteText.from("");

/** Who may want to know the columns of a row. */
interface ColumnListener {
  /** Undefined if it does not. */
  readonly named: unknown;
  use(column: ByteText): void;
}

/**
 * Reads the rows of one body, one after the other.
 *
 * Rows tend to have the same keys in the same order, so each key remembers those that followed it.
 * A key that repeats the bytes of a remembered one is that key, and neither judged nor looked up
 * again. Each key notes the row it stood in, which tells a duplicate. The keys of a row that come
 * when no more are remembered are in `#others`.
 */
export class RowReader {
  /** The number of cells of the row that was read last. */
  cells = 0;
  readonly #reader: BodyReader;
  #known = new RowKeys();
  /** Stands before the first key of every row. */
  #origin = new RowKey(noText, 0, 0, 0);
  #previous = this.#origin;
  #others: DistinctKeys | undefined = undefined;
  #row = 0;
  #listener: ColumnListener | undefined = undefined;

  constructor(reader: BodyReader) {
    this.#reader = reader;
  }

  /** Reads a row, and tells the draft of its columns if that wants to know. @throws QueryRefused */
  read(draft: ColumnListener): Rest {
    const reader = this.#reader;
    this.#listener = draft.named === undefined ? undefined : draft;
    if (this.#known.isFull) this.#forget();
    this.#others?.forgetBefore(reader.position);
    this.#previous = this.#origin;
    this.#row++;
    this.cells = 0;
    for (let more = reader.openObject(); more; more = reader.nextMember()) {
      const rest = this.#readCell();
      if (rest !== undefined) return this.#readOn(rest);
    }
    return undefined;
  }
  *#readOn(begun: Steps<void>): Steps<void> {
    yield* begun;
    while (this.#reader.nextMember()) {
      const rest = this.#readCell();
      if (rest !== undefined) yield* rest;
    }
  }

  #readCell(): Rest {
    const reader = this.#reader;
    this.#readKey();
    reader.skipColon();
    this.cells++;
    return reader.skipValue() ?? reader.pause();
  }

  /** Keys must be forgotten together: one that is linked but not known would hide a duplicate. */
  #forget(): void {
    this.#known = new RowKeys();
    this.#origin = new RowKey(noText, 0, 0, 0);
  }

  #readKey(): void {
    const start = this.#reader.position;
    const key = this.#repeatKey(this.#previous) ?? this.#lookUpKey();
    if (key === undefined) return;
    if (key.listener !== this.#listener) this.#tell(key);
    if (key.row === this.#row) throw this.#givenTwice(key.text, start);
    key.row = this.#row;
    this.#previous = key;
  }

  #tell(key: RowKey): void {
    key.listener = this.#listener;
    this.#listener?.use(key.text);
  }

  /** Reads the key if it is one of those that followed the previous key before. */
  #repeatKey(previous: RowKey): RowKey | undefined {
    const { next, alternative } = previous;
    if (next === undefined) return undefined;
    if (this.#reader.skipRepeated(next.start, next.end)) return next;
    if (alternative === undefined) return undefined;
    if (!this.#reader.skipRepeated(alternative.start, alternative.end)) return undefined;
    previous.precede(alternative);
    return alternative;
  }

  /** Reads any key; undefined for one that is not remembered, and stands once in its row so far. */
  #lookUpKey(): RowKey | undefined {
    const reader = this.#reader;
    const start = reader.position;
    const text = reader.readBareKey();
    if (!isColumnName(text)) {
      const problem = `${quoteName(text.toString())} is no column name; allowed: ${columnNameRule}`;
      throw reader.refusal("invalid_column", problem, start);
    }
    const hash = hashKey(text);
    let key = this.#known.find(text, hash);
    if (key === undefined) {
      if (this.#known.isFull) return this.#noteOther(text, hash, start);
      key = new RowKey(text, hash, start, reader.position);
      this.#known.add(key);
    }
    this.#previous.precede(key);
    return key;
  }

  #noteOther(text: ByteText, hash: number, start: number): undefined {
    this.#listener?.use(text);
    if (this.#others === undefined) this.#others = new DistinctKeys(this.#reader);
    if (!this.#others.add(start, hash)) throw this.#givenTwice(text, start);
  }

  #givenTwice(text: ByteText, start: number): QueryRefused {
    const problem = `the column ${quoteName(text.toString())} is given twice; each may stand once`;
    return this.#reader.refusal("duplicate_key", problem, start);
  }
}

/** Past so many, no further one is remembered, so that memory stays bounded. */
const MOST_KEYS = 4096;
const SMALLEST_SIZE = 16;

/** A key that is known to be a column name. */
export class RowKey {
  readonly text: ByteText;
  readonly hash: number;
  /** Byte offset of the key's string token, quotes included, where it was first met. */
  readonly start: number;
  readonly end: number;
  /** The number of the row that had it last. */
  row = 0;
  /** Who was told of it last. */
  listener: ColumnListener | undefined = undefined;
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
