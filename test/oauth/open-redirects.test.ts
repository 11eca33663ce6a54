import t from "tap";
import { PlainBrowser } from "./browser.ts";
import { authorize } from "./flow.ts";
import { authorizeUrl, CONFIGURED, openSetting, REDIRECT, registered } from "./kit.ts";

const elsewhere = "https://elsewhere.example/callback";

/** Requests that fail before anybody has seen a page. */
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

t.test("nobody is sent elsewhere by a request that was bound to fail", async (t) => {
  const setting = await openSetting(t);
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
        t.match(page.text, "This request cannot go on");
        t.match(page.text, `href="${redirect_uri}`, "the way to the app is the user's to go");
      }
    }
  }
});

t.test("a program on the user's machine, and a client that is known, are told", async (t) => {
  const setting = await openSetting(t);
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

t.test("answers go by the query alone", async (t) => {
  const setting = await openSetting(t);
  const client_id = await registered(setting);
  for (const response_mode of ["form_post", "fragment", "jwt", "web_message", "x"]) {
    const url = authorizeUrl(setting, { client_id, response_mode });
    const page = await new PlainBrowser(setting.url).open(url);
    const { searchParams, hash } = new URL(page.url);
    t.ok(page.url.startsWith(REDIRECT), response_mode);
    t.equal(searchParams.get("error"), "unsupported_response_mode");
    t.equal(searchParams.get("iss"), setting.url);
    t.equal(hash, "");
  }
  const { callback } = await authorize(setting, { parameters: { response_mode: "query" } });
  t.ok(callback.searchParams.get("code"));
  const metadata = await fetch(`${setting.url}/.well-known/oauth-authorization-server`);
  t.match(await metadata.json(), { response_modes_supported: ["query"] });
});

t.test(
  "there is no logout that leads anywhere, nor anything else that was not asked for",
  async (t) => {
    const { url } = await openSetting(t);
    const away = `?post_logout_redirect_uri=${elsewhere}&redirect_uri=${elsewhere}&next=${elsewhere}`;
    for (const path of [
      ...["/session/end", "/session/end/confirm", "/oauth/session/end", "/oauth/logout", "/logout"],
      ...["/oauth/end_session", "/me", "/request", "/token/introspection", "/device", "/oauth//"],
      ...["/oauth/interaction/x", "/oauth/authorize/x", `/oauth/authorize/x/../${elsewhere}`],
    ]) {
      for (const method of ["GET", "POST"]) {
        const answer = await fetch(`${url}${path}${away}`, { method, redirect: "manual" });
        t.ok(answer.status >= 400 && answer.status < 500, `${method} ${path} ${answer.status}`);
        t.equal(answer.headers.get("location"), null, path);
      }
    }
  },
);
