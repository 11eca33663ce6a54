import { hash } from "node:crypto";
import { errors, type Provider, type TokenEndpointGrantContext } from "oidc-provider";
import { EVERY_DATABASE } from "../../access/roles.ts";
import { externalCaller } from "../../identity/authenticate.ts";
import { readGroups } from "../../identity/external-token.ts";
import { ASSERTION_AGE, type Assertion } from "../../identity/issuers.ts";
import { invalidToken } from "../../identity/jwt-verification.ts";
import { Refusal, type RefusedToken } from "../../refusal.ts";
import { StateUnavailable } from "./adapter.ts";
import { accountIdOf, knownScopes, toDetail } from "./connections.ts";
import type { AuthorizationServerOptions } from "./options.ts";
import { JWT_BEARER, type McpScope, resourceOf, tokenLifetimeOf } from "./protocol.ts";
import { useOnce } from "./state-store.ts";

/** Model in the state store: an assertion that was used, by its issuer and `jti`. */
const USED = "Assertion";
/** More than the allowed clock skew. */
const MARGIN_SECONDS = 60;

type ResourceServer = InstanceType<Provider["ResourceServer"]>;
type Context = TokenEndpointGrantContext<{ assertion?: string; resource?: string | string[] }>;

/** The assertions of requests, for the audit. */
const described = new WeakMap<object, RefusedToken>();

/** Issuer and user of a request's assertion, as far as they are known. */
export function assertionOf(oidc: object) {
  const { issuer, user } = described.get(oidc) ?? {};
  return { ...(issuer !== undefined && { issuer }), ...(user !== undefined && { user }) };
}

export function isResource(issuer: string, name: unknown): boolean {
  return typeof name === "string" && URL.parse(name)?.href === new URL(resourceOf(issuer)).href;
}

/** The reason is for the audit, and never in the answer. */
function toTokenError(error: unknown): unknown {
  if (!(error instanceof Refusal)) return error;
  if (error.status === 503) return new StateUnavailable(error);
  return new errors.InvalidGrant({ detail: error.detail ?? error.code, cause: error });
}

/** Scopes that the assertion allows, and no others than the client asks for. */
function grantedScopes({ scopes }: Assertion["token"], requested: string | undefined): McpScope[] {
  const allowed = knownScopes([...scopes].join(" "));
  if (allowed.length === 0) throw invalidToken("bad_scope");
  const asked = knownScopes(requested ?? allowed.join(" "));
  const granted = allowed.filter((scope) => asked.includes(scope));
  if (granted.length === 0) throw new errors.InvalidScope("not in the assertion", requested ?? "");
  return granted;
}

/** Marks the assertion as used, once across all replicas. */
async function consume(
  { state: { store } }: AuthorizationServerOptions,
  { iss, jti, iat = 0 }: Assertion["claims"],
): Promise<void> {
  const id = hash("sha256", JSON.stringify([iss, jti]), "base64url");
  const expires = iat + ASSERTION_AGE + MARGIN_SECONDS;
  if (!(await useOnce(store, USED, id, expires))) throw invalidToken("replayed");
}

/**
 * Registers the grant for assertions of identity providers (ID-JAG, Enterprise-Managed
 * Authorization of MCP). The provider decides in the user's place. The limits of the token are the
 * user's rights and the scope. There is no refresh token.
 */
export function registerAssertions(
  provider: Provider,
  options: AuthorizationServerOptions,
  resourceServer: ResourceServer,
): void {
  const { assertions, signIns, snapshot, revocations, issuer } = options;
  if (assertions === undefined || signIns === undefined) return;

  const verify = async (oidc: Context["oidc"], text: string): Promise<Assertion> => {
    try {
      const assertion = await assertions.verifyAssertion(text, issuer);
      described.set(oidc, assertion.token);
      return assertion;
    } catch (error) {
      if (error instanceof Refusal && error.token !== undefined) described.set(oidc, error.token);
      throw error;
    }
  };

  /** @throws Refusal, or InvalidScope */
  const accept = async ({ client, params }: Context["oidc"], assertion: Assertion) => {
    const { claims, token, settings } = assertion;
    const { client_id: clientId, resource = resourceOf(issuer) } = claims;
    if (clientId !== client.clientId) throw invalidToken("wrong_client");
    // Optional, since there is only one resource (Enterprise-Managed Authorization, section 4.3).
    const resources: unknown[] = [resource].flat();
    if (!resources.some((one) => isResource(issuer, one))) throw invalidToken("wrong_resource");
    const scopes = grantedScopes(token, params.scope);
    externalCaller(snapshot(), revocations, token);
    await consume(options, claims);
    const groups = readGroups(claims, settings);
    const { username, credential } = await signIns.open(
      settings,
      claims,
      groups,
      tokenLifetimeOf(options),
    );
    return { accountId: accountIdOf(username, credential), scope: scopes.join(" ") };
  };

  async function exchange(ctx: Context): Promise<void> {
    const { client, params } = ctx.oidc;
    const { assertion, resource } = params;
    if (assertion === undefined) throw new errors.InvalidRequest("assertion is missing");
    const requested = [resource ?? []].flat();
    if (!requested.every((one) => isResource(issuer, one))) throw new errors.InvalidTarget();
    const { accountId, scope } = await verify(ctx.oidc, assertion)
      .then((verified) => accept(ctx.oidc, verified))
      .catch((error: unknown) => {
        const { retryAfter } = error instanceof Refusal ? error : {};
        if (retryAfter !== undefined) ctx.set("Retry-After", String(retryAfter));
        throw toTokenError(error);
      });
    const grant = new provider.Grant({ accountId, clientId: client.clientId });
    const appName = client.clientName ?? "";
    const limits = { database: EVERY_DATABASE, readOnly: false, appName, byProvider: true };
    grant.addRar(toDetail(limits));
    const grantId = await grant.save();
    ctx.oidc.entity("Grant", grant);
    const issued = { accountId, client, grantId, gty: JWT_BEARER, scope, resourceServer };
    const accessToken = new provider.AccessToken(issued);
    ctx.oidc.entity("AccessToken", accessToken);
    ctx.body = {
      access_token: await accessToken.save(),
      expires_in: accessToken.expiration,
      token_type: accessToken.tokenType,
      scope,
      resource: resourceOf(issuer),
    };
  }

  const parameters = ["assertion", "scope", "resource"];
  provider.registerGrantType(JWT_BEARER, exchange, parameters, "resource");
}
