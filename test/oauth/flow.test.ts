import { decodeJwt, decodeProtectedHeader } from "jose";
import t from "tap";
import { metadataPaths } from "../../src/oauth/server/protocol.ts";
import { PlainBrowser } from "./browser.ts";
import { authorize, exchange, obtainTokens } from "./flow.ts";
import { authorizeUrl, CONFIGURED, openSetting, PASSWORD, registered } from "./kit.ts";

t.test("the metadata names the endpoints, under the very issuer", async (t) => {
  const setting = await openSetting(t);
  for (const name of metadataPaths) {
    const answer = await fetch(setting.url + name, {
      headers: { "x-forwarded-host": "evil.example", "x-forwarded-proto": "https" },
    });
    t.match(await answer.json(), {
      issuer: setting.url,
      authorization_endpoint: `${setting.url}/oauth/authorize`,
      token_endpoint: `${setting.url}/oauth/token`,
      registration_endpoint: `${setting.url}/oauth/register`,
      revocation_endpoint: `${setting.url}/oauth/revoke`,
      code_challenge_methods_supported: ["S256"],
      authorization_response_iss_parameter_supported: true,
      client_id_metadata_document_supported: true,
      scopes_supported: ["mcp:tools", "mcp:resources", "offline_access"],
      token_endpoint_auth_methods_supported: ["none"],
    });
    t.equal(answer.headers.get("access-control-allow-origin"), "*");
  }
});

t.test("a user lets a client in, and its token opens the resource", async (t) => {
  const setting = await openSetting(t);
  const { accessToken, body, callback, clientId } = await obtainTokens(setting, {
    database: "main",
    reach: "read",
  });
  t.equal(callback.searchParams.get("state"), "s1");
  t.equal(callback.searchParams.get("iss"), setting.url);
  t.match(body, { token_type: "Bearer", expires_in: 600, refresh_token: String });
  t.equal(body.scope, "mcp:tools mcp:resources");
  t.match(decodeProtectedHeader(accessToken), { typ: "at+jwt", alg: "ES256", kid: String });
  t.match(decodeJwt(accessToken), {
    iss: setting.url,
    aud: `${setting.url}/mcp`,
    sub: "alice",
    client_id: clientId,
    database: "main",
    read_only: true,
    cred: /^[\w-]{11}$/,
    jti: String,
  });
  t.match(await setting.server.verify(accessToken), {
    username: "alice",
    database: "main",
    readOnly: true,
    clientId,
    scopes: new Set(["mcp:tools", "mcp:resources"]),
  });
  const names = setting.events.map(({ name }) => name);
  t.strictSame(names, ["oauth_registration", "oauth_login", "oauth_consent", "oauth_token"]);
  t.notMatch(JSON.stringify(setting.events), new RegExp(PASSWORD));
});

t.test("the public keys verify the tokens, and are public", async (t) => {
  const { url } = await openSetting(t);
  const answer = await fetch(`${url}/oauth/jwks`);
  const text = await answer.text();
  t.match(JSON.parse(text), { keys: [{ kty: "EC", crv: "P-256", alg: "ES256", kid: String }] });
  t.notMatch(text, /"d"/);
});

t.test("a client that names no scope asks for all of the resource", async (t) => {
  const setting = await openSetting(t);
  const { body } = await obtainTokens(setting, { parameters: { scope: "", resource: "" } });
  t.equal(body.scope, "mcp:tools mcp:resources");
});

t.test("a client gets no more than it asked for", async (t) => {
  const setting = await openSetting(t);
  const { accessToken } = await obtainTokens(setting, { parameters: { scope: "mcp:resources" } });
  const { scopes } = await setting.server.verify(accessToken);
  t.strictSame(scopes, new Set(["mcp:resources"]));
});

t.test("a scope that is not known is refused at the client", async (t) => {
  const setting = await openSetting(t);
  const browser = new PlainBrowser(setting.url);
  const client_id = await registered(setting);
  const page = await browser.open(authorizeUrl(setting, { client_id, scope: "everything" }));
  t.equal(new URL(page.url).searchParams.get("error"), "invalid_scope");
  t.equal(new URL(page.url).searchParams.get("iss"), setting.url);
});

t.test("a client of the configuration needs no registration", async (t) => {
  const setting = await openSetting(t);
  const [redirect_uri = ""] = CONFIGURED.redirect_uris;
  const authorized = await authorize(setting, {
    clientId: CONFIGURED.client_id,
    parameters: { redirect_uri },
  });
  t.ok(authorized.callback.href.startsWith(redirect_uri));
  t.equal((await exchange(setting, authorized)).status, 200);
});

t.test("a loopback redirect may come back to any port", async (t) => {
  const setting = await openSetting(t);
  const redirect_uri = "http://127.0.0.1:61234/callback";
  const { callback } = await obtainTokens(setting, { parameters: { redirect_uri } });
  t.equal(callback.port, "61234");
});
