import { blankUser, type Snapshot } from "../access/snapshot.ts";
import type { Exchange } from "../gateway/exchange.ts";
import {
  type Authenticated,
  claimedIssuer,
  externalCaller,
  identify,
  readBearerToken,
  requireUnexpired,
} from "../identity/authenticate.ts";
import type { ExternalToken } from "../identity/external-token.ts";
import type { Issuers } from "../identity/issuers.ts";
import type { Revocations } from "../identity/revocations.ts";
import { signInOf } from "../identity/sign-in.ts";
import type { TokenAuthority } from "../identity/token.ts";
import type { SignIns } from "../oauth/client/sign-ins.ts";
import { type McpScope, mcpScopes } from "../oauth/server/protocol.ts";
import type { AuthorizationServer } from "../oauth/server/server.ts";
import type { AccessToken } from "../oauth/server/tokens.ts";
import { Refusal } from "../refusal.ts";

export interface Principal extends Authenticated {
  readonly scopes: ReadonlySet<McpScope>;
  readonly noteCall?: ((tool: string) => void) | undefined;
}

/** The principal of all callers while authentication is off. */
const anonymous: Principal = {
  subject: { username: "", tokenDatabase: "*" },
  scopes: new Set(mcpScopes),
  tokenId: "",
  expiresAt: Number.POSITIVE_INFINITY,
  identify: () => blankUser(""),
};

export const principals = new WeakMap<Exchange, Principal>();

export function principalOf(exchange: Exchange): Principal {
  return principals.get(exchange) ?? anonymous;
}

type OwnToken = Omit<AccessToken, "clientId" | "noteCall"> & Partial<AccessToken>;

export interface PrincipalSources {
  readonly tokens: TokenAuthority;
  readonly loginIssuer: string;
  readonly authorizationServer:
    | (Pick<AuthorizationServer, "verify"> & { readonly issuer: string })
    | undefined;
  /** Undefined if none are configured. */
  readonly issuers: Issuers | undefined;
  /** Undefined without sign-in through a provider. */
  readonly signIns: Pick<SignIns, "current" | "requireUnchanged"> | undefined;
  readonly snapshot: () => Snapshot;
  readonly revocations: Revocations;
}

async function ownPrincipal(sources: PrincipalSources, token: OwnToken): Promise<Principal> {
  const identifyOwn = (snapshot: Snapshot) => {
    requireUnexpired(token);
    token.requireStillGranted();
    return identify(snapshot, sources.revocations, token);
  };
  identifyOwn(sources.snapshot());
  const { username, credential, database: tokenDatabase, readOnly: tokenReadOnly } = token;
  const { scopes, tokenId, clientId: client, expiresAt, noteCall } = token;
  const isSignIn = signInOf(credential) !== undefined;
  const signedIn = isSignIn ? await sources.signIns?.current(credential, username) : undefined;
  // Without its groups, a token could have more rights than with them.
  if (isSignIn && signedIn === undefined)
    throw new Refusal("token_revoked", { detail: "no sign-in" });
  return {
    subject: { username, ...signedIn?.subject, tokenDatabase, tokenReadOnly },
    droppedGroups: signedIn?.droppedGroups ?? 0,
    scopes,
    tokenId,
    client,
    expiresAt,
    noteCall,
    identify(snapshot) {
      const user = identifyOwn(snapshot);
      if (signedIn !== undefined) sources.signIns?.requireUnchanged(signedIn);
      return user;
    },
  };
}

function externalPrincipal(sources: PrincipalSources, token: ExternalToken): Principal {
  const caller = externalCaller(sources.snapshot(), sources.revocations, token);
  return { ...caller, scopes: new Set(mcpScopes.filter((scope) => token.scopes.has(scope))) };
}

/** @throws Refusal with one of the 401 codes, `no_grant`, `groups_unavailable` or `issuer_unreachable` */
export async function authenticatePrincipal(
  sources: PrincipalSources,
  header: string | undefined,
): Promise<Principal> {
  const token = readBearerToken(header);
  const issuer = claimedIssuer(token);
  const { authorizationServer, issuers } = sources;
  if (issuer === sources.loginIssuer) {
    // A login token has all rights of its user until it is revoked.
    const unlimited = { readOnly: false, scopes: new Set(mcpScopes), requireStillGranted() {} };
    return ownPrincipal(sources, { ...sources.tokens.verify(token), ...unlimited });
  }
  if (authorizationServer !== undefined && issuer === authorizationServer.issuer) {
    return ownPrincipal(sources, await authorizationServer.verify(token));
  }
  if (issuers !== undefined) return externalPrincipal(sources, await issuers.verify(token, "mcp"));
  const detail = issuer === undefined ? "no_jwt" : "unknown_issuer";
  throw new Refusal("token_invalid", { detail, token: {} });
}
