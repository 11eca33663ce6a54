import { randomUUID } from "node:crypto";
import type { Provider } from "oidc-provider";
import { epochSeconds } from "../../clock.ts";
import { addressKey } from "../../identity/throttle.ts";
import { Refusal } from "../../refusal.ts";
import {
  ClientMetadataError,
  clientRecord,
  isClientRedirect,
  readClientMetadata,
} from "./client-metadata.ts";
import { parseAccountId } from "./connections.ts";
import type { Endpoint } from "./endpoints.ts";
import { OAuthProblem, readForm, readJson, sendJson, tooMany } from "./http.ts";
import type { AuthorizationServerOptions } from "./options.ts";
import { lifetimes } from "./protocol.ts";
import { addressLimit } from "./rate-limit.ts";
import type { ClientBounds, StateStore } from "./state-store.ts";
import type { AccessTokens, GrantedToken } from "./tokens.ts";

/** How many registered clients are kept at one time. */
export const clientBounds: ClientBounds = { unused: 1000, used: 10_000 };

function readRequest(body: unknown, appSchemes: readonly string[]) {
  try {
    return readClientMetadata(body, (uri) => isClientRedirect(uri, appSchemes));
  } catch (error) {
    if (!(error instanceof ClientMetadataError)) throw error;
    throw new OAuthProblem(400, error.code, error.message);
  }
}

/** Takes registrations (RFC 7591) of public clients, within its bounds. */
export function createRegistration(
  options: Pick<
    AuthorizationServerOptions,
    "originOf" | "onEvent" | "appSchemes" | "countRequests" | "registrationsPerHour"
  >,
  store: Pick<StateStore, "makeRoom" | "put">,
): Endpoint {
  const { originOf, onEvent, appSchemes, countRequests, registrationsPerHour } = options;
  const limit = addressLimit(countRequests, "registrations", {
    perAddress: registrationsPerHour,
    perSharedAddress: registrationsPerHour * 10,
    window: 3600,
  });
  return async (request, response) => {
    const origin = originOf(request);
    const wait = await limit(origin);
    if (wait > 0) throw tooMany("too many registrations", wait);
    const metadata = readRequest(await readJson(request), appSchemes);
    await store.makeRoom(clientBounds);
    const issuedAt = epochSeconds();
    const record = { ...clientRecord(randomUUID(), metadata), client_id_issued_at: issuedAt };
    await store.put("Client", record.client_id, {
      payload: JSON.stringify(record),
      grantId: undefined,
      uid: addressKey(origin.address),
      expires: issuedAt + lifetimes.unusedClient,
    });
    onEvent("oauth_registration", {
      client: record.client_id,
      client_name: record.client_name,
      redirect_uris: record.redirect_uris,
      address: origin.address,
    });
    sendJson(response, 201, record);
  };
}

interface RevocationContext {
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
 * Revokes (RFC 7009) what the client shows: an access token alone, or a refresh token with the whole grant
 * behind it. A token of another client, or of nobody, is answered the same and stays as it is.
 */
export function createRevocation(context: RevocationContext): Endpoint {
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
