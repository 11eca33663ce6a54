/**
 * Classes of bytes, as tables that are looked up by the byte.
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
