/** Values whose every object has each key once, so that all parsers read them alike. */

import type { ByteText } from "./byte-text.ts";
import { DistinctKeys } from "./distinct-keys.ts";
import { JsonFault, quoteName } from "./fault.ts";
import { hashKey, longestHashed } from "./key-hash.ts";
import type { JsonReader } from "./reader.ts";
import { type Rest, repeat } from "./rest.ts";

/** Keys of one object that are held as text: a larger set holds the event loop when it grows. */
const mostTexts = 1024;

/** The keys of one object, however many. */
export class ObjectKeys {
  readonly #reader: JsonReader;
  readonly #texts = new Set<string>();
  #others: DistinctKeys | undefined = undefined;

  constructor(reader: JsonReader) {
    this.#reader = reader;
  }

  /** Adds the key whose string token begins at an offset; false if it is there already. */
  add(key: ByteText, start: number): boolean {
    const text = key.toString();
    if (this.#texts.has(text)) return false;
    // Longer keys than the hash looks at are few in a body of any size.
    if (this.#texts.size < mostTexts || key.end - key.start > longestHashed) {
      this.#texts.add(text);
      return true;
    }
    this.#others ??= new DistinctKeys(this.#reader);
    return this.#others.add(start, hashKey(key));
  }
}

/**
 * Reads past a value in whose objects, at any depth, no key stands twice after unescaping.
 *
 * Throws `JsonFault`.
 */
export function skipUniqueKeys(reader: JsonReader): Rest {
  const kind = reader.kind();
  if (kind === "an object") return skipObject(reader);
  if (kind === "an array") return skipArray(reader);
  return reader.skipValue();
}

function skipObject(reader: JsonReader): Rest {
  if (!reader.openObject()) return undefined;
  const keys = new ObjectKeys(reader);
  const skipMember = (): Rest => {
    const start = reader.position;
    const key = reader.readKey();
    if (!keys.add(key, start)) {
      const problem = `the key ${quoteName(key.toString())} is given twice; each may stand once`;
      throw new JsonFault("duplicate_key", problem, start);
    }
    return skipUniqueKeys(reader) ?? reader.pause();
  };
  return repeat(skipMember, () => reader.nextMember());
}

function skipArray(reader: JsonReader): Rest {
  if (!reader.openArray()) return undefined;
  const skipElement = () => skipUniqueKeys(reader) ?? reader.pause();
  return repeat(skipElement, () => reader.nextElement());
}
