import {
  basePathOf,
  type Configuration,
  hasEmbeddedServer,
  hasLogin,
  servesMcp,
} from "../core/config/schema.ts";
import * as administration from "../core/http/administration.ts";
import { commonHeaders } from "../core/http/answer.ts";
import type { Exchange } from "../core/http/exchange.ts";
import type { Gateway } from "../core/http/gateway.ts";
import { healthz, jwks, openapi, readyz } from "../core/http/public-routes.ts";
import { query } from "../core/http/query.ts";
import { createRouter, type Endpoint, type Route, type Routes, route } from "../core/http/route.ts";
import { mcpRoutes } from "../features/mcp/routes.ts";
import { configuredRouter } from "../features/routes/configured-routes.ts";
import { schemaRoutes } from "../features/schema/schema.ts";
import type { Features } from "./open-gateway.ts";

function backchannelLogout(features: Features | undefined): Endpoint {
  return {
    authentication: "public",
    readsBody: true,
    async handle(gateway, exchange) {
      // Loaded on demand, because most gateways have no sign-in through a provider.
      const { logOut } = await import("../features/oauth/backchannel-logout.ts");
      await logOut(gateway, exchange, features?.issuers, features?.signIns);
    },
  };
}

const pending = new Promise<never>(() => {});

/**
 * The gateway's own routes. Documents at `/.well-known/` stay there, all others are below the base
 * path.
 *
 * @param features undefined for a table that is only described
 */
export function routeTable(configuration: Configuration, features?: Features): Route[] {
  const { auth, server, upstream } = configuration;
  const basePath = basePathOf(configuration);
  const entry = { PUT: administration.putAccess, DELETE: administration.deleteAccess };
  const routes = [
    ...(auth.passwords ? [route("/login", { POST: administration.login })] : []),
    ...(upstream.preset === undefined
      ? [route("/query", { POST: query(server.max_body_bytes) }), ...schemaRoutes(features?.schema)]
      : []),
    route("/logout", { POST: administration.logout }),
    route("/api/me", { GET: administration.me }),
    route("/api/users", { GET: administration.listUsers, POST: administration.createUser }),
    route("/api/users/:username", {
      PATCH: administration.patchUser,
      DELETE: administration.deleteUser,
    }),
    route("/api/users/:username/tokens", { DELETE: administration.revokeTokens }),
    route("/api/users/:username/password", { PUT: administration.changePassword }),
    route("/api/users/:username/access", { GET: administration.userAccess }),
    route("/api/tokens", { GET: administration.listTokens }),
    route("/api/tokens/:id", { DELETE: administration.revokeIssuedToken }),
    route("/api/access", { GET: administration.listAccess }),
    route("/api/access/:username/:database", entry),
    route("/api/access/:username/:database/:table_or_pattern", entry),
    route("/api/groups", { GET: administration.listGroups }),
    route("/api/groups/:group", {
      PUT: administration.putGroup,
      DELETE: administration.deleteGroup,
    }),
    route("/api/groups/:group/access/:database", entry),
    route("/api/groups/:group/access/:database/:table_or_pattern", entry),
    route("/.well-known/jwks.json", { GET: jwks }),
    ...(hasLogin(configuration)
      ? [route("/oauth/backchannel-logout/:prefix", { POST: backchannelLogout(features) })]
      : []),
    ...(servesMcp(configuration) ? mcpRoutes(configuration, features?.mcp.promise ?? pending) : []),
    route("/openapi.yaml", { GET: openapi }),
    route("/healthz", { GET: healthz }),
    route("/readyz", { GET: readyz }),
  ];
  return routes.map(({ pattern, methods }) => ({
    pattern: pattern.startsWith("/.well-known/") ? pattern : basePath + pattern,
    methods,
  }));
}

type HomeEntry = [address: string, purpose: string, isPage?: true];

function homeEntries(
  { configuration, publicUrl }: Gateway,
  consoleUrl: string | undefined,
): HomeEntry[] {
  const { auth, console, upstream } = configuration;
  const basePath = basePathOf(configuration);
  const all: HomeEntry[] =
    upstream.preset === undefined
      ? [[`POST ${basePath}/query`, "runs a query in JSON, with a token"]]
      : [[new URL(publicUrl).origin, "is the address for the database's ordinary clients"]];
  if (auth.passwords) {
    all.unshift([`POST ${basePath}/login`, "exchanges a username and a password for a token"]);
  }
  if (servesMcp(configuration)) {
    all.push([`${publicUrl}/mcp`, "is the address for MCP clients"]);
    if (hasEmbeddedServer(configuration)) {
      const page = `${publicUrl}/oauth/applications`;
      all.push([page, "lists the apps that you have connected, and disconnects them", true]);
    }
  }
  if (consoleUrl !== undefined) {
    all.push([consoleUrl, "is the console: sign in there with a browser", true]);
  } else if (console.listen === undefined) {
    all.push(["[console]", "in gateway.toml, with a listen address, enables the console"]);
  }
  all.push([`GET ${basePath}/api/me`, "returns the user of a token, and what the token allows"]);
  all.push([`GET ${basePath}/readyz`, "reports whether the database responds"]);
  return all;
}

async function sendHome(
  gateway: Gateway,
  exchange: Exchange,
  consoleUrl: string | undefined,
): Promise<void> {
  // Loaded on demand, because most gateways never show this page.
  const { html } = await import("../core/base/html.ts");
  const { pageHeaders, renderPage } = await import("../features/oauth/server/pages.ts");
  const content = html`<h1>This is a gateway to a database</h1>
<p>Programs query the database through it, each user with the rights that were granted. There is nothing to browse here. For an account, ask the operator of this gateway.</p>
<ul>
${homeEntries(gateway, consoleUrl).map(([address, purpose, isPage]) => {
  const name = isPage ? html`<a href="${address}">${address}</a>` : html`<code>${address}</code>`;
  return html`<li>${name} ${purpose}</li>`;
})}
</ul>
<p class="quiet">For more, see README.md, docs/http.md and docs/mcp.md of Gatehouse.</p>`;
  const bytes = Buffer.from(renderPage({ title: "Gateway", content }));
  const headers = { ...pageHeaders, "Content-Length": String(bytes.length) };
  exchange.response.writeHead(200, [...Object.entries(headers).flat(), ...commonHeaders(exchange)]);
  exchange.response.end(exchange.request.method === "HEAD" ? undefined : bytes);
}

export function createRoutes(features: Features): Routes {
  return {
    routerOf: (configuration) =>
      createRouter(
        routeTable(configuration, features),
        features.preset?.router(configuration) ?? configuredRouter(configuration),
      ),
    home: {
      authentication: "public",
      isQuiet: true,
      handle: (gateway, exchange) => sendHome(gateway, exchange, features.consoleUrl),
    },
  };
}
