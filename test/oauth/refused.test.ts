import path from "node:path";
import { decodeJwt, type JWTPayload, SignJWT } from "jose";
import t, { type Test } from "tap";
import { keyFilesIn } from "../../src/identity/key-file.ts";
import { openSigningKeys } from "../../src/oauth/server/tokens.ts";
import { refusedBy } from "../access/kit.ts";
import { PlainBrowser } from "./browser.ts";
import { authorize, exchange, obtainTokens, refresh } from "./flow.ts";
import { authorizeUrl, openSetting, postForm, REDIRECT, registered, type Setting } from "./kit.ts";

async function checkErrorAtClient(
  t: Test,
  setting: Setting,
  parameters: Record<string, string>,
  error: string,
): Promise<void> {
  const client_id = await registered(setting);
  const page = await new PlainBrowser(setting.url).open(
    authorizeUrl(setting, { client_id, ...parameters }),
  );
  t.ok(page.url.startsWith(REDIRECT), "the client is told");
  const { searchParams } = new URL(page.url);
  t.equal(searchParams.get("error"), error);
  t.equal(searchParams.get("iss"), setting.url);
  t.equal(searchParams.get("state"), "s1");
}

t.test("a request without PKCE is refused", async (t) => {
  const setting = await openSetting(t);
  const without = { code_challenge: "", code_challenge_method: "" };
  await checkErrorAtClient(t, setting, without, "invalid_request");
});

t.test("a plain challenge is refused, said or not", async (t) => {
  const setting = await openSetting(t);
  await checkErrorAtClient(t, setting, { code_challenge_method: "plain" }, "invalid_request");
  await checkErrorAtClient(t, setting, { code_challenge_method: "" }, "invalid_request");
});

t.test("a token for another resource is refused", async (t) => {
  const setting = await openSetting(t);
  const elsewhere = { resource: "https://elsewhere.example/mcp" };
  await checkErrorAtClient(t, setting, elsewhere, "invalid_target");
  await checkErrorAtClient(t, setting, { resource: `${setting.url}/query` }, "invalid_target");
  const authorized = await authorize(setting);
  const { body } = await postForm(`${setting.url}/oauth/token`, {
    grant_type: "authorization_code",
    client_id: authorized.clientId,
    code: authorized.callback.searchParams.get("code") ?? "",
    code_verifier: authorized.verifier,
    redirect_uri: REDIRECT,
    resource: "https://elsewhere.example/mcp",
  });
  t.equal(body.error, "invalid_target");
});

t.test("the implicit grant is not there", async (t) => {
  const setting = await openSetting(t);
  const client_id = await registered(setting);
  const page = await new PlainBrowser(setting.url).open(
    authorizeUrl(setting, { client_id, response_type: "token" }),
  );
  t.match(page.url, /error=unsupported_response_type/);
});

t.test(
  "a redirect that is not the registered one is shown to the user, not followed",
  async (t) => {
    const setting = await openSetting(t);
    const client_id = await registered(setting, {
      redirect_uris: ["https://app.example.com/callback", REDIRECT],
    });
    for (const redirect_uri of [
      "https://app.example.com/callback/",
      "https://app.example.com/callback?x=1",
      "https://app.example.com:8443/callback",
      "https://app.example.com.evil.example/callback",
      "https://app.example.com/callback/../other",
      "https://app.example.com/callback/%2e%2e/other",
      "https://app.example.com/%63allback",
      "https://app.example.com/callback%3Fx=1",
      "https://app.example.com/callback#fragment",
      "https://app.example.com/callback;x",
      "https://app.example.com//callback",
      "https://app.example.com\\callback",
      "https://app.example.com:443/callback",
      "https://user@app.example.com/callback",
      "https://app.example.com@evil.example/callback",
      "https://evil.example\\@app.example.com/callback",
      "https://APP.example.com/callback",
      "https://app.example.com./callback",
      "//app.example.com/callback",
      "javascript:alert(1)",
      "http://user@127.0.0.1:4999/callback",
      "http://127.0.0.1:4999@evil.example/callback",
      "http://127.1:4999/callback",
      "https://127.0.0.1:4999/callback",
      "http://app.example.com/callback",
      "http://127.0.0.1:4999/other",
      "http://localhost:4999/callback",
      "http://127.0.0.1.evil.example/callback",
      "",
    ]) {
      const url = authorizeUrl(setting, { client_id, redirect_uri });
      const page = await new PlainBrowser(setting.url).open(url);
      t.equal(page.status, 400, redirect_uri);
      t.ok(page.url.startsWith(setting.url), redirect_uri);
      t.match(page.headers.get("content-security-policy"), /default-src 'none'/);
      t.match(page.headers.get("content-security-policy"), /frame-ancestors 'none'/);
      t.equal(page.headers.get("x-frame-options"), "DENY");
      t.match(page.text, /This request cannot go on/);
    }
  },
);

t.test("a client that is not known is shown to the user", async (t) => {
  const setting = await openSetting(t);
  const url = authorizeUrl(setting, { client_id: "<script>alert(1)</script>" });
  const page = await new PlainBrowser(setting.url).open(url);
  t.equal(page.status, 400);
  t.notMatch(page.text, "<script");
});

