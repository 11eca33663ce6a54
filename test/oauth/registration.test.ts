import { readdirSync, statSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setImmediate as nextTurn } from "node:timers/promises";
import { setDefaultCACertificates } from "node:tls";
import t, { type Test } from "tap";
import { epochSeconds } from "../../src/core/base/clock.ts";
import {
  createDocumentFetch,
  isNetworkAddress,
  isPublicAddress,
  type ResolveAll,
} from "../../src/features/oauth/server/client-documents.ts";
import { clientBounds } from "../../src/features/oauth/server/server.ts";
import { words } from "../kit/words.ts";
import { PlainBrowser } from "./browser.ts";
import { openDocumentHost } from "./document-host.ts";
import { authorize, exchange, obtainTokens, refresh } from "./flow.ts";
import {
  authorizeUrl,
  documentsOf,
  type OAuthSetup,
  openOAuthSetup,
  REDIRECT,
  register,
  registered,
} from "./kit.ts";

function openState(t: Test, { directory }: OAuthSetup): DatabaseSync {
  const database = new DatabaseSync(path.join(directory, "state.sqlite"));
  t.teardown(() => database.close());
  return database;
}

t.test("a client registers itself as a public client", async (t) => {
  const setting = await openOAuthSetup(t);
  const { status, body, headers } = await register(setting, {
    client_name: "Notebook",
    redirect_uris: [REDIRECT],
    grant_types: ["authorization_code", "refresh_token", "client_credentials"],
    jwks_uri: "http://169.254.169.254/",
    sector_identifier_uri: "https://169.254.169.254/",
    logo_uri: "https://evil.example/logo",
  });
  t.equal(status, 201);
  t.strictSame(Object.keys(body).sort(), [
    "application_type",
    "client_id",
    "client_id_issued_at",
    "client_name",
    "grant_types",
    "redirect_uris",
    "response_types",
    "token_endpoint_auth_method",
  ]);
  t.match(body, {
    token_endpoint_auth_method: "none",
    grant_types: ["authorization_code", "refresh_token"],
  });
  t.equal(headers.get("cache-control"), "no-store");
});

t.test("redirects may use https, the loopback address or an app's scheme", async (t) => {
  const setting = await openOAuthSetup(t);
  const redirect_uris = [
    "https://app.example.com/cb",
    "http://localhost:3000/cb",
    "http://[::1]/cb",
    "com.example.app:/callback",
    "com.example.app://host/callback?x=a@b",
    "editor://vendor.extension/callback",
  ];
  t.equal((await register(setting, { redirect_uris })).status, 201);
  for (const uri of [
    ...words(`
    http://app.example.com/cb https://app.example.com/cb#fragment /cb
    https://user@app.example.com/cb https://localhost/cb http://127.0.0.1.evil.example/cb
    http://127.0.0.2/cb ftp://app.example.com/cb javascript:alert(1) data:text/html,x
    file:///etc/passwd vbscript:/x ms-msdt:/id intent://scan/#Intent;end otherapp:/cb
    com.example.app:opaque com.example.app:/cb#fragment com.example.app://user@host/cb
    https://@app.example.com/cb com.example.app://@host/cb
    com.example.app:/"><script>
  `),
    "https:/\\evil.example",
    "https://a;frame-ancestors/cb",
    "https://a,b/cb",
    "https://a'b/cb",
    "https://*/cb",
    "com.example.app:/c b",
  ]) {
    const { status, body } = await register(setting, { redirect_uris: [uri] });
    t.match({ status, error: body.error }, { status: 400, error: "invalid_redirect_uri" }, uri);
  }
});

