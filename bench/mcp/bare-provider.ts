/**
 * The bare authorization server: `oidc-provider` with in-memory state, configured as in Gatehouse, with
 * minimal pages that accept any password. `node bench/mcp/bare-provider.ts` prints its port.
 */
import { generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { text } from "node:stream/consumers";
import { Provider } from "oidc-provider";

const server = createServer().listen(0, "127.0.0.1");
await once(server, "listening");
const address = server.address();
const issuer = `http://127.0.0.1:${typeof address === "object" ? address?.port : ""}`;
const scope = "mcp:tools mcp:resources";
const pair = generateKeyPairSync("ec", { namedCurve: "P-256" });
const jwk = { ...pair.privateKey.export({ format: "jwk" }), kid: "1", alg: "ES256", use: "sig" };
const off = { enabled: false };

const provider = new Provider(issuer, {
  jwks: { keys: [{ ...jwk, kty: "EC" }] },
  clientDefaults: {
    application_type: "native",
    grant_types: ["authorization_code", "refresh_token"],
    id_token_signed_response_alg: "ES256",
    response_types: ["code"],
    token_endpoint_auth_method: "none",
  },
  clientAuthMethods: ["none"],
  enabledJWA: { idTokenSigningAlgValues: ["ES256"] },
  responseTypes: ["code"],
  scopes: ["offline_access"],
  features: {
    devInteractions: off,
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => `${issuer}/mcp`,
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({
        audience: `${issuer}/mcp`,
        scope,
        accessTokenTTL: 600,
        accessTokenFormat: "jwt",
        jwt: { sign: { alg: "ES256", kid: "1" } },
      }),
    },
  },
  cookies: { keys: ["bench"] },
  findAccount: (_, accountId) => ({ accountId, claims: () => ({ sub: accountId }) }),
  issueRefreshToken: () => true,
  rotateRefreshToken: () => true,
  interactions: { url: (_, { uid }) => `${issuer}/interaction/${uid}` },
  routes: {
    authorization: "/oauth/authorize",
    token: "/oauth/token",
    registration: "/oauth/register",
  },
  ttl: { AccessToken: 600, Grant: 3600, Interaction: 600, RefreshToken: 3600, Session: 600 },
});

async function interact(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { prompt, session, params } = await provider.interactionDetails(request, response);
  if (request.method === "GET") {
    response.setHeader("content-type", "text/html");
    response.end(`<form method="post"><button name="action" value="${prompt.name}"></form>`);
    return;
  }
  const form = new URLSearchParams(await text(request));
  if (prompt.name === "login") {
    const login = { accountId: form.get("username") ?? "", remember: false };
    await provider.interactionFinished(request, response, { login });
    return;
  }
  const { accountId = "" } = session ?? {};
  const grant = new provider.Grant({ accountId, clientId: String(params.client_id) });
  grant.addResourceScope(`${issuer}/mcp`, scope);
  grant.addOIDCScope("offline_access");
  const grantId = await grant.save();
  await provider.interactionFinished(request, response, { consent: { grantId } });
}

const protocol = provider.callback();
server.on("request", (request, response) => {
  if (request.url?.startsWith("/interaction/") !== true) protocol(request, response);
  else interact(request, response).catch(() => response.destroy());
});
console.log(new URL(issuer).port);
