/** The access of a user by own entries, groups, expiry and boundaries together, place by place. */

import { isDeepStrictEqual } from "node:util";
import { type Place, placeName, splitPlace } from "../query/names.ts";
import { type PermissionClass, permissionClasses, tableRights } from "../query/permissions.ts";
import { entriesIn } from "./entries.ts";
import { limitsInWords, viewEntry } from "./entry-view.ts";
import { type EntryPoint, type Grant, groupOf, readHolder, userHolder } from "./grant.ts";
import { type Caller, effectiveGrants, isMeant } from "./groups.ts";
import {
  type AccessExplanation,
  type AccessQuestion,
  explainAccess,
  type QuestionContext,
  type QuestionSetting,
} from "./policy.ts";
import {
  boundaryName,
  decidingEntry,
  entriesInForce,
  type QueryOrigin,
  type Reason,
} from "./rights.ts";
import { EVERY_DATABASE } from "./roles.ts";
import { missingAttribute } from "./row-filter.ts";
import { accountObstacle, ownGrants, type Snapshot } from "./snapshot.ts";

type Obstacle = Exclude<Answer, "allowed">;

/** A database, table or pattern of a user. The most specific place decides. */
export interface EffectiveAccess extends Place {
  /** The rights that an operation may use here, also those that need approval. */
  readonly operations: readonly PermissionClass[];
  readonly requireApproval: readonly PermissionClass[];
  /** The limits of the deciding entry and of boundaries together. Absent if nothing is allowed. */
  readonly limits?: Grant;
  /** Absent if the row is the same for each way in. */
  readonly via?: EntryPoint;
  readonly client?: string;
  readonly entry: string;
  readonly boundary?: string;
  readonly reason?: Obstacle;
}

/** The rights of a place. Users cannot be managed over MCP. */
function permissionsFor({ table }: Place, { via }: QueryOrigin): readonly PermissionClass[] {
  return permissionClasses.filter(
    (permission) =>
      !(permission === "GRANT" && via === "mcp") &&
      (table === undefined || tableRights.includes(permission)),
  );
}

function accessVia(
  snapshot: Snapshot,
  caller: Caller,
  place: Place,
  origin: QueryOrigin,
  setting: QuestionSetting,
): EffectiveAccess | undefined {
  const { database, table } = place;
  const entry = decidingEntry(snapshot, caller, database, table, setting.now);
  if (entry === undefined) return undefined;
  const group = groupOf(readHolder(caller.username));
  const obstacle =
    (group === undefined ? accountObstacle(snapshot, caller.username) : undefined) ??
    (entry.isExpired ? undefined : missingAttribute(snapshot, caller, entry)?.reason);
  const where = { database, ...(table === undefined ? {} : { table }) };
  const none = { ...where, operations: [], requireApproval: [], entry: entry.name };
  if (obstacle !== undefined) return { ...none, reason: obstacle };
  const allowed = new Map<PermissionClass, AccessExplanation>();
  let denial: AccessExplanation | undefined;
  for (const permission of permissionsFor(place, origin)) {
    const question = { permissions: [permission], database, table };
    const decision = explainAccess(snapshot, caller, question, { ...origin, ...setting });
    if (decision.allowed) allowed.set(permission, decision);
    else denial ??= decision;
  }
  const [first] = allowed.values();
  if (first === undefined) {
    const { reason = "no_grant", boundary } = denial ?? {};
    const bound = boundary === undefined ? {} : { boundary };
    return { ...none, ...bound, ...(reason === "allowed" ? {} : { reason }) };
  }
  const waiting = [...allowed.values()].flatMap(({ approvals = [] }) => approvals);
  const needed = new Set(waiting.flatMap(({ permissions }) => permissions));
  return {
    ...where,
    operations: [...allowed.keys()],
    requireApproval: [...needed],
    ...(first.grant === undefined ? {} : { limits: first.grant }),
    entry: entry.name,
  };
}

function boundaryClients(snapshot: Snapshot, caller: Caller, database: string): QueryOrigin[] {
  const origins = new Map<string, QueryOrigin>();
  for (const { via, client, holder, database: bounded } of snapshot.boundaries) {
    if (client === undefined || (holder && !isMeant(snapshot, caller, holder))) continue;
    if (bounded !== undefined && bounded !== database) continue;
    origins.set(boundaryName({ via, client }), { via, client });
  }
  return [...origins.values()];
}

/** True if two ways in allow the same, apart from administration. */
function isAlike(one: EffectiveAccess, other: EffectiveAccess): boolean {
  const [rows, others] = [one, other].map(({ operations, ...row }) => ({
    ...row,
    operations: operations.filter((permission) => permission !== "GRANT"),
  }));
  return isDeepStrictEqual(rows, others);
}

/**
 * The access of a user or group at one place: a row for each way in, or one if they are equal. Empty
 * if no entry reaches the place.
 */
export function effectiveAt(
  snapshot: Snapshot,
  caller: Caller,
  place: Place,
  setting: QuestionSetting,
): EffectiveAccess[] {
  const query = accessVia(snapshot, caller, place, { via: "query" }, setting);
  if (query === undefined) return [];
  const mcp = accessVia(snapshot, caller, place, { via: "mcp" }, setting);
  const rows: EffectiveAccess[] =
    mcp === undefined || isAlike(query, mcp)
      ? [query]
      : [
          { ...query, via: "query" },
          { ...mcp, via: "mcp" },
        ];
  for (const origin of boundaryClients(snapshot, caller, place.database)) {
    const row = accessVia(snapshot, caller, place, origin, setting);
    const usual = origin.via === "mcp" ? mcp : query;
    if (row === undefined || (usual !== undefined && isAlike(row, usual))) continue;
    rows.push({ ...row, via: origin.via, ...(origin.client && { client: origin.client }) });
  }
  return rows;
}

