import { decodeJwt } from "jose/jwt/decode";
import { grantsFor } from "../access/groups.ts";
import type { Subject } from "../access/roles.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { epochSeconds } from "../clock.ts";
import { identify, readBearerToken } from "../identity/authenticate.ts";
import type { Revocations } from "../identity/revocations.ts";
import type { TokenAuthority } from "../identity/token.ts";
import { memoize } from "../memoize.ts";
import type { ExternalIssuers, ExternalToken } from "../oauth/external-issuers.ts";
import type { AccessToken, AuthorizationServer } from "../oauth/server/options.ts";
import { type McpScope, mcpScopes } from "../oauth/server/protocol.ts";
import { Refusal } from "../refusal.ts";

export interface Principal {
  readonly subject: Subject;
  readonly scopes: ReadonlySet<McpScope>;
  readonly tokenId: string;
  readonly clientId?: string | undefined;
  /** Epoch seconds. */
  readonly expiresAt: number;
  /** Checks the token again, for streams that stay open. @throws Refusal */
  requireStillGood(): void;
  readonly noteCall?: ((tool: string) => void) | undefined;
}

type OwnToken = Omit<AccessToken, "clientId" | "noteCall"> & Partial<AccessToken>;

export interface PrincipalSources {
  readonly tokens: TokenAuthority;
  readonly loginIssuer: string;
  readonly authorizationServer:
    | (Pick<AuthorizationServer, "verify"> & { readonly issuer: string })
    | undefined;
  /** Undefined if tokens come from the embedded server. */
  readonly externalIssuers: ExternalIssuers | undefined;
  readonly snapshot: () => Snapshot;
  readonly revocations: Revocations;
}

/** The unverified issuer claim. It only selects the verifier. */
const claimedIssuer = memoize((token: string): string => {
  try {
    return decodeJwt(token).iss ?? "";
  } catch (cause) {
    throw new Refusal("token_invalid", { detail: "no JWT", cause });
  }
}, 256);

function requireUnexpired({ expiresAt }: { expiresAt: number }): void {
  if (expiresAt <= epochSeconds()) throw new Refusal("token_expired");
}

function ownPrincipal(sources: PrincipalSources, token: OwnToken): Principal {
  const requireStillGood = () => {
    requireUnexpired(token);
    token.requireStillGranted();
    identify(sources.snapshot(), sources.revocations, token);
  };
  requireStillGood();
  const { username, database: tokenDatabase, readOnly: tokenReadOnly } = token;
  const { scopes, tokenId, clientId, expiresAt, noteCall } = token;
  return {
    subject: { username, tokenDatabase, tokenReadOnly },
    scopes,
    tokenId,
    clientId,
    expiresAt,
    noteCall,
    requireStillGood,
  };
}

/** External users need a grant, but no record. @throws Refusal `token_revoked` or `no_grant` */
function requireExternalUser(sources: PrincipalSources, token: ExternalToken): void {
  const { user: username, tokenId, issuer, client, issuedAt } = token;
  const snapshot = sources.snapshot();
  const record = snapshot.users.get(username);
  const refusal = (code: "token_revoked" | "no_grant", detail: string) =>
    new Refusal(code, { detail, token: { issuer, user: username, tokenId, client } });
  if (record?.disabled) throw refusal("token_revoked", "disabled");
  if (record !== undefined && issuedAt <= record.tokensValidAfter) {
    throw refusal("token_revoked", "tokens_valid_after");
  }
  if (sources.revocations.isRevoked({ username, tokenId, issuedAt })) {
    throw refusal("token_revoked", "revoked");
  }
  if (grantsFor(snapshot, { username }).size === 0) throw refusal("no_grant", "no_grant");
}

function externalPrincipal(sources: PrincipalSources, token: ExternalToken): Principal {
  const requireStillGood = () => {
    requireUnexpired(token);
    requireExternalUser(sources, token);
  };
  requireStillGood();
  return {
    subject: { username: token.user, tokenDatabase: "*" },
    scopes: new Set(mcpScopes.filter((scope) => token.scopes.has(scope))),
    tokenId: token.tokenId,
    clientId: token.client,
    expiresAt: token.expiresAt,
    requireStillGood,
  };
}

/** @throws Refusal with one of the 401 codes, `no_grant` or `issuer_unreachable` */
export async function authenticatePrincipal(
  sources: PrincipalSources,
  header: string | undefined,
): Promise<Principal> {
  const token = readBearerToken(header);
  const issuer = claimedIssuer(token);
  const { authorizationServer, externalIssuers } = sources;
  if (issuer === sources.loginIssuer) {
    // A login token has all rights of its user until it is revoked.
    const unlimited = { readOnly: false, scopes: new Set(mcpScopes), requireStillGranted() {} };
    return ownPrincipal(sources, { ...sources.tokens.verify(token), ...unlimited });
  }
  if (issuer === authorizationServer?.issuer) {
    return ownPrincipal(sources, await authorizationServer.verify(token));
  }
  if (externalIssuers?.knows(issuer)) {
    return externalPrincipal(sources, await externalIssuers.verify(issuer, token));
  }
  throw new Refusal("token_invalid", { detail: "unknown_issuer", token: {} });
}
