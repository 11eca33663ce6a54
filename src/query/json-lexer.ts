/** The tokens of JSON (RFC 8259), read strictly from bytes that are known to be valid UTF-8. */

import { byteTable, characterTable } from "./byte-tables.ts";
import { ByteText } from "./byte-text.ts";
import { JsonCursor } from "./json-cursor.ts";
import type { QueryRefused } from "./refusal.ts";

const backslash = 0x5c;
const blank = 0x20;
const letterA = 0x61;
const letterE = 0x65;
const letterF = 0x66;
const letterL = 0x6c;
const letterN = 0x6e;
const letterR = 0x72;
const letterS = 0x73;
const letterT = 0x74;
const letterU = 0x75;
const minus = 0x2d;
const plus = 0x2b;
const point = 0x2e;
const quote = 0x22;
const zero = 0x30;

/** Bytes of a string after which the rest of it is taken for long. */
const longRun = 32;

/** Bytes of a string that is unescaped in one go. */
const longestEscaped = 64 * 1024;

/** Bytes that stand for themselves in a string: all but controls, the quote and the backslash. */
const plainInString = byteTable((byte) => byte >= blank && byte !== quote && byte !== backslash);
const digit = characterTable("0123456789");
const simpleEscape = characterTable('"\\/bfnrt');

/** The values of hexadecimal digits, -1 for all other bytes. */
const hexadecimal = Int8Array.from({ length: 256 }, (_, byte) =>
  "0123456789abcdef".indexOf(String.fromCharCode(byte).toLowerCase()),
);

/** Reads one token at a time. Each method starts on its token. */
export class JsonLexer extends JsonCursor {
  /** Whether the strings at two offsets, read before, have the same text, in whatever spelling. */
  sameStrings(one: number, other: number): boolean {
    return this.#stringAt(one).equals(this.#stringAt(other));
  }

  #stringAt(start: number): ByteText {
    const { position } = this;
    this.position = start;
    const text = this.readString();
    this.position = position;
    return text;
  }

  /** Reads a string and gives its text, unescaped. */
  readString(): ByteText {
    const start = this.position;
    const escaped = this.skipString();
    if (!escaped) return new ByteText(this.bytes, start + 1, this.position - 1);
    if (this.position - start > longestEscaped) {
      const problem = `a name or key with escapes takes ${this.position - start} bytes; allowed: ${longestEscaped}`;
      throw this.refusal("invalid_value", problem, start);
    }
    const text: string = JSON.parse(this.bytes.toString("utf8", start, this.position));
    return ByteText.from(text);
  }

  /** Reads past a string; true if it has escapes. */
  skipString(): boolean {
    this.position++;
    return this.finishString(Number.POSITIVE_INFINITY) === "escaped";
  }

  /**
   * Reads on to the end of the string that is being read. A string of escapes, which takes long,
   * is left unfinished once a byte offset is passed.
   */
  protected finishString(until: number): "plain" | "escaped" | "unfinished" {
    const { bytes } = this;
    let position = this.position;
    let escaped = false;
    while (true) {
      const long = position + longRun;
      while (position < long && plainInString[bytes[position] ?? 0] === 1) position++;
      if (position === long) position = this.runs().end(position);
      const byte = this.byteAt(position);
      if (byte === quote) break;
      if (byte !== backslash) throw this.#stringFault(position);
      escaped = true;
      if (simpleEscape[bytes[position + 1] ?? 0] === 1) position += 2;
      else position = this.#skipCodeUnit(position);
      if (position > until) {
        this.position = position;
        return "unfinished";
      }
    }
    this.position = position + 1;
    return escaped ? "escaped" : "plain";
  }

  #stringFault(position: number): QueryRefused {
    const problem =
      position >= this.bytes.length
        ? "the body ends within a string"
        : "a control character stands in a string; it has to be escaped";
    return this.refusal("invalid_json", problem, position);
  }

  /** Takes the offset of a `\uXXXX` and gives the one after it, or after the pair that it begins. */
  #skipCodeUnit(position: number): number {
    if (this.byteAt(position + 1) !== letterU) {
      const allowed = 'one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\u and four hexadecimal digits';
      throw this.refusal(
        "invalid_json",
        `a backslash begins no escape; allowed: ${allowed}`,
        position,
      );
    }
    const unit = this.#codeUnit(position);
    if (unit < 0xd800 || unit > 0xdfff) return position + 6;
    const next = position + 6;
    const paired =
      unit <= 0xdbff &&
      this.byteAt(next) === backslash &&
      this.byteAt(next + 1) === letterU &&
      isLowSurrogate(this.#codeUnit(next));
    if (paired) return next + 6;
    const problem = "half of a surrogate pair is escaped; a high half and its low half go together";
    throw this.refusal("lone_surrogate", problem, position);
  }

  /** The UTF-16 code unit of the `\uXXXX` at an offset. */
  #codeUnit(position: number): number {
    const unit =
      (this.#hexadecimalAt(position + 2) << 12) |
      (this.#hexadecimalAt(position + 3) << 8) |
      (this.#hexadecimalAt(position + 4) << 4) |
      this.#hexadecimalAt(position + 5);
    if (unit >= 0) return unit;
    throw this.refusal("invalid_json", "\\u needs four hexadecimal digits", position);
  }

  /** The value of the hexadecimal digit at an offset; negative for any other byte. */
  #hexadecimalAt(position: number): number {
    return hexadecimal[this.byteAt(position)] ?? -1;
  }

  /** Reads past a number. */
  skipNumber(): void {
    let position = this.position;
    if (this.byteAt(position) === minus) position++;
    // A zero stands alone before the point: `01` leaves its 1 to whoever expects a comma.
    position = this.byteAt(position) === zero ? position + 1 : this.#skipDigits(position);
    let byte = this.byteAt(position);
    if (byte === point) {
      position = this.#skipDigits(position + 1);
      byte = this.byteAt(position);
    }
    if (isExponent(byte)) {
      const signed = isSign(this.byteAt(position + 1));
      position = this.#skipDigits(position + (signed ? 2 : 1));
    }
    this.position = position;
  }

  /** Takes the offset of the first of one or more digits and gives the one after the last. */
  #skipDigits(start: number): number {
    const { bytes } = this;
    let position = start;
    while (digit[bytes[position] ?? 0] === 1) position++;
    if (position === start) throw this.refusal("invalid_json", "a number lacks a digit", start);
    return position;
  }

  /** Reads past `true`, `false` or `null`. */
  skipLiteral(): void {
    const { bytes, position } = this;
    const first = bytes[position];
    // The letters after the first one; told apart by hand, which is much quicker than a loop.
    const second = bytes[position + 1];
    const third = bytes[position + 2];
    const fourth = bytes[position + 3];
    if (first === letterT && second === letterR && third === letterU && fourth === letterE) {
      this.position = position + 4;
    } else if (first === letterN && second === letterU && third === letterL && fourth === letterL) {
      this.position = position + 4;
    } else if (
      first === letterF &&
      second === letterA &&
      third === letterL &&
      fourth === letterS &&
      bytes[position + 4] === letterE
    ) {
      this.position = position + 5;
    } else throw this.refusal("invalid_json", "a word is neither true, false nor null");
  }
}

function isLowSurrogate(unit: number): boolean {
  return unit >= 0xdc00 && unit <= 0xdfff;
}

function isExponent(byte: number): boolean {
  return (byte | 0x20) === letterE;
}

function isSign(byte: number): boolean {
  return byte === plus || byte === minus;
}