t.test("unsupported client metadata is refused", async (t) => {
  const setting = await openOAuthSetup(t);
  for (const wrong of [
    { token_endpoint_auth_method: 1 },
    { grant_types: ["client_credentials"] },
    { response_types: ["token"] },
    { client_name: "x".repeat(101) },
  ]) {
    const { status, body } = await register(setting, { redirect_uris: [REDIRECT], ...wrong });
    t.match({ status, body }, { status: 400, body: { error: "invalid_client_metadata" } });
    t.match(setting.events.at(-1), {
      name: "oauth_registration",
      fields: { outcome: "invalid_client_metadata", reason: body.error_description },
    });
  }
  const huge = await register(setting, { redirect_uris: [REDIRECT], x: "x".repeat(20_000) });
  t.equal(huge.status, 413);
});

t.test("a client that asks for another authentication is registered as public", async (t) => {
  const setting = await openOAuthSetup(t);
  for (const method of [
    "client_secret_basic",
    "client_secret_post",
    "private_key_jwt",
    "x",
    null,
  ]) {
    const { status, body } = await register(setting, {
      redirect_uris: [REDIRECT],
      token_endpoint_auth_method: method,
      client_name: null,
      grant_types: null,
      response_types: null,
      jwks: null,
      scope: null,
    });
    t.match({ status, body }, { status: 201, body: { token_endpoint_auth_method: "none" } });
    t.notOk(Object.hasOwn(body, "client_secret"));
    const { status: connected } = await exchange(
      setting,
      await authorize(setting, { clientId: String(body.client_id) }),
    );
    t.equal(connected, 200, String(method));
  }
  const { body } = await register(setting, { redirect_uris: null });
  t.equal(body.error, "invalid_redirect_uri");
});

t.test("the refusal of a scheme names the scheme and the key that allows it", async (t) => {
  const setting = await openOAuthSetup(t);
  for (const [uri, named] of [
    ["otherapp://callback", true],
    ["other-app:/callback", true],
    ["javascript:/alert(1)", false],
    ["http://app.example.com/cb", false],
  ] as const) {
    const { status, body } = await register(setting, { redirect_uris: [REDIRECT, uri] });
    t.match({ status, body }, { status: 400, body: { error: "invalid_redirect_uri" } });
    const { error_description: description } = body;
    const [scheme] = uri.split(":");
    const expected = `redirect_uris.1: the scheme ${scheme} is not in mcp.app_schemes`;
    t.equal(String(description).startsWith(expected), named, uri);
    t.equal(setting.events.at(-1)?.fields.reason, description);
  }
});

t.test("ambiguous or malformed client metadata is refused", async (t) => {
  const { url } = await openOAuthSetup(t);
  const uris = JSON.stringify([REDIRECT]);
  for (const body of ["null", "[]", '"x"', "{}", '{"redirect_uris":{}}']) {
    const headers = { "content-type": "application/json" };
    const answer = await fetch(`${url}/oauth/register`, { method: "POST", headers, body });
    t.match(await answer.json(), { error: /^invalid_/ }, body);
    t.equal(answer.status, 400, body);
  }
  for (const body of [
    `{"redirect_uris":${uris},"redirect_uris":["https://other.example/cb"]}`,
    `{"redirect_uris":${uris},"client_name":"a","client\\u005fname":"b"}`,
    Buffer.from(`{"redirect_uris":${uris},"client_name":"\xff"}`, "latin1"),
  ]) {
    const headers = { "content-type": "application/json" };
    const answer = await fetch(`${url}/oauth/register`, { method: "POST", headers, body });
    t.match(await answer.json(), { error: "invalid_request" });
    t.equal(answer.status, 400);
  }
});

t.test("registrations are limited per address", async (t) => {
  const setting = await openOAuthSetup(t, { registrationsPerHour: 3 });
  for (let at = 0; at < 3; at++) t.equal((await register(setting)).status, 201);
  const { status, body, headers } = await register(setting);
  t.equal(status, 429);
  t.equal(body.error, "temporarily_unavailable");
  t.ok(Number(headers.get("retry-after")) > 0);
});

