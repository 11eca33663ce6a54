/** The tokens of JSON (RFC 8259), read strictly from bytes that are known to be valid UTF-8. */

import { ByteText } from "./byte-text.ts";
import { LongRuns } from "./long-runs.ts";
import { type BodyLocation, type QueryRefusalCode, QueryRefused } from "./refusal.ts";

const blank = 0x20;
const quote = 0x22;
const backslash = 0x5c;
const zero = 0x30;
const minus = 0x2d;
const point = 0x2e;
const letterA = 0x61;
const letterE = 0x65;
const letterF = 0x66;
const letterL = 0x6c;
const letterN = 0x6e;
const letterR = 0x72;
const letterS = 0x73;
const letterT = 0x74;
const letterU = 0x75;

/** Bytes of a string after which the rest of it is taken for long. */
const longRun = 32;
/** Bytes of white space after which there may be much of it. */
const longSpace = 16;

/** Bytes that stand for themselves in a string: all but controls, the quote and the backslash. */
const plainInString = byteTable((byte) => byte >= 0x20 && byte !== quote && byte !== backslash);
const space = byteTable((byte) => " \t\n\r".includes(String.fromCharCode(byte)));
const digit = byteTable((byte) => byte >= zero && byte <= 0x39);
const simpleEscape = byteTable((byte) => '"\\/bfnrt'.includes(String.fromCharCode(byte)));

/** The values of hexadecimal digits, -1 for all other bytes. */
const hexadecimal = Int8Array.from({ length: 256 }, (_, byte) =>
  "0123456789abcdef".indexOf(String.fromCharCode(byte).toLowerCase()),
);

function byteTable(accepts: (byte: number) => boolean): Uint8Array {
  return Uint8Array.from({ length: 256 }, (_, byte) => (accepts(byte) ? 1 : 0));
}

