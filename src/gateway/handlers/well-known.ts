import { mcpScopes } from "../../oauth/scopes.ts";
import { sendJson } from "../answer.ts";
import { resourceOf } from "../authentication.ts";
import type { Endpoint } from "../route.ts";

/** `GET /.well-known/jwks.json`: the public keys that verify login tokens (RFC 7517). */
export const jwks: Endpoint = {
  authentication: "public",
  isQuiet: true,
  handle: (gateway, exchange) => sendJson(exchange, 200, gateway.keys.ring.jwks),
};

/** `GET /.well-known/oauth-protected-resource`: how to get a token for `/mcp` (RFC 9728). */
export const protectedResource: Endpoint = {
  authentication: "public",
  isQuiet: true,
  async handle(gateway, exchange) {
    const { issuers } = await gateway.mcp();
    sendJson(exchange, 200, {
      resource: resourceOf(gateway),
      authorization_servers: issuers,
      scopes_supported: mcpScopes,
      bearer_methods_supported: ["header"],
    });
  },
};
