import { createHash } from "node:crypto";
import t, { type Test } from "tap";
import { epochSeconds } from "../../src/core/base/clock.ts";
import { Refusal } from "../../src/core/base/refusal.ts";
import { isTokenUnder, tokenIdIn } from "../../src/features/oauth/server/connections.ts";
import { grant, refusedBy } from "../access/kit.ts";
import { ask } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { type Page, PlainBrowser } from "./browser.ts";
import { authorize, obtainTokens, refresh } from "./flow.ts";
import {
  authorizeUrl,
  defaultUsers,
  documentsOf,
  type OAuthSetup,
  onServer,
  openOAuthSetup,
  PASSWORD,
  postForm,
  REDIRECT,
  registered,
  userWith,
} from "./kit.ts";

const right = { username: "alice", password: PASSWORD, action: "login" };

function csrfIn({ text }: Pick<Page, "text">): string {
  return /name="csrf" value="([^"]+)"/.exec(text)?.[1] ?? "";
}

const yes = { database: "*", reach: "full", action: "allow" };

async function openLogin(
  setting: OAuthSetup,
  browser = new PlainBrowser(setting.url),
  metadata?: object,
): Promise<{ browser: PlainBrowser; page: Page }> {
  const client_id = await registered(setting, metadata);
  return { browser, page: await browser.open(authorizeUrl(setting, { client_id })) };
}

onServer("the pages allow no scripts, other resources, frames or caching", async (t, setting) => {
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
      "form-action 'self'",
      "frame-ancestors 'none'",
      "base-uri 'none'",
    ]);
    t.equal(headers.get("cache-control"), "no-store");
    t.notMatch(text, /<script|style="|https:\/\/(?!127)/);
  }
});

onServer("the pages name the client and where it redirects", async (t, setting) => {
  const { browser, page: login } = await openLogin(setting, undefined, {
    client_name: '<b onclick="x">Note&book</b>',
    redirect_uris: [REDIRECT],
  });
  const consent = await browser.submit(login, right);
  for (const { text } of [login, consent]) {
    t.match(text, "&lt;b onclick=&quot;x&quot;&gt;Note&amp;book&lt;/b&gt;");
    t.match(text, "127.0.0.1:4999");
    t.match(text, "its name is unverified");
  }
  t.match(consent.text, "a program on your own computer");
  t.match(consent.text, "Logged in as <strong>alice</strong>");
});

function chosenIn({ text }: Page): (string | undefined)[] {
  const database = /<option value="([^"]+)" selected>/.exec(text)?.[1];
  const reach = /<input type="radio" name="reach" value="(\w+)" required checked>/.exec(text)?.[1];
  return [database, reach, text.match(/ selected>| checked>/g)?.length.toString()];
}

t.test("the least access is preselected, and the page shows the last consent", async (t) => {
  const setting = await openOAuthSetup(t);
  const { browser, page: login } = await openLogin(setting);
  const first = await browser.submit(login, right);
  t.strictSame(chosenIn(first), ["archive", "read", "2"]);
  t.match(first.text, "You have not allowed this app before.");
  const client_id = await registered(setting);
  const again = () => browser.open(authorizeUrl(setting, { client_id }));
  const allowed = await browser.submit(await again(), { ...yes, database: "main" });
  t.match(allowed.url, /code=/);
  const second = await again();
  t.strictSame(chosenIn(second), ["main", "read", "2"]);
  t.match(
    second.text,
    /You last allowed it on [\d-]+ [\d:]+ UTC, to read and change <strong>main</,
  );
  t.match(second.text, "It has called no tools.");
  const consented = epochSeconds();
  await eventually("the next consent is a second later", () => epochSeconds() > consented);
  const { accessToken } = await obtainTokens(setting, { browser, clientId: client_id });
  const token = await setting.server.verify(accessToken);
  for (const tool of ["select", "list_tables", "select"]) token.noteCall(tool);
  const third = await again();
  t.strictSame(chosenIn(third), ["archive", "read", "2"], "all databases are never preselected");
  t.match(third.text, "to read and change all databases that you may use");
  t.match(third.text, "It has called list_tables, select.");
});

