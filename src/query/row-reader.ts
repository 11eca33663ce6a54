import type { Steps } from "../cooperative-scheduling.ts";
import { quoteName } from "../json/fault.ts";
import {
  ByteText,
  characterTable,
  literalEnd,
  numberEnd,
  plainInString,
  type Rest,
} from "../json/reader.ts";
import type { BodyReader } from "./body-reader.ts";
import { columnNameRule, isColumnName } from "./names.ts";
import type { QueryRefused } from "./refusal.ts";

interface ColumnListener {
  use(column: ByteText): void;
}

/** In one Insert or Upsert. No database has tables with more. */
const MOST_COLUMNS = 4096;

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

const beginsNumber = characterTable("-0123456789");
const beginsLiteral = characterTable("tfn");

const noText = ByteText.from("");

/** A key that was checked to be a column name. */
interface RowKey {
  readonly text: ByteText;
  /** Byte offsets of its first occurrence: of its opening quote, and of the value that follows. */
  readonly start: number;
  end: number;
  /** The number of the last row with this key. */
  row: number;
  /** The key that followed it last. */
  next: RowKey | undefined;
}

/**
 * Reads the rows of one body in order. This is the hot path of the scanner.
 *
 * Rows tend to have the same keys in the same order, so each key remembers the one that followed
 * it. A key whose bytes repeat the expected one needs no check and no lookup. Each key has the
 * number of its last row, which reveals duplicates.
 */
export class RowReader {
  readonly #reader: BodyReader;
  readonly #known = new Map<string, RowKey>();
  /** Stands before the first key of every row. */
  #origin = newKey(noText, 0);
  #previous = this.#origin;
  #row = 0;
  #listener: ColumnListener | undefined = undefined;
  /** The first row of this listener, to which keys of earlier rows are still unknown. */
  #firstRow = 1;
  /** Different columns of this listener. */
  #columns = 0;
  #isElement = false;

  constructor(reader: BodyReader) {
    this.#reader = reader;
  }

  get isEmpty(): boolean {
    return this.#previous === this.#origin;
  }

  /**
   * Reads a row and reports its columns to the listener.
   *
   * @param isElement true for an element of an array whose index ends the path. Then following rows
   *   of the usual form may be read as well
   * @throws QueryRefused
   */
  read(listener: ColumnListener, isElement: boolean): Rest {
    const reader = this.#reader;
    this.#row++;
    if (listener !== this.#listener) this.#begin(listener);
    this.#previous = this.#origin;
    this.#isElement = isElement;
    for (let more = reader.openObject(); more; more = reader.nextMember()) {
      this.#skipUsualCells();
      this.#readKey();
      const rest = reader.skipValue() ?? reader.pause();
      if (rest !== undefined) return this.#readOn(rest);
    }
    return undefined;
  }

  #begin(listener: ColumnListener): void {
    // Keys are remembered from one operation to the next, within bounds.
    if (this.#known.size > MOST_COLUMNS) {
      this.#known.clear();
      this.#origin = newKey(noText, 0);
    }
    this.#firstRow = this.#row;
    this.#columns = 0;
    this.#listener = listener;
  }

  *#readOn(begun: Steps<void>): Steps<void> {
    yield* begun;
    while (this.#reader.nextMember()) {
      this.#skipUsualCells();
      this.#readKey();
      const rest = this.#reader.skipValue() ?? this.#reader.pause();
      if (rest !== undefined) yield* rest;
    }
  }

  /**
   * Skips cells of the usual form, also across the rows of an array: the expected key, a string
   * without escapes, a number, true, false or null, and no space. One loop, because it takes half the time of
   * the same work in several functions.
   */
  #skipUsualCells(): void {
    const { bytes, pauseAt } = this.#reader;
    const firstRow = this.#firstRow;
    const mayMoveOn = this.#isElement;
    let { position } = this.#reader;
    let row = this.#row;
    let previous = this.#previous;
    let key = previous.next;
    while (key !== undefined && key.row < row && key.row >= firstRow) {
      const distance = position - key.start;
      let offset = key.start;
      while (offset < key.end && bytes[offset] === bytes[offset + distance]) offset++;
      if (offset < key.end) break;
      let end = key.end + distance;
      const first = bytes[end] ?? 0;
      if (first === QUOTE) {
        do end++;
        while (plainInString[bytes[end] ?? 0] === 1);
        if (bytes[end++] !== QUOTE) break;
      } else if (beginsNumber[first] === 1) end = numberEnd(bytes, end);
      else if (beginsLiteral[first] === 1) end = literalEnd(bytes, end);
      else break;
      const isLast = bytes[end] === CLOSE_BRACE;
      if (isLast && (!mayMoveOn || end >= pauseAt || bytes[++end + 1] !== OPEN_BRACE)) break;
      const next = isLast ? end + 2 : end + 1;
      if (bytes[end] !== COMMA || bytes[next] !== QUOTE) break;
      position = next;
      key.row = row;
      previous = key;
      if (isLast) {
        previous = this.#origin;
        row++;
        this.#reader.moveIndexOn();
      }
      key = previous.next;
    }
    this.#reader.position = position;
    this.#previous = previous;
    this.#row = row;
  }

  #readKey(): void {
    const reader = this.#reader;
    const start = reader.position;
    const expected = this.#previous.next;
    if (expected !== undefined && reader.skipRepeated(expected.start, expected.end)) {
      // The value may follow after more white space this time.
      reader.skipSpace();
      this.#note(expected, start);
      return;
    }
    const text = reader.readBareKey();
    if (!isColumnName(text)) {
      const problem = `${quoteName(text.toString())} is not a column name; allowed: ${columnNameRule}`;
      throw reader.refusal("invalid_column", problem, start);
    }
    const name = text.toString();
    let key = this.#known.get(name);
    if (key === undefined) {
      key = newKey(text, start);
      this.#known.set(name, key);
    }
    this.#note(key, start);
    reader.skipColon();
    if (key.end === 0) key.end = reader.position;
  }

  #note(key: RowKey, start: number): void {
    if (key.row === this.#row) throw this.#givenTwice(key.text, start);
    if (key.row < this.#firstRow) this.#use(key.text, start);
    key.row = this.#row;
    this.#previous.next = key;
    this.#previous = key;
  }

  #use(column: ByteText, start: number): void {
    this.#columns++;
    if (!this.#isElement) this.#reader.countPart();
    else if (this.#columns > MOST_COLUMNS) {
      const problem = `the rows name more than ${MOST_COLUMNS} different columns`;
      throw this.#reader.refusal("query_too_complex", problem, start);
    }
    this.#listener?.use(column);
  }

  #givenTwice(column: ByteText, start: number): QueryRefused {
    const problem = `the column ${quoteName(column.toString())} is given twice; each column is allowed once`;
    return this.#reader.refusal("duplicate_key", problem, start);
  }
}

function newKey(text: ByteText, start: number): RowKey {
  return { text, start, end: 0, row: 0, next: undefined };
}
