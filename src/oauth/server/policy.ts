import {
  type Client,
  type Configuration,
  errors,
  interactionPolicy,
  type KoaContextWithOIDC,
} from "oidc-provider";
import { findUser, knownScopes, parseAccountId, readConsent } from "./connections.ts";
import type { AuthorizationServerOptions } from "./options.ts";
import { mcpScopes, SIGNING_ALGORITHM } from "./protocol.ts";
import type { SigningKeys } from "./tokens.ts";

const { Check, Prompt } = interactionPolicy;

/** Refuses a request for nothing that there is, before anybody is asked for anything. */
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

/**
 * What is asked of the user, in this order: a password, unless the browser is logged in as a user who
 * is still one; and consent, each time. A public client cannot prove who it is, so that an earlier
 * consent says nothing of who asks now (RFC 8252, section 8.6).
 */
export function createPolicy(): interactionPolicy.Prompt[] {
  const noSession = new Check(
    "no_session",
    "the user must log in",
    "login_required",
    ({ oidc }) => oidc.session?.accountId === undefined || oidc.account === undefined,
  );
  const notAsked = new Check(
    "not_asked",
    "the user must consent",
    "consent_required",
    ({ oidc }) => oidc.result?.consent === undefined,
  );
  return [
    new Prompt({ name: "login", requestable: true }, scopeCheck, noSession),
    new Prompt({ name: "consent", requestable: true }, notAsked),
  ];
}

/** A response mode that there is not, by which the library refuses those that it would have. */
const NO_RESPONSE_MODE = "refused";

/**
 * The authorization request as it is judged: a request without a scope asks for all of the
 * resource, every request that may show a page asks for consent, and answers go by the query of
 * the redirect alone, since those in a form would need script on a page of this server.
 */
export function completeRequest(url: string): string {
  const at = url.indexOf("?");
  const parameters = new URLSearchParams(at === -1 ? "" : url.slice(at + 1));
  if ((parameters.get("scope") ?? "").trim() === "") parameters.set("scope", mcpScopes.join(" "));
  if (parameters.getAll("response_mode").some((mode) => mode !== "query")) {
    parameters.set("response_mode", NO_RESPONSE_MODE);
  }
  const prompts = (parameters.get("prompt") ?? "").split(" ").filter(Boolean);
  if (!prompts.includes("none") && !prompts.includes("consent")) {
    parameters.set("prompt", [...prompts, "consent"].join(" "));
  }
  return `${at === -1 ? url : url.slice(0, at)}?${parameters}`;
}

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
