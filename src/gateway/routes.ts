import { type Configuration, hasLogin } from "../config/schema.ts";
import { mcpRoutes } from "../mcp/routes.ts";
import * as administration from "./administration.ts";
import { healthz, jwks, readyz } from "./public-routes.ts";
import { query } from "./query.ts";
import { type Endpoint, type Route, route } from "./route.ts";
import { databases, table, tables } from "./schema.ts";

const backchannelLogout: Endpoint = {
  authentication: "public",
  readsBody: true,
  async handle(gateway, exchange) {
    // Loaded on demand, because most gateways have no sign-in through a provider.
    const { logOut } = await import("./backchannel-logout.ts");
    await logOut(gateway, exchange);
  },
};

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
