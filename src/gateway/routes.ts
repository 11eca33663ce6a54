import { type Configuration, hasEmbeddedServer, hasLogin } from "../config/schema.ts";
import { setHeaders } from "../mcp/message.ts";
import { metadataPaths } from "../oauth/server/protocol.ts";
import { Refusal } from "../refusal.ts";
import * as administration from "./administration.ts";
import { metadataPath } from "./authentication.ts";
import { SMALL_BODY_BYTES } from "./body.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { healthz, jwks, protectedResource, readyz } from "./public-routes.ts";
import { query } from "./query.ts";
import type { Endpoint, Route } from "./route.ts";
import { databases, table, tables } from "./schema.ts";

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

const backchannelLogout: Endpoint = {
  authentication: "public",
  readsBody: true,
  async handle(gateway, exchange) {
    // Loaded on demand, because most gateways have no sign-in through a provider.
    const { logOut } = await import("./backchannel-logout.ts");
    await logOut(gateway, exchange);
  },
};

function route(pattern: string, methods: Record<string, Endpoint>): Route {
  return { pattern, methods: new Map(Object.entries(methods)) };
}

function mcpRoutes(configuration: Configuration): Route[] {
  const { mcp } = configuration;
  const all = { GET: authorizationServer, POST: authorizationServer, OPTIONS: authorizationServer };
  return [
    route("/mcp", {
      POST: { authentication: "mcp", bodyLimit: mcp.max_body_bytes, handle },
      // Streams and session ends, for clients of earlier revisions.
      GET: { authentication: "mcp", handle },
      DELETE: { authentication: "mcp", handle },
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

export function routeTable(configuration: Configuration): Route[] {
  const { server, mcp } = configuration;
  return [
    route("/login", { POST: administration.login }),
    route("/query", { POST: query(server.max_body_bytes) }),
    route("/schema", { GET: databases }),
    route("/schema/:database", { GET: tables }),
    route("/schema/:database/:table", { GET: table }),
    route("/logout", { POST: administration.logout }),
    route("/api/me", { GET: administration.me }),
    route("/api/users", { GET: administration.listUsers, POST: administration.createUser }),
    route("/api/users/:username", {
      PATCH: administration.patchUser,
      DELETE: administration.deleteUser,
    }),
    route("/api/users/:username/tokens", { DELETE: administration.revokeTokens }),
    route("/api/users/:username/password", { PUT: administration.changePassword }),
    route("/api/access", { GET: administration.listAccess }),
    route("/api/access/:username/:database", {
      PUT: administration.putAccess,
      DELETE: administration.deleteAccess,
    }),
    route("/api/access/:username/:database/:table_or_pattern", {
      PUT: administration.putAccess,
      DELETE: administration.deleteAccess,
    }),
    route("/api/groups", { GET: administration.listGroups }),
    route("/api/groups/:group", {
      PUT: administration.putGroup,
      DELETE: administration.deleteGroup,
    }),
    route("/api/groups/:group/access/:database", {
      PUT: administration.putAccess,
      DELETE: administration.deleteAccess,
    }),
    route("/api/groups/:group/access/:database/:table_or_pattern", {
      PUT: administration.putAccess,
      DELETE: administration.deleteAccess,
    }),
    route("/.well-known/jwks.json", { GET: jwks }),
    ...(hasLogin(configuration)
      ? [route("/oauth/backchannel-logout/:prefix", { POST: backchannelLogout })]
      : []),
    ...(mcp.enabled ? mcpRoutes(configuration) : []),
    route("/healthz", { GET: healthz }),
    route("/readyz", { GET: readyz }),
  ];
}
