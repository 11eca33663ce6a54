import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { mock } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { decodeJwt, decodeProtectedHeader, type JWTPayload, SignJWT } from "jose";
import t, { type Test } from "tap";
import { epochSeconds } from "../../src/core/base/clock.ts";
import { Refusal } from "../../src/core/base/refusal.ts";
import { keyFilesIn } from "../../src/core/identity/key-file.ts";
import { metadataPaths } from "../../src/features/oauth/server/protocol.ts";
import { openSigningKeys } from "../../src/features/oauth/server/tokens.ts";
import { grant, refusedBy } from "../access/kit.ts";
import { stopClock } from "../kit/clock.ts";
import { eventually } from "../kit/eventually.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { PlainBrowser } from "./browser.ts";
import { authorize, exchange, obtainTokens, refresh } from "./flow.ts";
import {
  authorizeUrl,
  CONFIGURED,
  defaultUsers,
  type OAuthSetup,
  onServer,
  openOAuthSetup,
  PASSWORD,
  postForm,
  REDIRECT,
  registered,
  userWith,
} from "./kit.ts";

onServer("the metadata names the endpoints under the public URL", async (t, setting) => {
  for (const name of metadataPaths("")) {
    const answer = await fetch(setting.url + name, {
      headers: { "x-forwarded-host": "evil.example", "x-forwarded-proto": "https" },
    });
    const metadata: Record<string, unknown> = Object(await answer.json());
    const places = Object.keys(metadata).filter((key) => /_endpoint$|_uri$/.test(key));
    t.equal(places.length, 5, "all endpoints are below, and the keys");
    t.match(metadata, {
      jwks_uri: `${setting.url}/oauth/jwks`,
      issuer: setting.url,
      authorization_endpoint: `${setting.url}/oauth/authorize`,
      token_endpoint: `${setting.url}/oauth/token`,
      registration_endpoint: `${setting.url}/oauth/register`,
      revocation_endpoint: `${setting.url}/oauth/revoke`,
      code_challenge_methods_supported: ["S256"],
      response_modes_supported: ["query"],
      authorization_response_iss_parameter_supported: true,
      client_id_metadata_document_supported: true,
      scopes_supported: ["mcp:tools", "mcp:resources", "offline_access"],
      token_endpoint_auth_methods_supported: ["none"],
    });
    t.equal(answer.headers.get("access-control-allow-origin"), "*");
  }
});

