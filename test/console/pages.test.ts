import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import type { Page } from "playwright-core";
import t from "tap";
import { idIn, openCareful, orders } from "../approvals/kit.ts";
import { passwordOf } from "../journeys/staff.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { ADMIN_PASSWORD } from "../kit/gateway.ts";
import { obtainTokens } from "../oauth/flow.ts";
import { REDIRECT, registered } from "../oauth/kit.ts";
import {
  ConsoleClient,
  lookAt,
  onScreens,
  sharedBrowser,
  signedIn,
  signInBrowser,
  startConsole,
  unescaped,
} from "./kit.ts";

t.test("every page can be used on a phone, in the dark, and by keyboard alone", async (t) => {
  const { gateway, url } = await startConsole(t);
  await gateway.addUser("alice", "ReadWrite");
  await onScreens(async (page, name) => {
    const complaints: string[] = [];
    page.on("console", (message) => complaints.push(message.text()));
    await page.goto(`${url}/`);
    await page.getByText("Cannot sign in?").click();
    await page.getByText("initial_admin_password").waitFor();
    await lookAt(t, page, `sign-in-${name}`);
    await signInBrowser(page, url);
    await page.goto(`${url}/state`);
    await page.getByText("+ SELECT, INSERT, UPDATE, DELETE").waitFor();
    await lookAt(t, page, `state-${name}`);
    await page.goto(`${url}/sessions`);
    await page.getByText("(this one)").waitFor();
    await lookAt(t, page, `sessions-${name}`);
    await page.goto(`${url}/nowhere`);
    await lookAt(t, page, `error-${name}`);
    t.strictSame(
      complaints.filter((text) => !text.includes("404")),
      [],
      "the browser has nothing to complain of",
    );
  });
  await onScreens(async (alice, name) => {
    await signInBrowser(alice, url, "alice", "alice password");
    await alice.getByRole("heading", { name: "Overview" }).waitFor();
    await lookAt(t, alice, `own-overview-${name}`);
    t.strictSame(await alice.getByRole("navigation").getByRole("link").allTextContents(), [
      "Overview",
      "Approvals",
      "Sessions",
    ]);
    await alice.getByRole("link", { name: "Sessions" }).click();
    await alice.getByRole("heading", { name: "Sessions" }).waitFor();
    await lookAt(t, alice, `own-sessions-${name}`);
    await alice.getByText("End everything of alice").click();
    await alice.getByRole("button", { name: "End everything now" }).click();
    await alice.getByRole("heading", { name: "Sign in" }).waitFor();
  });
});

/** What strangers can write stands on every page of the console as text, and as nothing else. */

/** Markup that ends whatever it may stand in. */
function markup(name: string): string {
  return `'"></textarea></title><x-${name} onclick="alert(1)">`;
}

