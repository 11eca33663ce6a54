/** A body that holds one JSON value which all parsers read alike. */

import { isUtf8 } from "node:buffer";
import { JsonFault } from "./fault.ts";
import { JsonReader } from "./reader.ts";
import { skipUniqueKeys } from "./unique-keys.ts";

/** Refuses bytes that are no UTF-8, or begin with a byte-order mark. Throws `JsonFault`. */
export function requireUtf8(bytes: Buffer): void {
  if (!isUtf8(bytes)) throw new JsonFault("invalid_utf8", "the body is not valid UTF-8", 0);
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) {
    const problem = "the body begins with a byte-order mark; UTF-8 without one is expected";
    throw new JsonFault("byte_order_mark", problem, 0);
  }
}

/** Refuses what follows the body's value. Throws `JsonFault`. */
export function requireEnd(reader: JsonReader): void {
  reader.skipSpace();
  if (reader.position === reader.bytes.length) return;
  const problem = "something follows the end of the object; allowed: white space";
  throw new JsonFault("trailing_data", problem, reader.position);
}

/**
 * Judges a whole body: UTF-8, one value, in whose objects no key stands twice, at most 64 deep.
 *
 * Throws `JsonFault`.
 */
export function requireOneReading(bytes: Buffer): void {
  requireUtf8(bytes);
  const reader = new JsonReader(bytes);
  reader.skipSpace();
  skipUniqueKeys(reader);
  requireEnd(reader);
}
