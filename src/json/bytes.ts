/**
 * Bytes of a body as they stand: classes of them, as tables, and stretches of text.
 *
 * Single bytes are constants of each module that uses them: one that is imported would be loaded at
 * every comparison, which costs the scanner a tenth of its speed.
 */

/** A table that has 1 for the bytes that are accepted, else 0. */
export function byteTable(accepts: (byte: number) => boolean): Uint8Array {
  return Uint8Array.from({ length: 256 }, (_, byte) => (accepts(byte) ? 1 : 0));
}

/** As `byteTable`, for a few ASCII characters. */
export function characterTable(characters: string): Uint8Array {
  return byteTable((byte) => characters.includes(String.fromCharCode(byte)));
}

/** True for a minus sign or a digit. */
export function beginsNumber(byte: number): boolean {
  return byte === 0x2d || (byte >= 0x30 && byte <= 0x39);
}

/** A stretch of valid, unescaped UTF-8 within a buffer. */
export class ByteText {
  readonly bytes: Buffer;
  /** Byte offset of the first byte. */
  readonly start: number;
  /** Byte offset after the last byte. */
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

/** The bytes of a JSON string, quotes included, in the spelling without escapes. */
export function tokenOf(text: string): Buffer {
  return Buffer.from(JSON.stringify(text));
}

/** Text that is read four bytes at a time, as the whole numbers that little endian makes of them. */

const LETTER_E = 0x65;
const MINUS = 0x2d;
const POINT = 0x2e;
const ZERO = 0x30;

/** Bytes of a word. */
const WORD = 4;
const BACKSLASHES = 0x5c5c5c5c;
const ZEROS = 0x30303030;
const SIGNED_HIGH_BITS = 0x80808080 | 0;

/**
 * Marks quotes, backslashes and control characters among the bytes of a word, each by its high bit; 0 if there is none.
 *
 * Taking a number from a lesser byte borrows and sets its high bit, where it was clear before. A borrow may go on and mark
 * higher bytes too; the lowest mark is right, and so is that there is none. With one bit turned, a quote is 0x20, and
 * control characters are still less.
 */
export function specialIn(word: number): number {
  const quotes = word ^ 0x02020202;
  const others = word ^ BACKSLASHES;
  return (((quotes - 0x21212121) & ~quotes) | ((others - 0x01010101) & ~others)) & SIGNED_HIGH_BITS;
}

/** Marks bytes that are no digits, likewise. */
export function otherThanDigitsIn(word: number): number {
  const digits = word ^ ZEROS;
  return ((digits + 0x76767676) | digits) & SIGNED_HIGH_BITS;
}

/** The index of the lowest byte that is marked. */
export function lowestByte(marks: number): number {
  return (31 - Math.clz32(marks & (0 - marks))) >> 3;
}

/**
 * Offset after a number without an exponent that begins at an offset; 0 for any other value, and for none.
 *
 * @param last offset of the last word, behind which nothing is known
 */
export function plainNumberEnd(words: DataView, start: number, last: number): number {
  const whole = words.getUint8(start) === MINUS ? start + 1 : start;
  let end = digitsEnd(words, whole, last);
  if (end === whole || end > last) return 0;
  // A zero stands alone before the point.
  if (end > whole + 1 && words.getUint8(whole) === ZERO) return 0;
  if (words.getUint8(end) === POINT) {
    const fraction = end + 1;
    end = digitsEnd(words, fraction, last);
    if (end === fraction || end > last) return 0;
  }
  return (words.getUint8(end) | 0x20) === LETTER_E ? 0 : end;
}

/** Offset of the first byte that is no digit; one behind `last` if it is not known. */
function digitsEnd(words: DataView, start: number, last: number): number {
  for (let position = start; position <= last; position += WORD) {
    const marks = otherThanDigitsIn(words.getInt32(position, true));
    if (marks !== 0) return position + lowestByte(marks);
  }
  return last + 1;
}

/** Ordinary text in long strings, passed over several bytes at a time. */

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
