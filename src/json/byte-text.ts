/** Text that stays where it is: a stretch of UTF-8 bytes, compared without making a string of it. */

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
