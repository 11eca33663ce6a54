import { decidePlace } from "../access/place-decision.ts";
import { roleAllows, roles } from "../access/roles.ts";
import type { Snapshot } from "../access/snapshot.ts";
import type { ReadLine } from "../observe/audit-filter.ts";
import { definitions, isOperationName } from "../query/operations.ts";
import type { PermissionClass } from "../query/permissions.ts";

/** What a grant lifts. */
const liftable: ReadonlySet<string | undefined> = new Set([
  ...["no_grant", "role_insufficient", "grant_expired", "batch_member_denied"],
]);

/** A grant by which something would pass that was denied. */
export interface DraftedGrant {
  readonly user: string;
  readonly database: string;
  readonly table: string | undefined;
  readonly role: string;
}

/** The rights that an operation needs; a Preview those of whichever change it may hold. */
function rightsOf(operation: string): readonly PermissionClass[] {
  if (!isOperationName(operation)) return [];
  const { permissions, effect } = definitions[operation];
  return effect === "previews" ? [...permissions, "UPDATE"] : permissions;
}

/**
 * The least grant for the first thing that a line says was denied and that still would be; undefined
 * if no grant would help.
 */
export function draftGrant(snapshot: Snapshot, line: ReadLine): DraftedGrant | undefined {
  const { user, decision, reason, via, client } = line;
  if (user === undefined || decision !== "deny" || !liftable.has(reason)) return undefined;
  const context = { via: via === "mcp" ? "mcp" : "query", client, now: Date.now() } as const;
  for (const { operation, database, tables } of line.operations) {
    const permissions = rightsOf(operation);
    const role = roles.findLast((one) => permissions.every((right) => roleAllows(one, right)));
    if (permissions.length === 0 || role === undefined) continue;
    // Making and dropping tables are rights on the database.
    const isOfTables = role === "ReadOnly" || role === "ReadWrite";
    for (const table of isOfTables && tables.length > 0 ? tables : [undefined]) {
      const place = { permissions, database, table };
      const now = decidePlace(snapshot, user, place, context);
      const isLiftable = now.boundary === undefined && liftable.has(now.reason);
      if (!now.allowed && isLiftable) return { user, database, table, role };
    }
  }
  return undefined;
}