onServer("the page shows no consent of an earlier user of that name", async (t, setting) => {
  const { clientId } = await obtainTokens(setting, { database: "main" });
  const asked = async () => {
    const browser = new PlainBrowser(setting.url);
    const login = await browser.open(authorizeUrl(setting, { client_id: clientId }));
    return browser.submit(login, right);
  };
  const same = await asked();
  t.match(same.text, "You last allowed it on");
  t.strictSame(chosenIn(same), ["main", "read", "2"]);
  const users = await defaultUsers();
  const ways: Record<string, () => void> = {
    "all tokens were revoked": () => setting.revokedBefore.set("alice", epochSeconds() + 1),
    "the record is another one": () => {
      setting.revokedBefore.clear();
      setting.setUsers(users);
    },
  };
  for (const [how, act] of Object.entries(ways)) {
    act();
    const other = await asked();
    t.match(other.text, "You have not allowed this app before.", how);
    t.strictSame(chosenIn(other), ["archive", "read", "2"], how);
  }
});

t.test("the page shows an app's earlier name", async (t) => {
  const clientId = "https://app.example.com/client.json";
  const document = { client_id: clientId, client_name: "Notebook", redirect_uris: [REDIRECT] };
  const documents: Record<string, object> = { [clientId]: document };
  const setting = await openOAuthSetup(t, { documents: documentsOf(documents) });
  const browser = new PlainBrowser(setting.url);
  await obtainTokens(setting, { browser, clientId });
  documents[clientId] = { ...document, client_name: "Your Bank" };
  await setting.restart();
  const { text } = await browser.open(authorizeUrl(setting, { client_id: clientId }));
  t.match(text, "Let <bdi>Your Bank</bdi> use");
  t.match(text, "Its name was <bdi>Notebook</bdi> then.");
});

t.test("a user with only a grant on * is asked about all databases", async (t) => {
  const users = (await userWith("alice")) + grant("alice", "*", "ReadOnly");
  const setting = await openOAuthSetup(t, { users });
  const { browser, page } = await openLogin(setting);
  t.strictSame(chosenIn(await browser.submit(page, right)), ["*", "read", "2"]);
});

onServer("a wrong password and an unknown user look alike", async (t, setting) => {
  const { browser, page } = await openLogin(setting);
  const wrong = await browser.submit(page, { ...right, password: "wrong horse" });
  t.equal(wrong.status, 401);
  t.match(wrong.text, /role="alert"[\s\S]*The username or the password is wrong/);
  const unknown = await browser.submit(page, { ...right, username: "zoe" });
  t.equal(unknown.text, wrong.text.replace('value="alice"', 'value="zoe"'));
  t.notMatch(wrong.text, "wrong horse");
  const audited = setting.events.filter(({ name }) => name === "oauth_login");
  const users = audited.map(({ fields }) => fields.user);
  t.strictSame(users, ["alice", undefined], "an unknown name may be a password");
  t.match((await browser.submit(wrong, right)).text, /Let <bdi>Notebook<\/bdi> use/);
});

onServer("after too many wrong passwords, even the right one has to wait", async (t, setting) => {
  const { browser, page } = await openLogin(setting);
  for (let at = 0; at < 3; at++) await browser.submit(page, { ...right, password: "wrong" });
  const answer = await browser.submit(page, right);
  t.equal(answer.status, 429);
  t.match(answer.headers.get("retry-after"), /^\d+$/);
  t.match(answer.text, /Too many failed attempts. Try again in \d+ seconds/);
});

onServer("a login form requires its own CSRF token", async (t, setting) => {
  const { browser, page } = await openLogin(setting);
  const { page: foreign } = await openLogin(setting);
  for (const csrf of ["", "x", csrfIn(foreign)]) {
    t.equal((await browser.submit(page, { ...right, csrf })).status, 403);
  }
  t.match((await browser.submit(page, right)).text, /Let <bdi>Notebook<\/bdi> use/);
});

