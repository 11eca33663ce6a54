import { randomBytes } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { KoaContextWithOIDC, Provider } from "oidc-provider";
import { epochSeconds } from "../../clock.ts";
import { createFormGuard } from "../../pages/forms.ts";
import { Refusal } from "../../refusal.ts";
import { StateUnavailable } from "./adapter.ts";
import { manageApplications } from "./applications.ts";
import { createRegistration, createRevocation } from "./client-endpoints.ts";
import { parseAccountId } from "./connections.ts";
import { endpointRoutes, findRoute } from "./endpoints.ts";
import { isAbandoned, OAuthProblem, requireSmallBody, sendProblem } from "./http.ts";
import { interact } from "./interaction.ts";
import type { AuthorizationServer, AuthorizationServerOptions } from "./options.ts";
import { errorPage, pageHeaders } from "./pages/page.ts";
import { lifetimes, metadataPaths } from "./protocol.ts";
import { createProvider } from "./provider.ts";
import { DocumentLimit } from "./rate-limit.ts";
import type { StateStore } from "./state-store.ts";
import { CallNotes, createAccessTokens, openSigningKeys, verifyAccessToken } from "./tokens.ts";

function fieldsOf({ oidc }: KoaContextWithOIDC) {
  const { AccessToken: token, Grant: grant } = oidc.entities;
  const accountId = grant?.accountId;
  return {
    client: oidc.client?.clientId,
    user: accountId === undefined ? undefined : parseAccountId(accountId).username,
    grant_type: oidc.params?.grant_type,
    token: token?.jti,
  };
}

/** Tells the audit what the protocol has done, and keeps the clients that are in use. */
function observeProvider(
  provider: Provider,
  store: Pick<StateStore, "keepClient">,
  { onEvent, log }: Pick<AuthorizationServerOptions, "onEvent" | "log">,
): void {
  provider.on("grant.success", (ctx) => {
    const clientId = ctx.oidc.client?.clientId;
    if (clientId !== undefined) {
      store
        .keepClient(clientId, epochSeconds() + lifetimes.usedClient)
        .catch((error: unknown) => log.warn({ err: error }, "the end of a client was not put off"));
    }
    onEvent("oauth_token", { ...fieldsOf(ctx), outcome: "allowed" });
  });
  provider.on("grant.error", (ctx, error) => {
    const detail = error.error_detail;
    onEvent("oauth_token", { ...fieldsOf(ctx), outcome: error.error, reason: detail });
  });
  provider.on("grant.revoked", (ctx) => {
    onEvent("oauth_replay", { ...fieldsOf(ctx), outcome: "grant revoked" });
  });
}

/** Makes the library see the gateway's public address, whatever the request says of it. */
function setPublicAddress({ headers }: IncomingMessage, { host, protocol }: URL): void {
  headers["x-forwarded-host"] = host;
  headers["x-forwarded-proto"] = protocol.replace(":", "");
}

/** Answers what no endpoint could: with a page for a person, with JSON for a program. */
function sendFailure(
  request: IncomingMessage,
  response: ServerResponse,
  problem: OAuthProblem,
): void {
  if (response.headersSent) {
    response.destroy();
  } else if (request.headers.accept?.includes("text/html")) {
    response.writeHead(problem.status, { ...pageHeaders(undefined), ...problem.headers });
    response.end(errorPage({ code: problem.code, description: problem.message }));
  } else sendProblem(response, problem);
}

/** What is answered where something was thrown. */
function problemOf(error: unknown): OAuthProblem {
  if (error instanceof OAuthProblem) return error;
  const isUnavailable =
    error instanceof StateUnavailable || (error instanceof Refusal && error.status === 503);
  if (!isUnavailable) return new OAuthProblem(500, "server_error", "something went wrong");
  const headers = { "Retry-After": "1" };
  return new OAuthProblem(503, "temporarily_unavailable", error.message, headers);
}

/**
 * Opens the authorization server over the gateway's own users: authorization code with PKCE for
 * public clients, whose tokens open one resource.
 *
 * @throws KeyFileError, UnsafeFileError or the error of the state if it cannot be used
 */
export async function openAuthorizationServer(
  options: AuthorizationServerOptions,
): Promise<AuthorizationServer> {
  const { issuer, log, onEvent } = options;
  const { store } = options.state;
  const keys = await openSigningKeys(options.state.keys);
  const documentLimit = new DocumentLimit(options.countRequests);
  const provider = createProvider(options, { keys, store, documentLimit });
  observeProvider(provider, store, options);
  const accessTokens = createAccessTokens(options, keys);
  const guard = createFormGuard(await store.secret("forms", randomBytes(32)));
  const pages = { provider, options, guard, store };
  const calls = new CallNotes(store, log);
  const routes = endpointRoutes(options, {
    protocol: provider.callback(),
    interaction: (request, response) => interact(pages, request, response),
    applications: (request, response) => manageApplications(pages, request, response),
    registration: createRegistration(options, store),
    revocation: createRevocation({ provider, store, accessTokens, onEvent }),
  });
  const publicUrl = new URL(issuer);

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    setPublicAddress(request, publicUrl);
    const { endpoint } = findRoute(routes, request);
    requireSmallBody(request);
    await documentLimit.during(options.originOf(request), () => endpoint(request, response));
  }

  return {
    paths: [...metadataPaths, "/oauth/"],
    handle(request, response) {
      serve(request, response).catch((error: unknown) => {
        if (isAbandoned(request)) return;
        const problem = problemOf(error);
        if (problem.status === 500) log.error({ err: error }, "the authorization server failed");
        return sendFailure(request, response, problem);
      });
    },
    verify: async (token) => verifyAccessToken(accessTokens, store, calls, token),
  };
}
