import { appendFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { blankUser, emptySnapshot } from "../../src/core/access/snapshot.ts";
import { epochSeconds } from "../../src/core/base/clock.ts";
import { Refusal } from "../../src/core/base/refusal.ts";
import { RevocationIndex } from "../../src/core/identity/revocations.ts";
import { newSignIn } from "../../src/core/identity/sign-in.ts";
import { openSessions } from "../../src/features/console/sessions.ts";
import { groupGrant } from "../access/kit.ts";
import { careful, idIn, openCareful, removeOne } from "../approvals/kit.ts";
import { textOf as accessFileOf, passwordOf, putInForce } from "../journeys/staff.ts";
import { open } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { allowAll, signInAt } from "../oauth/flow.ts";
import { IdentityProvider, type ProviderUser } from "../oauth/identity-provider.ts";
import {
  auditFile,
  ConsoleClient,
  consoleConfig,
  lookAt,
  openPage,
  signedIn,
  staffedConsole,
  startConsole,
  textOf,
  unescaped,
} from "./kit.ts";

const users = {
  ann: { sub: "ann", groups: ["admins"] },
  bob: { sub: "bob", groups: ["leads"] },
  eve: { sub: "eve", groups: [] },
} as const satisfies Record<string, ProviderUser>;
const provider = await IdentityProvider.start(t, ...Object.values(users));

function issuer({ url, clientSecret }: IdentityProvider): string {
  const secretFile = path.join(temporaryHome(t), "secret");
  writeFileSync(secretFile, clientSecret, { mode: 0o600 });
  return `[[issuers]]
issuer = "${url}"
prefix = "staff"
opens = ["mcp"]
groups_claim = "groups"
login = { client_id = "gatehouse", client_secret_file = "${secretFile}", label = "Sign in with Example", recheck = 1 }
`;
}

const { config, url } = await consoleConfig(issuer(provider));
const rights = `${careful()}
${groupGrant("staff:admins", "*", "Owner")}
${groupGrant("staff:leads", "main", "DbAdmin")}
`;
const setting = await openCareful(t, { more: rights, config });
const { gateway, ask, bot } = setting;
const redirectUris = [`${url}/callback/staff`, `${gateway.url}/oauth/callback/staff`];
const backchannelLogoutUri = `${gateway.url}/oauth/backchannel-logout/staff`;
await provider.open({ redirectUris, backchannelLogoutUri });

interface Visit {
  readonly client?: ConsoleClient;
  readonly browser?: PlainBrowser;
}

/** Starts a sign-in and authenticates. @returns the path to which the provider sends the browser */
async function callbackOf(client: ConsoleClient, link: string, browser?: PlainBrowser) {
  const { status, headers, text } = await client.get(link);
  if (status !== 303) throw new Error(`${status}: ${text}`);
  const atProvider = browser ?? new PlainBrowser(provider.url);
  const answer = await atProvider.open(headers.location ?? "");
  return answer.url.replace(client.url, "");
}

const start = "/sign-in/staff?next=%2Faccess";

async function signInAs(user: keyof typeof users, { client, browser }: Visit = {}) {
  provider.user = user;
  const own = client ?? new ConsoleClient(url);
  const { status, headers } = await own.get(await callbackOf(own, start, browser));
  if (status !== 303 || headers.location !== "/access") throw new Error(`${user}: ${status}`);
  await own.get("/sessions");
  return own;
}

/** A session whose ID token does not tell when the user authenticated, and the browser. */
async function signInLate(user: keyof typeof users) {
  const browser = new PlainBrowser(provider.url);
  return { client: await signInAs(user, { browser }), browser };
}

function againLink(page: string): string {
  return unescaped(/href="(\/sign-in\/staff\?again=yes[^"]*)"/.exec(page)?.[1] ?? "");
}

const statusOf = async (client: ConsoleClient, route: string) => (await client.get(route)).status;
const loginEvent = (outcome: string, user?: string) =>
  gateway.service.logged(
    (line) => line.msg === "console_login" && line.outcome === outcome && line.user === user,
  );

t.test("users sign in beside those with a password, with the rights of their groups", async (t) => {
  const client = new ConsoleClient(url);
  const { text } = await client.get("/sign-in?next=%2Faccess");
  t.match(text, `<a class="button" href="${start}">Sign in with Example</a>`);
  t.match(text, 'type="password"');
  await signInAs("bob", { client });
  t.match(await loginEvent("allowed", "staff:bob"), { issuer: provider.url, address: "127.0.0.1" });
  t.match((await client.get("/access")).text, "<bdi>staff:bob</bdi>");
  t.match(textOf((await client.get("/access/user?user=bot")).text), "main ReadWrite");
  t.equal(await statusOf(client, "/state"), 403);
  t.equal(await statusOf(await signInAs("ann"), "/state"), 200);
  t.equal(await statusOf(await signInAs("eve"), "/access"), 403);
});

