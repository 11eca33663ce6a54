import { type RawBuilder, sql } from "kysely";

/** A piece of SQL whose names are quoted and whose values are bound by the builder. */
export type Fragment = RawBuilder<unknown>;

/** Like a pattern whose backslash is a backslash, where the server would take it as an escape. */
export function likeBackslash(column: Fragment, pattern: string): Fragment {
  return sql`${column} like ${pattern.replaceAll("\\", "\\\\")}`;
}
