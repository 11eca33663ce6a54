import { authenticate, type Caller } from "../identity/authenticate.ts";
import { QueryRefused } from "../query/refusal.ts";
import { Refusal } from "../refusal.ts";
import { type Rejection, sendRejection } from "./answer.ts";
import { readBody, requireJson } from "./body.ts";
import { isPreflight, sendPreflight } from "./cors.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { requireLocal } from "./hosts.ts";
import { authenticateMcp } from "./mcp-door.ts";
import { occurrences } from "./request-head.ts";
import { allowedMethods, type Endpoint, endpointFor, type Router } from "./route.ts";
import { requireStillGood } from "./still-good.ts";
import { beginTrace } from "./traced.ts";

/**
 * A request's way through the gateway, front to back: route, authenticate, read what is asked,
 * authorize, forward, respond. Every refusal on the way ends in one place.
 */
export async function walk(gateway: Gateway, router: Router, exchange: Exchange): Promise<void> {
  try {
    const endpoint = findEndpoint(gateway, router, exchange);
    if (endpoint === undefined) return;
    requireLocal(gateway, exchange);
    requireOneAuthorization(exchange);
    if (endpoint.door === "mcp") await authenticateMcp(gateway, exchange);
    else exchange.caller = authenticateAt(gateway, endpoint, exchange);
    const body = await readBodyFor(gateway, endpoint, exchange);
    await endpoint.handle(gateway, exchange, body);
  } catch (error) {
    reject(gateway, exchange, error);
  }
}

/** @throws Refusal `not_found` or `method_not_allowed`; undefined if it was answered already */
function findEndpoint(gateway: Gateway, router: Router, exchange: Exchange): Endpoint | undefined {
  const match = router(exchange.path);
  if (match === undefined) throw new Refusal("not_found");
  exchange.route = match.route.pattern;
  exchange.parameters = match.parameters;
  beginTrace(gateway, exchange);
  const endpoint = endpointFor(match.route, exchange.request.method ?? "");
  exchange.isQuiet = endpoint?.isQuiet ?? false;
  if (endpoint !== undefined) return endpoint;
  if (isPreflight(exchange, gateway.configuration.server.allowed_origins)) {
    sendPreflight(exchange, match.route);
    return undefined;
  }
  throw new Refusal("method_not_allowed", { allow: allowedMethods(match.route) });
}

/** More than one credential is a question that the gateway and the upstream may answer apart. */
function requireOneAuthorization({ request }: Exchange): void {
  if (occurrences(request, "authorization") > 1) {
    throw new Refusal("several_authorization_headers");
  }
}

/** @throws Refusal if the endpoint wants a caller and there is none to be believed */
function authenticateAt(
  gateway: Gateway,
  { door }: Endpoint,
  exchange: Exchange,
): Caller | undefined {
  if (door === "public") return undefined;
  if (!gateway.configuration.auth.enabled) {
    if (door === "administration") throw new Refusal("administration_disabled");
    return undefined;
  }
  const { tokens, access, revocations } = gateway;
  const { authorization } = exchange.request.headers;
  const caller = authenticate(tokens, access.snapshot, revocations, authorization);
  exchange.username = caller.user.username;
  return caller;
}

const noBody = Buffer.alloc(0);

async function readBodyFor(
  gateway: Gateway,
  { bodyLimit }: Endpoint,
  exchange: Exchange,
): Promise<Buffer> {
  if (bodyLimit === undefined) return noBody;
  requireJson(exchange.request);
  const body = await readBody(exchange, bodyLimit, gateway.budget);
  requireStillGood(gateway, exchange);
  return body;
}

/** What the client is told of an error; all that it is not told goes to the log. */
function asRejection(gateway: Gateway, exchange: Exchange, error: unknown): Rejection {
  if (error instanceof Refusal) {
    if (error.detail !== undefined) {
      const { code, detail } = error;
      const level = error.status >= 500 ? "warn" : "debug";
      gateway.log[level]({ requestId: exchange.requestId, code, detail }, "refused");
    }
    return error;
  }
  if (error instanceof QueryRefused) {
    return { code: error.code, status: 400, message: error.message };
  }
  gateway.log.error({ requestId: exchange.requestId, err: error }, "unexpected error");
  return new Refusal("internal_error");
}

function reject(gateway: Gateway, exchange: Exchange, error: unknown): void {
  const { request, response } = exchange;
  // The client went away while its body was read: there is nobody to answer.
  if (request.destroyed && !request.complete) return;
  const rejection = asRejection(gateway, exchange, error);
  exchange.reason = rejection.code;
  if (rejection.status < 500) exchange.decision = "deny";
  if (response.headersSent) response.destroy();
  else sendRejection(exchange, rejection);
}
