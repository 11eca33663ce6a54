/** Values whose every object has each key once, so that all parsers read them alike. */

import type { JsonReader } from "./json-reader.ts";
import { quoteName } from "./refusal.ts";

/**
 * Reads past a value in whose objects, at any depth, no key stands twice after unescaping.
 *
 * Throws `QueryRefused` with `duplicate_key`, or for what is no JSON.
 */
export function skipUniqueKeys(reader: JsonReader): void {
  const kind = reader.kind();
  if (kind === "an object") skipObject(reader);
  else if (kind === "an array") skipArray(reader);
  else reader.skipValue();
}

function skipObject(reader: JsonReader): void {
  const keys = new Set<string>();
  for (let more = reader.openObject(); more; more = reader.nextMember()) {
    const start = reader.position;
    const key = reader.readKey().toString();
    if (keys.has(key)) {
      const problem = `the key ${quoteName(key)} is given twice; each may stand once`;
      throw reader.refusal("duplicate_key", problem, start);
    }
    keys.add(key);
    skipUniqueKeys(reader);
  }
}

function skipArray(reader: JsonReader): void {
  for (let more = reader.openArray(); more; more = reader.nextElement()) skipUniqueKeys(reader);
}
