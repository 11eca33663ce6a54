import type { Steps } from "../cooperative-scheduling.ts";
import {
  ByteText,
  lowestByte,
  otherThanDigitsIn,
  plainNumberEnd,
  specialIn,
} from "../json/bytes.ts";
import { DistinctKeys, hashKey } from "../json/distinct-keys.ts";
import { quoteName } from "../json/fault.ts";
import type { Rest } from "../json/rest.ts";
import type { BodyReader } from "./body-reader.ts";
import { columnNameRule, isColumnName } from "./names.ts";
import type { QueryRefused } from "./refusal.ts";

/** Receives the columns of rows. */
interface ColumnListener {
  use(column: ByteText): void;
}

/** Maximum keys remembered, so that memory stays bounded. */
const MOST_KEYS = 4096;
const SMALLEST_SIZE = 16;
const WORD = 4;

/** A key that was checked to be a column name. */
class RowKey {
  readonly text: ByteText;
  readonly hash: number;
  /**
   * Byte offset of the key's first occurrence, including its opening quote. `end` is the offset of
   * the value after it.
   */
  readonly start: number;
  end = 0;
  length = 0;
  /** Its first and last four bytes, as integers. */
  first = 0;
  last = 0;
  /** The number of the last row with this key. */
  row = 0;
  /** The last keys that followed it, latest first. */
  next: RowKey | undefined = undefined;
  alternative: RowKey | undefined = undefined;

  constructor(text: ByteText, hash: number, start: number) {
    this.text = text;
    this.hash = hash;
    this.start = start;
  }

  endAt(end: number, bytes: Buffer): void {
    this.end = end;
    this.length = end - this.start;
    this.first = bytes.readInt32LE(this.start);
    this.last = bytes.readInt32LE(end - WORD);
  }

  /** Whether the bytes between its first and last four also occur at `position`. */
  isRepeated(words: DataView, position: number): boolean {
    const last = this.end - WORD;
    const distance = position - this.start;
    for (let offset = this.start + WORD; offset < last; offset += WORD) {
      if (words.getInt32(offset, true) !== words.getInt32(offset + distance, true)) return false;
    }
    return true;
  }

  precede(next: RowKey): void {
    this.alternative = this.next;
    this.next = next;
  }
}

/** Hash table with open addressing. */
class RowKeys {
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

  /** The key must not be in the table yet. */
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

  /** Uses the upper bits of the hash, which are better distributed. */
  #firstSlot(hash: number): number {
    return hash >>> (Math.clz32(this.#slots.length) + 1);
  }
}

const LETTER_E = 0x65;
const NINE = 0x39;
const POINT = 0x2e;
const QUOTE = 0x22;
const ZERO = 0x30;
const TRUE = 0x65757274;
const NULL = 0x6c6c756e;
const FALS = 0x736c6166;
const COMMA_QUOTE = 0x222c;
const NEXT_ROW = 0x227b2c7d;
const noText = ByteText.from("");

/**
 * Reads the rows of one body in order. This is the hot path of the scanner.
 *
 * Rows tend to have the same keys in the same order, so each key remembers those that followed it.
 * A key whose bytes repeat a remembered one needs no check and no lookup. Each key stores the
 * number of its last row, which reveals duplicates. When the limit of remembered keys is reached,
 * further keys of the row go to `#others`.
 */
export class RowReader {
  readonly #reader: BodyReader;
  #known = new RowKeys();
  /** A sentinel before the first key of every row. */
  #origin = new RowKey(noText, 0, 0);
  #previous = this.#origin;
  #others: DistinctKeys | undefined = undefined;
  #row = 0;
  #listener: ColumnListener | undefined = undefined;
  /**
   * The first row of the current listener. Keys last seen in an earlier row must still be reported
   * to it.
   */
  #firstRow = 1;
  #isElement = false;

  constructor(reader: BodyReader) {
    this.#reader = reader;
  }

  /** True if the last row has no cell. */
  get isEmpty(): boolean {
    return this.#previous === this.#origin;
  }

