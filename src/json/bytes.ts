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
