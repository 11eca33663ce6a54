import type { IncomingMessage } from "node:http";
import { hasEmbeddedServer } from "../config/schema.ts";
import { version } from "../product.ts";
import { type RefusalCode, refusals } from "../refusal.ts";
import { commonHeaders, sendJson, sendSuccess } from "./answer.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import type { Endpoint } from "./route.ts";

export const healthz: Endpoint = {
  authentication: "public",
  isQuiet: true,
  handle: (_gateway, exchange) => sendSuccess(exchange, 200, { version }),
};

export const readyz: Endpoint = {
  authentication: "public",
  isQuiet: true,
  async handle(gateway, exchange) {
    const { replica, shared } = gateway;
    const isUp = await gateway.routing.isUp();
    let code: RefusalCode | undefined;
    if ((await shared.condition()).isEnding) code = "shutting_down";
    else if (replica?.isFresh === false) code = "store_unreachable";
    else if (!isUp) code = "upstream_unreachable";
    const issuers = gateway.issuers?.states;
    // A 503 has the fields of every other error.
    const problem = code && { message: refusals[code][1], code, request_id: exchange.requestId };
    sendJson(exchange, problem === undefined ? 200 : 503, {
      ...(problem === undefined ? { status: "success" } : { status: "error", ...problem }),
      upstream: isUp ? "up" : "down",
      ...(replica && {
        store: replica.isReachable ? "reached" : "unreachable",
        store_version: replica.appliedVersion,
        store_lag: replica.lag,
        lease_age: Math.round(replica.leaseAge) / 1000,
      }),
      access_file: gateway.access.stale ? "stale" : "fresh",
      revocations: gateway.revocations.stale ? "stale" : "fresh",
      keys: gateway.keys.failure === undefined ? "fresh" : "stale",
      ...(issuers === undefined ? {} : { issuers }),
      access_version: gateway.access.version,
      version,
    });
  },
};

/** `GET /.well-known/jwks.json`: the public keys that verify login tokens (RFC 7517). */
export const jwks: Endpoint = {
  authentication: "public",
  isQuiet: true,
  handle: (gateway, exchange) => sendJson(exchange, 200, gateway.keys.ring.jwks),
};

/** True for a browser at `/`. For other clients the path is unknown. */
export function isBrowserAtHome({ method, headers }: IncomingMessage, path: string): boolean {
  if (path !== "/" || (method !== "GET" && method !== "HEAD")) return false;
  return headers.accept?.includes("text/html") ?? false;
}

type HomeEntry = [address: string, purpose: string, isPage?: true];

function homeEntries({ configuration, publicUrl, consoleUrl }: Gateway): HomeEntry[] {
  const { auth, mcp, console } = configuration;
  const all: HomeEntry[] = [["POST /query", "runs a query in JSON, with a token"]];
  if (auth.passwords) {
    all.unshift(["POST /login", "exchanges a username and a password for a token"]);
  }
  if (mcp.enabled) {
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
  all.push(["GET /api/me", "returns the user of a token, and what the token allows"]);
  all.push(["GET /readyz", "reports whether the database responds"]);
  return all;
}

async function sendHome(gateway: Gateway, exchange: Exchange): Promise<void> {
  // Loaded on demand, because most gateways never show this page.
  const { html } = await import("../pages/html.ts");
  const { pageHeaders, renderPage } = await import("../oauth/server/pages.ts");
  const content = html`<h1>This is a gateway to a database</h1>
<p>Programs query the database through it, each user with the rights that were granted. There is nothing to browse here. For an account, ask the operator of this gateway.</p>
<ul>
${homeEntries(gateway).map(([address, purpose, isPage]) => {
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

export const home: Endpoint = { authentication: "public", isQuiet: true, handle: sendHome };
