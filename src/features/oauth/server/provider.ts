import type { EventEmitter } from "node:events";
import type { IncomingMessage } from "node:http";
import {
  type Client,
  type Configuration,
  errors,
  interactionPolicy,
  type KoaContextWithOIDC,
  Provider,
} from "oidc-provider";
import { epochSeconds } from "../../../core/base/clock.ts";
import { isConfiguredRedirect } from "../../../core/config/addresses.ts";
import { createAdapter } from "./adapter.ts";
import {
  asLibraryFetch,
  clientRecord,
  createDocumentFetch,
  DOCUMENT_LIMITS,
  type DocumentRules,
  isClientRedirect,
  isLoopbackRedirect,
  KEY_IS_OPTIONAL,
  readClientDocument,
  readClientMetadata,
} from "./client-documents.ts";
import { findUser, knownScopes, parseAccountId, readConsent, tokenIdIn } from "./connections.ts";
import { isAbandoned, OAuthProblem } from "./http.ts";
import { findResource, registerAssertions } from "./id-jag.ts";
import type { AuthorizationServerOptions } from "./options.ts";
import { renderErrorPage, renderHeldRedirect } from "./pages.ts";
import {
  accessTokenLifetime,
  clientAlgorithms,
  clientAuthMethods,
  endpoints,
  issuerPath,
  lifetimes,
  mcpResource,
  mcpScopes,
  OFFLINE_ACCESS,
  SIGNING_ALGORITHM,
  sessionCookie,
} from "./protocol.ts";
import type { SigningKeys } from "./tokens.ts";

type DocumentRequests = Pick<DocumentRules, "mayFetch" | "onRefused">;

const { Check, Prompt } = interactionPolicy;

/** Refuses requests without a known scope before the user has to log in. */
const scopeCheck = new Check(
  "unknown_scope",
  "the scope must be one of the resource",
  "invalid_scope",
  ({ oidc }) => {
    const { scope } = oidc.params ?? {};
    if (knownScopes(scope).length > 0) return Check.NO_NEED_TO_PROMPT;
    throw new errors.InvalidScope("no known scope", String(scope));
  },
);
const loginCheck = new Check(
  "no_session",
  "the user must log in",
  "login_required",
  ({ oidc: { session, account, params, result } }) => {
    if (session?.accountId === undefined || account === undefined) return true;
    const age = params?.max_age;
    return age !== undefined && result?.login === undefined && session.past(Number(age));
  },
);
const consentCheck = new Check(
  "not_asked",
  "the user must consent",
  "consent_required",
  ({ oidc }) => oidc.result?.consent === undefined,
);

/**
 * Prompts in order: login, unless the browser is logged in as a current user and within `max_age`,
 * and then consent every time. A public client cannot prove its identity, so an earlier consent says
 * nothing about the current caller (RFC 8252, section 8.6).
 */
const policy = [
  new Prompt({ name: "login", requestable: true }, scopeCheck, loginCheck),
  new Prompt({ name: "consent", requestable: true }, consentCheck),
];

/** Values of `prompt`. A new login is also a choice of the account. Others are ignored. */
const knownPrompts: ReadonlyMap<string, string> = new Map([
  ["none", "none"],
  ["login", "login"],
  ["select_account", "login"],
  ["consent", "consent"],
]);

/**
 * Normalizes an authorization request. Without a scope it requests all scopes of the resource. Any
 * request that may show a page requires consent. Only `response_mode=query` is accepted, because
 * form posts would need a script on this server's page. The library refuses repeated parameters.
 */
export function completeRequest(url: string): string {
  const at = url.indexOf("?");
  const parameters = new URLSearchParams(at === -1 ? "" : url.slice(at + 1));
  if (parameters.getAll("response_mode").some((mode) => mode !== "query")) {
    // An unsupported mode, which the library refuses.
    parameters.set("response_mode", "refused");
  }
  const isRepeated = (name: string) => parameters.getAll(name).length > 1;
  if (!isRepeated("scope")) {
    const given = parameters.get("scope") ?? "";
    const scope = given.trim() === "" ? mcpScopes.join(" ") : given;
    // The library takes `max_age` only in requests of OpenID Connect.
    parameters.set("scope", parameters.has("max_age") ? `openid ${scope}` : scope);
  }
  if (!isRepeated("prompt")) {
    const asked = (parameters.get("prompt") ?? "").split(" ");
    const prompts = new Set(asked.flatMap((prompt) => knownPrompts.get(prompt) ?? []));
    if (!prompts.has("none")) prompts.add("consent");
    parameters.set("prompt", [...prompts].join(" "));
  }
  return `${at === -1 ? url : url.slice(0, at)}?${parameters}`;
}

