import { AsyncLocalStorage } from "node:async_hooks";
import { randomBytes, randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { KoaContextWithOIDC, Provider } from "oidc-provider";
import { epochSeconds } from "../../../core/base/clock.ts";
import { createFormGuard } from "../../../core/base/html.ts";
import { Refusal } from "../../../core/base/refusal.ts";
import { addressKey, type LoginOrigin } from "../../../core/identity/throttle.ts";
import { StateUnavailable } from "./adapter.ts";
import { manageApplications } from "./applications.ts";
import { clientRecord, isClientRedirect, readClientMetadata } from "./client-documents.ts";
import { parseAccountId } from "./connections.ts";
import {
  addressLimit,
  isAbandoned,
  OAuthProblem,
  readForm,
  readJson,
  requireSmallBody,
  sendJson,
  tooMany,
  withWholeBody,
} from "./http.ts";
import { refusedAssertion } from "./id-jag.ts";
import { finishInteraction, interact, leadToClients } from "./interaction.ts";
import type { AuthorizationServerOptions, PageContext, Visit } from "./options.ts";
import { errorPage, pageHeaders } from "./pages.ts";
import { endpoints, issuerPath, lifetimes, metadataPaths, serverMetadata } from "./protocol.ts";
import { completeRequest, createProvider } from "./provider.ts";
import { finishSignIn, startSignIn } from "./sign-in.ts";
import { type AccessTokens, createAccessTokens, openSigningKeys } from "./tokens.ts";

type Endpoint = (request: IncomingMessage, response: ServerResponse) => Promise<void>;

/** Allows any origin, because these endpoints use no cookies. */
function open(endpoint: Endpoint): Endpoint {
  return async (request, response) => {
    response.setHeader("Access-Control-Allow-Origin", "*");
    if (request.method !== "OPTIONS") return endpoint(request, response);
    const headers = {
      "Access-Control-Allow-Methods": "GET, POST",
      "Access-Control-Allow-Headers": "Content-Type, MCP-Protocol-Version",
      "Access-Control-Max-Age": "3600",
    };
    response.writeHead(204, headers).end();
  };
}

/**
 * Restricts a page to navigation by a browser. A script that fetched it could read it and respond
 * for the user. This includes scripts of the same origin, which upstreams share. Programs other
 * than browsers send no Fetch Metadata.
 */
function page(endpoint: Endpoint): Endpoint {
  return async (request, response) => {
    const { "sec-fetch-site": site, "sec-fetch-mode": mode } = request.headers;
    if (site !== undefined && mode !== "navigate") {
      throw new OAuthProblem(403, "invalid_request", "scripts may not read this page");
    }
    await endpoint(request, response);
  };
}

/** Ends the route of paths with a variable last segment. The space keeps it distinct from paths. */
const below = " below";
const reads = ["GET", "HEAD"];
const readsAnywhere = [...reads, "OPTIONS"];
const forms = [...reads, "POST"];
const posts = ["POST", "OPTIONS"];

/** Any other path or spelling is a 404. */
function createRoutes(context: PageContext, accessTokens: AccessTokens) {
  const { provider, options } = context;
  const { issuer, originOf, countRequests } = options;
  const protocol: Endpoint = provider.callback();
  const metadata = open(async (_, response) =>
    sendJson(response, 200, serverMetadata(issuer, options.assertions !== undefined)),
  );
  // Each request is stored until its user responds.
  const limit = addressLimit(countRequests, "authorizations", 60, 60);
  const requireFew = async (request: IncomingMessage) => {
    const wait = await limit(originOf(request));
    if (wait > 0) throw tooMany("too many requests", wait);
  };
  const visit =
    (answer: (visit: Visit) => Promise<void>): Endpoint =>
    (request, response) =>
      answer({ ...context, request, response });
  const authorization: Endpoint = async (request, response) => {
    await requireFew(request);
    request.url = completeRequest(request.url ?? "");
    await protocol(request, response);
  };
  const finishing: Endpoint = (request, response) =>
    finishInteraction({ ...context, request, response }, () => protocol(request, response));
  const token: Endpoint = async (request, response) =>
    protocol(await withWholeBody(request), response);
  const signIn = visit(async (visit) => {
    await requireFew(visit.request);
    await startSignIn(visit);
  });
  const basePath = issuerPath(issuer);
  const routes: [path: string, methods: readonly string[], endpoint: Endpoint][] = [
    [endpoints.authorization, reads, page(authorization)],
    [`${endpoints.authorization}${below}`, reads, page(finishing)],
    [`${endpoints.interaction}${below}`, forms, page(visit(interact))],
    [endpoints.applications, forms, page(visit(manageApplications))],
    [`${endpoints.signIn}${below}`, reads, page(signIn)],
    [`${endpoints.callback}${below}`, reads, page(visit(finishSignIn))],
    [endpoints.token, posts, token],
    [endpoints.jwks, readsAnywhere, protocol],
    [endpoints.registration, posts, open(createRegistration(options))],
    [endpoints.revocation, posts, open(createRevocation(provider, accessTokens, options))],
  ];
  const table = new Map(
    routes.map(([path, methods, endpoint]) => [basePath + path, { methods, endpoint }]),
  );
  for (const path of metadataPaths(basePath)) {
    table.set(path, { methods: readsAnywhere, endpoint: metadata });
  }
  return table;
}

const variableSegment = /\/[A-Za-z0-9_-]{1,64}$/;

function findEndpoint(
  routes: ReturnType<typeof createRoutes>,
  { url = "", method = "" }: IncomingMessage,
): Endpoint {
  const [path = ""] = url.split("?");
  const route = routes.get(path) ?? routes.get(path.replace(variableSegment, below));
  if (route === undefined) throw new OAuthProblem(404, "not_found", "unknown path");
  if (route.methods.includes(method)) return route.endpoint;
  const allow = route.methods.join(", ");
  throw new OAuthProblem(405, "invalid_request", `the method must be ${allow}`, { Allow: allow });
}

export const clientBounds = { unused: 1000, used: 10_000 };

/** Dynamic registration of public clients (RFC 7591), with limits. */
function createRegistration(options: AuthorizationServerOptions): Endpoint {
  const { originOf, onEvent, countRequests, log } = options;
  const { app_schemes: schemes, registrations_per_hour: perHour } = options.configuration.mcp;
  const { store } = options.state;
  const limit = addressLimit(countRequests, "registrations", perHour, 3600);
  return async (request, response) => {
    const origin = originOf(request);
    const wait = await limit(origin);
    if (wait > 0) throw tooMany("too many registrations", wait);
    const isRedirect = (uri: string) => isClientRedirect(uri, schemes);
    const metadata = await readJson(request)
      .then((body) => readClientMetadata(body, isRedirect))
      .catch((error: unknown) => {
        if (error instanceof OAuthProblem) {
          const { code: outcome, message: reason } = error;
          log.info({ address: origin.address, reason }, "a registration was refused");
          onEvent("oauth_registration", { outcome, reason });
        }
        throw error;
      });
    await store.makeRoom(clientBounds);
    const issuedAt = epochSeconds();
    const record = { ...clientRecord(randomUUID(), metadata), client_id_issued_at: issuedAt };
    await store.put("Client", record.client_id, {
      payload: JSON.stringify(record),
      uid: addressKey(origin.address),
      expires: issuedAt + lifetimes.unusedClient,
    });
    onEvent("oauth_registration", {
      client: record.client_id,
      client_name: record.client_name,
      redirect_uris: record.redirect_uris,
    });
    sendJson(response, 201, record);
  };
}

/**
 * Token revocation (RFC 7009). An access token is revoked by itself, a refresh token together with
 * its grant. Foreign and unknown tokens get the same response and stay unchanged.
 */
function createRevocation(
  provider: Provider,
  accessTokens: AccessTokens,
  { state: { store }, onEvent }: AuthorizationServerOptions,
): Endpoint {
  function findAccessToken(token: string) {
    try {
      return accessTokens.read(token);
    } catch (error) {
      if (error instanceof Refusal) return undefined;
      throw error;
    }
  }

  async function revoke(token: string, clientId: string): Promise<void> {
    const accessToken = findAccessToken(token);
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
    const clientId = form.get("client_id") ?? "";
    if (token === undefined) throw new OAuthProblem(400, "invalid_request", "token is missing");
    // No caller may trigger the fetch of a client document here. The token itself names its client.
    const hasDocument = URL.parse(clientId)?.protocol === "https:";
    if (!hasDocument && (await provider.Client.find(clientId)) === undefined) {
      throw new OAuthProblem(401, "invalid_client", "unknown client");
    }
    await revoke(token, clientId);
    response.writeHead(200, { "Cache-Control": "no-store", "Content-Length": "0" });
    response.end();
  };
}

function eventFields({ oidc }: KoaContextWithOIDC) {
  const { AccessToken: token, Grant: grant, AuthorizationCode: code } = oidc.entities;
  const { accountId } = grant ?? code ?? {};
  return {
    client: oidc.client?.clientId,
    user: accountId === undefined ? undefined : parseAccountId(accountId).username,
    grant_type: oidc.params?.grant_type,
    token: token?.jti,
    ...refusedAssertion(oidc),
  };
}

/** Audits protocol events, and extends the lifetime of clients in use. */
function observeProvider(
  provider: Provider,
  { state: { store }, onEvent, log }: AuthorizationServerOptions,
): void {
  provider.on("grant.success", (ctx) => {
    const clientId = ctx.oidc.client?.clientId;
    if (clientId !== undefined) {
      store
        .keepClient(clientId, epochSeconds() + lifetimes.usedClient)
        .catch((error: unknown) =>
          log.warn({ err: error }, "the lifetime of a client was not extended"),
        );
    }
    onEvent("oauth_token", { ...eventFields(ctx), outcome: "allowed" });
  });
  provider.on("grant.error", (ctx, { error: outcome, error_detail: reason, cause }) => {
    const why =
      cause instanceof Refusal
        ? { detail: cause.detail ?? cause.code, cause: cause.token?.cause }
        : { reason };
    onEvent("oauth_token", { ...eventFields(ctx), outcome, ...why });
  });
  provider.on("grant.revoked", (ctx) => {
    onEvent("oauth_replay", { ...eventFields(ctx), outcome: "grant revoked" });
  });
}

function toProblem(error: unknown): OAuthProblem {
  if (error instanceof OAuthProblem) return error;
  if (error instanceof Refusal && error.status < 500) {
    return new OAuthProblem(error.status, error.code, error.message);
  }
  const isUnavailable =
    error instanceof StateUnavailable || (error instanceof Refusal && error.status === 503);
  if (!isUnavailable) return new OAuthProblem(500, "server_error", "internal error");
  const seconds = error instanceof Refusal ? (error.retryAfter ?? 1) : 1;
  const headers = { "Retry-After": String(seconds) };
  return new OAuthProblem(503, "temporarily_unavailable", error.message, headers);
}

export type AuthorizationServer = Awaited<ReturnType<typeof openAuthorizationServer>>;

/**
 * Opens the authorization server for the gateway's own users. It supports the authorization code
 * flow with PKCE for public clients, and issues tokens for one resource.
 *
 * @throws UnsafeFileError or the store's error if the state cannot be used
 */
export async function openAuthorizationServer(given: AuthorizationServerOptions) {
  const { issuer, log, state, countRequests, originOf } = given;
  const { store } = state;
  const keys = await openSigningKeys(state.keys);
  const requestOrigin = new AsyncLocalStorage<LoginOrigin>();
  const onEvent: typeof given.onEvent = (name, fields) => {
    given.onEvent(name, { ...fields, address: requestOrigin.getStore()?.address });
  };
  const options = { ...given, onEvent };
  // Each fetch of a client document loads a foreign server.
  const documentLimit = addressLimit(countRequests, "documents", 30, 60);
  const provider = createProvider(options, keys, {
    async mayFetch() {
      const origin = requestOrigin.getStore();
      return origin !== undefined && (await documentLimit(origin)) === 0;
    },
    onRefused(document, reason) {
      log.info({ document, reason }, "a client's document was refused");
      onEvent("oauth_client", { document, outcome: "refused", reason });
    },
  });
  observeProvider(provider, options);
  leadToClients(provider, options);
  const accessTokens = createAccessTokens({ issuer, store, log }, keys);
  const guard = createFormGuard(await store.secret("forms", randomBytes(32)));
  const routes = createRoutes({ provider, options, guard, store }, accessTokens);
  const { host, protocol } = new URL(issuer);

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    // The library must use the public address, not the request's headers.
    request.headers["x-forwarded-host"] = host;
    request.headers["x-forwarded-proto"] = protocol.replace(":", "");
    const endpoint = findEndpoint(routes, request);
    requireSmallBody(request);
    await requestOrigin.run(originOf(request), () => endpoint(request, response));
  }

  return {
    handle(request: IncomingMessage, response: ServerResponse): void {
      serve(request, response).catch((error: unknown) => {
        if (isAbandoned(request)) return;
        const { status, code, message: description, headers } = toProblem(error);
        if (status === 500) log.error({ err: error }, "the authorization server failed");
        const refusal = error instanceof StateUnavailable ? error.cause : error;
        // Why a provider is unreachable has been logged.
        const isNew = refusal instanceof Refusal && refusal.code !== "issuer_unreachable";
        if (status === 503 && isNew) {
          log.warn({ code: refusal.code, detail: refusal.detail }, "refused");
        }
        if (response.headersSent) response.destroy();
        else if (request.headers.accept?.includes("text/html")) {
          response.writeHead(status, { ...pageHeaders, ...headers });
          response.end(errorPage({ code, description }));
        } else {
          const body = { error: code, error_description: description };
          sendJson(response, status, body, headers);
        }
      });
    },
    /** @throws Refusal `token_invalid`, `token_expired` or `token_revoked` */
    verify: async (token: string) => accessTokens.verify(token),
  };
}
