import { randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { epochSeconds } from "../../clock.ts";
import { ClientMetadataError, clientRecord, readClientMetadata } from "./client-metadata.ts";
import { OAuthProblem, readJson, sendJson, tooMany } from "./http.ts";
import { lifetimes } from "./lifetimes.ts";
import type { AuthorizationServerOptions } from "./options.ts";
import { isClientRedirect } from "./redirects.ts";
import type { StateStore } from "./store.ts";

/** The bounds on registrations: clients kept at one time, and new ones from an address an hour. */
export const registrationBounds = {
  clients: 1000,
  perAddress: 20,
  /** From a front with everyone behind it. */
  perSharedAddress: 200,
  window: 3600,
} as const;

/** Takes registrations (RFC 7591) of public clients. */
export type Registration = (request: IncomingMessage, response: ServerResponse) => Promise<void>;

function readRequest(body: unknown, appSchemes: readonly string[]) {
  try {
    return readClientMetadata(body, (uri) => isClientRedirect(uri, appSchemes));
  } catch (error) {
    if (!(error instanceof ClientMetadataError)) throw error;
    throw new OAuthProblem(400, error.code, error.message);
  }
}

/** Opens registration, within its bounds. */
export function createRegistration(
  {
    originOf,
    onEvent,
    appSchemes,
    openLimit,
  }: Pick<AuthorizationServerOptions, "originOf" | "onEvent" | "appSchemes" | "openLimit">,
  store: Pick<StateStore, "count" | "put">,
): Registration {
  const limit = openLimit("registrations", registrationBounds);
  return async (request, response) => {
    const origin = originOf(request);
    const wait = await limit(origin);
    if (wait > 0) throw tooMany("too many registrations", wait);
    const metadata = readRequest(await readJson(request), appSchemes);
    if (store.count("Client") >= registrationBounds.clients) {
      throw new OAuthProblem(503, "temporarily_unavailable", "too many clients are registered");
    }
    const issuedAt = epochSeconds();
    const record = {
      ...clientRecord(randomUUID(), metadata),
      client_id_issued_at: issuedAt,
    };
    store.put("Client", record.client_id, {
      payload: JSON.stringify(record),
      grantId: undefined,
      uid: undefined,
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