/** The databases of boundaries that limit what a user has by entries for every database. */
function boundedDatabases(snapshot: Snapshot, caller: Caller): string[] {
  return snapshot.boundaries.flatMap(({ database, holder }) =>
    database === undefined || (holder && !isMeant(snapshot, caller, holder)) ? [] : [database],
  );
}

/** The access of a user or group to every place. A row for `*` applies to databases without rows. */
export function effectiveAccess(
  snapshot: Snapshot,
  caller: Caller,
  setting: QuestionSetting,
): EffectiveAccess[] {
  const { now } = setting;
  const grants = effectiveGrants(snapshot, caller, now);
  const bounded = new Set(grants.has(EVERY_DATABASE) ? boundedDatabases(snapshot, caller) : []);
  const databases = [...new Set([...grants.keys(), ...bounded])];
  return databases.flatMap((database) => {
    const inForce = entriesInForce(grants, database, now);
    const places = [...inForce.map(({ place }) => splitPlace(place))];
    // Entries for every database have rows of their own, unless a boundary is for this one.
    const own = bounded.has(database)
      ? places
      : places.filter((place) => place.database === database);
    const tables = new Set(own.map(({ table }) => table));
    return [...tables].flatMap((table) =>
      effectiveAt(snapshot, caller, { database, table }, setting),
    );
  });
}

/** A row as JSON, with the keys of the access file. */
export function viewEffective(row: EffectiveAccess): object {
  const { database, table, operations, via, client, entry, boundary, reason } = row;
  const limits = limitsInForce(row);
  const where = { database, role: undefined };
  const { database: _, role: __, ...keys } = limits ? viewEntry(limits) : where;
  return { database, table, operations, ...keys, via, client, entry, boundary, reason };
}

/** With the approvals that are needed here, without the approvers. */
function limitsInForce({ limits, requireApproval }: EffectiveAccess): Grant | undefined {
  if (limits === undefined) return undefined;
  const { requireApproval: _, approvers: __, ...others } = limits;
  return requireApproval.length > 0 ? { ...others, requireApproval } : others;
}

/** The limits of a row in words. Empty if it has none. */
export function effectiveLimits(row: EffectiveAccess): string {
  const limits = limitsInForce(row);
  return limits === undefined ? "" : limitsInWords(limits);
}

/** Such as `SELECT, INSERT`, or why nothing is allowed. */
export function operationsInWords({ operations, reason, boundary }: EffectiveAccess): string {
  if (operations.length > 0) return operations.join(", ");
  return `none (${boundary === undefined ? reason : `boundary ${boundary}`})`;
}

/** Such as `mcp`, or `any` for a row that is the same for each way in. */
export function wayInWords({ via, client }: EffectiveAccess): string {
  const way = via ?? "any";
  return client === undefined ? way : `${way} client=${client}`;
}

type Answer = Reason | "user_not_found" | "user_disabled";

export const answersInWords: Partial<Record<Answer, string>> = {
  no_grant: "there is no entry for this place or for *",
  role_insufficient: "the role does not include this",
  database_case_mismatch: "the access file spells this database in another case",
  grant_expired: "the entry has expired",
  not_narrowable: "the entry or a boundary limits it, which upstream.preset cannot keep",
  token_database: "the token is for another database",
  token_read_only: "the token is read-only",
  user_not_found: "the user does not exist",
  user_disabled: "the user is disabled",
};

function explain(answer: Answer, decided: AccessExplanation): string {
  const { role, entry, boundary, message = answer, grant } = decided;
  const deciding = `${role} by the entry for ${entry}`;
  if (answer === "allowed") {
    const limits = grant === undefined ? "" : limitsInWords(grant);
    return limits === "" ? deciding : `${deciding}; ${limits}`;
  }
  if (boundary !== undefined) return `${message} (a boundary)`;
  const explanation = answersInWords[answer] ?? message;
  return answer === "role_insufficient" ? `${explanation}: ${deciding}` : explanation;
}

/** Names the tables if the user has entries only for tables of the database. */
function tableHint(
  snapshot: Snapshot,
  username: string,
  { database, table }: AccessQuestion,
): string {
  const named = entriesIn(ownGrants(snapshot, userHolder(username)))
    .filter((grant) => table === undefined && grant.database === database)
    .flatMap(({ tables = [] }) => tables)
    .map((name) => placeName(database, name))
    .toArray();
  return named.length === 0 ? "" : `; there are entries for tables: ${named.join(", ")}`;
}

/** Answers whether a user or group may do something, and why, without a query. */
export function answerQuestion(
  snapshot: Snapshot,
  caller: Caller,
  question: AccessQuestion,
  context: QuestionContext,
) {
  const decided = explainAccess(snapshot, caller, question, context);
  const { username } = caller;
  const isGroup = groupOf(readHolder(username)) !== undefined;
  const obstacle = isGroup ? undefined : accountObstacle(snapshot, username);
  const reason: Answer = obstacle ?? decided.reason;
  const hint = reason === "no_grant" ? tableHint(snapshot, username, question) : "";
  const explanation = explain(reason, decided) + hint;
  return { decided, reason, allowed: reason === "allowed", explanation };
}
