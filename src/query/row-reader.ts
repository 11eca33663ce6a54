/** Objects of cells: a row of an Insert, the `set` of an Update. The hot path of the scanner. */

import type { Steps } from "../cooperative-scheduling.ts";
import { ByteText } from "../json/bytes.ts";
import { DistinctKeys, hashKey } from "../json/distinct-keys.ts";
import { quoteName } from "../json/fault.ts";
import type { Rest } from "../json/rest.ts";
import { usualEnd } from "../json/tokens.ts";
import type { BodyReader } from "./body-reader.ts";
import { columnNameRule, isColumnName } from "./names.ts";
import type { QueryRefused } from "./refusal.ts";
import { type ColumnListener, RowKey, RowKeys } from "./row-keys.ts";

const COMMA = 0x2c;
const QUOTE = 0x22;
const noText = ByteText.from("");

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
  #origin = new RowKey(noText, 0, 0);
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
   * Reads past cells as most are: the bytes of the key that followed before, and a usual value. Written as one loop,
   * which takes half the time of going through `#readCell` for each.
   *
   * @returns true behind the value of one, false at a key that is to be read otherwise
   */
  #skipUsualCells(): boolean {
    const { bytes } = this.#reader;
    let { position } = this.#reader;
    for (let key = this.#previous.next; key !== undefined; key = key.next) {
      const { start, end } = key;
      const distance = position - start;
      let offset = start;
      while (offset < end && bytes[offset] === bytes[offset + distance]) offset++;
      const isNew = key.row !== this.#row && key.listener === this.#listener;
      const after = offset === end && isNew ? usualEnd(bytes, end + distance) : 0;
      if (after === 0) break;
      key.row = this.#row;
      this.#previous = key;
      this.cells++;
      this.#reader.position = after;
      if (bytes[after] !== COMMA || bytes[after + 1] !== QUOTE) return true;
      position = after + 1;
    }
    this.#reader.position = position;
    return false;
  }

  #readCell(): Rest {
    const reader = this.#reader;
    this.#readKey();
    this.cells++;
    return reader.skipValue() ?? reader.pause();
  }

  /** Keys must be forgotten together: one that is linked but not known would hide a duplicate. */
  #forget(): void {
    this.#known = new RowKeys();
    this.#origin = new RowKey(noText, 0, 0);
  }

  /** Reads a key, and moves to its value. */
  #readKey(): void {
    const reader = this.#reader;
    const start = reader.position;
    const repeated = this.#repeatKey(this.#previous);
    const key = repeated ?? this.#lookUpKey();
    if (key !== undefined) this.#note(key, start);
    // What was repeated goes on to the value; there may be more white space before it this time.
    if (repeated !== undefined) reader.skipSpace();
    else reader.skipColon();
    if (key?.end === 0) key.end = reader.position;
  }

  #note(key: RowKey, start: number): void {
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