t.test("a group that the provider takes away counts no longer", async (t) => {
  const client = await signInAs("bob");
  t.equal(await statusOf(client, "/access"), 200);
  provider.users.set("bob", { ...users.bob, groups: [] });
  await eventually("the page is gone", async () => (await statusOf(client, "/access")) === 403);
  provider.users.set("bob", users.bob);
  await eventually("the page is back", async () => (await statusOf(client, "/access")) === 200);
  t.pass("groups follow the provider");
});

t.test("an export is cut once the provider takes the group away that allowed it", async (t) => {
  const idp = await IdentityProvider.start(t, users.bob);
  const leads = groupGrant("staff:leads", "main", "DbAdmin");
  const own = await staffedConsole(t, ["root * Owner"], `${auditFile}${issuer(idp)}`, leads);
  await idp.open({ redirectUris: [`${own.url}/callback/staff`] });
  const client = new ConsoleClient(own.url);
  await client.get(await callbackOf(client, start, new PlainBrowser(idp.url)));
  // More than the buffers of a connection hold, since it is not read yet.
  const operations = [{ operation: "Select", database: "main", tables: ["t"] }];
  const time = new Date().toISOString();
  const line = { level: "info", time, msg: "request", operations, client: "x".repeat(1000) };
  appendFileSync(
    path.join(own.gateway.home, "audit.log"),
    `${JSON.stringify(line)}\n`.repeat(20_000),
  );
  const exported = await open(`${own.url}/audit.csv?since=`, {
    headers: { cookie: client.cookie },
  });
  t.equal(exported.statusCode, 200);
  idp.users.set("bob", { ...users.bob, groups: [] });
  await eventually("the group is gone", async () => (await statusOf(client, "/access")) === 403);
  await delay(1000);
  await t.rejects(text(exported), { code: "ECONNRESET" }, "within a second");
});

t.test("a session ends at the provider, by revocation and by signing out", async (t) => {
  const ends: Record<string, (client: ConsoleClient) => Promise<unknown>> = {
    "a refusal": async () => provider.users.delete("eve"),
    "a logout at the provider": () => provider.logOut("eve"),
    "a revocation": () => gateway.send("DELETE", "/api/users/staff:eve/tokens", {}, setting.root),
    "a sign-out": (client) => client.post("/sign-out", {}),
  };
  for (const [what, end] of Object.entries(ends)) {
    const client = await signInAs("eve");
    const same = new ConsoleClient(url);
    for (const [name, value] of client.cookies) same.cookies.set(name, value);
    await end(client);
    await eventually(what, async () => (await statusOf(same, "/sessions")) === 303);
    provider.users.set("eve", users.eve);
    t.equal(await statusOf(same, "/sessions"), 303, what);
  }
});

t.test("a sign-in ends the browser's earlier session", async (t) => {
  const client = await signedIn(url, "root", passwordOf("root"));
  const before = new ConsoleClient(url);
  for (const [name, value] of client.cookies) before.cookies.set(name, value);
  await signInAs("eve", { client });
  t.equal(await statusOf(before, "/sessions"), 303);
  t.match((await client.get("/sessions")).text, "<bdi>staff:eve</bdi>");
  t.notMatch((await client.get("/sessions")).text, "Change your password");
  t.equal((await client.get("/sessions/password")).status, 404, "the provider has the password");
});

t.test("users see and end their own sessions and apps", async (t) => {
  provider.user = "bob";
  const browser = new PlainBrowser(gateway.url, provider.url);
  await allowAll(gateway, browser, await signInAt(gateway, browser));
  const client = await signInAs("bob");
  const page = (await client.get("/sessions")).text;
  t.match(page, "<bdi>Notebook</bdi>");
  t.notMatch(page, "<bdi>root</bdi>");
  const [, grant = ""] = /name="grant" value="([^"]+)"/.exec(page) ?? [];
  t.equal((await client.post("/sessions/disconnect", { grant })).status, 303);
  t.notMatch((await client.get("/sessions")).text, "<bdi>Notebook</bdi>");
  t.equal((await client.post("/sessions/end-all", { user: "staff:bob" })).status, 303);
  t.equal(await statusOf(client, "/sessions"), 303);
});

