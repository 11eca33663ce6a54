import { type Configuration, hasEmbeddedServer } from "../config/schema.ts";
import { sendJson } from "../gateway/answer.ts";
import { SMALL_BODY_BYTES } from "../gateway/body.ts";
import type { Exchange, ResourceChallenge } from "../gateway/exchange.ts";
import type { Gateway } from "../gateway/gateway.ts";
import { isLoopbackAddress, requireOwnHost, requireOwnOrigin } from "../gateway/origins.ts";
import { type Endpoint, type OwnAuthentication, type Route, route } from "../gateway/route.ts";
import { memoize } from "../memoize.ts";
import { mcpScopes, metadataPaths, resourceOf, resourcesOf } from "../oauth/server/protocol.ts";
import { Refusal } from "../refusal.ts";
import { authenticatePrincipal, principals } from "./authenticate.ts";
import { setHeaders } from "./message.ts";

/** The path of the metadata of the protected resource `/mcp` (RFC 9728, section 3.1). */
const metadataPath = "/.well-known/oauth-protected-resource";

const originOf = memoize((url) => URL.parse(url)?.origin ?? "", 64);

/** The gateway's URL. Without a public one, a client on this machine may use another name of it. */
function urlFor({ configuration, publicUrl }: Gateway, { request }: Exchange): string {
  if (configuration.server.public_url !== "") return publicUrl;
  const [scheme = ""] = publicUrl.split("/", 1);
  const origin = originOf(`${scheme}//${request.headers.host}`);
  return resourcesOf(publicUrl).includes(resourceOf(origin)) ? origin : publicUrl;
}

function challenge(gateway: Gateway, exchange: Exchange): ResourceChallenge {
  const metadata = `${urlFor(gateway, exchange)}${metadataPath}/mcp`;
  return { metadata, scope: mcpScopes.join(" ") };
}

/** @throws Refusal `host_not_allowed`, `origin_not_allowed`, or one of the 401 codes */
async function authenticate(gateway: Gateway, exchange: Exchange): Promise<void> {
  // Clients that reach the gateway only from this machine may be pages with a rebound DNS name.
  const { localAddress = "" } = exchange.request.socket;
  const isLocal = isLoopbackAddress(localAddress.replace(/^::ffff:/, ""));
  if (isLocal && !exchange.peer.isTrusted) requireOwnHost(gateway, exchange);
  requireOwnOrigin(gateway, exchange);
  if (!gateway.configuration.auth.enabled) return;
  const { authorization } = exchange.request.headers;
  const { sources } = await gateway.mcp();
  const principal = await authenticatePrincipal(sources, authorization);
  exchange.authenticated = principal;
  principals.set(exchange, principal);
}

const authentication: OwnAuthentication = { via: "mcp", challenge, authenticate };

async function handle(gateway: Gateway, exchange: Exchange, body: Buffer): Promise<void> {
  const mcp = await gateway.mcp();
  exchange.verdict.isStream = true;
  exchange.verdict.allow();
  await mcp.handle(exchange, exchange.request.method === "POST" ? body : undefined);
}

/** All paths of the embedded authorization server, which writes its own responses. */
const authorizationServer: Endpoint = {
  authentication: "public",
  readsBody: true,
  async handle(gateway, exchange) {
    const { request, response, requestId } = exchange;
    const { authorizationServer: open } = await gateway.mcp();
    if (open === undefined) throw new Refusal("not_found");
    const server = await open();
    setHeaders(response, gateway.transportHeaders);
    response.setHeader("X-Request-Id", requestId);
    response.setHeader("X-Content-Type-Options", "nosniff");
    const length = Number(request.headers["content-length"] ?? 0);
    if (length <= SMALL_BODY_BYTES) exchange.sendContinue();
    server.handle(request, response);
  },
};

/** `GET /.well-known/oauth-protected-resource`: how to get a token for `/mcp` (RFC 9728). */
const protectedResource: Endpoint = {
  authentication: "public",
  isQuiet: true,
  async handle(gateway, exchange) {
    const { issuers } = await gateway.mcp();
    sendJson(exchange, 200, {
      resource: resourceOf(urlFor(gateway, exchange)),
      authorization_servers: issuers,
      scopes_supported: mcpScopes,
      bearer_methods_supported: ["header"],
    });
  },
};

export function mcpRoutes(configuration: Configuration): Route[] {
  const { mcp } = configuration;
  const all = { GET: authorizationServer, POST: authorizationServer, OPTIONS: authorizationServer };
  return [
    route("/mcp", {
      POST: { authentication, bodyLimit: mcp.max_body_bytes, handle },
      // Streams and session ends, for clients of earlier revisions.
      GET: { authentication, handle },
      DELETE: { authentication, handle },
    }),
    route(metadataPath, { GET: protectedResource }),
    route(`${metadataPath}/mcp`, { GET: protectedResource }),
    ...(hasEmbeddedServer(configuration)
      ? [
          ...metadataPaths.map((path) => route(path, { GET: authorizationServer })),
          route("/oauth/*", all),
        ]
      : []),
  ];
}
