import { mcpScopes } from "../scopes.ts";
import { SIGNING_ALGORITHM } from "./keys.ts";

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
