/** Text that is read four bytes at a time, as the whole numbers that little endian makes of them. */

const LETTER_E = 0x65;
const MINUS = 0x2d;
const POINT = 0x2e;
const ZERO = 0x30;

/** Bytes of a word. */
const WORD = 4;
const BACKSLASHES = 0x5c5c5c5c;
const ZEROS = 0x30303030;
const HIGH_BITS = 0x80808080 | 0;

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
  return (((quotes - 0x21212121) & ~quotes) | ((others - 0x01010101) & ~others)) & HIGH_BITS;
}

/** Marks bytes that are no digits, likewise. */
export function otherThanDigitsIn(word: number): number {
  const digits = word ^ ZEROS;
  return ((digits + 0x76767676) | digits) & HIGH_BITS;
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
