import { blankUser, type Snapshot } from "../../core/access/snapshot.ts";
import { Refusal } from "../../core/base/refusal.ts";
import type { Exchange } from "../../core/http/exchange.ts";
import type { Gateway } from "../../core/http/gateway.ts";
import {
  type Authenticated,
  claimedIssuer,
  claimsLogin,
  type ExternalToken,
  externalCaller,
  identify,
  isOpaque,
  readBearerToken,
  requireValid,
} from "../../core/identity/authenticate.ts";
import { parseSignIn } from "../../core/identity/sign-in.ts";
import { findIssued } from "../../core/identity/token.ts";
import type { SignIns } from "../oauth/client/sign-ins.ts";
import { type McpScope, mcpScopes } from "../oauth/server/protocol.ts";
import type { AuthorizationServer } from "../oauth/server/server.ts";
import type { AccessToken } from "../oauth/server/tokens.ts";

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

/** Issuers of tokens for `/mcp` besides the gateway's login and external issuers. */
export interface TokenSources {
  /** Opens the embedded authorization server on first use. Undefined if external issuers replace it. */
  readonly authorizationServer: (() => Promise<AuthorizationServer>) | undefined;
  /** Undefined without sign-in through a provider. */
  readonly signIns: SignIns | undefined;
}

async function ownPrincipal(
  { access, revocations }: Gateway,
  signIns: SignIns | undefined,
  token: OwnToken,
): Promise<Principal> {
  const identifyOwn = (snapshot: Snapshot) => {
    requireValid(token);
    token.requireStillGranted();
    return identify(snapshot, revocations, token);
  };
  identifyOwn(access.snapshot);
  const { username, credential, database: tokenDatabase, readOnly: tokenReadOnly } = token;
  const { scopes, tokenId, clientId: client, expiresAt, noteCall } = token;
  const isSignIn = parseSignIn(credential) !== undefined;
  const signedIn = isSignIn ? await signIns?.current(credential, username) : undefined;
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
      if (signedIn !== undefined) signIns?.requireUnchanged(signedIn);
      return user;
    },
  };
}

function externalPrincipal({ access, revocations }: Gateway, token: ExternalToken): Principal {
  const caller = externalCaller(access.snapshot, revocations, token);
  return { ...caller, scopes: new Set(mcpScopes.filter((scope) => token.scopes.has(scope))) };
}

/** @throws Refusal with one of the 401 codes, `no_grant`, `groups_unavailable` or `issuer_unreachable` */
export async function authenticatePrincipal(
  gateway: Gateway,
  { authorizationServer, signIns }: TokenSources,
  header: string | undefined,
): Promise<Principal> {
  const token = readBearerToken(header);
  const issuer = claimedIssuer(token);
  const { configuration, tokens, inventory, issuers, publicUrl } = gateway;
  // A login token has all rights of its user until it is revoked, and so has an issued token.
  const unlimited = { readOnly: false, scopes: new Set(mcpScopes), requireStillGranted() {} };
  if (isOpaque(token)) {
    const issued = await findIssued(inventory, tokens.metrics, token);
    return ownPrincipal(gateway, signIns, { ...issued, ...unlimited });
  }
  if (claimsLogin(token, configuration.auth.issuer)) {
    return ownPrincipal(gateway, signIns, { ...tokens.verify(token), ...unlimited });
  }
  if (authorizationServer !== undefined && issuer === publicUrl) {
    const server = await authorizationServer();
    return ownPrincipal(gateway, signIns, await server.verify(token));
  }
  if (issuers !== undefined) return externalPrincipal(gateway, await issuers.verify(token, "mcp"));
  const detail = issuer === undefined ? "no_jwt" : "unknown_issuer";
  throw new Refusal("token_invalid", { detail, token: {} });
}