/** A cursor over the bytes of a body that reads one token at a time. Each method starts on its token. */
export class JsonLexer {
  readonly bytes: Buffer;
  /** Byte offset of what is read next. */
  position = 0;
  /** The fields and indices that lead to what is being read; kept by those who know the grammar. */
  readonly path: (string | number)[] = [];
  private longRuns: LongRuns | undefined = undefined;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
  }

  /** The error for a fault here, or at another byte offset of the same place in the grammar. */
  refusal(code: QueryRefusalCode, problem: string, offset = this.position): QueryRefused {
    return new QueryRefused(code, problem, this.location(offset));
  }

  /** Where the cursor is; another offset may be named for the same path. */
  location(offset = this.position): BodyLocation {
    const segments = this.path.map((segment) =>
      typeof segment === "number" ? `[${segment}]` : `.${segment}`,
    );
    return { path: segments.join("").replace(/^\./, ""), offset };
  }

  /** The byte at an offset; 0, which begins and continues no JSON token, past the end. */
  protected byteAt(position: number): number {
    return this.bytes[position] ?? 0;
  }

  /** Moves to the next byte that is not white space. */
  skipSpace(): void {
    if ((this.bytes[this.position] ?? 0) <= blank) this.skipSpaces();
  }

  private skipSpaces(): void {
    const { bytes } = this;
    let position = this.position;
    const long = position + longSpace;
    while (position < long && space[bytes[position] ?? 0] === 1) position++;
    if (position === long) {
      position = this.runs().repetitionEnd(position - 4);
      while (space[bytes[position] ?? 0] === 1) position++;
    }
    this.position = position;
  }

  /** Reads past a string if it is written as these bytes, quotes included. */
  skipToken(token: Uint8Array): boolean {
    const { bytes, position } = this;
    const { length } = token;
    // The first byte is a quote in nearly all tokens: the second one tells more.
    for (let index = 1; index < length; index++) {
      if (bytes[position + index] !== token[index]) return false;
    }
    if (bytes[position] !== token[0]) return false;
    this.position = position + length;
    return true;
  }

  /** Reads past bytes that repeat those between two offsets. */
  skipRepeated(start: number, end: number): boolean {
    const { bytes, position } = this;
    const distance = position - start;
    for (let offset = start; offset < end; offset++) {
      if (bytes[offset] !== bytes[offset + distance]) return false;
    }
    this.position = position + end - start;
    return true;
  }

  /** Whether the strings at two offsets, read before, have the same text, in whatever spelling. */
  sameStrings(one: number, other: number): boolean {
    return this.stringAt(one).equals(this.stringAt(other));
  }

  private stringAt(start: number): ByteText {
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
    const text: string = JSON.parse(this.bytes.toString("utf8", start, this.position));
    return ByteText.from(text);
  }

  /** Reads past a string; true if it has escapes. */
  skipString(): boolean {
    const { bytes } = this;
    let position = this.position + 1;
    let escaped = false;
    while (true) {
      const long = position + longRun;
      while (position < long && plainInString[bytes[position] ?? 0] === 1) position++;
      if (position === long) position = this.runs().end(position);
      const byte = this.byteAt(position);
      if (byte === quote) break;
      if (byte !== backslash) throw this.stringFault(position);
      position = this.skipEscape(position);
      escaped = true;
    }
    this.position = position + 1;
    return escaped;
  }

  private runs(): LongRuns {
    this.longRuns ??= new LongRuns(this.bytes);
    return this.longRuns;
  }

  private stringFault(position: number): QueryRefused {
    const problem =
      position >= this.bytes.length
        ? "the body ends within a string"
        : "a control character stands in a string; it has to be escaped";
    return this.refusal("invalid_json", problem, position);
  }

  /** Takes the offset of a backslash and gives the one after the escape, or after the pair of escapes. */
  private skipEscape(position: number): number {
    const kind = this.byteAt(position + 1);
    if (simpleEscape[kind] === 1) return position + 2;
    if (kind !== letterU) {
      const allowed = 'one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\u and four hexadecimal digits';
      throw this.refusal(
        "invalid_json",
        `a backslash begins no escape; allowed: ${allowed}`,
        position,
      );
    }
    const unit = this.codeUnit(position);
    if (unit < 0xd800 || unit > 0xdfff) return position + 6;
    const next = position + 6;
    const paired =
      unit <= 0xdbff &&
      this.byteAt(next) === backslash &&
      this.byteAt(next + 1) === letterU &&
      isLowSurrogate(this.codeUnit(next));
    if (paired) return next + 6;
    const problem = "half of a surrogate pair is escaped; a high half and its low half go together";
    throw this.refusal("lone_surrogate", problem, position);
  }

  /** The UTF-16 code unit of the `\uXXXX` at an offset. */
  private codeUnit(position: number): number {
    const unit =
      (this.hexadecimalAt(position + 2) << 12) |
      (this.hexadecimalAt(position + 3) << 8) |
      (this.hexadecimalAt(position + 4) << 4) |
      this.hexadecimalAt(position + 5);
    if (unit >= 0) return unit;
    throw this.refusal("invalid_json", "\\u needs four hexadecimal digits", position);
  }

  /** The value of the hexadecimal digit at an offset; negative for any other byte. */
  private hexadecimalAt(position: number): number {
    return hexadecimal[this.byteAt(position)] ?? -1;
  }

  /** Reads past a number. */
  skipNumber(): void {
    let position = this.position;
    if (this.byteAt(position) === minus) position++;
    // A zero stands alone before the point: `01` leaves its 1 to whoever expects a comma.
    position = this.byteAt(position) === zero ? position + 1 : this.skipDigits(position);
    let byte = this.byteAt(position);
    if (byte === point) {
      position = this.skipDigits(position + 1);
      byte = this.byteAt(position);
    }
    if (isExponent(byte)) {
      const signed = isSign(this.byteAt(position + 1));
      position = this.skipDigits(position + (signed ? 2 : 1));
    }
    this.position = position;
  }

  /** Takes the offset of the first of one or more digits and gives the one after the last. */
  private skipDigits(start: number): number {
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
  return byte === 0x65 || byte === 0x45;
}

function isSign(byte: number): boolean {
  return byte === 0x2b || byte === minus;
}