t.test("a user allows a client, and the client's token opens the resource", async (t) => {
  const setting = await openOAuthSetup(t);
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

t.test("the key set contains only public keys", async (t) => {
  const { url } = await openOAuthSetup(t);
  const answer = await fetch(`${url}/oauth/jwks`);
  const text = await answer.text();
  t.match(JSON.parse(text), { keys: [{ kty: "EC", crv: "P-256", alg: "ES256", kid: String }] });
  t.notMatch(text, /"d"/);
});

onServer("a client gets the scopes that it requests, by default all", async (t, setting) => {
  const { body } = await obtainTokens(setting, { parameters: { scope: "", resource: "" } });
  t.equal(body.scope, "mcp:tools mcp:resources");
  const { accessToken } = await obtainTokens(setting, { parameters: { scope: "mcp:resources" } });
  const { scopes } = await setting.server.verify(accessToken);
  t.strictSame(scopes, new Set(["mcp:resources"]));
});

onServer("max_age needs no scope openid, and adds none", async (t, setting) => {
  const parameters = { max_age: "100", scope: "mcp:tools" };
  const { body } = await obtainTokens(setting, { parameters });
  t.equal(body.scope, "mcp:tools");
});

onServer("a client of the configuration needs no registration", async (t, setting) => {
  const [redirect_uri = ""] = CONFIGURED.redirect_uris;
  const authorized = await authorize(setting, {
    clientId: CONFIGURED.client_id,
    parameters: { redirect_uri },
  });
  t.ok(authorized.callback.href.startsWith(redirect_uri));
  t.equal((await exchange(setting, authorized)).status, 200);
});

onServer("a loopback redirect may use any port", async (t, setting) => {
  const redirect_uri = "http://127.0.0.1:61234/callback";
  const { callback } = await obtainTokens(setting, { parameters: { redirect_uri } });
  t.equal(callback.port, "61234");
});

t.test("a refresh returns the next token and an access token with equal limits", async (t) => {
  const setting = await openOAuthSetup(t);
  const first = await obtainTokens(setting, { database: "main", reach: "read" });
  const stolen = await refresh(setting, await registered(setting), first.refreshToken);
  t.equal(stolen.body.error, "invalid_grant", "another client");
  const second = await refresh(setting, first.clientId, first.refreshToken);
  t.match(second, { status: 200, body: { access_token: String, refresh_token: String } });
  t.not(second.body.refresh_token, first.refreshToken);
  const token = await setting.server.verify(String(second.body.access_token));
  t.match(token, { username: "alice", database: "main", readOnly: true });
});

function replayIn({ events }: OAuthSetup) {
  return events.find(({ name }) => name === "oauth_replay")?.fields;
}

t.test("a refresh token that is reused later revokes its whole family", async (t) => {
  const pass = stopClock(t);
  const setting = await openOAuthSetup(t);
  const first = await obtainTokens(setting);
  const second = await refresh(setting, first.clientId, first.refreshToken);
  pass(11);
  const stolen = await refresh(setting, first.clientId, first.refreshToken);
  t.equal(stolen.body.error, "invalid_grant");
  t.match(replayIn(setting), { user: "alice", client: first.clientId });
  const next = await refresh(setting, first.clientId, String(second.body.refresh_token));
  t.equal(next.body.error, "invalid_grant");
  for (const token of [first.accessToken, String(second.body.access_token)]) {
    t.equal((await refusedBy(setting.server.verify(token))).code, "token_revoked");
  }
});

t.test("a refresh that a full disk cannot store uses up no token", async (t) => {
  const pass = stopClock(t);
  const setting = await openOAuthSetup(t);
  const { clientId, refreshToken } = await obtainTokens(setting);
  const database = new DatabaseSync(path.join(setting.directory, "state.sqlite"));
  t.teardown(() => database.close());
  const isRefresh = "new.model = 'RefreshToken'";
  database.exec(
    `create trigger full before insert on records when ${isRefresh} begin select raise(fail, ''); end`,
  );
  t.equal((await refresh(setting, clientId, refreshToken)).status, 500);
  database.exec("drop trigger full");
  pass(11);
  t.equal((await refresh(setting, clientId, refreshToken)).status, 200);
});

t.test("parallel refreshes with one token all succeed", async (t) => {
  const pass = stopClock(t);
  const setting = await openOAuthSetup(t);
  const { clientId, refreshToken } = await obtainTokens(setting);
  const other = await registered(setting);
  const again = () => refresh(setting, clientId, refreshToken);
  const answers = await Promise.all([again(), again(), again(), again(), again()]);
  pass(9);
  answers.push(await again());
  t.strictSame(new Set(answers.map(({ status }) => status)), new Set([200]));
  const lines = answers.map(({ body }) => String(body.refresh_token));
  t.equal(new Set(lines).size, answers.length);
  t.equal((await refresh(setting, other, refreshToken)).body.error, "invalid_grant");
  for (const line of lines) t.equal((await refresh(setting, clientId, line)).status, 200);
  for (const { body } of answers) await setting.server.verify(String(body.access_token));
  t.equal(replayIn(setting), undefined);
  pass(11);
  t.equal((await refresh(setting, clientId, String(lines[0]))).body.error, "invalid_grant");
  for (const { body } of answers) {
    const refused = await refusedBy(setting.server.verify(String(body.access_token)));
    t.equal(refused.code, "token_revoked", "all tokens of the family");
  }
});

t.test("setting the clock back does not allow another reuse", async (t) => {
  const pass = stopClock(t);
  const setting = await openOAuthSetup(t);
  const { clientId, refreshToken } = await obtainTokens(setting);
  pass(60);
  t.equal((await refresh(setting, clientId, refreshToken)).status, 200);
  mock.timers.setTime(Date.now() - 30_000);
  t.equal((await refresh(setting, clientId, refreshToken)).body.error, "invalid_grant");
});

onServer("a refresh cannot widen the scope", async (t, setting) => {
  const { clientId, refreshToken } = await obtainTokens(setting, {
    parameters: { scope: "mcp:resources" },
  });
  const form = { client_id: clientId, refresh_token: refreshToken, grant_type: "refresh_token" };
  for (const scope of ["mcp:resources mcp:tools", "unknown"]) {
    const { body } = await postForm(`${setting.url}/oauth/token`, { ...form, scope });
    t.equal(body.error, "invalid_scope");
  }
  const pass = stopClock(t);
  pass(11);
  t.equal((await postForm(`${setting.url}/oauth/token`, form)).status, 200, "the token survives");
});

t.test("a refresh for another resource is refused, and uses up no token", async (t) => {
  const pass = stopClock(t);
  const setting = await openOAuthSetup(t);
  const { clientId, refreshToken } = await obtainTokens(setting);
  const refreshFor = (resource: string, token = refreshToken) =>
    postForm(`${setting.url}/oauth/token`, {
      grant_type: "refresh_token",
      client_id: clientId,
      refresh_token: token,
      resource,
    });
  for (const resource of ["https://elsewhere.example/mcp", `${setting.url}/mcp/`, "mcp"]) {
    t.equal((await refreshFor(resource)).body.error, "invalid_target", resource);
  }
  pass(11);
  const local = `${setting.url.replace("127.0.0.1", "LOCALHOST")}/mcp`;
  const { body, status } = await refreshFor(local);
  t.equal(status, 200, "its own resource by another name");
  t.ok(await setting.server.verify(String(body.access_token)));

  await setting.restart("https://gate.example.com");
  const next = String(body.refresh_token);
  for (const resource of ["https://gate.example.com/mcp", ""]) {
    t.equal((await refreshFor(resource, next)).body.error, "invalid_grant", "of an earlier URL");
  }
  await setting.restart();
  pass(22);
  t.equal((await refreshFor("", next)).status, 200, "that URL is back");
});

t.test("a user who is disabled, removed or has a new password cannot refresh", async (t) => {
  const bob = await userWith("bob");
  for (const users of [
    (await userWith("alice", undefined, "disabled = true")) + bob,
    bob,
    (await userWith("alice", "another horse")) + bob,
    (await userWith("alice")) + bob,
    (await userWith("alice", undefined, `tokens_valid_after = ${epochSeconds() + 60}`)) + bob,
  ]) {
    const setting = await openOAuthSetup(t);
    const { clientId, refreshToken } = await obtainTokens(setting);
    setting.setUsers(users + grant("alice", "main", "ReadWrite"));
    t.equal((await refresh(setting, clientId, refreshToken)).body.error, "invalid_grant");
  }
});

onServer("revoking all tokens of a user ends the refresh tokens too", async (t, setting) => {
  const { clientId, refreshToken } = await obtainTokens(setting);
  setting.revokedBefore.set("alice", epochSeconds() + 1);
  t.equal((await refresh(setting, clientId, refreshToken)).body.error, "invalid_grant");
  const next = await obtainTokens(setting);
  t.match(await setting.server.verify(next.accessToken), { username: "alice" });
});

t.test("a revocation ends a refresh that is waiting for the state", async (t) => {
  const setting = await openOAuthSetup(t);
  const { clientId, refreshToken } = await obtainTokens(setting);
  const other = new DatabaseSync(path.join(setting.directory, "state.sqlite"));
  t.teardown(() => other.close());
  other.exec("begin immediate");
  const answer = refresh(setting, clientId, refreshToken);
  await delay(500);
  const revoked = epochSeconds() + 1;
  setting.revokedBefore.set("alice", revoked);
  await eventually("a new token would be later", () => epochSeconds() > revoked);
  other.exec("rollback");
  t.match(await answer, { status: 400, body: { error: "invalid_grant" } });
});

t.test("a revocation ends an authorization that its user has not finished", async (t) => {
  const pass = stopClock(t);
  const users = await defaultUsers();
  const right = { username: "alice", password: PASSWORD, action: "login" };
  const yes = { database: "*", reach: "full", action: "allow" };
  const ways: Record<string, (setting: OAuthSetup) => void> = {
    revocation: ({ revokedBefore }) => revokedBefore.set("alice", epochSeconds() + 1),
    disabling: ({ setUsers }) => setUsers(users.replace('"alice"', '"alice"\ndisabled = true')),
  };
  for (const [name, revoke] of Object.entries(ways)) {
    const setting = await openOAuthSetup(t, { users });
    const consented = () => setting.events.some((event) => event.name === "oauth_consent");
    const open = async () => {
      const browser = new PlainBrowser(setting.url);
      const client_id = await registered(setting);
      const login = await browser.open(authorizeUrl(setting, { client_id }));
      return { browser, page: await browser.submit(login, right) };
    };
    const [before, during] = [await open(), await open()];
    pass(1);
    revoke(setting);
    pass(2);
    const again = await before.browser.submit(before.page, yes);
    t.match(again.text, 'value="login"', `${name}: the user logs in again`);
    t.notOk(consented(), "no consent is kept");

    setting.revokedBefore.clear();
    setting.setUsers(users);
    setting.events.push = () => {
      pass(1);
      revoke(setting);
      pass(2);
      return 0;
    };
    const late = await during.browser.submit(during.page, yes);
    t.match(late.text, 'value="login"', `${name} while the consent is sent`);
    setting.setUsers(users);
    const other = { ...right, username: "bob" };
    const consent = await during.browser.submit(late, other);
    t.match(consent.text, "Logged in as <strong>bob</strong>", "whose own consent is asked for");
  }
});

t.test("a browser stays logged in for 8 hours, however often it is used", async (t) => {
  const pass = stopClock(t);
  const setting = await openOAuthSetup(t);
  const browser = new PlainBrowser(setting.url);
  const { clientId } = await authorize(setting, { browser });
  const isLoggedIn = async () => {
    const { text } = await browser.open(authorizeUrl(setting, { client_id: clientId }));
    return text.includes("Logged in as <strong>alice</strong>");
  };
  for (const seconds of [4 * 3600, 4 * 3600 - 10]) {
    pass(seconds);
    t.ok(await isLoggedIn());
  }
  pass(20);
  t.notOk(await isLoggedIn());
  await authorize(setting, { browser, clientId });
  pass(3600);
  t.ok(await isLoggedIn(), "after another login");
});

onServer("revoking a refresh token ends its grant", async (t, setting) => {
  const { clientId, refreshToken, accessToken } = await obtainTokens(setting);
  const revoke = (client_id: string, token: string) =>
    postForm(`${setting.url}/oauth/revoke`, { client_id, token });
  const other = await registered(setting);
  t.equal((await revoke(other, refreshToken)).status, 200);
  await setting.server.verify(accessToken);
  t.equal((await revoke(clientId, refreshToken)).status, 200);
  t.equal((await refresh(setting, clientId, refreshToken)).body.error, "invalid_grant");
  t.equal((await refusedBy(setting.server.verify(accessToken))).code, "token_revoked");
});

onServer("revoking an access token leaves the refresh token valid", async (t, setting) => {
  const { clientId, refreshToken, accessToken } = await obtainTokens(setting);
  const url = `${setting.url}/oauth/revoke`;
  t.equal((await postForm(url, { client_id: clientId, token: accessToken })).status, 200);
  t.equal((await refusedBy(setting.server.verify(accessToken))).code, "token_revoked");
  t.equal((await refresh(setting, clientId, refreshToken)).status, 200);
  t.equal((await postForm(url, { client_id: "unknown", token: "x" })).body.error, "invalid_client");
  t.equal((await postForm(url, { client_id: clientId })).body.error, "invalid_request");
  t.equal((await postForm(url, { client_id: clientId, token: "unknown" })).status, 200);
});

t.test("tokens, clients and consent survive a restart", async (t) => {
  const setting = await openOAuthSetup(t, { users: await defaultUsers() });
  const { clientId, refreshToken, accessToken } = await obtainTokens(setting, { reach: "read" });
  await setting.restart();
  t.match(await setting.server.verify(accessToken), { username: "alice", readOnly: true });
  const { body } = await refresh(setting, clientId, refreshToken);
  t.match(await setting.server.verify(String(body.access_token)), { readOnly: true });
  t.ok((await obtainTokens(setting, { clientId })).accessToken);
});

t.test("an access token expires", async (t) => {
  const setting = await openOAuthSetup(t, { tokenLifetime: 1 });
  const { accessToken } = await obtainTokens(setting);
  await eventually("the token is refused", async () => {
    const outcome = await setting.server.verify(accessToken).catch((error: unknown) => error);
    return outcome instanceof Refusal && outcome.code === "token_expired";
  });
});

async function checkErrorAtClient(
  t: Test,
  setting: OAuthSetup,
  parameters: Record<string, string>,
  error: string,
): Promise<void> {
  const client_id = await registered(setting);
  const url = authorizeUrl(setting, { client_id, ...parameters });
  const page = await new PlainBrowser(setting.url).open(url);
  const { href, hash, searchParams } = new URL(page.url);
  t.ok(href.startsWith(REDIRECT) && hash === "", JSON.stringify(parameters));
  t.match(Object.fromEntries(searchParams), { error, iss: setting.url, state: "s1" });
}

onServer("an invalid authorization request is reported to the client", async (t, setting) => {
  const refused: [parameters: Record<string, string>, error: string][] = [
    ...["form_post", "fragment", "jwt", "web_message", "x"].map(
      (response_mode): [Record<string, string>, string] => [
        { response_mode },
        "unsupported_response_mode",
      ],
    ),
    [{ code_challenge: "", code_challenge_method: "" }, "invalid_request"],
    [{ code_challenge_method: "plain" }, "invalid_request"],
    [{ code_challenge_method: "" }, "invalid_request"],
    [{ scope: "everything" }, "invalid_scope"],
    [{ resource: "https://elsewhere.example/mcp" }, "invalid_target"],
    [{ resource: `${setting.url}/query` }, "invalid_target"],
  ];
  for (const [parameters, error] of refused) {
    await checkErrorAtClient(t, setting, parameters, error);
  }
  const client_id = await registered(setting);
  const implicit = authorizeUrl(setting, { client_id, response_type: "token" });
  const page = await new PlainBrowser(setting.url).open(implicit);
  t.match(page.url, /error=unsupported_response_type/);
  const { callback } = await authorize(setting, { parameters: { response_mode: "query" } });
  t.ok(callback.searchParams.get("code"));
});

onServer("a code is not exchanged for another resource, and not used up", async (t, setting) => {
  const authorized = await authorize(setting);
  const resource = "https://elsewhere.example/mcp";
  t.equal((await exchange(setting, authorized, { resource })).body.error, "invalid_target");
  const local = `${setting.url.replace("127.0.0.1", "LOCALHOST")}/mcp`;
  const { status } = await exchange(setting, authorized, { resource: local });
  t.equal(status, 200, "its own resource by another name");
  t.equal((await exchange(setting, authorized, { resource })).body.error, "invalid_grant");
});

const unregistered = String.raw`
  https://app.example.com/callback/ https://app.example.com/callback?x=1
  https://app.example.com/callback/../other https://app.example.com/callback/%2e%2e/other
  https://app.example.com/%63allback https://app.example.com/callback%3Fx=1
  https://app.example.com/callback#fragment https://app.example.com/callback;x
  https://app.example.com//callback https://app.example.com\callback
  https://app.example.com:443/callback https://app.example.com:8443/callback
  https://app.example.com./callback https://app.example.com.evil.example/callback
  https://app.example.com@evil.example/callback https://user@app.example.com/callback
  https://evil.example\@app.example.com/callback https://APP.example.com/callback
  http://app.example.com/callback //app.example.com/callback javascript:alert(1)
  http://user@127.0.0.1:4999/callback http://127.0.0.1:4999@evil.example/callback
  http://127.0.0.1.evil.example/callback http://127.0.0.1:4999/other http://127.1:4999/callback
  https://127.0.0.1:4999/callback http://localhost:4999/callback
  com.example.app:/callback/ com.example.app:/callback?x=1 com.example.app://callback
  COM.example.app:/callback com.example.app2:/callback com.example.app:/../callback
`;

onServer("a redirect URI that is not registered gets an error page", async (t, setting) => {
  const redirect_uris = ["https://app.example.com/callback", REDIRECT, "com.example.app:/callback"];
  const client_id = await registered(setting, { redirect_uris });
  for (const redirect_uri of ["", ...unregistered.trim().split(/\s+/)]) {
    const url = authorizeUrl(setting, { client_id, redirect_uri });
    const page = await new PlainBrowser(setting.url).open(url);
    t.equal(page.status, 400, redirect_uri);
    t.ok(page.url.startsWith(setting.url), redirect_uri);
    const policy = page.headers.get("content-security-policy");
    t.match(policy, /default-src 'none'.*frame-ancestors 'none'/);
    t.equal(page.headers.get("x-frame-options"), "DENY");
    t.match(page.text, /This request was refused/);
  }
});

onServer("an unknown client gets an error page, without its markup", async (t, setting) => {
  const url = authorizeUrl(setting, { client_id: "<script>alert(1)</script>" });
  const page = await new PlainBrowser(setting.url).open(url);
  t.equal(page.status, 400);
  t.notMatch(page.text, "<script");
});

onServer("a code that is used again revokes its tokens", async (t, setting) => {
  const tokens = await obtainTokens(setting);
  await setting.server.verify(tokens.accessToken);
  const again = await exchange(setting, tokens);
  t.equal(again.body.error, "invalid_grant");
  const refusal = await refusedBy(setting.server.verify(tokens.accessToken));
  t.equal(refusal.code, "token_revoked");
  const refreshed = await refresh(setting, tokens.clientId, tokens.refreshToken);
  t.equal(refreshed.body.error, "invalid_grant");
  t.match(replayIn(setting), { user: "alice", client: tokens.clientId });
  const without = setting.events.filter(({ fields }) => fields.address !== "127.0.0.1");
  t.strictSame(without, [], "each event has the address of its request");
});

t.test("of several simultaneous exchanges of a code, at most one succeeds", async (t) => {
  const setting = await openOAuthSetup(t);
  const authorized = await authorize(setting);
  const answers = await Promise.all(Array.from({ length: 8 }, () => exchange(setting, authorized)));
  t.ok(answers.filter(({ status }) => status === 200).length <= 1);
});

onServer("a code requires its verifier, client and redirect URI", async (t, setting) => {
  const other = await registered(setting);
  for (const change of [
    { verifier: "a".repeat(43) },
    { clientId: other },
    { redirectUri: "http://127.0.0.1:5000/callback" },
    { verifier: "" },
    { clientId: "" },
    { redirectUri: "" },
  ]) {
    const authorized = await authorize(setting);
    const { body } = await exchange(setting, { ...authorized, ...change });
    const isLeftOut = Object.values(change).includes("");
    const error = isLeftOut ? /^invalid_(?:grant|request|client)$/ : /^invalid_grant$/;
    t.match(body.error, error, JSON.stringify(change));
    t.equal(body.access_token, undefined);
  }
});

t.test("a modified token, or one of another server or audience, is refused", async (t) => {
  const setting = await openOAuthSetup(t);
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
  const [head, body, signature] = accessToken.split(".");
  const { accessToken: foreign } = await obtainTokens(await openOAuthSetup(t));
  for (const token of [foreign, `${head}.${body}.${signature?.toLowerCase()}`, "x", "a.b.c"])
    t.equal((await refusedBy(setting.server.verify(token))).code, "token_invalid");
});

onServer("authorization requests are limited per address", async (t, setting) => {
  const client_id = await registered(setting);
  const ask = () => fetch(authorizeUrl(setting, { client_id }), { redirect: "manual" });
  const answers = await Promise.all(Array.from({ length: 61 }, ask));
  const refused = answers.filter(({ status }) => status === 429);
  t.equal(refused.length, 1);
  t.match(refused[0]?.headers.get("retry-after"), /^\d+$/);
});

const elsewhere = "https://elsewhere.example/callback";

const failing = [
  { prompt: "none" },
  { scope: "everything" },
  { code_challenge: "" },
  { code_challenge_method: "plain" },
  { response_mode: "form_post" },
  { response_type: "token" },
  { resource: "https://elsewhere.example/mcp" },
  { request: "x" },
] as const;

onServer("a failing request redirects no browser to an unapproved site", async (t, setting) => {
  const loggedIn = new PlainBrowser(setting.url);
  await authorize(setting, { browser: loggedIn });
  for (const redirect_uri of [elsewhere, "com.example.app:/callback"]) {
    const client_id = await registered(setting, { redirect_uris: [redirect_uri] });
    for (const wrong of failing) {
      for (const browser of [new PlainBrowser(setting.url), loggedIn]) {
        const url = authorizeUrl(setting, { client_id, redirect_uri, ...wrong });
        const page = await browser.open(url);
        t.match(page, { status: 400, url: setting.url }, JSON.stringify(wrong));
        t.equal(page.headers.get("location"), null);
        t.match(page.text, "This request was refused");
        t.match(page.text, `href="${redirect_uri}`, "a link for the user");
      }
    }
  }
});

onServer("errors are redirected to loopback and configured clients", async (t, setting) => {
  const [configured = ""] = CONFIGURED.redirect_uris;
  for (const [client_id, redirect_uri] of [
    [await registered(setting), REDIRECT],
    [CONFIGURED.client_id, configured],
  ] as const) {
    const url = authorizeUrl(setting, { client_id, redirect_uri, prompt: "none" });
    const page = await new PlainBrowser(setting.url).open(url);
    t.ok(page.url.startsWith(redirect_uri));
    t.equal(new URL(page.url).searchParams.get("error"), "login_required");
  }
});

const form = { "Content-Type": "application/x-www-form-urlencoded" };
const chunked = { "Transfer-Encoding": "chunked" };

onServer("a code can be exchanged with a chunked form", async (t, setting) => {
  const { clientId, verifier, callback, redirectUri } = await authorize(setting);
  const fields = new URLSearchParams({
    grant_type: "authorization_code",
    client_id: clientId,
    code: callback.searchParams.get("code") ?? "",
    code_verifier: verifier,
    redirect_uri: redirectUri,
  }).toString();
  const wire = await Wire.open(setting.url);
  wire.send(wireRequest("POST /oauth/token", { ...form, ...chunked }));
  for (const character of fields) wire.send(`1\r\n${character}\r\n`);
  wire.send("0\r\n\r\n");
  t.match(await wire.until(/\r\n\r\n[\s\S]*\}/), /^HTTP\/1\.1 200 [\s\S]*"access_token"/);
  wire.cut();
});