t.test("a flood of unused clients removes no client in use or being authorized", async (t) => {
  const setting = await openOAuthSetup(t, { registrationsPerHour: 2000 });
  const { clientId, refreshToken } = await obtainTokens(setting);
  const waiting = await registered(setting);
  const store = openState(t, setting);
  store
    .prepare(
      `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
       INSERT INTO records (model, id, payload, uid, expires)
       SELECT 'Client', i, '{}', '192.0.2.' || (i % 5), ? FROM n`,
    )
    .run(clientBounds.unused, epochSeconds() + 60);
  for (let at = 0; at < 50; at++) t.equal((await register(setting)).status, 201);
  const count = store.prepare("SELECT count(uid) AS n FROM records WHERE model = 'Client'");
  t.ok(Number(count.get()?.n) <= clientBounds.unused + 1);
  t.equal((await refresh(setting, clientId, refreshToken)).status, 200);
  t.ok(
    (await obtainTokens(setting, { clientId: waiting })).accessToken,
    "the client being authorized",
  );
});

t.test("the state's files are readable only by the gateway", async (t) => {
  const { directory } = await openOAuthSetup(t);
  t.equal(statSync(directory).mode & 0o777, 0o700);
  for (const name of readdirSync(directory)) {
    const { mode } = statSync(path.join(directory, name));
    t.equal(mode & 0o077, 0, name);
  }
});

const CLIENT = "https://app.example.com/client.json";

t.test("a client can be identified by its metadata document", async (t) => {
  const document = { client_id: CLIENT, client_name: "Hosted", redirect_uris: [REDIRECT] };
  const setting = await openOAuthSetup(t, { documents: documentsOf({ [CLIENT]: document }) });
  const url = authorizeUrl(setting, { client_id: CLIENT });
  const page = await new PlainBrowser(setting.url).open(url);
  t.match(page.text, "Hosted");
  t.match(page.text, "<dd>app.example.com</dd>");
  const { accessToken } = await obtainTokens(setting, { clientId: CLIENT });
  t.match(await setting.server.verify(accessToken), { clientId: CLIENT });
});

t.test("an invalid metadata document is refused", async (t) => {
  const base = { client_id: CLIENT, redirect_uris: [REDIRECT] };
  for (const document of [
    { ...base, client_id: "https://other.example.com/client.json" },
    { redirect_uris: [REDIRECT] },
    { ...base, redirect_uris: ["http://app.example.com/"] },
    { ...base, token_endpoint_auth_method: "client_secret_basic" },
    undefined,
  ]) {
    const setting = await openOAuthSetup(t, { documents: documentsOf({ [CLIENT]: document }) });
    const url = authorizeUrl(setting, { client_id: CLIENT });
    const page = await new PlainBrowser(setting.url).open(url);
    t.equal(page.status, 400, JSON.stringify(document));
  }
});

t.test("a refused document is fetched once for a request, and again for the next", async (t) => {
  const refused = documentsOf({ [CLIENT]: { client_id: CLIENT } });
  let fetched = 0;
  const setting = await openOAuthSetup(t, {
    documents: (url) => {
      fetched += 1;
      return refused(url);
    },
  });
  const url = authorizeUrl(setting, { client_id: CLIENT });
  for (const round of [1, 2]) {
    t.equal((await new PlainBrowser(setting.url).open(url)).status, 400);
    t.equal(fetched, round);
  }
});

t.test("a host that returns no document, or too much, causes no uncaught error", async (t) => {
  const { host, url, cert, served } = await openDocumentHost(t);
  setDefaultCACertificates([cert]);
  served.set("/moved", { location: "/long" });
  served.set("/long", { document: "x".repeat(1024 * 1024) });
  const fetchDocument = createDocumentFetch({ privateHosts: [host] });
  await t.rejects(fetchDocument(`${url}/missing`), /returned 404/);
  await t.rejects(fetchDocument(`${url}/moved`), /redirects are not followed/);
  await t.rejects(fetchDocument(`${url}/long`), /larger than/);
  // The test fails if one of these ends with an error that nothing handles.
  for (const _ of Array(5)) await nextTurn();
});

