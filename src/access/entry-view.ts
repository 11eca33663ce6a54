/** Entries by the keys of the file, one by one: as they are shown, and as they are asked for. */

import { Refusal } from "../refusal.ts";
import type { Grant, Literal } from "./grant.ts";
import { entryRoles, writtenEntry } from "./limit-fields.ts";
import { readGrant } from "./records.ts";
import type { EntryRole } from "./roles.ts";

/** An entry as the interface shows it: its database and role, and the other keys that it has. */
export interface EntryView {
  readonly database: string;
  readonly role: EntryRole;
  readonly [key: string]: unknown;
}

/** A value as `JSON.stringify` writes it to the last digit. */
function exactly(value: Literal): unknown {
  return typeof value === "bigint" ? JSON.rawJSON(value.toString()) : value;
}

/** A moment as RFC 3339 writes it, without a fraction that is nothing. */
export function writtenTime(epochMs: number): string {
  return new Date(epochMs).toISOString().replace(".000Z", "Z");
}

/** The entry, to be written as JSON, without whose it is. */
export function viewEntry(grant: Grant): EntryView {
  const { database, role, rowFilter, expires } = grant;
  const { username: _, ...entry } = writtenEntry(grant);
  return {
    ...entry,
    database,
    role,
    ...(rowFilter === undefined
      ? {}
      : {
          row_filter: rowFilter.map(({ column, cmp, value }) => ({
            column,
            cmp,
            value: typeof value === "object" ? value.map(exactly) : exactly(value),
          })),
        }),
    ...(expires === undefined ? {} : { expires: writtenTime(expires) }),
  };
}

/** Where an entry is: on a database (or `*`), or on one of its tables or patterns of tables. */
export interface EntryPlace {
  readonly username: string;
  readonly database: string;
  readonly table?: string | undefined;
}

/**
 * Reads the entry for a place.
 *
 * @param keys its role, and what else it says, by the keys of the file; times in RFC 3339
 * @throws Refusal `invalid_role`, or `invalid_entry` that says what is wrong
 */
export function readEntry(
  { username, database, table }: EntryPlace,
  keys: Readonly<Record<string, unknown>>,
): Grant {
  if (!entryRoles.some((role) => role === keys.role)) {
    const allowed = `${entryRoles.slice(0, -1).join(", ")} or ${entryRoles.at(-1)}`;
    throw new Refusal("invalid_role", { message: `Invalid role: ${allowed}` });
  }
  const tables = table === undefined ? {} : { tables: [table] };
  const reasons: string[] = [];
  const record = { ...keys, username, database, ...tables };
  const grant = readGrant(record, 0, ({ reason }) => reasons.push(reason));
  if (grant !== undefined && reasons.length === 0) return grant;
  throw new Refusal("invalid_entry", { message: `Invalid entry: ${reasons.join("; ")}` });
}
