import type { PermissionClass } from "../query/permissions.ts";
import { type DecidingEntry, fittingEntries, otherSpellingOf } from "./deciding-entry.ts";
import type { Decision, Denial, Objection, QueryOrigin } from "./decision.ts";
import type { Boundary, Limits } from "./grant.ts";
import { type EntryRole, outranks, roleAllows } from "./roles.ts";
import { grantsOf, type Snapshot } from "./snapshot.ts";
import { judgeName, type Subject } from "./subject.ts";
import { entriesIn, type UserGrants } from "./user-grants.ts";

/** Permission boundaries: which of them a query meets. */

/** A boundary as people call it: `mcp`, `mcp client=.. username=rita database=main`. */
export function boundaryName({ via, client, username, database }: Boundary): string {
  const parts = Object.entries({ client, username, database }).filter(
    ([, value]) => value !== undefined,
  );
  return [via, ...parts.map(([key, value]) => `${key}=${value}`)].join(" ");
}

function concerns(boundary: Boundary, username: string, { via, client }: QueryOrigin): boolean {
  return (
    boundary.via === via &&
    (boundary.client === undefined || boundary.client === client) &&
    (boundary.username === undefined || boundary.username === username)
  );
}

/** The boundaries for a user on a database, in whatever case that is written. */
export function boundariesFor(
  { boundaries }: Snapshot,
  username: string,
  database: string,
  context: QueryOrigin,
): readonly Boundary[] {
  if (boundaries.length === 0) return boundaries;
  const folded = database.toLowerCase();
  return boundaries.filter(
    (boundary) =>
      concerns(boundary, username, context) &&
      (boundary.database === undefined || boundary.database.toLowerCase() === folded),
  );
}

/** All that limits a user who comes this way: entries and boundaries, wherever they are for. */
export function rulesFor(
  snapshot: Snapshot,
  username: string,
  context: QueryOrigin,
): readonly Limits[] {
  if (!mayBeNarrowed(snapshot, username, context)) return [];
  const boundaries = snapshot.boundaries.filter((one) => concerns(one, username, context));
  return [...entriesIn(grantsOf(snapshot, username)), ...boundaries];
}

/**
 * True if a user's queries may be judged by more than a role on a database: then they have to be
 * scanned in detail. Looks nothing up but the user.
 */
export function mayBeNarrowed(snapshot: Snapshot, username: string, context: QueryOrigin): boolean {
  return (
    grantsOf(snapshot, username).isNarrowed ||
    (snapshot.boundaries.length > 0 &&
      snapshot.boundaries.some((boundary) => concerns(boundary, username, context)))
  );
}

/** Judges rights on a table or a database, by the entry that decides and the boundaries around it. */

/** A decision that says no. */
export interface DeniedDecision extends Decision {
  readonly reason: Denial;
}

/** A table, and the rights that are needed on it; on the database itself without one. */
export interface WantedRight {
  readonly table: string | undefined;
  readonly permissions: readonly PermissionClass[];
}

/** A right that is given, the entry that gives it, and all that fit there. */
export interface GivenRight extends WantedRight {
  readonly entry: DecidingEntry;
  readonly fitting: readonly DecidingEntry[];
}

/** Rights that are given on one database, and the boundaries around them. */
export interface GivenRights {
  readonly rights: readonly GivenRight[];
  readonly boundaries: readonly Boundary[];
}

function insufficient(permission: PermissionClass, where: string, role: EntryRole): Objection {
  const message = `${permission} is not among the rights of ${role} on ${where}`;
  return { reason: "role_insufficient", message };
}

/** The entry that decides on a table, in force and in this spelling, or why there is none. */
function requireEntry(
  grants: UserGrants,
  database: string,
  table: string | undefined,
  entry: DecidingEntry | undefined,
  now: number,
): DecidingEntry | Objection {
  const other = table === undefined ? undefined : otherSpellingOf(grants, database, table, now);
  if (other !== undefined) {
    const message = `The table ${table} differs by case alone from ${other.spelling}: write it so`;
    return { reason: "name_case_mismatch", message, entry: other.entry };
  }
  if (entry === undefined) {
    const where = table === undefined ? database : `${database}.${table}`;
    return { reason: "no_grant", message: `There is no grant for ${where}` };
  }
  if (!entry.isLapsed) return entry;
  const message = `The grant for ${entry.name} has expired: ask for a new one`;
  return { reason: "grant_expired", message, entry };
}

/** What is wrong with the use of some rights by a role and within boundaries, if anything is. */
function judgeRoles(
  permissions: readonly PermissionClass[],
  entry: DecidingEntry,
  boundaries: readonly Boundary[],
): Objection | undefined {
  const { role } = entry.grant;
  const lacking = permissions.find((permission) => !roleAllows(role, permission));
  if (lacking !== undefined) return { ...insufficient(lacking, entry.name, role), entry };
  for (const boundary of boundaries) {
    const most = boundary.role;
    if (most === undefined) continue;
    const beyond = permissions.find((permission) => !roleAllows(most, permission));
    if (beyond === undefined) continue;
    const name = boundaryName(boundary);
    return { ...insufficient(beyond, `what comes by ${name}`, most), entry, boundary: name };
  }
  return undefined;
}

/** The decision that an objection comes to. */
export function denied({ reason, message, entry, boundary }: Objection): DeniedDecision {
  return {
    allowed: false,
    reason,
    role: entry?.isLapsed ? "None" : entry?.grant.role,
    entry: entry?.name,
    message,
    ...(boundary === undefined ? {} : { boundary }),
  };
}

/** The rights on a database, if all are given, or the decision that denies them. */
export function judgeRights(
  snapshot: Snapshot,
  subject: Subject,
  database: string,
  wanted: readonly WantedRight[],
  context: QueryOrigin & { readonly now: number },
): GivenRights | DeniedDecision {
  const { username } = subject;
  for (const { permissions } of wanted) {
    for (const permission of permissions) {
      const reason = judgeName(snapshot, subject, permission, database);
      if (reason !== undefined)
        return { allowed: false, reason, role: undefined, entry: undefined };
    }
  }
  const grants = grantsOf(snapshot, username);
  const boundaries = boundariesFor(snapshot, username, database, context);
  const rights: GivenRight[] = [];
  for (const { table, permissions } of wanted) {
    const fitting = fittingEntries(grants, database, table, context.now);
    const entry = requireEntry(grants, database, table, fitting[0], context.now);
    if ("reason" in entry) return denied(entry);
    const objection = judgeRoles(permissions, entry, boundaries);
    if (objection !== undefined) return denied(objection);
    rights.push({ table, permissions, entry, fitting });
  }
  return { rights, boundaries };
}

/** The decision that says yes, by the narrowest of the roles that count. */
export function granted({ rights, boundaries }: GivenRights): Decision {
  let role = rights[0]?.entry.grant.role ?? "None";
  let names = rights[0]?.entry.name ?? "";
  for (const { entry } of rights) {
    if (outranks(role, entry.grant.role)) role = entry.grant.role;
  }
  if (rights.length > 1) names = [...new Set(rights.map(({ entry }) => entry.name))].join(", ");
  for (const { role: most = role } of boundaries) if (outranks(role, most)) role = most;
  return { allowed: true, reason: "allowed", role, entry: names };
}