t.test("only addresses of the public internet count as public", async (t) => {
  for (const address of ["93.184.215.14", "2606:4700:4700::1111"]) t.ok(isPublicAddress(address));
  for (const address of words(`
    127.0.0.1 10.1.2.3 172.16.0.1 192.168.0.1 169.254.169.254 100.64.0.1 0.0.0.0 255.255.255.255
    224.0.0.1 192.0.2.1 198.18.0.1 :: ::1 ::ffff:10.0.0.1 ::10.0.0.1 fe80::1 fc00::1 fec0::1
    64:ff9b::7f00:1 2002:7f00:1:: 2001:db8::1 ff02::1 64:ff9b:1::1 4000::1 nonsense
  `)) {
    t.notOk(isPublicAddress(address), address);
  }
});

t.test("private addresses count as the operator's network, link-local ones do not", async (t) => {
  for (const address of ["127.0.0.1", "10.1.2.3", "192.168.0.1", "100.64.0.1", "::1", "fd00::1"]) {
    t.ok(isNetworkAddress(address), address);
  }
  for (const address of ["169.254.169.254", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "x"]) {
    t.notOk(isNetworkAddress(address), address);
  }
});

function resolvesTo(...addresses: readonly string[]): ResolveAll {
  const found = addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
  return (_, done) => done(null, found);
}

t.test("no document is fetched from this machine, under any name", async (t) => {
  const { port, reached } = await openDocumentHost(t);
  for (const addresses of [["127.0.0.1"], ["93.184.215.14", "127.0.0.1"], ["::ffff:127.0.0.1"]]) {
    const inside = createDocumentFetch({ resolve: resolvesTo(...addresses) });
    await t.rejects(inside(`https://app.example.com:${port}/`), /not public/);
  }
  const fetchDocument = createDocumentFetch();
  const mapped = ["[::ffff:127.0.0.1]", "[::ffff:7f00:1]"];
  for (const host of ["127.0.0.1", "[::1]", ...mapped, "localhost", "2130706433", "0x7f.1"]) {
    await t.rejects(fetchDocument(`https://${host}:${port}/`), /not public|no address/, host);
  }
  await t.rejects(fetchDocument(`http://app.example.com:${port}/`), /https/);
  t.equal(reached(), 0);
});

t.test("only hosts that the operator lists may have private addresses", async (t) => {
  const { port, host, reached } = await openDocumentHost(t);
  const named = createDocumentFetch({ privateHosts: [host] });
  await t.rejects(named(`https://${host}/`), /self-signed certificate/, "the host is contacted");
  t.equal(reached(), 1);
  for (const other of [`127.0.0.1:${port}`, "localhost", `[::ffff:127.0.0.1]:${port}`]) {
    await t.rejects(named(`https://${other}/`), /not public|no address/, other);
  }
  t.equal(reached(), 1);
});

t.test("a listed host may not have a link-local address", async (t) => {
  const fetchDocument = createDocumentFetch({
    privateHosts: ["app.example.com"],
    resolve: resolvesTo("169.254.169.254"),
  });
  const answer = fetchDocument("https://app.example.com/");
  await t.rejects(answer, /not public/);
});

t.test("a host name that is rebound to this machine is refused", async (t) => {
  const { port, reached } = await openDocumentHost(t);
  let lookups = 0;
  const fetchDocument = createDocumentFetch({
    resolve: (hostname, done) => {
      lookups += 1;
      resolvesTo(lookups === 1 ? "192.0.2.1" : "127.0.0.1")(hostname, done);
    },
  });
  const url = `https://app.example.com:${port}/`;
  for (const round of ["first", "second"]) {
    await t.rejects(fetchDocument(url), /not public/, round);
  }
  t.equal(lookups, 2, "each fetch looks the name up again");
  t.equal(reached(), 0);
});
