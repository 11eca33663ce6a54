import { readdirSync, statSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { epochSeconds } from "../../src/clock.ts";
import { registrationBounds } from "../../src/oauth/server/registration.ts";
import { StateStore } from "../../src/oauth/server/store.ts";
import { openSetting, REDIRECT, register } from "./kit.ts";

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
  let setting = await openSetting(t);
  let left = registrationBounds.perAddress;
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
    if (left-- === 0) setting = await openSetting(t);
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

t.test("an address registers so many clients an hour, and no more", async (t) => {
  const setting = await openSetting(t);
  for (let at = 0; at < registrationBounds.perAddress; at++) await register(setting);
  const { status, body, headers } = await register(setting);
  t.equal(status, 429);
  t.equal(body.error, "temporarily_unavailable");
  t.ok(Number(headers.get("retry-after")) > 0);
});

t.test("no more clients are kept than there is room for", async (t) => {
  const setting = await openSetting(t);
  const store = new StateStore(path.join(setting.directory, "state.sqlite"));
  t.teardown(() => store.close());
  const record = { payload: "{}", grantId: undefined, uid: undefined };
  for (let at = 0; at < registrationBounds.clients; at++) {
    store.put("Client", String(at), { ...record, expires: epochSeconds() + 60 });
  }
  t.equal((await register(setting)).status, 503);
  store.put("Client", "0", { ...record, expires: 1 });
  t.equal((await register(setting)).status, 201, "one that was never used has expired");
});

t.test("what is kept is for the gateway alone", async (t) => {
  const { directory } = await openSetting(t);
  t.equal(statSync(directory).mode & 0o777, 0o700);
  for (const name of readdirSync(directory)) {
    const { mode } = statSync(path.join(directory, name));
    t.equal(mode & 0o077, 0, name);
  }
});
