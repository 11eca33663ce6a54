import { authenticate, recognize } from "../identity/authenticate.ts";
import { Refusal } from "../refusal.ts";
import {
  authenticateCaller,
  authenticateMcp,
  mcpChallenge,
  requireStillGood,
} from "./authentication.ts";
import { Batch } from "./batch.ts";
import { readBody, requireJson, requireLength, SMALL_BODY_BYTES } from "./body.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { home, isBrowserAtHome } from "./handlers/public.ts";
import { isPreflight, requireLocal, sendPreflight } from "./origins.ts";
import { reject } from "./rejection.ts";
import { occurrences } from "./request-head.ts";
import { beginTrace } from "./request-records.ts";
import { allowedMethods, type Endpoint, endpointFor, type Router } from "./route.ts";

/**
 * A request's way through the gateway, front to back: route, authenticate, read what is asked,
 * authorize, forward, respond. Every refusal on the way ends in one place.
 *
 * Queries take all of it without a promise: nothing on their way waits but for bytes.
 */
export function handleRequest(gateway: Gateway, router: Router, exchange: Exchange): void {
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

/** What also a replica answers that may decide nothing. */
const alwaysAnswered: ReadonlySet<string> = new Set(["/healthz", "/readyz"]);

function enter(gateway: Gateway, router: Router, exchange: Exchange): Promise<void> | void {
  const { replica } = gateway;
  if (replica !== undefined && !alwaysAnswered.has(exchange.path)) replica.requireFresh();
  const endpoint = findEndpoint(gateway, router, exchange);
  if (endpoint === undefined) return;
  requireLocal(gateway, exchange);
  requireOneAuthorization(exchange);
  if (endpoint.authentication === "mcp") return enterMcp(gateway, endpoint, exchange);
  if (authenticateCaller(gateway, endpoint, exchange, recognize)) {
    readAndHandle(gateway, endpoint, exchange);
    return;
  }
  const verify = () => {
    authenticateCaller(gateway, endpoint, exchange, authenticate);
    readAndHandle(gateway, endpoint, exchange);
  };
  signatures.add(() => attempt(gateway, exchange, verify));
}

/** Requests whose tokens are to be verified. */
const signatures = new Batch();

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
  const { route, parameters } = match;
  const endpoint = endpointFor(route, exchange.request.method ?? "");
  exchange.routed = {
    pattern: route.pattern,
    parameters,
    isQuiet: endpoint?.isQuiet ?? false,
    resource: endpoint?.authentication === "mcp" ? mcpChallenge(gateway) : undefined,
  };
  beginTrace(gateway, exchange);
  if (endpoint !== undefined) return endpoint;
  if (isPreflight(exchange, gateway.configuration.server.allowed_origins)) {
    sendPreflight(exchange, route);
    return undefined;
  }
  throw new Refusal("method_not_allowed", { allow: allowedMethods(route) });
}

/** More than one credential is a question that the gateway and the upstream may answer apart. */
function requireOneAuthorization({ request }: Exchange): void {
  if (occurrences(request, "authorization") > 1) {
    throw new Refusal("several_authorization_headers");
  }
}

const noBody = Buffer.alloc(0);

function readAndHandle(gateway: Gateway, endpoint: Endpoint, exchange: Exchange): void {
  const { bodyLimit } = endpoint;
  if (bodyLimit === undefined) {
    if (!endpoint.readsBody) requireLength(exchange.request, SMALL_BODY_BYTES);
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