  /**
   * Reads a row and reports its columns to the listener.
   *
   * @param isElement true for an element of an array whose index ends the path. Then following rows
   *   of the usual form are read as well
   * @throws QueryRefused
   */
  read(listener: ColumnListener, isElement: boolean): Rest {
    const reader = this.#reader;
    if (this.#known.isFull) this.#forget();
    this.#others?.forgetBefore(reader.position);
    this.#previous = this.#origin;
    this.#row++;
    this.#isElement = isElement;
    if (listener !== this.#listener) this.#firstRow = this.#row;
    this.#listener = listener;
    for (let more = reader.openObject(); more; more = reader.nextMember()) {
      if (this.#skipUsualCells()) continue;
      const rest = this.#readCell();
      if (rest !== undefined) return this.#readOn(rest);
    }
    return undefined;
  }

  *#readOn(begun: Steps<void>): Steps<void> {
    yield* begun;
    while (this.#reader.nextMember()) {
      if (this.#skipUsualCells()) continue;
      const rest = this.#readCell();
      if (rest !== undefined) yield* rest;
    }
  }

  /**
   * Skips cells of the usual form, across the rows of an array. That is the expected key, then a
   * string without escapes, a number without an exponent, true, false or null. A single loop over
   * four bytes at a time takes a third of the time of `#readCell` and `read`. Do not split it: the
   * compiler does not optimize it across several functions.
   *
   * @returns true after a value, false at a key that needs another way
   */
  #skipUsualCells(): boolean {
    let previous = this.#previous;
    let key = previous.next;
    if (key === undefined) return false;
    const reader = this.#reader;
    const { words } = reader;
    // Offset of the last whole word. What ends after it is read another way.
    const last = reader.bytes.length - WORD;
    const firstRow = this.#firstRow;
    const isPlain = this.#isElement && !this.#known.isFull && this.#others === undefined;
    const until = isPlain ? reader.pauseAt : 0;
    let { position } = reader;
    let row = this.#row;
    let isBehind = false;
    for (; key !== undefined; key = previous.next) {
      const value = position + key.length;
      if (value > last || key.row >= row || key.row < firstRow) break;
      if (words.getInt32(position, true) !== key.first) break;
      if (words.getInt32(value - WORD, true) !== key.last) break;
      if (key.length > 2 * WORD && !key.isRepeated(words, position)) break;
      let end = value;
      let marks = 0;
      const word = words.getInt32(value, true);
      const first = word & 0xff;
      if (first === QUOTE) {
        for (end++; marks === 0 && end <= last; end += WORD) {
          marks = specialIn(words.getInt32(end, true));
        }
        end -= WORD - lowestByte(marks);
        if (marks === 0 || words.getUint8(end) !== QUOTE) break;
        end++;
      } else if (word === TRUE || word === NULL) end += WORD;
      else if (word === FALS && value < last && words.getUint8(value + WORD) === LETTER_E) {
        end += WORD + 1;
      } else {
        for (; marks === 0 && end <= last; end += WORD) {
          marks = otherThanDigitsIn(words.getInt32(end, true));
        }
        if (marks === 0) break;
        end -= WORD - lowestByte(marks);
        const byte = words.getUint8(end);
        const isWhole = first > ZERO && first <= NINE;
        if (!isWhole || byte === POINT || (byte | 0x20) === LETTER_E) {
          end = plainNumberEnd(words, value, last);
        }
      }
      if (end === 0 || end > last) break;
      key.row = row;
      previous = key;
      const behind = words.getInt32(end, true);
      if ((behind & 0xffff) === COMMA_QUOTE) position = end + 1;
      else if (behind === NEXT_ROW && end < until) {
        position = end + 3;
        previous = this.#origin;
        row++;
      } else {
        position = end;
        isBehind = true;
        break;
      }
    }
    reader.position = position;
    reader.moveIndexOn(row - this.#row);
    this.#previous = previous;
    this.#row = row;
    return isBehind;
  }

  #readCell(): Rest {
    const reader = this.#reader;
    this.#readKey();
    return reader.skipValue() ?? reader.pause();
  }

  /**
   * All keys must be forgotten together. One that is linked but not in the table would hide a
   * duplicate.
   */
  #forget(): void {
    this.#known = new RowKeys();
    this.#origin = new RowKey(noText, 0, 0);
  }

  #readKey(): void {
    const reader = this.#reader;
    const start = reader.position;
    const repeated = this.#repeatKey(this.#previous);
    const key = repeated ?? this.#lookUpKey();
    if (key !== undefined) this.#note(key, start);
    // After a repeated key, the value may be preceded by more white space this time.
    if (repeated !== undefined) reader.skipSpace();
    else reader.skipColon();
    if (key?.end === 0) key.endAt(reader.position, reader.bytes);
  }

  #note(key: RowKey, start: number): void {
    if (key.row < this.#firstRow) this.#listener?.use(key.text);
    if (key.row === this.#row) throw this.#givenTwice(key.text, start);
    key.row = this.#row;
    this.#previous = key;
  }

  /** Reads the key if it is one that followed the previous key before. */
  #repeatKey(previous: RowKey): RowKey | undefined {
    const { next, alternative } = previous;
    if (next === undefined) return undefined;
    if (this.#reader.skipRepeated(next.start, next.end)) return next;
    if (alternative === undefined) return undefined;
    if (!this.#reader.skipRepeated(alternative.start, alternative.end)) return undefined;
    previous.precede(alternative);
    return alternative;
  }

  /** Reads any key. Undefined for one that cannot be remembered and is unique in its row so far. */
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
      key = new RowKey(text, hash, start);
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
