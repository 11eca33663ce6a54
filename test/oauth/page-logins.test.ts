import t from "tap";
import { PlainBrowser } from "./browser.ts";
import { authorize, obtainTokens, refresh } from "./flow.ts";
import { authorizeUrl, defaultUsers, openSetting, registered, userWith } from "./kit.ts";
import { openLogin, right, yes } from "./page-kit.ts";

t.test("another account can be used instead", async (t) => {
  const setting = await openSetting(t);
  const { browser, page: login } = await openLogin(setting);
  const consent = await browser.submit(login, right);
  const again = await browser.submit(consent, { action: "switch" });
  t.match(again.text, 'value="login"');
  const bob = await browser.submit(again, { ...right, username: "bob" });
  t.match(bob.text, "Logged in as <strong>bob</strong>");
  t.notMatch(bob.text, "archive");
  t.match((await browser.submit(bob, yes)).url, /code=/);
});

t.test("a login asked for again may be another user's", async (t) => {
  const setting = await openSetting(t);
  const browser = new PlainBrowser(setting.url);
  const clientId = await registered(setting);
  await authorize(setting, { browser, clientId });
  const url = authorizeUrl(setting, { client_id: clientId, prompt: "login" });
  const consent = await browser.submit(await browser.open(url), { ...right, username: "bob" });
  t.match(consent.text, "Logged in as <strong>bob</strong>");
  t.match((await browser.submit(consent, yes)).url, /code=/);
});

t.test("a new password ends the login in the browser", async (t) => {
  const setting = await openSetting(t);
  const browser = new PlainBrowser(setting.url);
  await authorize(setting, { browser });
  const changed = (await defaultUsers()).replace(
    /\[\[users\]\]\nusername = "alice"[\s\S]*?\n\n/,
    "",
  );
  setting.setUsers((await userWith("alice", "another horse")) + changed);
  const { page } = await openLogin(setting, browser);
  t.match(page.text, 'value="login"');
  const password = "another horse";
  const tokens = await obtainTokens(setting, { browser, password });
  t.equal((await refresh(setting, tokens.clientId, tokens.refreshToken)).status, 200);
});

t.test("behind a TLS front, cookies and addresses are those of the public URL", async (t) => {
  const setting = await openSetting(t, { issuer: "https://gate.example.com" });
  const client_id = await registered(setting);
  const resource = "https://gate.example.com/mcp";
  const answer = await fetch(authorizeUrl(setting, { client_id, resource }), {
    redirect: "manual",
    headers: { "x-forwarded-host": "evil.example", "x-forwarded-proto": "http" },
  });
  t.equal(answer.status, 303);
  t.match(answer.headers.get("location"), /^https:\/\/gate\.example\.com\/oauth\/interaction\//);
  for (const cookie of answer.headers.getSetCookie()) t.match(cookie, /; secure/);
  t.equal(answer.headers.getSetCookie().length, 2);
});
