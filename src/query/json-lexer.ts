/** The tokens of JSON (RFC 8259), read strictly from bytes that are known to be valid UTF-8. */

import { ByteText } from "./byte-text.ts";
import { type BodyLocation, type QueryRefusalCode, QueryRefused } from "./refusal.ts";

const quote = 0x22;
const backslash = 0x5c;
const zero = 0x30;
const minus = 0x2d;
const point = 0x2e;
const letterU = 0x75;

/** Bytes that stand for themselves in a string: all but controls, the quote and the backslash. */
const plainInString = byteTable((byte) => byte >= 0x20 && byte !== quote && byte !== backslash);
const space = byteTable((byte) => " \t\n\r".includes(String.fromCharCode(byte)));
const digit = byteTable((byte) => byte >= zero && byte <= 0x39);
const simpleEscape = byteTable((byte) => '"\\/bfnrt'.includes(String.fromCharCode(byte)));

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
    const { bytes } = this;
    let position = this.position;
    if (space[bytes[position] ?? 0] !== 1) return;
    while (space[bytes[position] ?? 0] === 1) position++;
    this.position = position;
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
      while (plainInString[bytes[position] ?? 0] === 1) position++;
      const byte = this.byteAt(position);
      if (byte === quote) break;
      if (byte !== backslash) throw this.stringFault(position);
      position = this.skipEscape(position);
      escaped = true;
    }
    this.position = position + 1;
    return escaped;
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
    let unit = 0;
    for (let index = position + 2; index < position + 6; index++) {
      const value = hexadecimalValue(this.byteAt(index));
      if (value < 0) {
        throw this.refusal("invalid_json", "\\u needs four hexadecimal digits", position);
      }
      unit = unit * 16 + value;
    }
    return unit;
  }

  /** Reads past a number. */
  skipNumber(): void {
    let position = this.position;
    if (this.byteAt(position) === minus) position++;
    // A zero stands alone before the point: `01` leaves its 1 to whoever expects a comma.
    position = this.byteAt(position) === zero ? position + 1 : this.skipDigits(position);
    if (this.byteAt(position) === point) position = this.skipDigits(position + 1);
    if (isExponent(this.byteAt(position))) {
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

  /** Reads past a literal: `true`, `false` or `null`. */
  skipLiteral(literal: "true" | "false" | "null"): void {
    for (let index = 0; index < literal.length; index++) {
      if (this.byteAt(this.position + index) !== literal.charCodeAt(index)) {
        throw this.refusal("invalid_json", "a word is neither true, false nor null");
      }
    }
    this.position += literal.length;
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

/** The value of a hexadecimal digit, -1 for any other byte. */
function hexadecimalValue(byte: number): number {
  if (byte >= zero && byte <= 0x39) return byte - zero;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x61 + 10 : -1;
}