const form = "/access/entry?user=wim&database=main";
const wanted = { role: "ReadOnly" };
const changed = /username = "wim"\ndatabase = "main"\nrole = "ReadOnly"/;

t.test("a change needs a sign-in within the last five minutes", async (t) => {
  const { client, browser } = await signInLate("bob");
  const page = (await client.get(form)).text;
  t.notMatch(page, 'type="password"');
  const link = againLink(page);
  t.equal(new URL(link, url).searchParams.get("next"), form);
  const late = await client.submit(form, wanted);
  t.equal(late.status, 401);
  t.match(textOf(late.text), "Nothing was changed: sign in again");
  t.equal(new URL(againLink(late.text), url).searchParams.get("next"), form);
  t.notMatch(accessFileOf(gateway), changed);
  const { headers } = await client.get(await callbackOf(client, link, browser));
  t.equal(headers.location, form, "back to the form");
  const fresh = (await client.get(form)).text;
  t.notMatch(fresh, /type="password"|again=yes/);
  t.equal((await client.submit(form, wanted)).status, 303);
  t.match(accessFileOf(gateway), changed);
  const beyond = { ...wanted, role: "Owner" };
  t.equal((await client.submit(form, beyond)).status, 403, "no more than the group may grant");
});

t.test("an approval needs it too, and ends with the group's right", async (t) => {
  const [first, second] = [removeOne(1), removeOne(2)];
  const [one, two] = [idIn(await ask(bot, first)), idIn(await ask(bot, second))];
  const { client, browser } = await signInLate("bob");
  const page = `/approvals/${one}`;
  const { text } = await client.get(page);
  t.match(textOf(text), "1 row would be deleted", "with the group's right to read");
  const [, touched = ""] = /name="touched" value="(\w+)"/.exec(text) ?? [];
  const approve = { decision: "approve", touched };
  const late = await client.post(page, approve);
  t.equal(late.status, 401);
  t.match(await ask(bot, first, one), { body: { code: "approval_required" } });
  const { headers } = await client.get(await callbackOf(client, againLink(late.text), browser));
  t.equal(headers.location, page);
  await client.get(page);
  t.equal((await client.post(page, approve)).status, 303);
  t.equal((await client.post(`/approvals/${two}`, { decision: "approve" })).status, 303);
  t.match(await ask(bot, first, one), { status: 200, body: { affected: 1 } });
  const lead = '[[acl]]\ngroup = "staff:leads"\ndatabase = "main"\nrole = ';
  const before = accessFileOf(gateway);
  await putInForce(gateway, before.replace(`${lead}"DbAdmin"`, `${lead}"ReadWrite"`));
  t.match(await ask(bot, second, two), { body: { code: "approval_void" } });
  await putInForce(gateway, before);
});

t.test("the console says if the provider confirms no fresh sign-in", async (t) => {
  const { client, browser } = await signInLate("bob");
  const again = againLink((await client.get(form)).text);
  provider.loginAge = 360;
  const old = await client.get(await callbackOf(client, again, browser));
  provider.loginAge = 0;
  t.match(textOf(old.text), "did not ask you to sign in again");
  provider.hidesAuthTime = true;
  const silent = await client.get(await callbackOf(client, again, browser));
  provider.hidesAuthTime = false;
  t.match(textOf(silent.text), "does not tell when you signed in");
  t.match(silent.text, `href="${form.replaceAll("&", "&amp;")}"`);
  await client.get("/sessions");
  t.equal((await client.submit(form, wanted)).status, 401);
});

t.test("an answer counts once, in the browser that has asked for it", async (t) => {
  provider.user = "ann";
  const refused = async (client: ConsoleClient, callback: string, what: string) => {
    const { status, text } = await client.get(callback);
    t.equal(status, 403, what);
    t.match(textOf(text), /expired or belongs to another browser|did not sign you in/, what);
    t.equal(await statusOf(client, "/sessions"), 303, what);
  };
  const changed = (callback: string, name: string, value: string) => {
    const there = new URL(callback, url);
    there.searchParams.set(name, value);
    return there.pathname + there.search;
  };
  const client = new ConsoleClient(url);
  const callback = await callbackOf(client, start);
  await refused(new ConsoleClient(url), callback, "without a cookie");
  const other = new ConsoleClient(url);
  await other.get("/sign-in");
  await refused(other, callback, "in another browser");
  await refused(client, changed(callback, "state", "forged"), "with a forged state");
  t.equal((await client.get(callback.replace("staff", "other"))).status, 404, "another provider");
  t.equal((await client.get(callback)).status, 303);
  const signedOut = new ConsoleClient(url);
  for (const [name, value] of client.cookies) {
    if (name.includes("browser")) signedOut.cookies.set(name, value);
  }
  await refused(signedOut, callback, "for the second time");
  const mixed = await callbackOf(signedOut, start);
  await refused(signedOut, changed(mixed, "iss", "https://evil.example"), "from another issuer");
  await refused(signedOut, mixed, "after a refused answer");
  t.match(await loginEvent("sign_in_expired"), { issuer: provider.url });
  t.match(await loginEvent("sign_in_refused"), { issuer: provider.url, detail: /./ });
});

