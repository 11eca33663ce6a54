/**
 * Byte classes as tables, and ranges of text in a body.
 *
 * Constants for single bytes are repeated in each module. An imported constant is loaded at every
 * comparison, which costs the scanner a tenth of its speed.
 */

/** A table with 1 for each accepted byte, else 0. */
export function byteTable(accepts: (byte: number) => boolean): Uint8Array {
  return Uint8Array.from({ length: 256 }, (_, byte) => (accepts(byte) ? 1 : 0));
}

export function characterTable(characters: string): Uint8Array {
  return byteTable((byte) => characters.includes(String.fromCharCode(byte)));
}

export function beginsNumber(byte: number): boolean {
  return byte === 0x2d || (byte >= 0x30 && byte <= 0x39);
}

/** A range of valid, unescaped UTF-8 in a buffer. */
export class ByteText {
  readonly bytes: Buffer;
  readonly start: number;
  /** Exclusive. */
  readonly end: number;

  constructor(bytes: Buffer, start = 0, end = bytes.length) {
    this.bytes = bytes;
    this.start = start;
    this.end = end;
  }

  static from(text: string): ByteText {
    return new ByteText(Buffer.from(text));
  }

  equals(other: ByteText): boolean {
    if (this.end - this.start !== other.end - other.start) return false;
    const distance = other.start - this.start;
    for (let position = this.start; position < this.end; position++) {
      if (this.bytes[position] !== other.bytes[position + distance]) return false;
    }
    return true;
  }

  toString(): string {
    return this.bytes.toString("utf8", this.start, this.end);
  }
}

/** The bytes of a JSON string with its quotes, spelled without escapes. */
export function tokenOf(text: string): Buffer {
  return Buffer.from(JSON.stringify(text));
}

const LETTER_E = 0x65;
const MINUS = 0x2d;
const POINT = 0x2e;
const ZERO = 0x30;

const WORD = 4;
const BACKSLASHES = 0x5c5c5c5c;
const ZEROS = 0x30303030;
const SIGNED_HIGH_BITS = 0x80808080 | 0;

/**
 * Marks quotes, backslashes and control characters in a little-endian word by the high bit of their
 * byte. 0 if there are none.
 *
 * Subtracting a number from a smaller byte borrows and sets its high bit, where it was clear
 * before. The borrow may spread and mark higher bytes too, but the lowest mark is always right, and
 * so is the absence of marks. With one bit flipped, a quote is 0x20, and control characters are
 * still smaller.
 */
export function specialIn(word: number): number {
  const quotes = word ^ 0x02020202;
  const others = word ^ BACKSLASHES;
  return (((quotes - 0x21212121) & ~quotes) | ((others - 0x01010101) & ~others)) & SIGNED_HIGH_BITS;
}

/** Marks bytes that are not digits, in the same way. */
export function otherThanDigitsIn(word: number): number {
  const digits = word ^ ZEROS;
  return ((digits + 0x76767676) | digits) & SIGNED_HIGH_BITS;
}

/** The index of the lowest marked byte. */
export function lowestByte(marks: number): number {
  return (31 - Math.clz32(marks & (0 - marks))) >> 3;
}

/**
 * The offset after a number without an exponent. 0 for any other value, or if its end is unknown.
 *
 * @param last offset of the last whole word, which is the end of what is examined
 */
export function plainNumberEnd(words: DataView, start: number, last: number): number {
  const whole = words.getUint8(start) === MINUS ? start + 1 : start;
  let end = digitsEnd(words, whole, last);
  if (end === whole || end > last) return 0;
  // A leading zero must be the only digit before the point.
  if (end > whole + 1 && words.getUint8(whole) === ZERO) return 0;
  if (words.getUint8(end) === POINT) {
    const fraction = end + 1;
    end = digitsEnd(words, fraction, last);
    if (end === fraction || end > last) return 0;
  }
  return (words.getUint8(end) | 0x20) === LETTER_E ? 0 : end;
}

/** The offset of the first byte that is not a digit. `last + 1` if it is unknown. */
function digitsEnd(words: DataView, start: number, last: number): number {
  for (let position = start; position <= last; position += WORD) {
    const marks = otherThanDigitsIn(words.getInt32(position, true));
    if (marks !== 0) return position + lowestByte(marks);
  }
  return last + 1;
}

const BACKSLASH = 0x5c;
const BLANK = 0x20;
const QUOTE = 0x22;

const HIGH_BITS = 0x80808080;

/**
 * Bytes examined in words before searching for the next quote, which pays off over longer
 * distances.
 */
const SHORT_WAY = 128;

/** Finds the ends of runs in a string that need no unescaping. */
export class LongRuns {
  readonly #bytes: Buffer;
  readonly words: DataView;
  // Searched again only when passed, so that no byte is visited twice.
  #nextQuote = -1;
  #nextBackslash = -1;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
    this.words = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  /** The offset of the next quote, backslash or control character, or the end of the body. */
  end(start: number): number {
    const { length } = this.#bytes;
    const last = Math.min(start + SHORT_WAY, length - 4);
    for (let position = start; position <= last; position += 4) {
      const found = specialIn(this.words.getInt32(position, true));
      if (found !== 0) return position + lowestByte(found);
    }
    return this.#seek(Math.max(start, last));
  }

  /** The offset at which the four bytes at `start` stop repeating. */
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

  /** The offset of the first control character in a range, or `end`. */
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

/** Marks control characters in a word, as `specialIn` does. */
function below(word: number): number {
  return (word - 0x20202020) & ~word;
}
