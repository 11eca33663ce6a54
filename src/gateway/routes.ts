import type { Configuration } from "../config/schema.ts";
import { metadataPaths } from "../oauth/server/protocol.ts";
import { metadataPath } from "./authentication.ts";
import { deleteAccess, listAccess, putAccess } from "./handlers/access.ts";
import { changePassword, login, logout, me, revokeTokens } from "./handlers/account.ts";
import { configuredRoute } from "./handlers/configured.ts";
import { authorizationServer, mcpMessage, mcpSession } from "./handlers/mcp.ts";
import { healthz, jwks, protectedResource, readyz } from "./handlers/public.ts";
import { databases, query, table, tables } from "./handlers/query.ts";
import { createUser, deleteUser, listUsers, patchUser } from "./handlers/users.ts";
import type { Endpoint, Route } from "./route.ts";

function route(pattern: string, methods: Record<string, Endpoint>): Route {
  return { pattern, methods: new Map(Object.entries(methods)) };
}

/** Configured routes on one path answer to the methods of all of them. */
function configuredRoutes({ routes }: Configuration): Route[] {
  const byPattern = new Map<string, Map<string, Endpoint>>();
  for (const settings of routes) {
    const methods = byPattern.get(settings.path) ?? new Map<string, Endpoint>();
    const endpoint = configuredRoute(settings);
    for (const method of settings.methods) methods.set(method, endpoint);
    byPattern.set(settings.path, methods);
  }
  return Array.from(byPattern, ([pattern, methods]) => ({ pattern, methods }));
}

/** The protected resource, its metadata at both places, and the embedded authorization server. */
function mcpRoutes({ mcp }: Configuration): Route[] {
  const all = { GET: authorizationServer, POST: authorizationServer, OPTIONS: authorizationServer };
  return [
    route("/mcp", {
      POST: mcpMessage(mcp.max_body_bytes),
      GET: mcpSession,
      DELETE: mcpSession,
    }),
    route(metadataPath, { GET: protectedResource }),
    route(`${metadataPath}/mcp`, { GET: protectedResource }),
    ...(mcp.authorization_servers.length === 0
      ? [
          ...metadataPaths.map((path) => route(path, { GET: authorizationServer })),
          route("/oauth/*", all),
        ]
      : []),
  ];
}

/** Every path that the gateway answers. */
export function routeTable(configuration: Configuration): Route[] {
  const { server, mcp } = configuration;
  return [
    route("/login", { POST: login }),
    route("/query", { POST: query(server.max_body_bytes) }),
    route("/schema", { GET: databases }),
    route("/schema/:database", { GET: tables }),
    route("/schema/:database/:table", { GET: table }),
    route("/logout", { POST: logout }),
    route("/api/me", { GET: me }),
    route("/api/users", { GET: listUsers, POST: createUser }),
    route("/api/users/:username", { PATCH: patchUser, DELETE: deleteUser }),
    route("/api/users/:username/tokens", { DELETE: revokeTokens }),
    route("/api/users/:username/password", { PUT: changePassword }),
    route("/api/access", { GET: listAccess }),
    route("/api/access/:username/:database", { PUT: putAccess, DELETE: deleteAccess }),
    route("/api/access/:username/:database/:table_or_pattern", {
      PUT: putAccess,
      DELETE: deleteAccess,
    }),
    route("/.well-known/jwks.json", { GET: jwks }),
    ...(mcp.enabled ? mcpRoutes(configuration) : []),
    route("/healthz", { GET: healthz }),
    route("/readyz", { GET: readyz }),
    ...configuredRoutes(configuration),
  ];
}
