import {
  authenticate,
  type Caller,
  claimedIssuer,
  externalCaller,
  readBearerToken,
  requireUnexpired,
} from "../identity/authenticate.ts";
import type { ExternalToken } from "../identity/external-token.ts";
import { authenticatePrincipal } from "../mcp/authenticate.ts";
import { memoize } from "../memoize.ts";
import { mcpScopes, resourceOf, resourcesOf } from "../oauth/server/protocol.ts";
import { Refusal } from "../refusal.ts";
import type { Exchange, ResourceChallenge } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { isLoopbackAddress, requireOwnHost, requireOwnOrigin } from "./origins.ts";
import type { Endpoint } from "./route.ts";

/** The path of the metadata of the protected resource `/mcp` (RFC 9728, section 3.1). */
export const metadataPath = "/.well-known/oauth-protected-resource";

const originOf = memoize((url) => URL.parse(url)?.origin ?? "", 64);

/** The gateway's URL. Without a public one, a client on this machine may use another name of it. */
export function urlFor({ configuration, publicUrl }: Gateway, { request }: Exchange): string {
  if (configuration.server.public_url !== "") return publicUrl;
  const [scheme = ""] = publicUrl.split("/", 1);
  const origin = originOf(`${scheme}//${request.headers.host}`);
  return resourcesOf(publicUrl).includes(resourceOf(origin)) ? origin : publicUrl;
}

export function mcpChallenge(gateway: Gateway, exchange: Exchange): ResourceChallenge {
  const metadata = `${urlFor(gateway, exchange)}${metadataPath}/mcp`;
  return { metadata, scope: mcpScopes.join(" ") };
}

/**
 * Waits only for a token of an external issuer that has not been verified yet.
 *
 * @throws Refusal if the endpoint requires a token and there is no valid one
 */
export function authenticateCaller(
  { configuration, tokens, access, revocations, issuers }: Gateway,
  { authentication }: Endpoint,
  exchange: Exchange,
): Promise<void> | void {
  if (authentication === "public") return;
  if (!configuration.auth.enabled) {
    if (authentication === "administration") throw new Refusal("administration_disabled");
    return;
  }
  const { authorization } = exchange.request.headers;
  const accept = (caller: Caller) => {
    const { subject } = caller;
    exchange.authenticated = { username: subject.username, subject, caller, principal: undefined };
  };
  if (issuers !== undefined) {
    const acceptExternal = (external: ExternalToken) =>
      accept(externalCaller(access.snapshot, revocations, external));
    // To check the form of a token with many groups takes longer than to find it.
    const known = issuers.recall(authorization?.slice("Bearer ".length) ?? "", "query");
    if (known !== undefined && authorization?.startsWith("Bearer ")) return acceptExternal(known);
    const token = readBearerToken(authorization);
    const isOwn = claimedIssuer(token) === configuration.auth.issuer;
    if (!isOwn) return issuers.verify(token, "query").then(acceptExternal);
  }
  accept(authenticate(tokens, access.snapshot, revocations, authorization));
}

/** @throws Refusal `host_not_allowed`, `origin_not_allowed`, or one of the 401 codes */
export async function authenticateMcp(gateway: Gateway, exchange: Exchange): Promise<void> {
  // Clients that reach the gateway only from this machine may be pages with a rebound DNS name.
  const { localAddress = "" } = exchange.request.socket;
  const isLocal = isLoopbackAddress(localAddress.replace(/^::ffff:/, ""));
  if (isLocal && !exchange.peer.isTrusted) requireOwnHost(gateway, exchange);
  requireOwnOrigin(gateway, exchange);
  if (!gateway.configuration.auth.enabled) return;
  const { authorization } = exchange.request.headers;
  const { sources } = await gateway.mcp();
  const principal = await authenticatePrincipal(sources, authorization);
  const { subject } = principal;
  exchange.authenticated = { username: subject.username, subject, caller: undefined, principal };
}

/**
 * Checks the caller again some time after the token was presented: a body may take long to arrive,
 * and a stream stays open even longer.
 *
 * @throws Refusal with one of the 401 codes if the token would no longer be accepted
 */
export function requireStillGood(gateway: Gateway, { authenticated }: Exchange): void {
  const { caller, principal } = authenticated;
  principal?.requireStillGood();
  if (caller === undefined) return;
  requireUnexpired(caller.token);
  caller.identify(gateway.access.snapshot);
}
