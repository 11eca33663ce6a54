import type { PermissionClass } from "../query/permissions.ts";
import { isExternalUsername } from "./identifiers.ts";
import type { Denial } from "./rights.ts";
import { EVERY_DATABASE } from "./roles.ts";
import type { Snapshot } from "./snapshot.ts";

/** A caller: the user, and the database that the token is limited to (`*` for no limit). */
export interface Subject {
  readonly username: string;
  readonly tokenDatabase: string;
  /** True if the token is read-only. */
  readonly tokenReadOnly?: boolean;
}

/** Why a token denies a right on a database, regardless of the user's entries. */
export function judgeToken(
  { tokenDatabase, tokenReadOnly }: Subject,
  permission: PermissionClass,
  database: string,
): Denial | undefined {
  if (tokenDatabase !== EVERY_DATABASE && tokenDatabase !== database) return "token_database";
  return tokenReadOnly === true && permission !== "SELECT" ? "token_read_only" : undefined;
}

/** As `judgeToken`, and denies a database that the file spells in another case. */
export function judgeName(
  snapshot: Snapshot,
  subject: Subject,
  permission: PermissionClass,
  database: string,
): Denial | undefined {
  const known = snapshot.databases.get(database.toLowerCase());
  const isOther = known !== undefined && known !== database;
  return (
    judgeToken(subject, permission, database) ?? (isOther ? "database_case_mismatch" : undefined)
  );
}

/** Why a user is denied everything, regardless of entries. Undefined if nothing prevents access. */
export function obstacleOf(
  { users }: Snapshot,
  username: string,
): "user_not_found" | "user_disabled" | undefined {
  const user = users.get(username);
  // External users need no record: their own authorization server knows them.
  if (user === undefined && !isExternalUsername(username)) return "user_not_found";
  return user?.disabled ? "user_disabled" : undefined;
}
