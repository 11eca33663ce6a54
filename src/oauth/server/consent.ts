import type { AuthorizationDetail } from "oidc-provider";
import * as z from "zod";
import { isDatabaseOrEvery } from "../../access/records.ts";
import { EVERY_DATABASE } from "../../access/roles.ts";
import { grantOn, grantsOf, type Snapshot } from "../../access/snapshot.ts";
import { type McpScope, mcpScopes } from "../scopes.ts";

const TYPE = "database_access";

const consentShape = z.object({
  type: z.literal(TYPE),
  database: z.string().refine(isDatabaseOrEvery),
  read_only: z.boolean(),
  app_name: z.string().default(""),
});

/** How far a user has let a client go, kept with the grant as an authorization detail (RFC 9396). */
export interface Consent {
  /** The only database, or `*` for all that the user may use. */
  readonly database: string;
  readonly readOnly: boolean;
  /** What the client was called then. */
  readonly appName: string;
}

/** The consent as it is kept. */
export function toDetail({ database, readOnly, appName }: Consent): AuthorizationDetail {
  return { type: TYPE, database, read_only: readOnly, app_name: appName };
}

/** The consent of a grant; undefined if there is none, which then opens nothing. */
export function readConsent(details: readonly unknown[] = []): Consent | undefined {
  const parsed = consentShape.safeParse(details[0]);
  if (!parsed.success || details.length !== 1) return undefined;
  const { database, read_only, app_name } = parsed.data;
  return { database, readOnly: read_only, appName: app_name };
}

/** A database that a grant can be narrowed to, with the user's role there. */
export interface Choice {
  readonly database: string;
  readonly role: string;
}

/**
 * The databases that a user can choose from: those it has an entry for, and with an entry for
 * every database also those that the access file names.
 */
export function choicesOf(snapshot: Snapshot, username: string): Choice[] {
  const grants = grantsOf(snapshot, username);
  const names = new Set(grants.keys());
  if (grants.has(EVERY_DATABASE)) for (const name of snapshot.databases.values()) names.add(name);
  names.delete(EVERY_DATABASE);
  return Array.from(names, (database) => ({
    database,
    role:
      (grantOn(snapshot, username, database) ?? grantOn(snapshot, username, EVERY_DATABASE))
        ?.role ?? "",
  })).sort((a, b) => a.database.localeCompare(b.database));
}

/** The scopes of the resource among those that were asked for; others are not known here. */
export function knownScopes(scope: unknown): McpScope[] {
  const asked = typeof scope === "string" ? scope.split(" ") : [];
  return mcpScopes.filter((known) => asked.includes(known));
}
