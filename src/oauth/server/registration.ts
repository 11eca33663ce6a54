import { randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { epochSeconds } from "../../clock.ts";
import { addressKey } from "../../identity/throttle.ts";
import { ClientMetadataError, clientRecord, readClientMetadata } from "./client-metadata.ts";
import { OAuthProblem, readJson, sendJson, tooMany } from "./http.ts";
import { lifetimes } from "./lifetimes.ts";
import type { AuthorizationServerOptions } from "./options.ts";
import { isClientRedirect } from "./redirects.ts";
import type { ClientBounds, StateStore } from "./state-store.ts";

/** How many registered clients are kept at one time. */
export const clientBounds: ClientBounds = { unused: 1000, used: 10_000 };

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
  options: Pick<
    AuthorizationServerOptions,
    "originOf" | "onEvent" | "appSchemes" | "openLimit" | "registrationsPerHour"
  >,
  store: Pick<StateStore, "makeRoom" | "put">,
): Registration {
  const { originOf, onEvent, appSchemes, openLimit, registrationsPerHour } = options;
  const limit = openLimit("registrations", {
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
    const record = {
      ...clientRecord(randomUUID(), metadata),
      client_id_issued_at: issuedAt,
    };
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
