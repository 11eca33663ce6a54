import t, { type Test } from "tap";
import { Refusal } from "../../src/refusal.ts";
import { grant, refusedBy } from "../access/kit.ts";
import { ask } from "../kit/client.ts";
import { type Page, PlainBrowser } from "./browser.ts";
import { obtainTokens, refresh } from "./flow.ts";
import {
  defaultUsers,
  openSetting,
  PASSWORD,
  REDIRECT,
  registered,
  type Setting,
  userWith,
} from "./kit.ts";

const right = { username: "alice", password: PASSWORD, action: "login" };

function placeOf({ url }: Setting): string {
  return `${url}/oauth/applications`;
}

/** A browser that somebody is logged in with at the page. */
async function signIn(setting: Setting, username = "alice") {
  const browser = new PlainBrowser(setting.url);
  const login = await browser.open(placeOf(setting));
  const page = await browser.submit(login, { ...right, username });
  return { browser, page };
}

async function codeOf(setting: Setting, token: string): Promise<string> {
  const outcome: unknown = await setting.server.verify(token).catch((error: unknown) => error);
  return outcome instanceof Refusal ? outcome.code : "good";
}

function checkLogin(t: Test, { status, text }: Page, expected = 200): void {
  t.equal(status, expected);
  t.match(text, "Log in to see your connected applications");
  t.notMatch(text, /Notebook|name="disconnect"/);
}

t.test("a user sees the apps that it has let in, and ends one with all its tokens", async (t) => {
  const setting = await openSetting(t);
  const first = await obtainTokens(setting, { database: "main", reach: "read" });
  const again = await obtainTokens(setting, { clientId: first.clientId, database: "archive" });
  const otherApp = await registered(setting, { client_name: "Sheet", redirect_uris: [REDIRECT] });
  const other = await obtainTokens(setting, { clientId: otherApp });
  const ofBob = await obtainTokens(setting, { clientId: first.clientId, username: "bob" });
  (await setting.server.verify(first.accessToken)).noteCall("select");

  const { browser, page } = await signIn(setting);
  t.equal(page.url, placeOf(setting));
  t.match(page.text, "Logged in as <strong>alice</strong>");
  t.equal(page.text.match(/<section/g)?.length, 2, "an app is shown once");
  t.match(page.text, /only read <strong>main<\/strong>, since \d{4}-\d\d-\d\d \d\d:\d\d UTC/);
  t.match(page.text, "read and change <strong>archive</strong>");
  t.match(page.text, "read and change all databases that you may use");
  t.match(page.text, "It has called select.");
  t.match(page.text, "It has called no tool.");

  const left = await browser.submit(page, { disconnect: first.clientId });
  t.equal(left.url, placeOf(setting));
  t.notMatch(left.text, "Notebook");
  t.match(left.text, "Sheet");
  for (const { accessToken, refreshToken } of [first, again]) {
    t.equal(await codeOf(setting, accessToken), "token_revoked");
    const refreshed = await refresh(setting, first.clientId, refreshToken);
    t.equal(refreshed.body.error, "invalid_grant");
  }
  t.equal(await codeOf(setting, other.accessToken), "good");
  t.equal(await codeOf(setting, ofBob.accessToken), "good", "what bob has allowed is bob's");
  t.match(setting.events.at(-1), {
    name: "oauth_token",
    fields: { outcome: "invalid_grant" },
  });
  const ended = setting.events.find(({ name }) => name === "oauth_revocation");
  t.match(ended?.fields, { user: "alice", client: first.clientId, token: "all" });
});

t.test("an app that can do nothing any more is not connected", async (t) => {
  const setting = await openSetting(t);
  const { clientId, refreshToken } = await obtainTokens(setting);
  const { browser, page } = await signIn(setting);
  t.match(page.text, "Notebook");
  const fields = { token: refreshToken, client_id: clientId };
  await fetch(`${setting.url}/oauth/revoke`, { method: "POST", body: new URLSearchParams(fields) });
  t.match((await browser.open(placeOf(setting))).text, "No app is connected.");
  await obtainTokens(setting);
  setting.revokedBefore.set("alice", Math.floor(Date.now() / 1000) + 1);
  checkLogin(t, await browser.open(placeOf(setting)));
  const { page: later } = await signIn(setting);
  t.match(later.text, "No app is connected.", "everything of hers was revoked");
});

t.test("the page is shown to nobody who is not logged in", async (t) => {
  const setting = await openSetting(t);
  await obtainTokens(setting);
  const browser = new PlainBrowser(setting.url);
  const login = await browser.open(placeOf(setting));
  checkLogin(t, login);
  t.match(login.headers.get("content-security-policy"), "form-action 'self';");
  const wrong = await browser.submit(login, { ...right, password: "wrong horse" });
  checkLogin(t, wrong, 401);
  t.match(wrong.text, 'role="alert"');
  const none = await browser.submit(login, { disconnect: "x" });
  checkLogin(t, none);
  const page = await browser.submit(wrong, right);
  t.match(page.text, "Notebook");
  const [session] = browser.cookies.filter(({ name }) => name === "gatehouse_session");
  t.match(session, { path: "/oauth", attributes: /httponly/ });
  t.match(session?.attributes, /samesite=lax/);
  const out = await browser.submit(page, { action: "logout" });
  checkLogin(t, out);
  checkLogin(t, await browser.open(placeOf(setting)));
  const late = await browser.submit(page, { disconnect: "x" });
  checkLogin(t, late);
});

