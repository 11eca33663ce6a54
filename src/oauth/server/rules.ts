import { type Client, type Configuration, errors, type KoaContextWithOIDC } from "oidc-provider";
import { mcpScopes } from "../scopes.ts";
import { findUser, parseAccountId } from "./accounts.ts";
import { readConsent } from "./consent.ts";
import { SIGNING_ALGORITHM, type SigningKeys } from "./keys.ts";
import type { AuthorizationServerOptions } from "./options.ts";

/** True if both name the same URL, however scheme and host are spelled. */
function isSameUrl(a: string, b: string): boolean {
  return URL.canParse(a) && new URL(a).href === new URL(b).href;
}

/** The one resource that there are tokens for. @throws InvalidTarget for every other (RFC 8707) */
export function resourceServer(
  options: AuthorizationServerOptions,
  keys: SigningKeys,
  asked: string,
) {
  if (!isSameUrl(asked, options.resource)) throw new errors.InvalidTarget();
  return {
    audience: options.resource,
    scope: mcpScopes.join(" "),
    accessTokenFormat: "jwt",
    accessTokenTTL: options.tokenLifetime,
    jwt: { sign: { alg: SIGNING_ALGORITHM, kid: keys.signer } },
  } as const;
}

/** Asked for twice is asked for once; a client that names none means the only one there is. */
export function defaultResource({ resource }: AuthorizationServerOptions) {
  return (_: unknown, __: unknown, oneOf: readonly string[] | undefined) =>
    oneOf === undefined ? resource : (oneOf[0] ?? resource);
}

/** Only what names a user who may still log in becomes an account. */
export function findAccount(options: AuthorizationServerOptions): Configuration["findAccount"] {
  return ({ oidc }, accountId, token) => {
    const issuedAt = token?.iat ?? oidc.session?.loginTs;
    const issued = issuedAt === undefined ? undefined : { tokenId: token?.jti ?? "", issuedAt };
    if (findUser(options, accountId, issued) === undefined) return undefined;
    return { accountId, claims: () => ({ sub: parseAccountId(accountId).username }) };
  };
}

/** The claims that say how far the user has let the client go; without a consent, no token. */
export function tokenClaims({ oidc }: KoaContextWithOIDC) {
  const { Grant: grant } = oidc.entities;
  const consent = readConsent(grant?.rar);
  if (grant?.accountId === undefined || consent === undefined) {
    throw new errors.InvalidGrant("the grant holds no consent");
  }
  const { credential } = parseAccountId(grant.accountId);
  const { database, readOnly } = consent;
  return { database, read_only: readOnly, cred: credential, grant: grant.jti };
}

/** A page may call the token endpoint for a client whose redirect leads back to that page. */
export function isOwnOrigin(origin: string, { redirectUris = [] }: Client): boolean {
  const page = URL.parse(origin);
  return redirectUris.some((uri) => {
    const redirect = URL.parse(uri);
    if (redirect?.protocol === "https:") return redirect.origin === origin;
    const isLocal = redirect?.protocol === "http:" && page?.protocol === "http:";
    return isLocal && redirect.hostname === page.hostname;
  });
}
