import { sql } from "kysely";
import type { Fragment } from "./fragment.ts";
import { type Conflict, namesSql } from "./target.ts";

/** What stands behind the values of an insert, in SQLite's words and PostgreSQL's. */
export function conflictSql(conflict: Conflict | undefined): Fragment {
  if (conflict === undefined) return sql``;
  const { key, update } = conflict;
  if (update.length === 0) return sql` on conflict (${namesSql(key)}) do nothing`;
  const sets = update.map(({ name }) => sql`${sql.id(name)} = ${sql.id("excluded", name)}`);
  return sql` on conflict (${namesSql(key)}) do update set ${sql.join(sets)}`;
}
