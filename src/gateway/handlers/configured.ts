import type { IncomingHttpHeaders } from "node:http";
import { foldHeader } from "../../config/headers.ts";
import { Refusal } from "../../refusal.ts";
import { gatewayHeaders, type Identity, streamHeaders } from "../../upstream/headers.ts";
import type { StreamForwarder } from "../../upstream/reverse-proxy.ts";
import { asWebSocket } from "../../upstream/web-socket.ts";
import { commonHeaders } from "../answer.ts";
import type { Exchange } from "../exchange.ts";
import type { Gateway } from "../gateway.ts";
import { requireOwnOrigin } from "../origins.ts";
import { type Endpoint, isAmbiguous } from "../route.ts";
import {
  authorize,
  namesDatabase,
  type RouteSettings,
  readDatabase,
} from "../route-authorization.ts";
import { cutWhenStalled, guardStream } from "../stream-limits.ts";

/**
 * The client's headers with the one that names the database exactly as it was judged: not in
 * another spelling that an upstream may fold to its name, and also if the client had it taken off
 * as a header of the connection.
 */
function withJudgedDatabase(
  kept: IncomingHttpHeaders,
  sent: IncomingHttpHeaders,
  { database_header: header }: RouteSettings,
): IncomingHttpHeaders {
  if (header === undefined) return kept;
  const name = header.toLowerCase();
  const others = Object.entries(kept).filter(([other]) => foldHeader(other) !== foldHeader(name));
  return { ...Object.fromEntries(others), [name]: sent[name] };
}

/** The way to where the request's database lives, if it is about one and that makes a difference. */
function streamsOf(
  { routing }: Gateway,
  exchange: Exchange,
  settings: RouteSettings,
): StreamForwarder {
  const isAboutOne = !routing.isOne && namesDatabase(settings);
  return routing.streamsOf(isAboutOne ? readDatabase(exchange, settings) : undefined);
}

/** What goes up with the request: the client's headers that may pass and the gateway's own. */
function headersOf(
  { headers: policy }: Gateway,
  { request, requestId, peer }: Exchange,
  settings: RouteSettings,
  identity: Identity | undefined,
): NodeJS.Dict<string | string[]> {
  const { forwardedFor, proto, host, isTrusted } = peer;
  const kept = streamHeaders(request.headers, policy, isTrusted);
  return {
    ...withJudgedDatabase(kept, request.headers, settings),
    ...gatewayHeaders({ requestId, forwardedFor, proto, host, identity }),
  };
}

/** @throws Refusal `not_found` if the route is no longer configured, or lets others in than it did */
function requireSameRoute({ configuration: { routes } }: Gateway, settings: RouteSettings): void {
  const isSame = (route: RouteSettings) =>
    route.path === settings.path &&
    route.access === settings.access &&
    route.database_header === settings.database_header &&
    settings.methods.every((method) => route.methods.includes(method));
  if (!routes.includes(settings) && !routes.some(isSame)) throw new Refusal("not_found");
}

async function handle(
  gateway: Gateway,
  exchange: Exchange,
  settings: RouteSettings,
): Promise<void> {
  // A target has no fragment (RFC 9112, section 3.2): some cut it off, and some do not.
  const hasFragment = exchange.request.url?.includes("#") ?? false;
  if (hasFragment || isAmbiguous(exchange.path)) throw new Refusal("path_not_canonical");
  // A page of any site may open one through its visitor's browser.
  if (exchange.isHandshake) requireOwnOrigin(gateway, exchange);
  const identity = authorize(gateway, exchange, settings);
  const streams = streamsOf(gateway, exchange, settings);
  exchange.verdict.allow();
  const stream = {
    request: exchange.request,
    response: exchange.response,
    headers: headersOf(gateway, exchange, settings, identity),
    answerHeaders: commonHeaders(exchange),
  };
  const { method = "" } = exchange.request;
  exchange.goUp({ method, headers: stream.headers, target: gateway.tracing?.upstream });
  exchange.inviteBody();
  exchange.verdict.requireStillAllowed = () => {
    requireSameRoute(gateway, settings);
    authorize(gateway, exchange, settings);
  };
  guardStream(gateway, exchange);
  if (!exchange.isHandshake) cutWhenStalled(exchange.response);
  const idleTimeout = settings.upgrade_idle_timeout * 1000;
  await streams.forward(exchange.isHandshake ? asWebSocket(stream, idleTimeout) : stream);
}

/** An endpoint from `[[routes]]`: judged by its settings, then streamed both ways. */
export function configuredRoute(settings: RouteSettings): Endpoint {
  return {
    authentication: settings.access === "public" ? "public" : "data",
    readsBody: true,
    takesWebSocket: settings.upgrade,
    handle: (gateway, exchange) => handle(gateway, exchange, settings),
  };
}
