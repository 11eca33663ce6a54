/** The kinds of table in the access file, and which record is one of which. */

import type { Boundary, Grant, User } from "./grant.ts";
import { boundaryKeys, entryKeys } from "./limit-fields.ts";

function keysOf<Key extends string>(keys: Readonly<Record<Key, unknown>>): readonly Key[] {
  return Object.keys(keys) as Key[];
}

/** The kinds of table in the access file, and the keys that each may have. */
export const tables = {
  users: ["username", "email", "password_hash", "disabled", "tokens_valid_after", "attributes"],
  acl: ["username", "database", "role", ...keysOf(entryKeys)],
  boundaries: ["via", ...keysOf(boundaryKeys)],
} as const;
export type TableName = keyof typeof tables;

/** True for a table's name in the access file. */
export function isTableName(name: string | undefined): name is TableName {
  return name !== undefined && Object.hasOwn(tables, name);
}

/** A record of any table. */
export type AccessRecord = User | Grant | Boundary;

/** True for a user's record. */
export function isUser(record: AccessRecord): record is User {
  return "tokensValidAfter" in record;
}

/** True for a boundary. */
export function isBoundary(record: AccessRecord): record is Boundary {
  return "via" in record;
}

/** The table that a record is one of. */
export function tableOf(record: AccessRecord): TableName {
  return isUser(record) ? "users" : isBoundary(record) ? "boundaries" : "acl";
}
