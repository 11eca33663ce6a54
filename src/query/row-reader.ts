/** Objects of cells: a row of an Insert, the `set` of an Update. The hot path of the scanner. */

import type { Steps } from "../cooperative-scheduling.ts";
import { ByteText } from "../json/byte-text.ts";
import { DistinctKeys } from "../json/distinct-keys.ts";
import { quoteName } from "../json/fault.ts";
import { hashKey } from "../json/key-hash.ts";
import type { Rest } from "../json/rest.ts";
import type { BodyReader } from "./body-reader.ts";
import { columnNameRule, isColumnName } from "./names.ts";
import type { OperationDraft } from "./operation-draft.ts";
import type { QueryRefused } from "./refusal.ts";
import { RowKey, RowKeys } from "./row-keys.ts";

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
  #origin = new RowKey(noText, 0, 0, 0);
  #previous = this.#origin;
  #others: DistinctKeys | undefined = undefined;
  #row = 0;
  #listener: OperationDraft | undefined = undefined;

  constructor(reader: BodyReader) {
    this.#reader = reader;
  }

  /** Reads a row, and tells the draft of its columns if that wants to know. Throws `QueryRefused`. */
  read(draft: OperationDraft): Rest {
    const reader = this.#reader;
    this.#listener = draft.uses === undefined ? undefined : draft;
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
    this.#listener?.use(key.text);
    if (key.row === this.#row) throw this.#givenTwice(key.text, start);
    key.row = this.#row;
    this.#previous = key;
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
