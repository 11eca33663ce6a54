import { sendJson } from "../answer.ts";
import type { Endpoint } from "../route.ts";

/** `GET /.well-known/jwks.json`: the public keys that verify login tokens (RFC 7517). */
export const jwks: Endpoint = {
  door: "public",
  isQuiet: true,
  handle: (gateway, exchange) => sendJson(exchange, 200, gateway.keys.ring.jwks),
};

/** `GET /.well-known/oauth-protected-resource`: how to get a token for `/mcp` (RFC 9728). */
export const protectedResource: Endpoint = {
  door: "public",
  isQuiet: true,
  handle: (gateway, exchange) =>
    sendJson(exchange, 200, {
      resource: `${gateway.publicUrl}/mcp`,
      authorization_servers: [gateway.publicUrl],
      scopes_supported: ["mcp:tools", "mcp:resources"],
      bearer_methods_supported: ["header"],
    }),
};
