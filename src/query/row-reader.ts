/** Objects of cells: a row of an Insert, the `set` of an Update. The hot path of the scanner. */

import type { JsonReader } from "./json-reader.ts";
import { columnNameRule, isColumnName } from "./names.ts";
import { quoteName } from "./refusal.ts";

/** Past so many known keys, all are forgotten before the next row, so that memory stays bounded. */
const mostKnownKeys = 4096;

/** A key that is known to be a column name. */
class RowKey {
  /** Byte offset of the key's string token, quotes included, where it was first met. */
  readonly start: number;
  readonly end: number;
  /** The number of the row that had it last. */
  row = 0;
  /** The keys that followed it last, the latest first. */
  next: RowKey | undefined = undefined;
  alternative: RowKey | undefined = undefined;

  constructor(start: number, end: number) {
    this.start = start;
    this.end = end;
  }
}

/**
 * Reads the rows of one body.
 *
 * Rows tend to have the same keys in the same order, so each key remembers those that followed it.
 * A key that repeats the bytes of a remembered one is that key, and neither judged nor made a
 * string again. Each key notes the row it stood in, which tells a duplicate.
 */
export class RowReader {
  private readonly reader: JsonReader;
  /** The known keys, by their bytes as Latin-1 text, which is quicker to make and as distinct. */
  private known = new Map<string, RowKey>();
  /** Stands before the first key of every row. */
  private origin = new RowKey(0, 0);
  private row = 0;

  constructor(reader: JsonReader) {
    this.reader = reader;
  }

  /** Reads a row and gives the number of its cells. Throws `QueryRefused`. */
  read(): number {
    const { reader } = this;
    if (this.known.size > mostKnownKeys) this.forget();
    this.row++;
    let cells = 0;
    let key = this.origin;
    for (let more = reader.openObject(); more; more = reader.nextMember()) {
      key = this.readKey(key);
      reader.skipColon();
      reader.skipValue();
      cells++;
    }
    return cells;
  }

  /** Keys must be forgotten together: one that is linked but not known would hide a duplicate. */
  private forget(): void {
    this.known = new Map();
    this.origin = new RowKey(0, 0);
  }

  private readKey(previous: RowKey): RowKey {
    const start = this.reader.position;
    const key = this.repeatKey(previous) ?? this.lookUpKey(previous);
    if (key.row === this.row) {
      const name = quoteName(JSON.parse(this.reader.bytes.toString("utf8", key.start, key.end)));
      const problem = `the column ${name} is given twice; each may stand once`;
      throw this.reader.refusal("duplicate_key", problem, start);
    }
    key.row = this.row;
    return key;
  }

  /** Reads the key if it is one of those that followed the previous key before. */
  private repeatKey(previous: RowKey): RowKey | undefined {
    const { next, alternative } = previous;
    if (next === undefined) return undefined;
    if (this.standsHere(next)) {
      this.reader.position += next.end - next.start;
      return next;
    }
    if (alternative === undefined || !this.standsHere(alternative)) return undefined;
    this.reader.position += alternative.end - alternative.start;
    previous.next = alternative;
    previous.alternative = next;
    return alternative;
  }

  /** Whether the bytes here are those of the key; quotes included, so that the key ends here too. */
  private standsHere({ start, end }: RowKey): boolean {
    const { bytes, position } = this.reader;
    const distance = position - start;
    for (let offset = start; offset < end; offset++) {
      if (bytes[offset] !== bytes[offset + distance]) return false;
    }
    return true;
  }

  private lookUpKey(previous: RowKey): RowKey {
    const { reader } = this;
    const start = reader.position;
    const column = reader.readBareKey();
    const text = column.bytes.toString("latin1", column.start, column.end);
    let key = this.known.get(text);
    if (key === undefined) {
      if (!isColumnName(column)) {
        const problem = `${quoteName(column.toString())} is no column name; allowed: ${columnNameRule}`;
        throw reader.refusal("invalid_column", problem, start);
      }
      key = new RowKey(start, reader.position);
      this.known.set(text, key);
    }
    previous.alternative = previous.next;
    previous.next = key;
    return key;
  }
}