/** Settings of the only resource with tokens. @throws InvalidTarget for any other (RFC 8707) */
function resourceServer(options: AuthorizationServerOptions, keys: SigningKeys, name: string) {
  const audience = findResource(options.issuer, name);
  if (audience === undefined) throw new errors.InvalidTarget();
  return {
    audience,
    scope: mcpScopes.join(" "),
    accessTokenFormat: "jwt",
    accessTokenTTL: accessTokenLifetime(options),
    jwt: { sign: { alg: SIGNING_ALGORITHM, kid: keys.signer } },
  } as const;
}

/** Accepts only users who may still log in. */
function findAccount(options: AuthorizationServerOptions): Configuration["findAccount"] {
  return ({ oidc }, accountId, token) => {
    const issuedAt = token?.iat ?? oidc.session?.loginTs;
    if (findUser(options, accountId, issuedAt) === undefined) return undefined;
    return { accountId, claims: () => ({ sub: parseAccountId(accountId).username }) };
  };
}

/**
 * Refuses a request for another resource before its code or refresh token is used up. Otherwise a client
 * that tries again later, such as when the public URL is the earlier one again, would lose its grant.
 */
function requireResource(
  { issuer }: AuthorizationServerOptions,
  { oidc: { params = {} } }: KoaContextWithOIDC,
  ownResource: unknown,
): void {
  const isOwn = (name: unknown) => findResource(issuer, name) !== undefined;
  if (![params.resource ?? []].flat().every(isOwn)) throw new errors.InvalidTarget();
  const granted: unknown[] = [ownResource].flat();
  if (!granted.every(isOwn)) throw new errors.InvalidGrant("another resource");
  // The library compares spellings.
  if (!granted.includes(params.resource)) params.resource = ownResource;
}

/** Claims with the limits of the consent. Without a consent or a login no token is issued. */
function tokenClaims(options: AuthorizationServerOptions, { oidc }: KoaContextWithOIDC) {
  const { Grant: grant, AuthorizationCode: code, RotatedRefreshToken: used } = oidc.entities;
  const consent = readConsent(grant?.rar);
  if (grant?.accountId === undefined || consent === undefined) {
    throw new errors.InvalidGrant("the grant has no consent");
  }
  // A revocation may have come while the request waited for the state.
  const { iat: issuedAt } = used ?? code ?? {};
  if (findUser(options, grant.accountId, issuedAt) === undefined) {
    throw new errors.InvalidGrant("the login has ended");
  }
  const { credential } = parseAccountId(grant.accountId);
  const { database, readOnly } = consent;
  return { database, read_only: readOnly, cred: credential, grant: grant.jti };
}

/** Allows CORS requests from pages on the origin of the client's redirect. */
function isOwnOrigin(origin: string, { redirectUris = [] }: Client): boolean {
  const page = URL.parse(origin);
  return redirectUris.some((uri) => {
    const redirect = URL.parse(uri);
    if (redirect?.protocol === "https:") return redirect.origin === origin;
    const isLocal = redirect?.protocol === "http:" && page?.protocol === "http:";
    return isLocal && redirect.hostname === page.hostname;
  });
}

/**
 * Holds redirects that no user has approved, and shows a page instead. Otherwise anyone could
 * register a client and use failing requests as an open redirect (RFC 9700, section 4.11.2).
 * Loopback redirects and configured clients are exempt.
 */
function holdRedirects(provider: Provider, options: AuthorizationServerOptions): void {
  const { issuer, configuration } = options;
  const trusted = new Set(configuration.mcp.clients.map(({ client_id }) => client_id));
  provider.use(async (ctx, next) => {
    await next();
    const location = URL.parse(ctx.response.get("Location"));
    const isAuthorization = ctx.path === issuerPath(issuer) + endpoints.authorization;
    if (!isAuthorization || location === null) return;
    const { client_id: clientId } = ctx.query;
    const isTrusted = isLoopbackRedirect(location.href) || trusted.has(String(clientId));
    if (isTrusted || location.href.startsWith(`${issuer}/`)) return;
    ctx.remove("Location");
    ctx.status = 400;
    renderHeldRedirect(ctx, location);
  });
}

