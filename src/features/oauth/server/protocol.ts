import { memoize } from "../../../core/base/memoize.ts";
import { isLoopback, isUnspecified } from "../../../core/config/addresses.ts";
import type { Configuration } from "../../../core/config/schema.ts";

/** Token scopes, which apply in addition to the user's grants (RFC 6749, section 3.3). */
export const mcpScopes = ["mcp:tools", "mcp:resources"] as const;
export type McpScope = (typeof mcpScopes)[number];

/** Grant type of assertions (RFC 7523), and their profile: those of an identity provider. */
export const JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const ID_JAG_PROFILE = "urn:ietf:params:oauth:grant-profile:id-jag";

/** Signature algorithm of access tokens (RFC 7518, section 3.4). */
export const SIGNING_ALGORITHM = "ES256";

const HOUR = 3600;
const DAY = 24 * HOUR;

/** Signature algorithms of clients that authenticate with a key (RFC 7523, section 2.2). */
export const clientAlgorithms = ["ES256", "EdDSA", "Ed25519", "PS256", "RS256"] as const;

export const clientAuthMethods = ["none", "private_key_jwt"] as const;

/** In seconds. */
export const lifetimes = {
  code: 60,
  /** From the authorization request to the user's answer. */
  interaction: HOUR / 2,
  /** The browser login. Consent is required every time nonetheless. */
  session: 8 * HOUR,
  accessToken: HOUR,
  /** An unused refresh token. Each use issues a new one. */
  refreshToken: 30 * DAY,
  /** A used refresh token is accepted again for this long, because parallel calls each refresh. */
  refreshReuse: 10,
  /** After this the user must consent again, regardless of refreshes. */
  grant: 180 * DAY,
  /** Minimum cache time of a client document, so that one visit fetches it once. */
  clientDocument: HOUR / 2,
  /** The latest end of a client's assertion, until which its `jti` is remembered. */
  clientAssertion: HOUR,
  /** A registered client that no user has allowed yet. */
  unusedClient: DAY,
  /** A registered client, counted from the last token issued to it. */
  usedClient: 90 * DAY,
  /** For records that are removed explicitly. */
  forever: 36_500 * DAY,
} as const;

export function accessTokenLifetime({
  configuration,
}: {
  configuration: Pick<Configuration, "auth">;
}) {
  return Math.min(configuration.auth.token_expiration, lifetimes.accessToken);
}

/** Paths below that of the issuer. */
export const endpoints = {
  authorization: "/oauth/authorize",
  token: "/oauth/token",
  jwks: "/oauth/jwks",
  registration: "/oauth/register",
  revocation: "/oauth/revoke",
  interaction: "/oauth/interaction",
  applications: "/oauth/applications",
  /** Followed by the prefix of an issuer. */
  signIn: "/oauth/sign-in",
  callback: "/oauth/callback",
} as const;

/** The path of the issuer, which is the gateway's base path. */
export function issuerPath(issuer: string): string {
  return new URL(issuer).pathname.replace(/\/$/, "");
}

/** Where the library finishes an interaction, below the path of the issuer. */
export function resumePath(interactionId: string): string {
  return `${endpoints.authorization}/${interactionId}`;
}

/** Hosts that are the user's own machine (RFC 8252, section 7.3). */
export const loopbackHosts = ["localhost", "127.0.0.1", "[::1]"] as const;

/** The only resource for which tokens are issued (RFC 8707). */
export function mcpResource(issuer: string): string {
  return `${issuer}/mcp`;
}

/** The same resource by each name under which clients on this machine reach it. */
export const mcpResources: (issuer: string) => readonly string[] = memoize((issuer) => {
  const host = new URL(issuer).hostname.replace(/^\[|\]$/g, "");
  const isLocal = isLoopback(host) || isUnspecified(host);
  const others = isLocal ? loopbackHosts : [];
  const urls = others.map(
    (name) => Object.assign(new URL(issuer), { hostname: name }).origin + issuerPath(issuer),
  );
  return [...new Set([issuer, ...urls])].map(mcpResource);
}, 16);

/** A cookie of the pages. Over https it is bound to the host (RFC 6265bis, section 4.1.3.2). */
export function cookieFor(issuer: string, name: string) {
  const isBound = issuer.startsWith("https:");
  const path = isBound ? "/" : `${issuerPath(issuer)}/oauth`;
  const options = { httpOnly: true, sameSite: "lax", path } as const;
  return { name: isBound ? `__Host-${name}` : name, options };
}

export function sessionCookie(issuer: string) {
  return cookieFor(issuer, "gatehouse_session");
}

/** Requests a refresh token (OpenID Connect Core, section 11). */
export const OFFLINE_ACCESS = "offline_access";

/**
 * Well-known paths, with the path of the issuer at the end (RFC 8414, sections 3.1 and 5). Some
 * clients look them up for the resource, as if it were its own issuer.
 */
export function metadataPaths(basePath: string): readonly string[] {
  return [
    `/.well-known/oauth-authorization-server${basePath}`,
    `/.well-known/oauth-authorization-server${basePath}/mcp`,
    `/.well-known/openid-configuration${basePath}`,
    `/.well-known/openid-configuration${basePath}/mcp`,
  ];
}

/**
 * The metadata document (RFC 8414, section 2). Its last two members serve clients that expect an
 * OpenID provider. No ID tokens are issued.
 *
 * @param hasAssertions whether assertions of a provider are accepted
 */
export function serverMetadata(issuer: string, hasAssertions: boolean): object {
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
    grant_types_supported: [
      "authorization_code",
      "refresh_token",
      ...(hasAssertions ? [JWT_BEARER] : []),
    ],
    token_endpoint_auth_methods_supported: clientAuthMethods,
    token_endpoint_auth_signing_alg_values_supported: clientAlgorithms,
    ...(hasAssertions && { authorization_grant_profiles_supported: [ID_JAG_PROFILE] }),
    revocation_endpoint_auth_methods_supported: ["none"],
    code_challenge_methods_supported: ["S256"],
    authorization_response_iss_parameter_supported: true,
    client_id_metadata_document_supported: true,
    subject_types_supported: ["public"],
    id_token_signing_alg_values_supported: [SIGNING_ALGORITHM],
  };
}
