import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import type { Page } from "playwright-core";
import t from "tap";
import { idIn, openCareful, orders } from "../approvals/kit.ts";
import { passwordOf } from "../journeys/staff.ts";
import { eventually } from "../kit/eventually.ts";
import { ADMIN_PASSWORD } from "../kit/gateway.ts";
import { runWarm } from "../kit/warm-command.ts";
import { obtainTokens } from "../oauth/flow.ts";
import { REDIRECT, registered } from "../oauth/kit.ts";
import {
  auditFile,
  ConsoleClient,
  consoleConfig,
  lookAt,
  openPage,
  openSignedIn,
  signedIn,
  signInBrowser,
  staffedConsole,
  startConsole,
  textOf,
  unescaped,
} from "./kit.ts";

const shared = await startConsole(t, { config: auditFile });
await shared.gateway.addUser("alice", "ReadWrite");

t.test("every page works on a phone, in dark mode, and is accessible", async (t) => {
  const { gateway, url } = shared;
  const issue = ["token", "issue", "alice", "--opaque", "--expires", "3d", "--name", "nightly"];
  t.equal((await runWarm(gateway.home, issue)).code, 0);
  const page = await openPage(t);
  const complaints: string[] = [];
  page.on("console", (message) => complaints.push(message.text()));
  await page.goto(`${url}/`);
  await page.getByText("Cannot sign in?").click();
  await page.getByText("initial_admin_password").waitFor();
  await lookAt(t, page, "sign-in");
  await signInBrowser(page, url);
  await page.goto(`${url}/state`);
  await page.getByText("+ SELECT, INSERT, UPDATE, DELETE").waitFor();
  await lookAt(t, page, "state");
  await page.goto(`${url}/sessions`);
  await page.getByText("(this one)").waitFor();
  await lookAt(t, page, "sessions");
  await page.getByRole("link", { name: "Change your password" }).click();
  await page.getByRole("button", { name: "Change password" }).waitFor();
  await lookAt(t, page, "password");
  await page.goto(`${url}/nowhere`);
  await lookAt(t, page, "error");
  const others = complaints.filter((text) => !text.includes("404"));
  t.strictSame(others, [], "the browser logs no errors");
  const alice = await openPage(t);
  await alice.setViewportSize({ width: 390, height: 844 });
  await signInBrowser(alice, url, "alice");
  await alice.getByRole("heading", { name: "Overview" }).waitFor();
  await lookAt(t, alice, "own-overview");
  const links = await alice.getByRole("navigation").getByRole("link").allTextContents();
  t.strictSame(links, ["Overview", "Approvals", "Sessions"]);
  await alice.getByRole("link", { name: "Sessions" }).click();
  await alice.getByRole("heading", { level: 1, name: "Sessions" }).waitFor();
  await lookAt(t, alice, "own-sessions");
  await alice.getByText("End everything of alice").click();
  await alice.getByRole("button", { name: "End everything now" }).click();
  await alice.getByRole("heading", { name: "Sign in" }).waitFor();
});

/** Markup that closes any element or attribute around it. */
function markup(name: string): string {
  return `'"></textarea></title><x-${name} onclick="alert(1)">`;
}

/** Follows all links. @returns each page by its path */
async function crawl(client: ConsoleClient, starts: readonly string[]) {
  const pages = new Map<string, string>();
  const waiting = [...starts];
  for (let route = waiting.shift(); route !== undefined; route = waiting.shift()) {
    if (pages.has(route) || pages.size >= 120) continue;
    const { text, headers } = await client.get(route);
    if (!String(headers["content-type"]).startsWith("text/html")) continue;
    pages.set(route, text);
    const links = [...text.matchAll(/ href="(\/[^"]*)"/g)].map(([, link = ""]) => unescaped(link));
    waiting.push(...links.filter((link) => !/^\/(?:style|icon)\./.test(link)));
  }
  return pages;
}

