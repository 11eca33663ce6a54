import { createHash } from "node:crypto";
import t from "tap";
import { epochSeconds } from "../../src/clock.ts";
import { grant } from "../access/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { type Page, PlainBrowser } from "./browser.ts";
import { authorize, obtainTokens } from "./flow.ts";
import { authorizeUrl, documentsOf, openSetting, REDIRECT, registered, userWith } from "./kit.ts";
import { openLogin, right, yes } from "./page-kit.ts";

t.test("the pages run no script, load nothing, and are framed and kept by nobody", async (t) => {
  const setting = await openSetting(t);
  const { browser, page: login } = await openLogin(setting);
  const consent = await browser.submit(login, right);
  for (const { status, headers, text } of [login, consent]) {
    t.equal(status, 200);
    const policy = headers.get("content-security-policy") ?? "";
    const style = /<style>([\s\S]*?)<\/style>/.exec(text)?.[1] ?? "";
    const hash = createHash("sha256").update(style).digest("base64");
    t.strictSame(policy.split("; "), [
      "default-src 'none'",
      `style-src 'sha256-${hash}'`,
      "form-action 'self' http://127.0.0.1:4999",
      "frame-ancestors 'none'",
      "base-uri 'none'",
    ]);
    t.equal(headers.get("cache-control"), "no-store");
    t.notMatch(text, /<script|style="|https:\/\/(?!127)/);
  }
});

t.test("the pages name the client and where the answer goes", async (t) => {
  const setting = await openSetting(t);
  const { browser, page: login } = await openLogin(setting, undefined, {
    client_name: '<b onclick="x">Note&book</b>',
    redirect_uris: [REDIRECT],
  });
  const consent = await browser.submit(login, right);
  for (const { text } of [login, consent]) {
    t.match(text, "&lt;b onclick=&quot;x&quot;&gt;Note&amp;book&lt;/b&gt;");
    t.match(text, "127.0.0.1:4999");
    t.match(text, "its name has not been checked");
  }
  t.match(consent.text, "a program on your own computer");
  t.match(consent.text, "Logged in as <strong>alice</strong>");
});

function chosenIn({ text }: Page): (string | undefined)[] {
  const database = /<option value="([^"]+)" selected>/.exec(text)?.[1];
  const reach = /<input type="radio" name="reach" value="(\w+)" required checked>/.exec(text)?.[1];
  return [database, reach, text.match(/ selected>| checked>/g)?.length.toString()];
}

t.test("the least is chosen beforehand, and what was allowed last time is told", async (t) => {
  const setting = await openSetting(t);
  const { browser, page: login } = await openLogin(setting);
  const first = await browser.submit(login, right);
  t.strictSame(chosenIn(first), ["archive", "read", "2"]);
  t.match(first.text, "You have not let this app in before.");
  const client_id = await registered(setting);
  const again = () => browser.open(authorizeUrl(setting, { client_id }));
  const allowed = await browser.submit(await again(), {
    database: "main",
    reach: "full",
    action: "allow",
  });
  t.match(allowed.url, /code=/);
  const second = await again();
  t.strictSame(chosenIn(second), ["main", "read", "2"]);
  t.match(second.text, /Last time, on [\d-]+ [\d:]+ UTC, you let it read and change <strong>main</);
  t.match(second.text, "It has called no tool.");
  const consented = epochSeconds();
  await eventually("the last consent is the newest", () => epochSeconds() > consented);
  const { accessToken } = await obtainTokens(setting, { browser, clientId: client_id });
  const token = await setting.server.verify(accessToken);
  for (const tool of ["select", "list_tables", "select"]) token.noteCall(tool);
  const third = await again();
  t.strictSame(chosenIn(third), ["archive", "read", "2"], "all databases are chosen by hand alone");
  t.match(third.text, "you let it read and change all databases that you may use");
  t.match(third.text, "It has called list_tables, select.");
});

t.test("an app that was called otherwise last time is told to have been", async (t) => {
  const clientId = "https://app.example.com/client.json";
  const document = { client_id: clientId, client_name: "Notebook", redirect_uris: [REDIRECT] };
  const documents: Record<string, object> = { [clientId]: document };
  const setting = await openSetting(t, { documents: documentsOf(documents) });
  const browser = new PlainBrowser(setting.url);
  await obtainTokens(setting, { browser, clientId });
  documents[clientId] = { ...document, client_name: "Your Bank" };
  await setting.restart();
  const { text } = await browser.open(authorizeUrl(setting, { client_id: clientId }));
  t.match(text, "Let <bdi>Your Bank</bdi> use");
  t.match(text, "It was called <bdi>Notebook</bdi> then.");
});

t.test("who may use nothing but what is named nowhere is asked for all of it", async (t) => {
  const users = (await userWith("alice")) + grant("alice", "*", "ReadOnly");
  const setting = await openSetting(t, { users });
  const { browser, page } = await openLogin(setting);
  t.strictSame(chosenIn(await browser.submit(page, right)), ["*", "read", "2"]);
});