/** Every page that links lead to, by its path. */
async function crawl(
  client: ConsoleClient,
  starts: readonly string[],
): Promise<Map<string, string>> {
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

t.test("what a stranger can write is only ever text, on every page", async (t) => {
  const port = await freePort();
  const config = `[console]\nlisten = "127.0.0.1:${port}"\n[server]\ntrusted_proxies = ["127.0.0.1/32"]\n[audit]\nfile = "audit.log"\n`;
  const { gateway, ask, bot, root } = await openCareful(t, { config });
  const url = `http://127.0.0.1:${port}`;
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
  await stranger.post("/sign-in", { username: markup("name"), password: "x", next: "/" });
  await stranger.get("/sign-in");
  const entry = { username: "wim", password: passwordOf("wim"), next: markup("next") };
  const headers = { "user-agent": markup("agent"), "x-forwarded-for": markup("forwarded") };
  t.equal((await stranger.post("/sign-in", entry, headers)).status, 303);

  const client = await signedIn(t, url, "root", passwordOf("root"));
  const good = readFileSync(gateway.accessFile, "utf8");
  appendFileSync(
    gateway.accessFile,
    `\n[[acl]]\nusername = '''${markup("user")}'''\ndatabase = "main"\nrole = '''${markup("role")}'''\n`,
  );
  await eventually("the file is refused", async () =>
    (await client.get("/state")).text.includes("The access file was refused"),
  );
  const asked = encodeURIComponent(markup("asked"));
  const pages = await crawl(client, [
    ...["/overview", "/access", "/approvals", "/sessions", "/audit", "/state", "/access/check"],
    ..."access?user access?place access/user?user access/entry?user sessions?user"
      .split(" ")
      .map((route) => `/${route}=${asked}`),
    ...["audit?user", "audit?table", "access/act?action"].map((route) => `/${route}=${asked}`),
  ]);
  writeFileSync(gateway.accessFile, good);
  for (const [route, text] of pages) {
    t.notMatch(text, /<x-/, route);
    t.notMatch(text, /onclick="/, route);
  }
  const all = [...pages.values()].join("\n");
  for (const name of ["email", "filter", "client", "approval", "agent", "asked"]) {
    t.ok(all.includes(`&lt;x-${name} onclick=`), `${name} is shown, as text`);
  }
  t.ok(pages.size > 25, `${pages.size} pages were looked at`);
});

/** A day at the console without a mouse. */

/** Where the focus is: what a screen reader would say of it. */
const focused = `(() => {
  const at = document.activeElement;
  const label = at.labels?.[0]?.textContent ?? at.textContent ?? "";
  const { outlineStyle, outlineWidth } = getComputedStyle(at);
  return { name: label.replaceAll(/\\s+/g, " ").trim(), ring: outlineStyle + " " + outlineWidth };
})()`;

/** Presses the tab key until something is reached, which shows that it is. */
async function tabTo(page: Page, name: string | RegExp): Promise<void> {
  const seen: string[] = [];
  for (let presses = 0; presses < 60; presses++) {
    await page.keyboard.press("Tab");
    const at = Object(await page.evaluate(focused));
    const isThere = typeof name === "string" ? at.name === name : name.test(at.name);
    if (isThere && at.ring.startsWith("solid 3px")) return;
    seen.push(at.name);
  }
  throw new Error(`${name} is not reached by the keyboard, only ${seen.join(" | ")}`);
}

/** Presses the enter key, and waits for the page that it leads to. */
async function enter(page: Page, heading: string | RegExp): Promise<void> {
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: heading }).waitFor();
}

t.test("an operator's whole day goes by keyboard alone", async (t) => {
  const { gateway, url } = await startConsole(t);
  await gateway.addUser("alice", "ReadWrite");
  for (const name of ["bob", "carol"]) await gateway.addUser(name, "ReadOnly");
  const token = await gateway.login("alice", "alice password");
  const wide = { Delete: { database: "main", table: "tickets", where: null } };
  t.not((await gateway.query(wide, token)).status, 403);
  await signedIn(t, url, "alice", "alice password");
  const browser = await sharedBrowser();
  const context = await browser.newContext({ reducedMotion: "reduce" });
  const page = await context.newPage();
  await signInBrowser(page, url);

  await tabTo(page, "Skip to the content");
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
  await enter(page, "Grant to alice");
  await tabTo(page, "Narrow it");
  await page.keyboard.press("Space");
  await tabTo(page, "Required in the condition");
  await page.keyboard.type("id");
  await tabTo(page, "Your own password, again");
  await page.keyboard.type("wrong horse");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").getByText("That is not your password").waitFor();
  await tabTo(page, "Your own password, again");
  await page.keyboard.type(ADMIN_PASSWORD);
  await enter(page, "alice");
  t.equal(await page.getByText("where pins id").count(), 1);
  const refused = await gateway.query(wide, token);
  t.match(refused, { status: 403, body: { code: "where_required" } }, "it has taken hold");

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
