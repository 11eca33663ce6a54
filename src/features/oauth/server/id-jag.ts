import { hash } from "node:crypto";
import { errors, type Provider, type TokenEndpointGrantContext } from "oidc-provider";
import { EVERY_DATABASE } from "../../../core/access/roles.ts";
import { Refusal, type RefusedToken } from "../../../core/base/refusal.ts";
import { externalCaller } from "../../../core/identity/authenticate.ts";
import { invalidToken } from "../../../core/identity/jwt-verification.ts";
import { readGroups } from "../../issuers/external-token.ts";
import { ASSERTION_AGE, type Assertion } from "../../issuers/issuers.ts";
import { StateUnavailable } from "./adapter.ts";
import { formatAccountId, knownScopes, toDetail } from "./connections.ts";
import type { AuthorizationServerOptions } from "./options.ts";
import {
  accessTokenLifetime,
  JWT_BEARER,
  type McpScope,
  mcpResource,
  mcpResources,
} from "./protocol.ts";

/** Model in the state store: an assertion that was used, by its issuer and `jti`. */
const USED = "Assertion";
/** More than the allowed clock skew. */
const MARGIN_SECONDS = 60;

type ResourceServer = InstanceType<Provider["ResourceServer"]>;
type Context = TokenEndpointGrantContext<{ assertion?: string; resource?: string | string[] }>;

/** The assertions of requests, for the audit. */
const described = new WeakMap<object, RefusedToken>();

/** Issuer and user of a request's assertion, as far as they are known. */
export function refusedAssertion(oidc: object): Pick<RefusedToken, "issuer" | "user"> {
  const { issuer, user } = described.get(oidc) ?? {};
  return { ...(issuer !== undefined && { issuer }), ...(user !== undefined && { user }) };
}

/** The resource that a client has named, in any spelling of its URL. */
export function findResource(issuer: string, name: unknown): string | undefined {
  const href = typeof name === "string" ? URL.parse(name)?.href : undefined;
  return mcpResources(issuer).find((resource) => new URL(resource).href === href);
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
  const { assertions, signIns, access, revocations, issuer, state } = options;
  if (assertions === undefined || signIns === undefined) return;

  /** @throws Refusal, or InvalidScope */
  const accept = async ({ client, params }: Context["oidc"], assertion: Assertion) => {
    const { claims, token, settings } = assertion;
    const { client_id: clientId, resource = mcpResource(issuer), iss, jti, iat = 0 } = claims;
    if (clientId !== client.clientId) throw invalidToken("wrong_client");
    // Optional, since there is only one resource (Enterprise-Managed Authorization, section 4.3).
    const resources: unknown[] = [resource].flat();
    if (!resources.some((one) => findResource(issuer, one))) throw invalidToken("wrong_resource");
    const scopes = grantedScopes(token, params.scope);
    externalCaller(access.snapshot, revocations, token);
    const id = hash("sha256", JSON.stringify([iss, jti]), "base64url");
    const until = Math.ceil(iat) + ASSERTION_AGE + MARGIN_SECONDS;
    const isFirst = await state.store.claim(USED, id, until);
    if (!isFirst) throw invalidToken("replayed");
    const groups = readGroups(claims, settings);
    const lasts = accessTokenLifetime(options);
    const { username, credential } = await signIns.open(settings, claims, groups, lasts);
    // A revocation may have come while the state was written.
    externalCaller(access.snapshot, revocations, token);
    return { accountId: formatAccountId(username, credential), scope: scopes.join(" ") };
  };

  const exchange = async (ctx: Context): Promise<void> => {
    const { client, params } = ctx.oidc;
    if (client.tokenEndpointAuthMethod === "none") {
      throw new errors.InvalidClientAuth("the client has not authenticated");
    }
    if (params.assertion === undefined) throw new errors.InvalidRequest("assertion is missing");
    const requested = [params.resource ?? []].flat();
    if (!requested.every((one) => findResource(issuer, one))) throw new errors.InvalidTarget();
    let accepted: Awaited<ReturnType<typeof accept>>;
    try {
      const assertion = await assertions.verifyAssertion(params.assertion, issuer);
      described.set(ctx.oidc, assertion.token);
      accepted = await accept(ctx.oidc, assertion);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const { status, retryAfter, token, detail = error.code } = error;
      if (token !== undefined) described.set(ctx.oidc, token);
      if (retryAfter !== undefined) ctx.set("Retry-After", String(retryAfter));
      if (status === 503) throw new StateUnavailable(error);
      // The reason is for the audit, and never in the answer.
      throw new errors.InvalidGrant({ detail, cause: error });
    }
    const { accountId, scope } = accepted;
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
      resource: mcpResource(issuer),
    };
  };

  const parameters = ["assertion", "scope", "resource"];
  provider.registerGrantType(JWT_BEARER, exchange, parameters, "resource");
}
