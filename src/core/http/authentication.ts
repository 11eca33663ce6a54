import type { User } from "../access/snapshot.ts";
import { Refusal } from "../base/refusal.ts";
import { tokenHeadersOf } from "../config/schema.ts";
import {
  authenticate,
  claimedIssuer,
  type ExternalToken,
  externalCaller,
  passwordCaller,
} from "../identity/authenticate.ts";
import { type Credential, readCredential } from "../identity/credentials.ts";
import { type Exchange, occurrences } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { loginOrigin, requireSameOrigin } from "./origins.ts";
import type { Endpoint } from "./route.ts";

/**
 * The gateway and the upstream might each choose a different one.
 *
 * @throws Refusal `several_authorization_headers` or `several_credentials`
 */
function requireOneCredential({ configuration }: Gateway, { request }: Exchange): void {
  const count = occurrences(request, "authorization");
  if (count > 1) throw new Refusal("several_authorization_headers");
  let all = count;
  for (const name of tokenHeadersOf(configuration.auth.accept)) all += occurrences(request, name);
  if (all > 1) throw new Refusal("several_credentials");
}

/**
 * Waits only for a password or for a token of an external issuer that has not been verified yet, or
 * for the endpoint's own authentication.
 *
 * @throws Refusal if the endpoint requires a credential and there is no valid one
 */
export function authenticateCaller(
  gateway: Gateway,
  { authentication }: Endpoint,
  exchange: Exchange,
): Promise<void> | undefined {
  requireOneCredential(gateway, exchange);
  if (authentication === "public") return undefined;
  if (typeof authentication === "object") return authentication.authenticate(gateway, exchange);
  const { configuration, tokens, access, revocations, issuers } = gateway;
  if (!configuration.auth.enabled) {
    if (authentication === "administration") throw new Refusal("administration_disabled");
    return undefined;
  }
  const { request, routed } = exchange;
  const { authorization } = request.headers;
  const acceptExternal = (external: ExternalToken) => {
    exchange.authenticated = externalCaller(access.snapshot, revocations, external);
  };
  if (routed.accept.includes("bearer") && authorization?.startsWith("Bearer ")) {
    // To check the form of a token with many groups takes longer than to find it.
    const known = issuers?.recall(authorization.slice("Bearer ".length), "query");
    if (known !== undefined) {
      acceptExternal(known);
      return undefined;
    }
  }
  const credential = readCredential(request.headers, routed.accept);
  // Browsers add Basic credentials that were typed in once to requests of other sites' pages too.
  if (/^basic /i.test(authorization ?? "")) requireSameOrigin(gateway, exchange);
  if ("password" in credential) return authenticateUser(gateway, exchange, credential);
  const { token } = credential;
  if (issuers !== undefined && claimedIssuer(token) !== configuration.auth.issuer) {
    return issuers.verify(token, "query").then(acceptExternal);
  }
  exchange.authenticated = authenticate(tokens, access.snapshot, revocations, token);
  return undefined;
}

/** @throws Refusal `credentials_invalid`, `too_many_attempts` or `login_busy` */
function authenticateUser(
  { configuration, access, passwords }: Gateway,
  exchange: Exchange,
  { username, password }: Exclude<Credential, { readonly token: string }>,
): Promise<void> | undefined {
  if (!configuration.auth.passwords) throw new Refusal("credentials_invalid");
  // Text that is not the name of a user may be a mistyped password.
  if (access.snapshot.users.has(username)) exchange.claimedName = username;
  const origin = loginOrigin(exchange.peer, exchange.request);
  const accept = (user: User) => {
    const caller = passwordCaller(user);
    caller.identify(access.snapshot);
    exchange.authenticated = caller;
  };
  const known = passwords.recall(access.snapshot, username, password, origin);
  if (known !== undefined) {
    accept(known);
    return undefined;
  }
  return passwords.verify(username, password, origin).then(accept);
}
