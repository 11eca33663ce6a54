/** Names as strings without a new string for each body: a gateway hears the same few all day. */

import type { ByteText } from "../json/byte-text.ts";

const places = 64;

/** Keeps the last name of each place of a small table, so that it never holds more than those. */
export class NameCache {
  readonly #names: string[] = new Array(places).fill("");

  /** The string of an ASCII name. */
  take(text: ByteText): string {
    const place = placeOf(text);
    const kept = this.#names[place] ?? "";
    if (isWritten(kept, text)) return kept;
    const name = text.toString();
    this.#names[place] = name;
    return name;
  }
}

function placeOf({ bytes, start, end }: ByteText): number {
  let sum = 0;
  for (let position = start; position < end; position++) {
    sum = (Math.imul(sum, 31) + (bytes[position] ?? 0)) | 0;
  }
  return sum & (places - 1);
}

/** Whether the bytes are exactly those of the ASCII name. */
function isWritten(name: string, { bytes, start, end }: ByteText): boolean {
  if (name.length !== end - start) return false;
  for (let index = 0; index < name.length; index++) {
    if (name.charCodeAt(index) !== bytes[start + index]) return false;
  }
  return true;
}
