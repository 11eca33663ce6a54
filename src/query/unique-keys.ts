/** Values whose every object has each key once, so that all parsers read them alike. */

import type { JsonReader } from "./json-reader.ts";
import { quoteName } from "./refusal.ts";
import { type Rest, repeat } from "./rest.ts";

/**
 * Reads past a value in whose objects, at any depth, no key stands twice after unescaping.
 *
 * Throws `QueryRefused` with `duplicate_key`, or for what is no JSON.
 */
export function skipUniqueKeys(reader: JsonReader): Rest {
  const kind = reader.kind();
  if (kind === "an object") return skipObject(reader);
  if (kind === "an array") return skipArray(reader);
  return reader.skipValue();
}

function skipObject(reader: JsonReader): Rest {
  if (!reader.openObject()) return undefined;
  const keys = new Set<string>();
  const skipMember = (): Rest => {
    const start = reader.position;
    const key = reader.readKey().toString();
    if (keys.has(key)) {
      const problem = `the key ${quoteName(key)} is given twice; each may stand once`;
      throw reader.refusal("duplicate_key", problem, start);
    }
    keys.add(key);
    return skipUniqueKeys(reader) ?? reader.pause();
  };
  return repeat(skipMember, () => reader.nextMember());
}

function skipArray(reader: JsonReader): Rest {
  if (!reader.openArray()) return undefined;
  const skipElement = () => skipUniqueKeys(reader) ?? reader.pause();
  return repeat(skipElement, () => reader.nextElement());
}