t.test("a login in the browser serves both pages, and ends with its password", async (t) => {
  const setting = await openSetting(t);
  const browser = new PlainBrowser(setting.url);
  await obtainTokens(setting, { browser });
  t.match((await browser.open(placeOf(setting))).text, "Notebook");
  const { browser: own } = await signIn(setting);
  await obtainTokens(setting, { browser: own, password: "is not asked for" });
  const bob = await userWith("bob");
  setting.setUsers(
    (await userWith("alice", "another horse")) + bob + grant("alice", "main", "Owner"),
  );
  checkLogin(t, await browser.open(placeOf(setting)));
  setting.setUsers((await userWith("alice", PASSWORD, "disabled = true")) + bob);
  checkLogin(t, await own.open(placeOf(setting)));
});

t.test("a form without its token, or with that of another login, does nothing", async (t) => {
  const setting = await openSetting(t);
  const { accessToken, clientId } = await obtainTokens(setting);
  const { browser, page } = await signIn(setting);
  const { page: second } = await signIn(setting);
  const { page: ofBob } = await signIn(setting, "bob");
  const login = await new PlainBrowser(setting.url).open(placeOf(setting));
  const tokenIn = ({ text }: Page) => /name="csrf" value="([^"]+)"/.exec(text)?.[1] ?? "";
  for (const csrf of ["", "x", tokenIn(second), tokenIn(ofBob), tokenIn(login)]) {
    for (const action of [{ disconnect: clientId }, { action: "logout" }]) {
      t.equal((await browser.submit(page, { ...action, csrf })).status, 403);
    }
  }
  const stranger = new PlainBrowser(setting.url);
  const own = await stranger.open(placeOf(setting));
  for (const csrf of ["", "x", tokenIn(login), tokenIn(page)]) {
    t.equal((await stranger.submit(own, { ...right, csrf })).status, 403, "a login neither");
  }
  t.equal(await codeOf(setting, accessToken), "good");
  t.match((await browser.open(placeOf(setting))).text, "Notebook");
});

t.test("a login is taken from the browser that was given its page alone", async (t) => {
  const setting = await openSetting(t);
  for (const cookie of ["x=y", "gatehouse_browser=", "gatehouse_browser=; x=y"]) {
    const headers = { cookie };
    const page = await ask(placeOf(setting), { headers });
    const csrf = /name="csrf" value="([^"]+)"/.exec(page.body.toString())?.[1] ?? "";
    const body = new URLSearchParams({ ...right, csrf }).toString();
    const type = { "content-type": "application/x-www-form-urlencoded" };
    for (const sent of [type, { ...type, ...headers }]) {
      const answer = await ask(placeOf(setting), { method: "POST", headers: sent, body });
      t.equal(answer.status, 403, cookie);
    }
  }
  t.notOk(setting.events.some(({ name }) => name === "oauth_login"));
});

t.test("behind TLS the cookies of the page go over TLS alone", async (t) => {
  const setting = await openSetting(t, { issuer: "https://gate.example.com" });
  const { headers } = await fetch(placeOf(setting));
  const [cookie = ""] = headers.getSetCookie();
  t.match(
    cookie,
    /^gatehouse_browser=[\w-]{43}; path=\/oauth\/applications; samesite=strict; secure; httponly$/,
  );
});

t.test("the page is no script's, and its names are text", async (t) => {
  const setting = await openSetting(t);
  const evil = '"><script>alert(1)</script>';
  const clientId = await registered(setting, { client_name: evil, redirect_uris: [REDIRECT] });
  await obtainTokens(setting, { clientId });
  const { page } = await signIn(setting);
  t.match(page.text, "&lt;script&gt;");
  t.notMatch(page.text, "<script");
  for (const mode of ["cors", "no-cors", "same-origin"]) {
    const headers = { "sec-fetch-site": "same-origin", "sec-fetch-mode": mode };
    t.equal((await ask(placeOf(setting), { headers })).status, 403);
  }
  t.equal((await ask(placeOf(setting), { method: "DELETE" })).status, 405);
});

t.test("failed logins at the page count as everywhere", async (t) => {
  const setting = await openSetting(t);
  const browser = new PlainBrowser(setting.url);
  const login = await browser.open(placeOf(setting));
  for (let at = 0; at < 3; at++) await browser.submit(login, { ...right, password: "wrong" });
  const answer = await browser.submit(login, right);
  checkLogin(t, answer, 429);
  t.match(answer.headers.get("retry-after"), /^\d+$/);
});

t.test("the id of an access token names its family, and nobody else's", async (t) => {
  const setting = await openSetting(t, { users: await defaultUsers() });
  const one = await obtainTokens(setting);
  const { body } = await refresh(setting, one.clientId, one.refreshToken);
  const other = await obtainTokens(setting, { clientId: one.clientId });
  const idOf = async (token: unknown) => (await setting.server.verify(String(token))).tokenId;
  const ids = await Promise.all([one.accessToken, body.access_token, other.accessToken].map(idOf));
  for (const id of ids) t.match(id, /^[\w-]{43}$/);
  t.equal(new Set(ids).size, 3);
  const [first, second, third] = ids.map((id) => id.slice(0, 22));
  t.equal(first, second);
  t.not(first, third);
  const refused = await refusedBy(setting.server.verify(`${one.accessToken}x`));
  t.equal(refused.code, "token_invalid");
});
