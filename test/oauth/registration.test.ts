import { readdirSync, statSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import t, { type Test } from "tap";
import { epochSeconds } from "../../src/clock.ts";
import {
  createDocumentFetch,
  isNetworkAddress,
  isPublicAddress,
  type ResolveAll,
} from "../../src/oauth/server/client-documents.ts";
import { clientBounds } from "../../src/oauth/server/server.ts";
import { PATIENCE_MS } from "../kit/eventually.ts";
import { PlainBrowser } from "./browser.ts";
import { openDocumentHost } from "./document-host.ts";
import { obtainTokens, refresh } from "./flow.ts";
import {
  authorizeUrl,
  documentsOf,
  openSetting,
  REDIRECT,
  register,
  registered,
  type Setting,
} from "./kit.ts";

function openState(t: Test, { directory }: Setting): DatabaseSync {
  const database = new DatabaseSync(path.join(directory, "state.sqlite"));
  t.teardown(() => database.close());
  return database;
}

t.test("a client registers itself, as a public one", async (t) => {
  const setting = await openSetting(t);
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

t.test("redirects lead to https, to the user's own machine, or to an app", async (t) => {
  const setting = await openSetting(t);
  const good = [
    "https://app.example.com/cb",
    "http://localhost:3000/cb",
    "http://[::1]/cb",
    "com.example.app:/callback",
    "com.example.app://host/callback?x=1",
    "editor://vendor.extension/callback",
  ];
  t.equal((await register(setting, { redirect_uris: good })).status, 201);
});

t.test("redirects lead nowhere else", async (t) => {
  const setting = await openSetting(t);
  for (const uri of [
    "http://app.example.com/cb",
    "javascript:alert(1)",
    "data:text/html,x",
    "file:///etc/passwd",
    "vbscript:/x",
    "ms-msdt:/id",
    "intent://scan/#Intent;end",
    "otherapp:/cb",
    "com.example.app:opaque",
    "com.example.app:/cb#fragment",
    "com.example.app://user@host/cb",
    "com.example.app:/c b",
    'com.example.app:/"><script>',
    "ftp://app.example.com/cb",
    "https:/\\evil.example",
    "https://app.example.com/cb#fragment",
    "https://user@app.example.com/cb",
    "http://127.0.0.1.evil.example/cb",
    "http://127.0.0.2/cb",
    "https://localhost/cb",
    "/cb",
  ]) {
    const { status, body } = await register(setting, { redirect_uris: [uri] });
    t.match({ status, error: body.error }, { status: 400, error: "invalid_redirect_uri" }, uri);
  }
});

t.test("metadata that cannot be kept is refused", async (t) => {
  const setting = await openSetting(t);
  for (const metadata of [
    { redirect_uris: [REDIRECT], token_endpoint_auth_method: "client_secret_basic" },
    { redirect_uris: [REDIRECT], grant_types: ["client_credentials"] },
    { redirect_uris: [REDIRECT], response_types: ["token"] },
    { redirect_uris: [REDIRECT], client_name: "Bank\u202e" },
    { redirect_uris: [REDIRECT], client_name: "x".repeat(101) },
  ]) {
    const { status, body } = await register(setting, metadata);
    t.match({ status, body }, { status: 400, body: { error: "invalid_client_metadata" } });
  }
  const huge = await register(setting, { redirect_uris: [REDIRECT], x: "x".repeat(20_000) });
  t.equal(huge.status, 413);
});

t.test("metadata that two parsers could read differently is refused", async (t) => {
  const { url } = await openSetting(t);
  const uris = JSON.stringify([REDIRECT]);
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

t.test("an address registers so many clients an hour, and no more", async (t) => {
  const setting = await openSetting(t, { registrationsPerHour: 3 });
  for (let at = 0; at < 3; at++) t.equal((await register(setting)).status, 201);
  const { status, body, headers } = await register(setting);
  t.equal(status, 429);
  t.equal(body.error, "temporarily_unavailable");
  t.ok(Number(headers.get("retry-after")) > 0);
});

t.test("clients that nobody lets in keep nobody out, and none that is in use", async (t) => {
  const setting = await openSetting(t, { registrationsPerHour: 2000 });
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
  t.ok((await obtainTokens(setting, { clientId: waiting })).accessToken, "its user still logs in");
});

t.test("what is kept is for the gateway alone", async (t) => {
  const { directory } = await openSetting(t);
  t.equal(statSync(directory).mode & 0o777, 0o700);
  for (const name of readdirSync(directory)) {
    const { mode } = statSync(path.join(directory, name));
    t.equal(mode & 0o077, 0, name);
  }
});

const CLIENT = "https://app.example.com/client.json";

t.test("a client is known by the document at its name", async (t) => {
  const document = { client_id: CLIENT, client_name: "Hosted", redirect_uris: [REDIRECT] };
  const setting = await openSetting(t, { documents: documentsOf({ [CLIENT]: document }) });
  const page = await new PlainBrowser(setting.url).open(
    authorizeUrl(setting, { client_id: CLIENT }),
  );
  t.match(page.text, "Hosted");
  t.match(page.text, "<dd>app.example.com</dd>");
  const { accessToken } = await obtainTokens(setting, { clientId: CLIENT });
  t.match(await setting.server.verify(accessToken), { clientId: CLIENT });
});

t.test("a document that is not the client's own, or bad, makes no client", async (t) => {
  const base = { client_id: CLIENT, redirect_uris: [REDIRECT] };
  for (const document of [
    { ...base, client_id: "https://other.example.com/client.json" },
    { redirect_uris: [REDIRECT] },
    { ...base, redirect_uris: ["http://app.example.com/"] },
    { ...base, token_endpoint_auth_method: "client_secret_basic" },
    undefined,
  ]) {
    const setting = await openSetting(t, { documents: documentsOf({ [CLIENT]: document }) });
    const url = authorizeUrl(setting, { client_id: CLIENT });
    const page = await new PlainBrowser(setting.url).open(url);
    t.equal(page.status, 400, JSON.stringify(document));
  }
});

t.test("only addresses of the public internet are public", async (t) => {
  for (const address of ["93.184.215.14", "2606:4700:4700::1111"]) t.ok(isPublicAddress(address));
  for (const address of [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.0.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "255.255.255.255",
    "224.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "::",
    "::1",
    "::ffff:10.0.0.1",
    "::10.0.0.1",
    "fe80::1",
    "fc00::1",
    "fec0::1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "2001:db8::1",
    "ff02::1",
    "64:ff9b:1::1",
    "4000::1",
    "nonsense",
  ]) {
    t.notOk(isPublicAddress(address), address);
  }
});

t.test("addresses of an own network are those, and not the ones of a link", async (t) => {
  for (const address of ["127.0.0.1", "10.1.2.3", "192.168.0.1", "100.64.0.1", "::1", "fd00::1"]) {
    t.ok(isNetworkAddress(address), address);
  }
  for (const address of ["169.254.169.254", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "x"]) {
    t.notOk(isNetworkAddress(address), address);
  }
});

function resolvesTo(...addresses: readonly string[]): ResolveAll {
  return (_, done) =>
    done(
      null,
      addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 })),
    );
}

t.test("no document is fetched from this machine, under whatever name", async (t) => {
  const { port, reached } = await openDocumentHost(t);
  const signal = AbortSignal.timeout(PATIENCE_MS);
  for (const addresses of [["127.0.0.1"], ["93.184.215.14", "127.0.0.1"], ["::ffff:127.0.0.1"]]) {
    const inside = createDocumentFetch({ resolve: resolvesTo(...addresses) });
    await t.rejects(inside(`https://app.example.com:${port}/`, signal), /not public/);
  }
  const fetchDocument = createDocumentFetch();
  for (const host of [
    "127.0.0.1",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "localhost",
    "2130706433",
    "0x7f.1",
  ]) {
    await t.rejects(fetchDocument(`https://${host}:${port}/`, signal), /not public/, host);
  }
  await t.rejects(fetchDocument(`http://app.example.com:${port}/`, signal), /https/);
  t.equal(reached(), 0);
});

t.test("a host that the operator has named may be near, and no other one", async (t) => {
  const { port, host, reached } = await openDocumentHost(t);
  const signal = AbortSignal.timeout(PATIENCE_MS);
  const named = createDocumentFetch({ privateHosts: [host] });
  await t.rejects(named(`https://${host}/`, signal), /self-signed certificate/, "it is asked");
  t.equal(reached(), 1);
  for (const other of [`127.0.0.1:${port}`, "localhost", `[::ffff:127.0.0.1]:${port}`]) {
    await t.rejects(named(`https://${other}/`, signal), /not public/, other);
  }
  t.equal(reached(), 1);
});

t.test("a host that the operator has named is not asked on the link", async (t) => {
  const fetchDocument = createDocumentFetch({
    privateHosts: ["app.example.com"],
    resolve: resolvesTo("169.254.169.254"),
  });
  const answer = fetchDocument("https://app.example.com/", AbortSignal.timeout(PATIENCE_MS));
  await t.rejects(answer, /not public/);
});

t.test("a name that is rebound to this machine is not followed there", async (t) => {
  const { port, reached } = await openDocumentHost(t);
  let asked = 0;
  const fetchDocument = createDocumentFetch({
    resolve: (hostname, done) => {
      asked += 1;
      resolvesTo(asked === 1 ? "192.0.2.1" : "127.0.0.1")(hostname, done);
    },
  });
  const url = `https://app.example.com:${port}/`;
  for (const round of ["first", "second"]) {
    await t.rejects(fetchDocument(url, AbortSignal.timeout(PATIENCE_MS)), /not public/, round);
  }
  t.equal(asked, 2, "what was looked up once is not relied on later");
  t.equal(reached(), 0);
});