function providerFeatures(
  options: AuthorizationServerOptions,
  keys: SigningKeys,
): NonNullable<Configuration["features"]> {
  const off = { enabled: false };
  return {
    devInteractions: off,
    dPoP: off,
    pushedAuthorizationRequests: off,
    rpInitiatedLogout: off,
    userinfo: off,
    clientIdMetadataDocument: {
      enabled: true,
      ack: "draft-02",
      allowClient(ctx, client) {
        const isSigned = ctx?.oidc.params?.client_assertion !== undefined;
        if (client[KEY_IS_OPTIONAL] === true && !isSigned) {
          // The library has made the client for this request.
          Object.assign(client, { tokenEndpointAuthMethod: "none" });
        }
        return true;
      },
      cacheDuration: { min: lifetimes.clientDocument, max: lifetimes.session },
    },
    resourceIndicators: {
      enabled: true,
      // The resource may be repeated or missing, since there is only one.
      defaultResource: (_, __, oneOf) => oneOf?.[0] ?? mcpResource(options.issuer),
      useGrantedResource: () => true,
      getResourceServerInfo: (_, name) => resourceServer(options, keys, name),
    },
  };
}

const renderError: NonNullable<Configuration["renderError"]> = (
  ctx,
  { error, error_description: description },
  reason,
) => {
  const { cause } = reason;
  if (cause instanceof OAuthProblem) {
    ctx.status = cause.status;
    renderErrorPage(ctx, { code: "invalid_client_metadata", description: cause.message });
  } else {
    const code = reason instanceof errors.SessionNotFound ? "expired" : error;
    renderErrorPage(ctx, { code, description });
  }
};

function configure(
  options: AuthorizationServerOptions,
  keys: SigningKeys,
  requests: DocumentRequests,
): Configuration {
  const { clients, app_schemes: schemes, private_client_hosts: hosts } = options.configuration.mcp;
  const { fetchDocument = createDocumentFetch({ privateHosts: hosts }) } = options;
  const isRedirect = (uri: string) => isClientRedirect(uri, schemes);
  const tokenLifetime = accessTokenLifetime(options);
  const hasAssertions = options.assertions !== undefined;
  const session = sessionCookie(options.issuer);
  const basePath = issuerPath(options.issuer);
  return {
    adapter: (model) => createAdapter(model, options.state.store),
    clients: clients.map(({ client_id, ...rest }) =>
      clientRecord(client_id, readClientMetadata(rest, isConfiguredRedirect)),
    ),
    clientDefaults: { id_token_signed_response_alg: SIGNING_ALGORITHM },
    clientAuthMethods: [...clientAuthMethods],
    extraClientMetadata: { properties: [KEY_IS_OPTIONAL] },
    assertJwtClientAuthClaimsAndHeader(_, { exp }) {
      const isLate = Number(exp) > epochSeconds() + lifetimes.clientAssertion;
      if (isLate) throw new errors.InvalidClientAuth("the client assertion expires too late");
    },
    clientBasedCORS: (_, origin, client) => isOwnOrigin(origin, client),
    cookies: {
      names: {
        session: session.name,
        // The path of each names its page, so that several can be open.
        interaction: "gatehouse_interaction",
        resume: "gatehouse_resume",
      },
      long: session.options,
      short: { httpOnly: true, sameSite: "lax" },
    },
    jwks: { keys: [...keys.privateKeys] },
    enabledJWA: {
      idTokenSigningAlgValues: [SIGNING_ALGORITHM],
      clientAuthSigningAlgValues: clientAlgorithms,
    },
    responseTypes: ["code"],
    scopes: [OFFLINE_ACCESS],
    pkce: { required: () => true },
    allowOmittingSingleRegisteredRedirectUri: false,
    features: providerFeatures(options, keys),
    fetch: asLibraryFetch({
      fetchDocument,
      readDocument: (document) => readClientDocument(document, isRedirect, hasAssertions),
      mayFetch: requests.mayFetch,
      onRefused: requests.onRefused,
    }),
    // Of what is left of a document that was read.
    fetchResponseBodyLimits: { "client_id metadata document": 2 * DOCUMENT_LIMITS.bytes },
    findAccount: findAccount(options),
    extraTokenClaims: (ctx) => tokenClaims(options, ctx),
    formats: {
      customizers: {
        jwt: (_, token, { payload }) => {
          if (!("accountId" in token)) return;
          payload.sub = parseAccountId(token.accountId).username;
          // The token id identifies the grant, so that an id from the log is enough to end it.
          token.jti = tokenIdIn(token.grantId ?? "", token.jti);
          payload.jti = token.jti;
        },
      },
    },
    // Each consent creates a new grant. Earlier grants of the session and client are never reused.
    loadExistingGrant: ({ oidc }) => {
      const grantId = oidc.result?.consent?.grantId;
      return grantId === undefined ? undefined : oidc.provider.Grant.find(grantId);
    },
    expiresWithSession: () => false,
    issueRefreshToken: (_, client) => client.grantTypeAllowed("refresh_token"),
    rotateRefreshToken(ctx) {
      requireResource(options, ctx, ctx.oidc.entities.RefreshToken?.resource);
      return true;
    },
    async revokeGrantPolicy({ oidc }) {
      // For the audit, since the code of a replay is gone with its grant.
      const code = await oidc.provider.AuthorizationCode.find(String(oidc.params?.code));
      if (code !== undefined) oidc.entity("AuthorizationCode", code);
      return true;
    },
    interactions: {
      policy,
      url: (_, { uid }) => `${options.issuer}${endpoints.interaction}/${uid}`,
    },
    renderError,
    routes: {
      authorization: basePath + endpoints.authorization,
      token: basePath + endpoints.token,
      jwks: basePath + endpoints.jwks,
    },
    ttl: {
      AccessToken: tokenLifetime,
      AuthorizationCode: lifetimes.code,
      Grant: (_, { rar }) => (readConsent(rar)?.byProvider ? tokenLifetime : lifetimes.grant),
      Interaction: lifetimes.interaction,
      RefreshToken: lifetimes.refreshToken,
      // Each use of a session stores it again, and must not extend it.
      Session: (_, { loginTs = epochSeconds() }) =>
        Math.max(1, loginTs + lifetimes.session - epochSeconds()),
    },
  };
}

