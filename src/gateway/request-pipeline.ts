import { authenticate, type Caller } from "../identity/authenticate.ts";
import { Refusal } from "../refusal.ts";
import { readBody, requireJson } from "./body.ts";
import { isPreflight, sendPreflight } from "./cors.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { home, isBrowserAtHome } from "./handlers/home.ts";
import { requireLocal } from "./hosts.ts";
import { authenticateMcp } from "./mcp-authentication.ts";
import { reject } from "./reject.ts";
import { occurrences } from "./request-head.ts";
import { beginTrace } from "./request-tracing.ts";
import { allowedMethods, type Endpoint, endpointFor, type Router } from "./route.ts";
import { requireStillGood } from "./still-good.ts";

/**
 * A request's way through the gateway, front to back: route, authenticate, read what is asked,
 * authorize, forward, respond. Every refusal on the way ends in one place.
 *
 * Queries take all of it without a promise: nothing on their way waits but for bytes.
 */
export function walk(gateway: Gateway, router: Router, exchange: Exchange): void {
  attempt(gateway, exchange, () => enter(gateway, router, exchange));
}

/** Takes a step of the way; what it throws is the request's answer. */
function attempt(gateway: Gateway, exchange: Exchange, step: () => Promise<void> | void): void {
  try {
    step()?.catch((error: unknown) => reject(gateway, exchange, error));
  } catch (error) {
    reject(gateway, exchange, error);
  }
}

function enter(gateway: Gateway, router: Router, exchange: Exchange): Promise<void> | void {
  const endpoint = findEndpoint(gateway, router, exchange);
  if (endpoint === undefined) return;
  requireLocal(gateway, exchange);
  requireOneAuthorization(exchange);
  if (endpoint.door === "mcp") return enterMcp(gateway, endpoint, exchange);
  exchange.caller = authenticateAt(gateway, endpoint, exchange);
  readAndHandle(gateway, endpoint, exchange);
}

async function enterMcp(gateway: Gateway, endpoint: Endpoint, exchange: Exchange): Promise<void> {
  await authenticateMcp(gateway, exchange);
  readAndHandle(gateway, endpoint, exchange);
}

/** @throws Refusal `not_found` or `method_not_allowed`; undefined if it was answered already */
function findEndpoint(gateway: Gateway, router: Router, exchange: Exchange): Endpoint | undefined {
  const match = router(exchange.path);
  if (match === undefined) {
    if (isBrowserAtHome(exchange.request, exchange.path)) return home;
    throw new Refusal("not_found");
  }
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

function readAndHandle(gateway: Gateway, endpoint: Endpoint, exchange: Exchange): void {
  const { bodyLimit } = endpoint;
  if (bodyLimit === undefined) {
    attempt(gateway, exchange, () => endpoint.handle(gateway, exchange, noBody));
    return;
  }
  requireJson(exchange.request);
  readBody(exchange, bodyLimit, gateway.budget, {
    take: (body) =>
      attempt(gateway, exchange, () => {
        requireStillGood(gateway, exchange);
        return endpoint.handle(gateway, exchange, body);
      }),
    fail: (error) => reject(gateway, exchange, error),
  });
}