t.test("text from others is escaped on every page", async (t) => {
  const proxies = '[server]\ntrusted_proxies = ["127.0.0.1/32"]\n';
  const { config, url } = await consoleConfig(`${proxies}${auditFile}`);
  const { gateway, ask, bot, root } = await openCareful(t, { config });
  const email = await gateway.send("PATCH", "/api/users/wim", { email: markup("email") }, root);
  t.equal(email.status, 200);
  const rowFilter = [{ column: "tenant", cmp: "=", value: markup("filter") }];
  const narrowed = { role: "ReadOnly", row_filter: rowFilter };
  t.equal((await gateway.send("PUT", "/api/access/wim/main/tickets", narrowed, root)).status, 200);
  const client_name = markup("client");
  const clientId = await registered(gateway, { client_name, redirect_uris: [REDIRECT] });
  await obtainTokens(gateway, { clientId, username: "wim", password: passwordOf("wim") });
  const where = { column: "state", cmp: "=", value: markup("approval") };
  idIn(await ask(bot, { Delete: { ...orders, where } }));
  await ask(bot, { Select: { database: "main", from: markup("table"), columns: ["*"] } });
  await ask(bot, { Select: { database: "main", from: "orders", columns: [markup("column")] } });
  const stranger = new ConsoleClient(url);
  await stranger.get("/sign-in");
  const failed = { username: markup("name"), password: "x", next: markup("next") };
  t.notMatch((await stranger.post("/sign-in", failed)).text, "<x-");
  await stranger.get("/sign-in");
  const entry = { username: "wim", password: passwordOf("wim"), next: markup("next") };
  const headers = { "user-agent": markup("agent"), "x-forwarded-for": markup("forwarded") };
  t.equal((await stranger.post("/sign-in", entry, headers)).status, 303);

  const client = await signedIn(url, "root");
  const good = readFileSync(gateway.accessFile, "utf8");
  appendFileSync(
    gateway.accessFile,
    `\n[[acl]]\nusername = '''${markup("user")}'''\ndatabase = "main"\nrole = '''${markup("role")}'''\n`,
  );
  await eventually("the file is refused", async () =>
    (await client.get("/state")).text.includes("Access file rejected"),
  );
  const asked = encodeURIComponent(markup("asked"));
  const pages = await crawl(client, [
    "/overview",
    "/access",
    "/approvals",
    "/sessions",
    "/sessions/password",
    "/audit",
    "/state",
    "/access/check",
    ...["access?user", "access?place", "access/user?user", "access/entry?user", "sessions?user"]
      .concat("audit?user", "audit?table", "access/act?action", "access/members?user")
      .concat("access/groups?user", "search?q")
      .map((route) => `/${route}=${asked}`),
  ]);
  writeFileSync(gateway.accessFile, good);
  for (const [route, text] of pages) t.notMatch(text, /<x-|onclick="/, route);
  const all = [...pages.values()].join("\n");
  for (const name of ["email", "filter", "client", "approval", "agent", "asked"]) {
    t.ok(all.includes(`&lt;x-${name} onclick=`), `${name} is shown as text`);
  }
  t.ok(pages.size > 25, `${pages.size} pages were read`);
});

/** The label and the outline of the focused element. */
const focused = `(() => {
  const at = document.activeElement;
  const label = at.labels?.[0]?.textContent ?? at.textContent ?? "";
  const { outlineStyle, outlineWidth } = getComputedStyle(at);
  return { name: label.replaceAll(/\\s+/g, " ").trim(), ring: outlineStyle + " " + outlineWidth };
})()`;

/** Presses the tab key until an element has the focus and a visible outline. */
async function tabTo(page: Page, name: string | RegExp): Promise<void> {
  const seen: string[] = [];
  for (let presses = 0; presses < 60; presses++) {
    await page.keyboard.press("Tab");
    const at = Object(await page.evaluate(focused));
    const isThere = typeof name === "string" ? at.name === name : name.test(at.name);
    if (isThere && at.ring.startsWith("solid 3px")) return;
    seen.push(at.name);
  }
  throw new Error(`${name} cannot be reached by keyboard, only ${seen.join(" | ")}`);
}

/** Presses the enter key and waits for the next page. */
async function enter(page: Page, heading: string | RegExp): Promise<void> {
  // The heading alone may be that of the page before.
  await Promise.all([page.waitForEvent("load"), page.keyboard.press("Enter")]);
  await page.getByRole("heading", { level: 1, name: heading }).waitFor();
}

t.test("an administrator can do everything by keyboard", async (t) => {
  const { gateway, url } = shared;
  for (const name of ["bob", "carol"]) await gateway.addUser(name, "ReadOnly");
  const token = await gateway.login("alice", "alice password");
  const wide = { Delete: { database: "main", table: "tickets", where: null } };
  t.not((await gateway.query(wide, token)).status, 403);
  await signedIn(url, "alice");
  const page = await openSignedIn(t, url);

  await tabTo(page, "Skip to content");
  await page.keyboard.press("Enter");
  t.equal(await page.evaluate("document.activeElement.id"), "content");
  await page.goto(`${url}/access`);
  await tabTo(page, "User contains");
  await page.keyboard.type("ALI");
  await enter(page, "Access");
  t.equal(await page.getByRole("row").count(), 2, "the head and alice");
  await tabTo(page, "alice");
  await enter(page, "alice");
  await tabTo(page, "Change the entry for main");
  await enter(page, "Grant access to alice");
  await tabTo(page, "Limits");
  await page.keyboard.press("Space");
  await tabTo(page, "Required conditions");
  await page.keyboard.type("id");
  await tabTo(page, "Your password");
  await page.keyboard.type("wrong horse");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").getByText("Incorrect password").waitFor();
  await tabTo(page, "Your password");
  await page.keyboard.type(ADMIN_PASSWORD);
  await enter(page, "alice");
  t.equal(await page.getByText("where pins id").count(), 2, "the grant and its effect");
  t.equal(await page.getByText("updating and deleting only by id").count(), 1, "the message");
  const refused = await gateway.query(wide, token);
  t.match(refused, { status: 403, body: { code: "where_required" } }, "the limit is in force");

  await tabTo(page, "State");
  await enter(page, "State");
  t.equal(await page.getByText("require_where").count(), 1, "the version is on the page");
  await tabTo(page, "Sessions");
  await enter(page, "Sessions");
  await tabTo(page, /^End the session of alice/);
  await enter(page, "Sessions");
  t.equal(await page.getByRole("cell", { name: "alice" }).count(), 0);
  await tabTo(page, "Sign out");
  await enter(page, "Sign in");
});

t.test("each page is refused to users without the right", async (t) => {
  const { gateway, url } = shared;
  await gateway.addUser("dora", "DbAdmin");
  const token = await gateway.login();
  await gateway.send("PUT", "/api/groups/readers", { members: [] }, token);
  await gateway.send("PUT", "/api/groups/readers/access/main", { role: "ReadOnly" }, token);
  const everybody = ["/overview", "/sessions", "/sessions/password", "/approvals"];
  const user = "/access/user?user=alice";
  const managers = ["/access", user, "/access/entry?user=alice", "/access/new", "/access/check"];
  managers.push("/access/groups", "/access/user?user=group:readers");
  const administrators = ["/state", "/access/act?user=alice&action=remove", "/access/members"];
  administrators.push("/access/act?user=group:readers&action=remove");
  const all = [
    ...everybody,
    ...managers,
    "/audit",
    "/audit.csv",
    "/search",
    ...administrators,
    "/access/user?user=admin",
  ];
  const allowed = { alice: 4, dora: 14, admin: all.length };
  for (const [name, count] of Object.entries(allowed)) {
    const client = await signedIn(url, name);
    for (const [at, route] of all.entries()) {
      const { status } = await client.get(route);
      t.ok(
        at < count ? status === 200 : [403, 404].includes(status),
        `${name} ${route}: ${status}`,
      );
    }
  }
});

const staff = ["root * Owner", "dora main DbAdmin", "walt main ReadWrite", "rita main ReadOnly"];
const more = '[[acl]]\nusername = "rita"\ndatabase = "payroll"\nrole = "None"\n';
const { url } = await staffedConsole(t, staff, auditFile, more);

t.test("an empty list says what to do next", async (t) => {
  const client = await signedIn(url, "root");
  const textOn = async (route: string) => textOf((await client.get(route)).text);
  await client.submit("/access/members", { user: "", name: "readers", members: "" });
  for (const [route, text] of [
    ["/access/user?user=group:readers", "No members yet. The grants of this group apply to"],
    [
      "/access/user?user=group:readers",
      "No grants. Add the first entry for a database or a table.",
    ],
    ["/access/user?user=rita", "No tokens. Issue one with gatehouse token issue rita ."],
    ["/access/groups?user=unknown", "Add one to give several users the same access."],
    ["/sessions?user=rita", "An app appears here after a user has allowed it."],
    ["/audit?user=unknown", "Show all lines , or search all time ."],
  ] as const) {
    t.match(await textOn(route), text, route);
  }
  const dora = await signedIn(url, "dora");
  const { text } = await dora.get("/access/groups?user=unknown");
  t.notMatch(text, "Add one", "only administrators may");
  const rita = await signedIn(url, "rita");
  t.notMatch((await rita.get("/sessions")).text, "token issue", "only operators have the command");
  t.notMatch((await rita.get("/approvals")).text, "in the audit", "she may not read it");
  t.match((await dora.get("/approvals")).text, "in the audit");
  const page = await openSignedIn(t, url, "/", "root");
  for (const [label, link, target] of [
    ["/access/user?user=group:readers", "Add the first entry", "Grant access to group readers"],
    ["/audit?user=unknown&since=1h", "search all time", "Audit"],
  ] as const) {
    await page.goto(`${url}${label}`);
    await lookAt(t, page, `empty-${target}`);
    await page.locator(".empty a").filter({ hasText: link }).click();
    await page.getByRole("heading", { name: target }).waitFor();
  }
  t.equal(await page.getByLabel("User").inputValue(), "unknown");
  t.equal(await page.getByLabel("Period").inputValue(), "");
});

t.test("each role has a color of its own, in light and dark mode", async (t) => {
  const page = await openSignedIn(t, url, "/access", "root");
  const found = `Object.fromEntries(Array.from(document.querySelectorAll(".role"), (one) =>
    [one.textContent, getComputedStyle(one).color + getComputedStyle(one).backgroundColor]))`;
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    const colors = await page.evaluate<Record<string, string>>(found);
    const roles = ["DbAdmin", "None", "Owner", "ReadOnly", "ReadWrite"];
    t.strictSame(Object.keys(colors).sort(), roles, colorScheme);
    t.equal(new Set(Object.values(colors)).size, roles.length, colorScheme);
  }
  await lookAt(t, page, "roles");
});

