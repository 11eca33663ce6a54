import type { IncomingMessage, ServerResponse } from "node:http";
import type { Provider } from "oidc-provider";
import { Refusal } from "../../refusal.ts";
import { parseAccountId } from "./accounts.ts";
import { OAuthProblem, readForm } from "./http.ts";
import type { AuthorizationServerOptions } from "./options.ts";
import type { StateStore } from "./state-store.ts";
import type { AccessTokens, GrantedToken } from "./tokens.ts";

/** Takes revocations (RFC 7009). */
export type Revocation = (request: IncomingMessage, response: ServerResponse) => Promise<void>;

/** What a revocation works on. */
export interface RevocationContext {
  readonly provider: Provider;
  readonly store: StateStore;
  readonly accessTokens: AccessTokens;
  readonly onEvent: AuthorizationServerOptions["onEvent"];
}

/** The token's content if it is an access token of this server that still lives. */
function findAccessToken(accessTokens: AccessTokens, token: string): GrantedToken | undefined {
  try {
    return accessTokens.verify(token);
  } catch (error) {
    if (error instanceof Refusal) return undefined;
    throw error;
  }
}

/**
 * True if there is such a client. One that is named by its document is believed without it: whose
 * a token is, the token says, and nobody is to cause a fetch here.
 */
async function isClient(provider: Provider, clientId: string): Promise<boolean> {
  if (URL.parse(clientId)?.protocol === "https:") return true;
  return (await provider.Client.find(clientId)) !== undefined;
}

/**
 * Revokes what the client shows: an access token alone, or a refresh token with the whole grant
 * behind it. A token of another client, or of nobody, is answered the same and stays as it is.
 */
export function createRevocation(context: RevocationContext): Revocation {
  const { provider, store, accessTokens, onEvent } = context;

  async function revoke(token: string, clientId: string): Promise<void> {
    const accessToken = findAccessToken(accessTokens, token);
    if (accessToken?.clientId === clientId) {
      const { tokenId, expiresAt, username } = accessToken;
      await store.revokeToken(tokenId, expiresAt);
      onEvent("oauth_revocation", { user: username, client: clientId, token: "access" });
      return;
    }
    const refreshToken = await provider.RefreshToken.find(token);
    if (refreshToken?.clientId !== clientId || refreshToken.grantId === undefined) return;
    await store.endGrant(refreshToken.grantId);
    const { username } = parseAccountId(refreshToken.accountId);
    onEvent("oauth_revocation", { user: username, client: clientId, token: "refresh" });
  }

  return async (request, response) => {
    const form = await readForm(request);
    const token = form.get("token");
    const clientId = form.get("client_id");
    if (token === undefined) throw new OAuthProblem(400, "invalid_request", "token is missing");
    if (clientId === undefined || !(await isClient(provider, clientId))) {
      throw new OAuthProblem(401, "invalid_client", "the client is not known");
    }
    await revoke(token, clientId);
    response.writeHead(200, { "Cache-Control": "no-store", "Content-Length": "0" });
    response.end();
  };
}
