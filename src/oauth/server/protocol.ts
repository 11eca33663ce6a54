/** What a token may open besides what its user's grants say (RFC 6749, section 3.3). */
export const mcpScopes = ["mcp:tools", "mcp:resources"] as const;
export type McpScope = (typeof mcpScopes)[number];

/** The algorithm of access tokens (RFC 7518, section 3.4). */
export const SIGNING_ALGORITHM = "ES256";

const HOUR = 3600;
const DAY = 24 * HOUR;

/** How long things live, in seconds. */
export const lifetimes = {
  /** From the redirect to the token request. */
  code: 60,
  /** From the authorization request to the user's answer. */
  interaction: HOUR / 2,
  /** A login in the browser; consent is asked for every time all the same. */
  session: 8 * HOUR,
  /** An access token at most. */
  accessToken: HOUR,
  /** A refresh token that is not used; each use makes a new one. */
  refreshToken: 30 * DAY,
  /** After its first use a refresh token is taken again: calls at one moment refresh each. */
  refreshReuse: 10,
  /** After this the user is asked again, whatever was refreshed. */
  grant: 180 * DAY,
  /** The least that a client's document is kept, so that a user's visit needs it once. */
  clientDocument: HOUR / 2,
  /** A registered client that no user has let in yet. */
  unusedClient: DAY,
  /** A registered client, after each token that it got. */
  usedClient: 90 * DAY,
  /** What ends by being removed. */
  forever: 36_500 * DAY,
} as const;

/** Where each endpoint lies, below the issuer. */
export const endpoints = {
  authorization: "/oauth/authorize",
  token: "/oauth/token",
  jwks: "/oauth/jwks",
  registration: "/oauth/register",
  revocation: "/oauth/revoke",
  interaction: "/oauth/interaction",
  applications: "/oauth/applications",
} as const;

/** The cookie of a browser that somebody is logged in with, as far as it is the same everywhere. */
export const sessionCookie = { httpOnly: true, sameSite: "lax", path: "/oauth" } as const;

/** The scope that asks for a refresh token (OpenID Connect Core, section 11). */
export const OFFLINE_ACCESS = "offline_access";

/**
 * The well-known places that clients look at (RFC 8414, section 5); some look for those of the
 * resource as if it were its own issuer.
 */
export const metadataPaths = [
  "/.well-known/oauth-authorization-server",
  "/.well-known/oauth-authorization-server/mcp",
  "/.well-known/openid-configuration",
  "/.well-known/openid-configuration/mcp",
] as const;

/**
 * The server's metadata (RFC 8414, section 2). The last two members are there for clients that
 * read it as that of an OpenID provider; no ID tokens are issued.
 */
export function serverMetadata(issuer: string): object {
  return {
    issuer,
    authorization_endpoint: issuer + endpoints.authorization,
    token_endpoint: issuer + endpoints.token,
    jwks_uri: issuer + endpoints.jwks,
    registration_endpoint: issuer + endpoints.registration,
    revocation_endpoint: issuer + endpoints.revocation,
    scopes_supported: [...mcpScopes, OFFLINE_ACCESS],
    response_types_supported: ["code"],
    response_modes_supported: ["query"],
    grant_types_supported: ["authorization_code", "refresh_token"],
    token_endpoint_auth_methods_supported: ["none"],
    revocation_endpoint_auth_methods_supported: ["none"],
    code_challenge_methods_supported: ["S256"],
    authorization_response_iss_parameter_supported: true,
    client_id_metadata_document_supported: true,
    subject_types_supported: ["public"],
    id_token_signing_alg_values_supported: [SIGNING_ALGORITHM],
  };
}
