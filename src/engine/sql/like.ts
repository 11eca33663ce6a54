import { sql } from "kysely";
import type { Fragment } from "./fragment.ts";

/** Like a pattern whose backslash is a backslash, where the server would take it as an escape. */
export function likeBackslash(column: Fragment, pattern: string): Fragment {
  return sql`${column} like ${pattern.replaceAll("\\", "\\\\")}`;
}

/** ASCII letters in lower case, all others as they are. */
export function foldAscii(text: string): string {
  return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}
