import { JsonFault, quoteName } from "../json/fault.ts";
import {
  characterTable,
  colonEnd,
  literalEnd,
  numberEnd,
  plainEndByWords,
  spaceEnd,
  stringEnd,
  unexpected,
  type ValueKind,
} from "../json/lexical.ts";
import {
  type Mode,
  ROW,
  ROWS,
  SKIPPED,
  Tape,
  TOKENS,
  UNIQUE,
  unescaped,
  Word,
} from "../json/tape.ts";
import { columnNameRule, isColumnName } from "./names.ts";
import { type BodyLocation, type QueryRefusalCode, QueryRefused } from "./refusal.ts";

/** Conditions, columns, items and members of one operation, without its rows and listed values. */
const MOST_PARTS = 50_000;
/** In one Insert or Upsert. No database has tables with more. */
const MOST_COLUMNS = 4096;

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

const beginsNumber = characterTable("-0123456789");
const beginsLiteral = characterTable("tfn");

const batch = new Word("Batch");
const bind = new Word("bind");
const insert = new Word("Insert");
const upsert = new Word("Upsert");
const update = new Word("Update");
const set = new Word("set");
const value = new Word("value");
const values = new Word("values");

/** Some parsers compare keys as written, such as the on-demand one of simdjson. */
const escapedWord = /\\u00(?:3\d|[46][1-9a-f]|[57][\da]|5f)/i;
/** In Rust, serde_json replaces an object with this key by what the value contains. */
const reservedPrefix = "$serde_json::";

/** A key that was checked to be a column name. */
interface RowKey {
  readonly name: string;
  /** Byte offsets of its first occurrence: of its opening quote, and of the value that follows. */
  readonly start: number;
  end: number;
  /** The number of the last row with this key. */
  row: number;
  /** The key that followed it last. */
  next: RowKey | undefined;
}

/** The parts of a `Grammar` that the tape uses. */
interface TapeGrammar {
  readonly level: "core" | "full";
  readonly inOrder: readonly { readonly word: Word }[];
  readonly extraFields: ReadonlySet<string>;
}

/**
 * The tokens of a query body. Rows, cells and values are checked, and are no tokens: a row of an
 * Insert takes no memory, and its columns are read here.
 *
 * Rows tend to have the same keys in the same order, so each key remembers the one that followed
 * it. A key whose bytes repeat the expected one needs no check and no lookup. Each key has the
 * number of its last row, which reveals duplicates.
 */
export class QueryTape extends Tape {
  /** False if only the core grammar is accepted. */
  readonly isFull: boolean;
  /** As `Query.escaped`. */
  escaped: QueryRefused | undefined;
  readonly #operations: readonly { readonly word: Word }[];
  readonly #extraFields: ReadonlySet<string>;
  #isBatch = false;
  /** The bytes, to compare four at a time. */
  #words: DataView | undefined;
  /** By the token of the rows. */
  #columns: Map<number, readonly string[]> | undefined;
  #known: Map<string, RowKey> | undefined;
  /** Stands before the first key of every row. */
  #origin = newKey("", 0);
  #previous = this.#origin;
  #row = 0;
  /** The first row of these rows, to which keys of earlier rows are still unknown. */
  #firstRow = 1;
  /** The columns of these rows. */
  #named: string[] = [];
  /** False for the object of `set`. */
  #isElement = false;

  constructor(bytes: Buffer, isAtOnce: boolean, { level, inOrder, extraFields }: TapeGrammar) {
    super(bytes, isAtOnce);
    this.isFull = level === "full";
    this.#operations = inOrder;
    this.#extraFields = extraFields;
    this.mostParts = MOST_PARTS;
  }

