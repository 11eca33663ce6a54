import type { PermissionClass } from "../query/permissions.ts";
import { isExternalUsername } from "./identifiers.ts";
import type { Denial } from "./rights.ts";
import { EVERY_DATABASE } from "./roles.ts";
import type { Snapshot } from "./snapshot.ts";

/** Who asks: a user, and the database its token is limited to (`*` for no limit). */
export interface Subject {
  readonly username: string;
  readonly tokenDatabase: string;
  /** True if its token is limited to reading. */
  readonly tokenReadOnly?: boolean;
}

/** Why a token does not open a right on a database, whatever its user may do there. */
export function judgeToken(
  { tokenDatabase, tokenReadOnly }: Subject,
  permission: PermissionClass,
  database: string,
): Denial | undefined {
  if (tokenDatabase !== EVERY_DATABASE && tokenDatabase !== database) return "token_database";
  return tokenReadOnly === true && permission !== "SELECT" ? "token_read_only" : undefined;
}

/** The same, and why a database cannot be meant: the file names it in another case. */
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

/** Why a user can do nothing at all, whatever its entries say; undefined if nothing is in the way. */
export function obstacleOf(
  { users }: Snapshot,
  username: string,
): "user_not_found" | "user_disabled" | undefined {
  const user = users.get(username);
  // External users need no record: their own authorization server knows them.
  if (user === undefined && !isExternalUsername(username)) return "user_not_found";
  return user?.disabled ? "user_disabled" : undefined;
}
