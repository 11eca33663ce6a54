import { Refusal } from "../base/refusal.ts";
import {
  type Authenticated,
  authenticate,
  claimedIssuer,
  type ExternalToken,
  externalCaller,
  readBearerToken,
} from "../identity/authenticate.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import type { Endpoint } from "./route.ts";

/**
 * Waits only for a token of an external issuer that has not been verified yet, or for the endpoint's
 * own authentication.
 *
 * @throws Refusal if the endpoint requires a token and there is no valid one
 */
export function authenticateCaller(
  gateway: Gateway,
  { authentication }: Endpoint,
  exchange: Exchange,
): Promise<void> | void {
  if (authentication === "public") return;
  if (typeof authentication === "object") return authentication.authenticate(gateway, exchange);
  const { configuration, tokens, access, revocations, issuers } = gateway;
  if (!configuration.auth.enabled) {
    if (authentication === "administration") throw new Refusal("administration_disabled");
    return;
  }
  const { authorization } = exchange.request.headers;
  const accept = (authenticated: Authenticated) => {
    exchange.authenticated = authenticated;
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

/**
 * Checks the caller again some time after the token was presented: a body may take long to arrive,
 * and a stream stays open even longer.
 *
 * @throws Refusal with one of the 401 codes if the token would no longer be accepted
 */
export function requireStillGood(gateway: Gateway, { authenticated }: Exchange): void {
  authenticated.identify?.(gateway.access.snapshot);
}