/**
 * Configures the library: authorization code with PKCE and refresh tokens, for public clients, and
 * assertions of identity providers, for clients that authenticate.
 *
 * @param requests what the current request may fetch
 */
export function createProvider(
  options: AuthorizationServerOptions,
  keys: SigningKeys,
  requests: DocumentRequests,
): Provider {
  const provider = new Provider(options.issuer, configure(options, keys, requests));
  const { prototype: code } = provider.AuthorizationCode;
  const { consume } = code;
  code.consume = function () {
    if (Provider.ctx !== undefined) requireResource(options, Provider.ctx, this.resource);
    return consume.call(this);
  };
  const { prototype: token } = provider.RefreshToken;
  const { consume: useUp, save } = token;
  // Used up once its successor is stored. Otherwise a full disk would disconnect the app.
  token.consume = async () => {};
  token.save = async function (...rest) {
    const saved = await save.apply(this, rest);
    const { RotatedRefreshToken: used } = Provider.ctx?.oidc.entities ?? {};
    if (used !== undefined) await useUp.call(used);
    return saved;
  };
  const resource = mcpResource(options.issuer);
  const server = resourceServer(options, keys, resource);
  registerAssertions(provider, options, new provider.ResourceServer(resource, server));
  holdRedirects(provider, options);
  provider.use(async (ctx, next) => {
    await next();
    if (ctx.status === 503) ctx.set("Retry-After", ctx.response.get("Retry-After") || "1");
  });
  // Safe, because this server overwrites the forwarding headers that the library then trusts.
  provider.proxy = true;
  const fail = (error: unknown, request: IncomingMessage | undefined) => {
    if (request !== undefined && isAbandoned(request)) return;
    options.log.error({ err: error }, "the authorization server failed");
  };
  provider.on("server_error", ({ req }, error) => fail(error, req));
  const application: EventEmitter = provider;
  application.on("error", (error: unknown, ctx?: Pick<KoaContextWithOIDC, "req">) =>
    fail(error, ctx?.req),
  );
  return provider;
}
