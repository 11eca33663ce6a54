import { memoize } from "../../core/base/memoize.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { basePathOf, type Configuration, hasEmbeddedServer } from "../../core/config/schema.ts";
import { sendJson } from "../../core/http/answer.ts";
import { SMALL_BODY_BYTES } from "../../core/http/body.ts";
import type { Exchange, ResourceChallenge } from "../../core/http/exchange.ts";
import type { Gateway } from "../../core/http/gateway.ts";
import { isLocal, requireOwnHost, requireOwnOrigin } from "../../core/http/origins.ts";
import { type Endpoint, type Route, route } from "../../core/http/route.ts";
import { mcpResource, mcpResources, mcpScopes, metadataPaths } from "../oauth/server/protocol.ts";
import { authenticatePrincipal, principals, type TokenSources } from "./authenticate.ts";
import { setHeaders } from "./message.ts";

/** The protected resource `/mcp`, available once the gateway knows its own URL. */
export interface McpEndpoint extends TokenSources {
  readonly issuers: readonly string[];
  /** Answers an authenticated request. The body is undefined for GET and DELETE. */
  handle(exchange: Exchange, body: Buffer | undefined): Promise<void>;
}

/** Where the metadata of a resource is, with the path of the resource at the end (RFC 9728, section 3.1). */
const metadataPath = "/.well-known/oauth-protected-resource";

const urlOrigin = memoize((url) => URL.parse(url)?.origin ?? "", 64);

/** The gateway's URL. Without a public one, a client on this machine may use another name of it. */
function urlFor({ configuration, basePath, publicUrl }: Gateway, { request }: Exchange): string {
  if (configuration.server.public_url !== "") return publicUrl;
  const [scheme = ""] = publicUrl.split("/", 1);
  const url = urlOrigin(`${scheme}//${request.headers.host}`) + basePath;
  return mcpResources(publicUrl).includes(mcpResource(url)) ? url : publicUrl;
}

function challenge(gateway: Gateway, exchange: Exchange): ResourceChallenge {
  return {
    scope: mcpScopes.join(" "),
    metadata() {
      const { origin, pathname } = new URL(mcpResource(urlFor(gateway, exchange)));
      return origin + metadataPath + pathname;
    },
  };
}

/** @throws Refusal `host_not_allowed`, `origin_not_allowed`, or one of the 401 codes */
async function authenticate(
  endpoint: Promise<McpEndpoint>,
  gateway: Gateway,
  exchange: Exchange,
): Promise<void> {
  // Clients that reach the gateway only from this machine may be pages with a rebound DNS name.
  const { localAddress = "" } = exchange.request.socket;
  if (isLocal(localAddress) && !exchange.peer.isTrusted) requireOwnHost(gateway, exchange);
  requireOwnOrigin(gateway, exchange);
  if (!gateway.configuration.auth.enabled) return;
  const { authorization } = exchange.request.headers;
  const principal = await authenticatePrincipal(gateway, await endpoint, authorization);
  exchange.authenticated = principal;
  principals.set(exchange, principal);
}

/** All paths of the embedded authorization server, which writes its own responses. */
function authorizationEndpoint(endpoint: Promise<McpEndpoint>): Endpoint {
  return {
    authentication: "public",
    readsBody: true,
    async handle(gateway, exchange) {
      const { request, response, requestId } = exchange;
      const { authorizationServer } = await endpoint;
      if (authorizationServer === undefined) throw new Refusal("not_found");
      const server = await authorizationServer();
      setHeaders(response, gateway.transportHeaders);
      response.setHeader("X-Request-Id", requestId);
      response.setHeader("X-Content-Type-Options", "nosniff");
      const length = Number(request.headers["content-length"] ?? 0);
      if (length <= SMALL_BODY_BYTES) exchange.sendContinue();
      server.handle(request, response);
    },
  };
}

/** `GET /.well-known/oauth-protected-resource`: how to get a token for `/mcp` (RFC 9728). */
function metadataEndpoint(endpoint: Promise<McpEndpoint>): Endpoint {
  return {
    authentication: "public",
    isQuiet: true,
    async handle(gateway, exchange) {
      const { issuers } = await endpoint;
      sendJson(exchange, 200, {
        resource: mcpResource(urlFor(gateway, exchange)),
        authorization_servers: issuers,
        scopes_supported: mcpScopes,
        bearer_methods_supported: ["header"],
      });
    },
  };
}

function mcpRoute(bodyLimit: number, endpoint: Promise<McpEndpoint>): Route {
  const all: Endpoint = {
    authentication: {
      via: "mcp",
      challenge,
      authenticate: (gateway, exchange) => authenticate(endpoint, gateway, exchange),
    },
    async handle(_gateway, exchange, body) {
      const mcp = await endpoint;
      exchange.verdict.noteStream();
      exchange.verdict.allow();
      await mcp.handle(exchange, exchange.request.method === "POST" ? body : undefined);
    },
  };
  // GET and DELETE: streams and session ends, for clients of earlier revisions.
  return route("/mcp", { POST: { ...all, bodyLimit }, GET: all, DELETE: all });
}

/** @param endpoint resolves once the gateway's URL is known */
export function mcpRoutes(configuration: Configuration, endpoint: Promise<McpEndpoint>): Route[] {
  const metadata = metadataEndpoint(endpoint);
  const server = authorizationEndpoint(endpoint);
  const basePath = basePathOf(configuration);
  return [
    mcpRoute(configuration.mcp.max_body_bytes, endpoint),
    route(`${metadataPath}${basePath}`, { GET: metadata }),
    route(`${metadataPath}${basePath}/mcp`, { GET: metadata }),
    ...(hasEmbeddedServer(configuration)
      ? [
          ...metadataPaths(basePath).map((path) => route(path, { GET: server })),
          route("/oauth/*", { GET: server, POST: server, OPTIONS: server }),
        ]
      : []),
  ];
}
