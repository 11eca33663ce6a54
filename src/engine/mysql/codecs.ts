import { sql } from "kysely";
import { decodeBase64 } from "../sql/base64.ts";
import { cellText, withoutSpace } from "../sql/cell-text.ts";
import type { Fragment } from "../sql/fragment.ts";
import type { PresentValue } from "../sql/scope.ts";
import type { Codec } from "./codec.ts";
import { signed } from "./typed.ts";

/** `true` and `false`, also `1` and `0`; other numbers that a column holds stay numbers. */
export const booleans: Codec = {
  store(value) {
    if (value === true || value === 1) return signed(1n);
    return value === false || value === 0 ? signed(0n) : undefined;
  },
  encode: (raw) => (raw === 0 || raw === 1 ? String(raw === 1) : String(raw)),
};

/** Strings that `takes` allows: MySQL would cut others, or make something else of them. */
export function strings(takes: (text: string) => boolean = () => true): Codec {
  return {
    store: (value) => (typeof value === "string" && takes(value) ? value : undefined),
    compare: (value) => (typeof value === "string" ? value : undefined),
    encode: (raw) => JSON.stringify(raw),
  };
}

/** Strings of one form, which `read` turns into MySQL's own, of a type to compare as. */
export function formed(
  read: (text: string) => string | undefined,
  castAs: Fragment | undefined,
  write: (text: string) => string = (text) => text,
): Codec {
  const store = (value: PresentValue): string | undefined =>
    typeof value === "string" ? read(value) : undefined;
  return {
    store,
    compare(value) {
      const text = store(value);
      return text === undefined || castAs === undefined ? text : sql`cast(${text} as ${castAs})`;
    },
    encode: (raw) => JSON.stringify(write(String(raw))),
  };
}

/** Bytes as base64 text; a column of a fixed length would be filled up with zeros. */
export function bytes(fixedLength?: number): Codec {
  return {
    store(value) {
      const decoded = decodeBase64(value);
      const fits = fixedLength === undefined || decoded?.length === fixedLength;
      return fits ? decoded : undefined;
    },
    compare: decodeBase64,
    encode: (raw) => JSON.stringify(Buffer.isBuffer(raw) ? raw.toString("base64") : raw),
  };
}

/** JSON that is held as text, so that it keeps its digits and the order of its keys. */
export const documents: Codec = { store: cellText, encode: (raw) => withoutSpace(String(raw)) };

/** MySQL's own JSON. */
export const nativeDocuments: Codec = {
  ...documents,
  compare: (value) => sql`cast(${cellText(value)} as json)`,
};

/** Values that can only be read. */
export const unknown: Codec = {
  store: () => undefined,
  encode: (raw) => JSON.stringify(Buffer.isBuffer(raw) ? raw.toString("base64") : raw),
};