onServer("cookies are HttpOnly, SameSite and limited to /oauth", async (t, setting) => {
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

onServer("consent is required each time, but one login per browser", async (t, setting) => {
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
  t.equal(logins(), 1, "one login");
});

onServer("a user can cancel at the login and at the consent", async (t, setting) => {
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

t.test("only the offered databases and permissions can be chosen", async (t) => {
  const more = [
    grant("alice", "lapsed", "Owner", "expires = 2020-01-01T00:00:00Z"),
    grant("alice", "lent", "ReadOnly", "expires = 2999-01-01T00:00:00Z"),
    grant("alice", "parts", "ReadOnly", 'tables = ["orders"]'),
    grant("alice", "a-closed", "None"),
  ].join("");
  const setting = await openOAuthSetup(t, { users: `${await defaultUsers()}${more}` });
  const { browser, page: login } = await openLogin(setting);
  const page = await browser.submit(login, right);
  t.strictSame(
    page.text.match(/Only [^<]*\)/g),
    ["archive", "lent", "main", "parts"].map(
      (name) => `Only ${name} (your role: ${name === "main" ? "ReadWrite" : "ReadOnly"})`,
    ),
  );
  for (const change of [{ database: "secret" }, { database: "" }, { reach: "all" }]) {
    t.equal((await browser.submit(page, { ...yes, ...change })).status, 400);
  }
  t.match((await browser.submit(page, yes)).url, /code=/);
});

onServer("a user can switch to another account", async (t, setting) => {
  const { browser, page: login } = await openLogin(setting);
  const consent = await browser.submit(login, right);
  const again = await browser.submit(consent, { action: "switch" });
  t.match(again.text, 'value="login"');
  const bob = await browser.submit(again, { ...right, username: "bob" });
  t.match(bob.text, "Logged in as <strong>bob</strong>");
  t.notMatch(bob.text, "archive");
  t.match((await browser.submit(bob, yes)).url, /code=/);
});

t.test("another user can log in when the client asks for a login or an account", async (t) => {
  const setting = await openOAuthSetup(t);
  const browser = new PlainBrowser(setting.url);
  const clientId = await registered(setting);
  await authorize(setting, { browser, clientId });
  for (const prompt of ["login", "select_account", "select_account consent", "create login"]) {
    const url = authorizeUrl(setting, { client_id: clientId, prompt });
    const page = await browser.open(url);
    t.match(page.text, "Log in to continue", prompt);
    const consent = await browser.submit(page, { ...right, username: "bob" });
    t.match(consent.text, "Logged in as <strong>bob</strong>");
    t.match((await browser.submit(consent, yes)).url, /code=/);
  }
});

onServer("unknown prompts are ignored", async (t, setting) => {
  const browser = new PlainBrowser(setting.url);
  const client_id = await registered(setting);
  await authorize(setting, { browser, clientId: client_id });
  for (const prompt of ["create", "LOGIN", "x y consent", "  "]) {
    const page = await browser.open(authorizeUrl(setting, { client_id, prompt }));
    t.match(page.text, "Logged in as <strong>alice</strong>", prompt);
  }
  const silent = await browser.open(authorizeUrl(setting, { client_id, prompt: "none create" }));
  t.match(silent.url, /error=consent_required/);
});

t.test("behind a TLS proxy, cookies and addresses follow the public URL", async (t) => {
  const setting = await openOAuthSetup(t, { issuer: "https://gate.example.com" });
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

onServer("a page of another browser cannot be used", async (t, setting) => {
  const [victim, attacker] = [new PlainBrowser(setting.url), new PlainBrowser(setting.url)];
  await authorize(setting, { browser: victim });
  const consent = await attacker.submit((await openLogin(setting, attacker)).page, {
    ...right,
    username: "bob",
  });
  for (const page of [
    await victim.open(consent.url),
    await victim.submit(consent, yes),
    await victim.open(consent.url.replace("/interaction/", "/authorize/")),
  ]) {
    t.equal(page.status, 400);
    t.ok(page.url.startsWith(setting.url));
  }
  t.match((await attacker.submit(consent, yes)).url, /code=/, "its own browser can still use it");
});

onServer("a consent counts only for the user who is logged in", async (t, setting) => {
  const browser = new PlainBrowser(setting.url);
  const [first, second] = [
    (await openLogin(setting, browser)).page,
    (await openLogin(setting, browser)).page,
  ];
  const ofAlice = await browser.submit(first, right);
  const ofBob = await browser.submit(second, { ...right, username: "bob" });
  t.match(ofBob.text, "Logged in as <strong>bob</strong>");
  t.notMatch(ofBob.text, /<script/);
  const late = await browser.submit(ofAlice, yes);
  t.equal(late.status, 400, "alice is no longer logged in");
  t.ok(late.url.startsWith(setting.url));
  t.match((await browser.submit(ofBob, yes)).url, /code=/);
});

onServer("two pages of one user do not end each other", async (t, setting) => {
  const browser = new PlainBrowser(setting.url);
  const [first, second] = [
    (await openLogin(setting, browser)).page,
    (await openLogin(setting, browser)).page,
  ];
  const pages = [await browser.submit(first, right), await browser.submit(second, right)];
  for (const page of pages) t.match((await browser.submit(page, yes)).url, /code=/);
});

onServer("a login changes the session id", async (t, setting) => {
  const browser = new PlainBrowser(setting.url);
  const session = () => browser.cookies.find(({ name }) => name === "gatehouse_session")?.value;
  const page = (await openLogin(setting, browser)).page;
  const planted = session();
  await browser.submit(page, right);
  t.ok(session());
  t.not(session(), planted, "an id planted before the login is worthless");
});

function placeOf({ url }: OAuthSetup): string {
  return `${url}/oauth/applications`;
}

async function signIn(setting: OAuthSetup, username = "alice") {
  const browser = new PlainBrowser(setting.url);
  const login = await browser.open(placeOf(setting));
  const page = await browser.submit(login, { ...right, username });
  return { browser, page };
}

async function codeOf(setting: OAuthSetup, token: string): Promise<string> {
  const outcome: unknown = await setting.server.verify(token).catch((error: unknown) => error);
  return outcome instanceof Refusal ? outcome.code : "good";
}

function checkLogin(t: Test, { status, text }: Page, expected = 200): void {
  t.equal(status, expected);
  t.match(text, "Log in to see your connected applications");
  t.notMatch(text, /Notebook|name="disconnect"/);
}

t.test("a user sees the connected apps and disconnects one with all its tokens", async (t) => {
  const setting = await openOAuthSetup(t);
  const first = await obtainTokens(setting, { database: "main", reach: "read" });
  const again = await obtainTokens(setting, { clientId: first.clientId, database: "archive" });
  const otherApp = await registered(setting, { client_name: "Sheet", redirect_uris: [REDIRECT] });
  const other = await obtainTokens(setting, { clientId: otherApp });
  const ofBob = await obtainTokens(setting, { clientId: first.clientId, username: "bob" });
  (await setting.server.verify(first.accessToken)).noteCall("select");

  const { browser, page } = await signIn(setting);
  t.equal(page.url, placeOf(setting));
  t.match(page.text, "Logged in as <strong>alice</strong>");
  t.equal(page.text.match(/<section/g)?.length, 2, "each app is listed once");
  t.match(page.text, /only read <strong>main<\/strong>, since \d{4}-\d\d-\d\d \d\d:\d\d UTC/);
  t.match(page.text, "read and change <strong>archive</strong>");
  t.match(page.text, "read and change all databases that you may use");
  t.match(page.text, "It has called select.");
  t.match(page.text, "It has called no tools.");

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
  t.equal(await codeOf(setting, ofBob.accessToken), "good", "bob's consent remains");
  t.match(setting.events.at(-1), { name: "oauth_token", fields: { outcome: "invalid_grant" } });
  const ended = setting.events.find(({ name }) => name === "oauth_revocation");
  t.match(ended?.fields, { user: "alice", client: first.clientId, token: "all" });
});

onServer("an app without access is not listed", async (t, setting) => {
  const { clientId, refreshToken } = await obtainTokens(setting);
  const { browser, page } = await signIn(setting);
  t.match(page.text, "Notebook");
  await postForm(`${setting.url}/oauth/revoke`, { token: refreshToken, client_id: clientId });
  t.match((await browser.open(placeOf(setting))).text, "No app is connected.");
  await obtainTokens(setting);
  setting.revokedBefore.set("alice", Math.floor(Date.now() / 1000) + 1);
  checkLogin(t, await browser.open(placeOf(setting)));
  const { page: later } = await signIn(setting);
  t.match(later.text, "No app is connected.", "all her tokens were revoked");
});

onServer("the page of applications requires a login", async (t, setting) => {
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
  t.match(setting.events.at(-1), { name: "oauth_logout", fields: { user: "alice" } });
  checkLogin(t, await browser.open(placeOf(setting)));
  const late = await browser.submit(page, { disconnect: "x" });
  checkLogin(t, late);
});

onServer("one login serves both pages until the password changes", async (t, setting) => {
  const browser = new PlainBrowser(setting.url);
  await obtainTokens(setting, { browser });
  t.match((await browser.open(placeOf(setting))).text, "Notebook");
  const { browser: own } = await signIn(setting);
  await obtainTokens(setting, { browser: own, password: "not used" });
  const bob = await userWith("bob");
  setting.setUsers(
    (await userWith("alice", "another horse")) + bob + grant("alice", "main", "Owner"),
  );
  checkLogin(t, await browser.open(placeOf(setting)));
  setting.setUsers((await userWith("alice", PASSWORD, "disabled = true")) + bob);
  checkLogin(t, await own.open(placeOf(setting)));
});

onServer("a form of applications requires the CSRF token of its login", async (t, setting) => {
  const { accessToken, clientId } = await obtainTokens(setting);
  const { browser, page } = await signIn(setting);
  const { page: second } = await signIn(setting);
  const { page: ofBob } = await signIn(setting, "bob");
  const login = await new PlainBrowser(setting.url).open(placeOf(setting));
  for (const csrf of ["", "x", csrfIn(second), csrfIn(ofBob), csrfIn(login)]) {
    for (const action of [{ disconnect: clientId }, { action: "logout" }]) {
      t.equal((await browser.submit(page, { ...action, csrf })).status, 403);
    }
  }
  const stranger = new PlainBrowser(setting.url);
  const own = await stranger.open(placeOf(setting));
  for (const csrf of ["", "x", csrfIn(login), csrfIn(page)]) {
    t.equal((await stranger.submit(own, { ...right, csrf })).status, 403, "the login form too");
  }
  t.equal(await codeOf(setting, accessToken), "good");
  t.match((await browser.open(placeOf(setting))).text, "Notebook");
});

onServer("a login is accepted only from the browser that opened the page", async (t, setting) => {
  for (const cookie of ["x=y", "gatehouse_browser=", "gatehouse_browser=; x=y"]) {
    const headers = { cookie };
    const page = await ask(placeOf(setting), { headers });
    const csrf = csrfIn({ text: page.body.toString() });
    const body = new URLSearchParams({ ...right, csrf }).toString();
    const type = { "content-type": "application/x-www-form-urlencoded" };
    for (const sent of [type, { ...type, ...headers }]) {
      const answer = await ask(placeOf(setting), { method: "POST", headers: sent, body });
      t.equal(answer.status, 403, cookie);
    }
  }
  t.notOk(setting.events.some(({ name }) => name === "oauth_login"));
});

t.test("the id of an access token identifies its grant", async (t) => {
  const setting = await openOAuthSetup(t, { users: await defaultUsers() });
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

t.test("the id of an access token never begins with a hyphen", async (t) => {
  const grantId = `-${"g".repeat(42)}`;
  const id = tokenIdIn(grantId, "r".repeat(43));
  t.equal(id, `_${"g".repeat(21)}${"r".repeat(21)}`);
  t.ok(isTokenUnder({ grantId }, id));
  t.ok(isTokenUnder({ grantId }, id.replace("_", "-")), "ids of earlier versions");
  t.notOk(isTokenUnder({ grantId }, "_g"));
});