/** The font sizes of all shown text in pixels, without those of monospaced text and of charts. */
const sizes = `(() => {
  const found = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const at = text.parentElement;
    const isOwn = at.closest("code, pre, textarea, svg, .unseen") === null;
    if (isOwn && text.data.trim() !== "") found.add(parseFloat(getComputedStyle(at).fontSize));
  }
  return [...found].sort((one, other) => one - other);
})()`;

t.test("pages have one type scale, use wide screens, and no lines below links", async (t) => {
  const page = await openSignedIn(t, url, "/", "root");
  const found = new Set<number>();
  for (const route of [
    "overview",
    "access",
    "access/user?user=rita",
    "access/entry?user=rita",
  ].concat("access/table?place=main", "approvals", "audit", "sessions", "state", "search?q=r")) {
    await page.goto(`${url}/${route}`);
    for (const size of await page.evaluate<number[]>(sizes)) found.add(size);
    await page.setViewportSize({ width: 1920, height: 900 });
    const used = await page
      .getByRole("heading", { level: 1 })
      .evaluate((at) => at.closest("main")?.clientWidth);
    t.equal(used, 1920, route);
  }
  t.strictSame(
    [...found].sort((one, other) => one - other),
    [13, 15, 18, 24],
  );
  await page.goto(`${url}/access`);
  const underline = 'getComputedStyle(document.querySelector("td a")).textDecorationLine';
  t.equal(await page.evaluate(underline), "none");
  await page.locator("button").last().focus();
  await page.keyboard.press("Tab");
  t.equal(await page.evaluate(underline), "underline", "the focused link is underlined");
});