t.test("a wrong password and an unknown user look alike", async (t) => {
  const setting = await openSetting(t);
  const { browser, page } = await openLogin(setting);
  const wrong = await browser.submit(page, { ...right, password: "wrong horse" });
  t.equal(wrong.status, 401);
  t.match(wrong.text, /role="alert"[\s\S]*The username or the password is wrong/);
  const unknown = await browser.submit(page, { ...right, username: "zoe" });
  t.equal(unknown.text, wrong.text.replace('value="alice"', 'value="zoe"'));
  t.notMatch(wrong.text, "wrong horse");
  const audited = setting.events.filter(({ name }) => name === "oauth_login");
  const users = audited.map(({ fields }) => fields.user);
  t.strictSame(users, ["alice", undefined], "a name that nobody has may be a password");
  t.match(await browser.submit(wrong, right), {
    status: 200,
    text: /Let <bdi>Notebook<\/bdi> use/,
  });
});

t.test("too many wrong passwords have to wait, the right one too", async (t) => {
  const setting = await openSetting(t);
  const { browser, page } = await openLogin(setting);
  for (let at = 0; at < 3; at++) await browser.submit(page, { ...right, password: "wrong" });
  const answer = await browser.submit(page, right);
  t.equal(answer.status, 429);
  t.match(answer.headers.get("retry-after"), /^\d+$/);
  t.match(answer.text, /Too many failed attempts. Try again in \d+ seconds/);
});

t.test("a form without its token, or with another one's, does nothing", async (t) => {
  const setting = await openSetting(t);
  const { browser, page } = await openLogin(setting);
  const { page: foreign } = await openLogin(setting);
  const foreignToken = /name="csrf" value="([^"]+)"/.exec(foreign.text)?.[1] ?? "";
  for (const csrf of ["", "x", foreignToken]) {
    const answer = await browser.submit(page, { ...right, csrf });
    t.equal(answer.status, 403);
  }
  t.match(await browser.submit(page, right), { status: 200, text: /Let <bdi>Notebook<\/bdi> use/ });
});

t.test("a form does nothing without the cookie of its interaction", async (t) => {
  const setting = await openSetting(t);
  const { page } = await openLogin(setting);
  const answer = await new PlainBrowser(setting.url).submit(page, right);
  t.equal(answer.status, 400);
  t.match(answer.text, "belongs to another browser");
});

t.test("cookies are for the server alone", async (t) => {
  const setting = await openSetting(t);
  const { browser, page } = await openLogin(setting);
  await browser.submit(page, right);
  t.equal(browser.cookies.length > 1, true);
  for (const { name, path, attributes } of browser.cookies) {
    t.match(attributes, /httponly/i, name);
    t.match(attributes, /samesite=lax/i, name);
    t.ok(path.startsWith("/oauth"), `${name} ${path}`);
    if (name.endsWith("session")) t.notMatch(attributes, /expires/i);
  }
});

t.test("every client is asked for, by every browser, each time", async (t) => {
  const setting = await openSetting(t);
  const browser = new PlainBrowser(setting.url);
  const clientId = await registered(setting);
  await authorize(setting, { browser, clientId });
  const logins = () => setting.events.filter(({ name }) => name === "oauth_login").length;
  for (const client_id of [clientId, await registered(setting)]) {
    const page = await browser.open(authorizeUrl(setting, { client_id }));
    t.match(page.text, /Let <bdi>Notebook<\/bdi> use/);
    const silent = await browser.open(authorizeUrl(setting, { client_id, prompt: "none" }));
    t.match(silent.url, /error=consent_required/);
  }
  t.equal(logins(), 1, "the login of the browser is remembered");
});

t.test("a user who says no is believed", async (t) => {
  const setting = await openSetting(t);
  for (const steps of [[{ action: "deny" }], [right, { action: "deny" }]]) {
    const { browser, page: login } = await openLogin(setting);
    let page = login;
    for (const step of steps) page = await browser.submit(page, step);
    const { searchParams } = new URL(page.url);
    t.equal(searchParams.get("error"), "access_denied");
    t.equal(searchParams.get("iss"), setting.url);
    t.notOk(searchParams.has("code"));
  }
});

t.test("only what is offered can be chosen", async (t) => {
  const setting = await openSetting(t);
  const { browser, page: login } = await openLogin(setting);
  const page = await browser.submit(login, right);
  t.match(page.text, "Only archive (your role: ReadOnly)");
  t.match(page.text, "Only main (your role: ReadWrite)");
  for (const change of [{ database: "secret" }, { database: "" }, { reach: "all" }]) {
    t.equal((await browser.submit(page, { ...yes, ...change })).status, 400);
  }
  t.match((await browser.submit(page, yes)).url, /code=/);
});