t.test("a sign-in leads only to the console's own pages", async (t) => {
  provider.user = "eve";
  for (const next of ["https://evil.example/", "//evil.example", "/\\evil.example"]) {
    const client = new ConsoleClient(url);
    const link = `/sign-in/staff?next=${encodeURIComponent(next)}`;
    const { headers } = await client.get(await callbackOf(client, link));
    t.equal(headers.location, "/", next);
  }
  t.equal(await statusOf(new ConsoleClient(url), "/sign-in/other"), 404);
});

t.test("the audit says why a provider cannot be used, and the page does not", async (t) => {
  const secret = path.join(temporaryHome(t), "secret");
  writeFileSync(secret, "secret", { mode: 0o600 });
  const login = '[[issuers]]\nissuer = "http://127.0.0.1:9/x"\nprefix = "gone"\nopens = ["query"]';
  const more = `audience = "gatehouse"\nlogin = { client_id = "a b", client_secret_file = "${secret}", label = "Gone" }\n`;
  const { gateway, url } = await startConsole(t, { config: `${login}\n${more}` });
  const page = await new ConsoleClient(url).get("/sign-in/gone?next=%2Faccess");
  t.equal(page.status, 503);
  t.match(textOf(page.text), "The identity provider does not respond as expected");
  t.notMatch(page.text, "ECONNREFUSED");
  const cause = "http://127.0.0.1:9/x/.well-known/openid-configuration cannot be read: bad port";
  const line = await gateway.service.logged(({ msg }) => msg === "console_login");
  t.match(line, { outcome: "issuer_unreachable", detail: "unreachable", cause });
});

t.test("a disabled user is refused, and a broken provider is a 503", async (t) => {
  provider.user = "eve";
  const disable = (disabled: boolean) =>
    gateway.send("PATCH", "/api/users/staff:eve", { disabled }, setting.root);
  t.equal((await disable(true)).status, 200);
  const client = new ConsoleClient(url);
  const answer = await client.get(await callbackOf(client, start));
  t.equal(answer.status, 403);
  t.match(textOf(answer.text), "The gateway does not admit this user");
  await disable(false);
  const callback = await callbackOf(client, start);
  provider.failure = 500;
  const broken = await client.get(callback);
  provider.failure = undefined;
  t.equal(broken.status, 503);
  t.match(broken.headers["retry-after"], /^\d+$/);
  const event = { issuer: provider.url, detail: "unreachable" };
  const cause = "unexpected HTTP response status code: 500";
  t.match(await loginEvent("issuer_unreachable"), { ...event, cause });
});

async function openSigned(current: () => Promise<never>) {
  const forgotten: string[] = [];
  const revocations = new RevocationIndex();
  const forget = async (one: string) => void forgotten.push(one);
  const signIns = { current, forget, requireUnchanged() {} };
  const context = { access: { snapshot: emptySnapshot }, revocations, signIns };
  const sessions = openSessions(context);
  const until = epochSeconds() + 60;
  const { credential } = newSignIn({ until, session: "", subject: "" });
  const place = { address: "127.0.0.1", userAgent: "test" };
  const secret = await sessions.open(blankUser("staff:eve"), place, credential);
  const session = await sessions.use(secret);
  if (session === undefined) throw new Error("no session");
  return { sessions, session, secret, credential, forgotten };
}

t.test("only a refusal of the provider ends a session, and forgets the sign-in", async (t) => {
  const codes = ["issuer_unreachable", "groups_unavailable", "token_revoked"] as const;
  for (const code of codes) {
    const isEnd = code === "token_revoked";
    const { sessions, session, secret, credential, forgotten } = await openSigned(async () => {
      throw new Refusal(code);
    });
    t.ok(sessions.msLeft(session) <= 60_000, "no longer than the sign-in");
    const added = sessions.addSignIn(session);
    if (isEnd) t.equal(await added, undefined);
    else await t.rejects(added, { code });
    t.equal((await sessions.use(secret)) === undefined, isEnd, code);
    t.strictSame(forgotten, isEnd ? [credential] : []);
  }
});

