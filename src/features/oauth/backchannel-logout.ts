import { Refusal } from "../../core/base/refusal.ts";
import { commonHeaders, sendJson } from "../../core/http/answer.ts";
import type { Exchange } from "../../core/http/exchange.ts";
import type { Gateway } from "../../core/http/gateway.ts";
import { loginOrigin } from "../../core/http/origins.ts";
import type { Issuers } from "../issuers/issuers.ts";
import type { SignIns } from "./client/sign-ins.ts";
import { addressLimit, OAuthProblem, readForm, requireSmallBody, tooMany } from "./server/http.ts";

/** Per address and minute. Logouts that succeed do not count, since a provider may send many. */
const MAX_FAILURES = 60;

/** The response to a failure, which does not say what is wrong with a token. */
function toProblem(error: Refusal | OAuthProblem): OAuthProblem {
  if (error instanceof OAuthProblem) return error;
  const { status, message, retryAfter = 2 } = error;
  if (status === 401) return new OAuthProblem(400, "invalid_request", message);
  const headers = { "Retry-After": String(retryAfter) };
  return new OAuthProblem(503, "temporarily_unavailable", message, headers);
}

/** OpenID Connect Back-Channel Logout 1.0, section 2.5. @throws Refusal `not_found` */
export async function logOut(
  gateway: Gateway,
  exchange: Exchange,
  issuers: Issuers | undefined,
  signIns: SignIns | undefined,
): Promise<void> {
  const { configuration, audit, shared } = gateway;
  const { request, response, peer, routed, verdict } = exchange;
  const { prefix = "" } = routed.parameters;
  const settings = configuration.issuers.find((one) => one.prefix === prefix);
  if (!issuers || !signIns || !settings?.login) throw new Refusal("not_found");
  const event = { issuer: settings.issuer, address: peer.address };
  try {
    requireSmallBody(request);
    exchange.sendContinue();
    const form = await readForm(request);
    const logout = await issuers.verifyLogout(prefix, form.get("logout_token") ?? "");
    await signIns.logOut(logout);
    audit.event("oauth_logout", { user: logout.user, ...event, outcome: "allowed" });
  } catch (error) {
    if (!(error instanceof Refusal) && !(error instanceof OAuthProblem)) throw error;
    let problem = toProblem(error);
    const limit = addressLimit(shared.countRequests, "logouts", MAX_FAILURES, 60);
    const wait = await limit(loginOrigin(peer, request));
    if (wait > 0) problem = tooMany("too many failures", wait);
    else {
      const { code: outcome, detail = error.message } = error;
      const { cause } = (error instanceof Refusal && error.token) || {};
      audit.event("oauth_logout", { ...event, outcome, detail, cause }, "warn");
    }
    verdict.deny(error.code, problem.status);
    const { status, code, headers } = problem;
    sendJson(exchange, status, { error: code }, Object.entries(headers).flat());
    return;
  }
  verdict.allow();
  const headers = ["Content-Length", "0", "Cache-Control", "no-store", ...commonHeaders(exchange)];
  response.writeHead(200, headers).end();
}
