/** Ordinary text in long strings, passed over several bytes at a time. */

import { lowestByte, specialIn } from "./words.ts";

const BACKSLASH = 0x5c;
const BLANK = 0x20;
const QUOTE = 0x22;

const HIGH_BITS = 0x80808080;

/** Bytes that are tried four by four before the next quote is sought, which pays over longer ways. */
const SHORT_WAY = 128;

/** Finds where text ends that stands for itself in a string. */
export class LongRuns {
  readonly #bytes: Buffer;
  readonly words: DataView;
  // Where the next ones stand; sought again when passed, so that no byte is visited twice.
  #nextQuote = -1;
  #nextBackslash = -1;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
    this.words = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  /** Offset of the first quote, backslash or control character from an offset on, or of the end. */
  end(start: number): number {
    const { length } = this.#bytes;
    const last = Math.min(start + SHORT_WAY, length - 4);
    for (let position = start; position <= last; position += 4) {
      const found = specialIn(this.words.getInt32(position, true));
      if (found !== 0) return position + lowestByte(found);
    }
    return this.#seek(Math.max(start, last));
  }

  /** Offset at which the four bytes from an offset on cease to repeat themselves. */
  repetitionEnd(start: number): number {
    const last = this.#bytes.length - 4;
    const word = this.words.getInt32(start, true);
    let position = start + 4;
    while (position <= last && this.words.getInt32(position, true) === word) position += 4;
    return position;
  }

  #seek(start: number): number {
    if (this.#nextQuote < start) this.#nextQuote = this.#find(QUOTE, start);
    if (this.#nextBackslash < start) this.#nextBackslash = this.#find(BACKSLASH, start);
    return this.#firstControl(start, Math.min(this.#nextQuote, this.#nextBackslash));
  }

  #find(byte: number, start: number): number {
    const found = this.#bytes.indexOf(byte, start);
    return found < 0 ? this.#bytes.length : found;
  }

  /** Offset of the first control character between two offsets, or the second offset. */
  #firstControl(start: number, end: number): number {
    const words = this.words;
    let position = start;
    for (; position + 16 <= end; position += 16) {
      const found =
        below(words.getInt32(position, true)) |
        below(words.getInt32(position + 4, true)) |
        below(words.getInt32(position + 8, true)) |
        below(words.getInt32(position + 12, true));
      if ((found & HIGH_BITS) !== 0) break;
    }
    while (position < end && (this.#bytes[position] ?? 0) >= BLANK) position++;
    return position;
  }
}

/** Marks control characters among the four bytes of a word, as `specialIn` does. */
function below(word: number): number {
  return (word - 0x20202020) & ~word;
}
