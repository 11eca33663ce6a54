import { sql } from "kysely";
import type { Fragment } from "./fragment.ts";

/** Like a pattern whose backslash is a backslash, where the server would take it as an escape. */
export function likeBackslash(column: Fragment, pattern: string): Fragment {
  return sql`${column} like ${pattern.replaceAll("\\", "\\\\")}`;
}