  protected override modeOf(key: number, isObject: boolean): Mode {
    const { depth } = this;
    const isKeyOfOperation = depth === (this.#isBatch ? 3 : 1);
    if (isKeyOfOperation) {
      this.parts = 0;
      if (!this.#isBatch && this.is(key, batch)) {
        this.#isBatch = true;
        return TOKENS;
      }
      // Anything else will be refused.
      return this.#operations.some(({ word }) => this.is(key, word)) ? TOKENS : SKIPPED;
    }
    const isExtra =
      this.#extraFields.size > 0 &&
      depth === (this.#isBatch ? 4 : 2) &&
      this.#extraFields.has(this.name(key));
    if (isExtra) return UNIQUE;
    const outer = this.keyAt(depth - 1);
    if (this.is(key, value)) {
      // Under `bind`, it is a column.
      return outer !== undefined && this.is(outer, bind) ? TOKENS : SKIPPED;
    }
    if (outer !== undefined) {
      if (!isObject && this.is(key, values) && (this.is(outer, insert) || this.is(outer, upsert))) {
        return ROWS;
      }
      if (isObject && this.is(key, set) && this.is(outer, update)) return ROW;
    }
    return TOKENS;
  }

  protected override beginRows(isRows: boolean): void {
    // Keys are remembered from one operation to the next, within bounds.
    if (this.#known !== undefined && this.#known.size > MOST_COLUMNS) {
      this.#known = undefined;
      this.#origin = newKey("", 0);
    }
    this.#firstRow = this.#row + 1;
    this.#named = [];
    this.#isElement = isRows;
  }

  protected override beginRow(): void {
    this.#row++;
    this.#previous = this.#origin;
  }

  protected override get rows(): number {
    return this.#row - this.#firstRow + 1;
  }

  protected override endRows(token: number): void {
    this.#columns ??= new Map();
    this.#columns.set(token, this.#named);
  }

  /** The different columns of rows, or of `set`. */
  columnsOf(token: number): readonly string[] {
    return this.#columns?.get(token) ?? [];
  }

  protected override escapedKey(start: number, end: number): void {
    const written = this.bytes.toString("utf8", start, end);
    if (this.escaped !== undefined || !escapedWord.test(written)) return;
    const problem = `the key ${quoteName(JSON.parse(written))} has an escaped letter, digit or _; write it without escapes`;
    this.escaped = new QueryRefused("escaped_key", problem, this.#placeOf(start));
  }

  protected override exceed(position: number): QueryRefused {
    const problem = `the operation has more than ${MOST_PARTS} parts (conditions, columns, items and members); send several operations`;
    return new QueryRefused("query_too_complex", problem, this.#placeOf(position));
  }

  protected override rowKey(begin: number, until: number): number {
    const { bytes } = this;
    const start = this.#skipUsualCells(begin, until);
    const expected = this.#previous.next;
    if (expected !== undefined && this.#isRepeated(expected, start)) {
      this.#note(expected, start);
      // The value may follow after more white space this time.
      return spaceEnd(bytes, start + expected.end - expected.start);
    }
    if (bytes[start] !== QUOTE) throw unexpected(bytes, start, "a key in double quotes");
    const end = stringEnd(bytes, start);
    const text = unescaped(bytes, start, end);
    if (text.bytes !== bytes) this.escapedKey(start, end);
    const name = text.bytes === bytes ? this.slice(text.start, text.end) : text.toString();
    if (!isColumnName(text) || name.startsWith(reservedPrefix)) {
      const problem = `${quoteName(name)} is not a column name; allowed: ${columnNameRule}`;
      throw new QueryRefused("invalid_column", problem, this.#placeOf(start));
    }
    this.#known ??= new Map();
    let key = this.#known.get(name);
    if (key === undefined) {
      key = newKey(name, start);
      this.#known.set(name, key);
    }
    this.#note(key, start);
    const position = colonEnd(bytes, end);
    if (key.end === 0) key.end = position;
    return position;
  }

  /**
   * Skips cells of the usual form, also across the rows of an array: the expected key, a string
   * without escapes, a number, true, false or null, and no space. One loop, because it takes half
   * the time of the same work in several functions.
   */
  #skipUsualCells(begin: number, until: number): number {
    const { bytes } = this;
    this.#words ??= new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    const words = this.#words;
    const lastWord = bytes.length - 4;
    const firstRow = this.#firstRow;
    const mayMoveOn = this.#isElement;
    let position = begin;
    let row = this.#row;
    let previous = this.#previous;
    let key = previous.next;
    while (key !== undefined && key.row < row && key.row >= firstRow) {
      const distance = position - key.start;
      const keyTail = key.end - 4;
      if (keyTail + distance > lastWord) break;
      let offset = key.start;
      while (
        offset < keyTail &&
        words.getInt32(offset, true) === words.getInt32(offset + distance, true)
      ) {
        offset += 4;
      }
      if (offset < keyTail) break;
      if (words.getInt32(keyTail, true) !== words.getInt32(keyTail + distance, true)) break;
      let end = key.end + distance;
      const first = bytes[end] ?? 0;
      if (first === QUOTE) {
        end = plainEndByWords(words, end + 1, lastWord);
        if (bytes[end++] !== QUOTE) break;
      } else if (beginsNumber[first] === 1) end = numberEnd(bytes, end);
      else if (beginsLiteral[first] === 1) end = literalEnd(bytes, end);
      else break;
      const isLast = bytes[end] === CLOSE_BRACE;
      if (isLast && (!mayMoveOn || end >= until || bytes[++end + 1] !== OPEN_BRACE)) break;
      const next = isLast ? end + 2 : end + 1;
      if (bytes[end] !== COMMA || bytes[next] !== QUOTE) break;
      position = next;
      key.row = row;
      previous = key;
      if (isLast) {
        previous = this.#origin;
        row++;
        this.#row = row;
      }
      key = previous.next;
    }
    this.#previous = previous;
    return position;
  }

  #isRepeated({ start, end }: RowKey, position: number): boolean {
    const { bytes } = this;
    const distance = position - start;
    for (let offset = start; offset < end; offset++) {
      if (bytes[offset] !== bytes[offset + distance]) return false;
    }
    return true;
  }

  #note(key: RowKey, start: number): void {
    if (key.row === this.#row) {
      const problem = `the column ${quoteName(key.name)} is given twice; each column is allowed once`;
      throw new QueryRefused("duplicate_key", problem, this.#placeOf(start));
    }
    if (key.row < this.#firstRow) this.#use(key.name, start);
    key.row = this.#row;
    this.#previous.next = key;
    this.#previous = key;
  }

  #use(column: string, start: number): void {
    this.#named.push(column);
    if (!this.#isElement) {
      if (++this.parts > MOST_PARTS) throw this.exceed(start);
    } else if (this.#named.length > MOST_COLUMNS) {
      const problem = `the rows name more than ${MOST_COLUMNS} different columns`;
      throw new QueryRefused("query_too_complex", problem, this.#placeOf(start));
    }
  }

  #placeOf(offset: number): BodyLocation {
    return { path: this.openPath(), offset };
  }

  /** @throws QueryRefused `wrong_type` */
  expect(token: number, wanted: ValueKind): void {
    const found = this.kind(token);
    if (found === wanted) return;
    throw this.refusal("wrong_type", `${wanted} is expected, ${found} was found`, token);
  }

  /** @throws QueryRefused `wrong_type` for other values than strings */
  text(token: number): string {
    this.expect(token, "a string");
    return this.name(token);
  }

  /** A refusal with the path to a token, and its offset by default. */
  refusal(
    code: QueryRefusalCode,
    problem: string,
    token: number,
    offset: number = this.start(token),
  ): QueryRefused {
    return new QueryRefused(code, problem, { path: this.path(token), offset });
  }

  /** @param allowed what is required instead */
  missing(field: string, allowed: string, token: number): QueryRefused {
    const problem = `the field ${quoteName(field)} is missing; ${allowed}`;
    const location = { path: this.path(token), offset: this.start(token), missing: field };
    return new QueryRefused("missing_field", problem, location);
  }

  /** Converts a JSON fault to a refusal of the query. Other errors are returned unchanged. */
  asRefusal(error: unknown): unknown {
    if (!(error instanceof JsonFault)) return error;
    return new QueryRefused(error.code, error.problem, this.#placeOf(error.offset));
  }
}

function newKey(name: string, start: number): RowKey {
  return { name, start, end: 0, row: 0, next: undefined };
}
