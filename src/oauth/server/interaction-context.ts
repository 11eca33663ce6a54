import type { IncomingMessage, ServerResponse } from "node:http";
import type { Client, Provider } from "oidc-provider";
import type { FormGuard } from "../../pages/forms.ts";
import type { AuthorizationServerOptions } from "./options.ts";
import type { ClientView, KnownClient } from "./pages/client.ts";
import { pageHeaders } from "./pages/page.ts";
import type { StateStore } from "./state-store.ts";

/** An authorization request that waits for its user. */
type Interaction = Awaited<ReturnType<Provider["interactionDetails"]>>;

/** What the pages that a user meets work on. */
export interface InteractionContext {
  readonly provider: Provider;
  readonly options: AuthorizationServerOptions;
  readonly guard: FormGuard;
  readonly store: StateStore;
}

/** One visit of a user to an interaction. */
export interface Visit {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly interaction: Interaction;
  readonly client: Client;
  readonly view: ClientView;
}

/** A client as its users see it. */
export function describeClient(
  { clients }: Pick<AuthorizationServerOptions, "clients">,
  clientId: string,
  name: string | undefined,
): KnownClient {
  const documentUrl = URL.parse(clientId);
  const host = documentUrl?.protocol === "https:" ? documentUrl.host : undefined;
  return {
    name: name || host || "An app without a name",
    host,
    isConfigured: clients.some(({ client_id }) => client_id === clientId),
  };
}

/** Sends a page. @param redirectUri where a form of it leads at last, if to a client */
export function sendPage(
  response: ServerResponse,
  page: string,
  redirectUri?: string,
  status = 200,
  headers: Readonly<Record<string, string>> = {},
): void {
  response.writeHead(status, { ...pageHeaders(redirectUri), ...headers }).end(page);
}