t.test("a code is good once; shown again it ends what came of it", async (t) => {
  const setting = await openSetting(t);
  const tokens = await obtainTokens(setting);
  await setting.server.verify(tokens.accessToken);
  const again = await exchange(setting, tokens);
  t.equal(again.body.error, "invalid_grant");
  const refusal = await refusedBy(setting.server.verify(tokens.accessToken));
  t.equal(refusal.code, "token_revoked");
  const refreshed = await refresh(setting, tokens.clientId, tokens.refreshToken);
  t.equal(refreshed.body.error, "invalid_grant");
  t.ok(setting.events.some(({ name }) => name === "oauth_replay"));
});

t.test("of many exchanges of a code at one moment, one at most succeeds", async (t) => {
  const setting = await openSetting(t);
  const authorized = await authorize(setting);
  const answers = await Promise.all(Array.from({ length: 8 }, () => exchange(setting, authorized)));
  t.ok(answers.filter(({ status }) => status === 200).length <= 1);
});

t.test("a code needs its verifier, its client and its redirect", async (t) => {
  const setting = await openSetting(t);
  const other = await registered(setting);
  for (const change of [
    { verifier: "a".repeat(43) },
    { clientId: other },
    { redirectUri: "http://127.0.0.1:5000/callback" },
  ]) {
    const authorized = await authorize(setting);
    const { body } = await exchange(setting, { ...authorized, ...change });
    t.equal(body.error, "invalid_grant", JSON.stringify(Object.keys(change)));
  }
});

t.test("a token of another server, or a bent one, opens nothing", async (t) => {
  const [setting, other] = [await openSetting(t), await openSetting(t)];
  const { accessToken } = await obtainTokens(other);
  const [head, body, signature] = (await obtainTokens(setting)).accessToken.split(".");
  for (const token of [accessToken, `${head}.${body}.${signature?.toLowerCase()}`, "x", "a.b.c"]) {
    t.equal((await refusedBy(setting.server.verify(token))).code, "token_invalid");
  }
});

t.test("a token for another audience opens nothing, whoever signed it", async (t) => {
  const setting = await openSetting(t);
  const { accessToken } = await obtainTokens(setting);
  const { privateKeys } = await openSigningKeys(
    keyFilesIn(path.join(setting.directory, "keys"), { checkRead: true }),
  );
  const [key] = privateKeys;
  if (key === undefined) throw new Error("no key");
  const header = { alg: "ES256", typ: "at+jwt", kid: key.kid };
  const signed = (changes: JWTPayload) =>
    new SignJWT({ ...decodeJwt(accessToken), ...changes }).setProtectedHeader(header).sign(key);
  t.match(await setting.server.verify(await signed({})), { username: "alice" });
  for (const changes of [
    { aud: "https://elsewhere.example/mcp" },
    { aud: setting.url },
    { aud: "gatehouse" },
    { aud: [`${setting.url}/mcp`, "https://elsewhere.example/mcp"] },
    { aud: [] },
    { iss: "https://elsewhere.example" },
  ]) {
    const refusal = await refusedBy(setting.server.verify(await signed(changes)));
    t.equal(refusal.code, "token_invalid", JSON.stringify(changes));
  }
});

t.test("a code is not exchanged without its verifier, its redirect and its client", async (t) => {
  const setting = await openSetting(t);
  for (const change of [{ code_verifier: "" }, { redirect_uri: "" }, { client_id: "" }]) {
    const { clientId, verifier, callback } = await authorize(setting);
    const fields = {
      grant_type: "authorization_code",
      client_id: clientId,
      code: callback.searchParams.get("code") ?? "",
      code_verifier: verifier,
      redirect_uri: REDIRECT,
      ...change,
    };
    const given = Object.entries(fields).filter(([, value]) => value !== "");
    const answer = await postForm(`${setting.url}/oauth/token`, Object.fromEntries(given));
    t.ok(answer.status >= 400, Object.keys(change).join());
    t.equal(answer.body.access_token, undefined);
  }
});

t.test("paths are known as they are spelled", async (t) => {
  const { url } = await openSetting(t);
  for (const path of ["/oauth/REGISTER", "/oauth/register/", "/oauth/%74oken", "/oauth/", "/x"]) {
    const answer = await fetch(url + path, { method: "POST" });
    t.equal(answer.status, 404, path);
    t.match(await answer.json(), { error: "not_found" });
  }
  const answer = await fetch(`${url}/oauth/token`);
  t.equal(answer.status, 405);
  t.equal(answer.headers.get("allow"), "POST, OPTIONS");
});

t.test("an address asks so often a minute, and no more", async (t) => {
  const setting = await openSetting(t);
  const client_id = await registered(setting);
  const ask = () => fetch(authorizeUrl(setting, { client_id }), { redirect: "manual" });
  const answers = await Promise.all(Array.from({ length: 61 }, ask));
  const refused = answers.filter(({ status }) => status === 429);
  t.equal(refused.length, 1);
  t.match(refused[0]?.headers.get("retry-after"), /^\d+$/);
});