t.test("passwords = false leaves only the button, and sign-ins are limited", async (t) => {
  const idp = await IdentityProvider.start(t, users.ann);
  const { url } = await startConsole(t, { config: issuer(idp), auth: "passwords = false" });
  await idp.open({ redirectUris: [`${url}/callback/staff`] });
  const client = new ConsoleClient(url);
  const { text } = await client.get("/sign-in");
  t.notMatch(text, /<form|type="password"|initial_admin_password/);
  t.match(text, "Sign in with Example");
  const fields = { username: "admin", password: "correct horse" };
  t.equal((await client.post("/sign-in", fields)).status, 404);
  const statuses: number[] = [];
  for (let at = 0; at < 61; at++) statuses.push(await statusOf(client, start));
  t.strictSame(statuses, [...Array.from({ length: 60 }, () => 303), 429]);
});

t.test("with passwords = false an administrator of the provider is needed", async (t) => {
  const idp = await IdentityProvider.start(t, users.ann);
  const auth = "passwords = false";
  const { gateway, url } = await startConsole(t, { config: issuer(idp), auth });
  await idp.open({ redirectUris: [`${url}/callback/staff`] });
  const isWarning = ({ msg }: { msg?: unknown }) => /^no administrator can/.test(String(msg));
  const warnings = () => gateway.service.log.filter(isWarning).length;
  t.equal(warnings(), 1, "at the start");
  const text = accessFileOf(gateway);
  const entryOf = (holder: string) => `[[acl]]\n${holder}\ndatabase = "*"\nrole = "Owner"\n`;
  const member = '[[groups]]\nname = "admins"\nmembers = ["staff:ann"]\n';
  await putInForce(gateway, `${text}${entryOf('username = "other:ann"')}`);
  await eventually("the warning at a reload", async () => warnings() === 2);
  for (const more of [
    entryOf('username = "staff:ann"'),
    `${member}${entryOf('group = "admins"')}`,
    entryOf('group = "staff:admins"'),
  ]) {
    await putInForce(gateway, `${text}${more}`);
  }
  t.equal(warnings(), 2);
  const client = new ConsoleClient(url);
  const callback = await client.get(`${start}&again=yes`);
  const answer = await new PlainBrowser(idp.url).open(callback.headers.location ?? "");
  await client.get(answer.url.replace(url, ""));
  const page = textOf((await client.get("/access/user?user=admin")).text);
  t.match(page, "Disable");
  t.notMatch(page, "Set password");
  t.notMatch((await client.get("/access/new")).text, 'type="password"');
  const robot = { user: "robot", email: "", database: "main", role: "ReadOnly" };
  t.equal((await client.submit("/access/new", robot)).status, 303);
  t.match(accessFileOf(gateway), /username = "robot"\ntokens_valid_after = \d+\n/);
});

t.test("with public_url, a sign-in begins and ends at that address", async (t) => {
  const origin = "https://console.example.com";
  const console = `public_url = "${origin}"`;
  const { url } = await startConsole(t, { console, config: issuer(provider) });
  const client = new ConsoleClient(url);
  t.equal((await client.get(start)).headers.location, `${origin}${start}`);
  const { headers } = await client.get(start, { host: "console.example.com" });
  const asked = new URL(headers.location ?? "").searchParams.get("redirect_uri");
  t.equal(asked, `${origin}/callback/staff`);
  t.match(headers["set-cookie"], [/^__Host-gatehouse-console-browser=.*HttpOnly; Secure/]);
});

async function signInBrowser(t: Test) {
  const page = await openPage(t);
  provider.user = "bob";
  const errors: string[] = [];
  page.on("console", (message) => errors.push(message.text()));
  await page.goto(`${url}${form}`);
  await lookAt(t, page, "sign-in-provider");
  await page.getByRole("link", { name: "Sign in with Example" }).click();
  await page.getByRole("button", { name: "Save entry" }).waitFor();
  await lookAt(t, page, "sign-in-again");
  await page.getByRole("link", { name: "Sign in again: Sign in with Example" }).click();
  await page.getByRole("link", { name: "Sign in again" }).waitFor({ state: "detached" });
  await page.getByLabel("Database").fill("other");
  await page.getByRole("button", { name: "Save entry" }).click();
  await page.getByText("Your own rights are too low").waitFor();
  t.equal(errors.filter((one) => one.includes("Security")).length, 0, errors.join("\n"));
}

t.test("a person signs in and confirms a change in a browser", signInBrowser);
