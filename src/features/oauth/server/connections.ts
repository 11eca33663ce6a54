import type { AuthorizationDetail } from "oidc-provider";
import * as z from "zod";
import type { AccessRules } from "../../../core/access/access-rules.ts";
import type { Subject, User } from "../../../core/access/grant.ts";
import { effectiveGrants } from "../../../core/access/groups.ts";
import { roleInForce } from "../../../core/access/policy.ts";
import { EVERY_DATABASE, isDatabaseOrEvery } from "../../../core/access/roles.ts";
import type { Snapshot } from "../../../core/access/snapshot.ts";
import { epochSeconds } from "../../../core/base/clock.ts";
import { Refusal } from "../../../core/base/refusal.ts";
import { identify } from "../../../core/identity/authenticate.ts";
import type { Revocations } from "../../../core/identity/revocations.ts";
import { lifetimes, type McpScope, mcpScopes } from "./protocol.ts";
import type { StateStore } from "./state-store.ts";

const TYPE = "database_access";

const consentShape = z
  .object({
    type: z.literal(TYPE),
    database: z.string().refine(isDatabaseOrEvery),
    read_only: z.boolean(),
    app_name: z.string().default(""),
    by_provider: z.boolean().default(false),
  })
  .transform((detail) => ({
    database: detail.database,
    readOnly: detail.read_only,
    appName: detail.app_name,
    /** True if the identity provider has decided in the user's place. */
    byProvider: detail.by_provider,
  }));

/** The limits of a user's consent, stored with the grant as an authorization detail (RFC 9396). */
export type Consent = z.infer<typeof consentShape>;

export function toDetail(consent: Consent): AuthorizationDetail {
  const { database, readOnly, appName, byProvider } = consent;
  const detail = { type: TYPE, database, read_only: readOnly, app_name: appName };
  return byProvider ? { ...detail, by_provider: true } : detail;
}

/** Undefined if the consent of a grant is missing or malformed: such a grant allows nothing. */
export function readConsent(details: readonly unknown[] = []): Consent | undefined {
  return details.length === 1 ? consentShape.safeParse(details[0]).data : undefined;
}

export type Choice = ReturnType<typeof databaseChoices>[number];

/**
 * The databases that a user can choose from: those that an entry of the user opens now. With a
 * grant on `*`, also all others in the access file.
 */
export function databaseChoices(snapshot: Snapshot, subject: Pick<Subject, "username" | "groups">) {
  const grants = effectiveGrants(snapshot, subject);
  const names = new Set(grants.keys());
  if (grants.has(EVERY_DATABASE)) for (const name of snapshot.databases.values()) names.add(name);
  names.delete(EVERY_DATABASE);
  return [...names]
    .flatMap((database) => {
      const role = roleInForce(snapshot, subject, database);
      return role === undefined ? [] : { database, role };
    })
    .sort((a, b) => a.database.localeCompare(b.database));
}

export function knownScopes(scope: unknown): McpScope[] {
  const requested = typeof scope === "string" ? scope.split(" ") : [];
  return mcpScopes.filter((known) => requested.includes(known));
}

export type Connection = Awaited<ReturnType<typeof listConnections>>[number];

const grantShape = z.object({
  accountId: z.string(),
  clientId: z.string(),
  iat: z.number(),
  rar: z.array(z.unknown()),
});

/** Times are epoch seconds. */
export async function listConnections(store: StateStore, username?: string) {
  return (await store.grants(username))
    .flatMap(({ id, payload, renewed, called }) => {
      const { data: grant } = grantShape.safeParse(JSON.parse(payload));
      const consent = readConsent(grant?.rar);
      if (grant === undefined || consent === undefined) return [];
      const { accountId, clientId, iat } = grant;
      return {
        ...consent,
        grantId: id,
        accountId,
        username: parseAccountId(accountId).username,
        clientId,
        allowedAt: iat,
        /** Issue time of the newest refresh token. Undefined if none is left. */
        renewedAt: renewed,
        called,
      };
    })
    .filter((one) => username === undefined || one.username === username)
    .sort((one, other) => other.allowedAt - one.allowedAt);
}

/** True while the app has access, or can renew it without the user. */
export function isConnected(
  context: AccountContext,
  { accountId, allowedAt, renewedAt }: Connection,
): boolean {
  if (findUser(context, accountId, allowedAt) === undefined) return false;
  return renewedAt !== undefined || allowedAt + lifetimes.accessToken > epochSeconds();
}

const GRANT_PREFIX_LENGTH = 22;

/** The start of an access token id. Commands would take a leading hyphen for an option. */
function grantPrefix(id: string): string {
  return id.slice(0, GRANT_PREFIX_LENGTH).replace(/^-/, "_");
}

/** The id of an access token under a grant. @param random 43 characters */
export function tokenIdIn(grantId: string, random: string): string {
  return grantPrefix(grantId) + random.slice(GRANT_PREFIX_LENGTH);
}

export function isTokenUnder({ grantId }: Pick<Connection, "grantId">, tokenId: string): boolean {
  return grantPrefix(tokenId) === grantPrefix(grantId);
}

/** The user with the credential of the login, so that a password change ends what refers to it. */
export function formatAccountId(username: string, credential: string): string {
  return `${username}:${credential}`;
}

export function parseAccountId(id: string): { username: string; credential: string } {
  const at = id.lastIndexOf(":");
  return { username: id.slice(0, at), credential: id.slice(at + 1) };
}

export interface AccountContext {
  readonly access: Pick<AccessRules, "snapshot">;
  readonly revocations: Revocations;
}

/** Undefined if the login has ended. @param issuedAt epoch seconds; absent for a new login */
export function findUser(
  { access, revocations }: AccountContext,
  accountId: string,
  issuedAt = Number.POSITIVE_INFINITY,
): User | undefined {
  const account = parseAccountId(accountId);
  try {
    const user = identify(access.snapshot, revocations, { ...account, tokenId: "", issuedAt });
    // A user whose password was removed has the credential of no login.
    return account.credential === "" ? undefined : user;
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) return undefined;
    throw error;
  }
}
