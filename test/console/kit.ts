import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import type { Browser, Page } from "playwright-core";
import root, { type Test } from "tap";
import { openStaffed, passwordOf } from "../journeys/staff.ts";
import { type Ask, ask as askServer } from "../kit/client.ts";
import { freePort } from "../kit/free-port.ts";
import { ADMIN_PASSWORD, type RunOptions, startGateway, type TestGateway } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";

export interface ConsoleSetting {
  readonly gateway: TestGateway;
  readonly url: string;
}

/** `gateway.toml` with a console on a free port, and its URL. */
export async function consoleConfig(more = ""): Promise<{ config: string; url: string }> {
  const host = `127.0.0.1:${await freePort()}`;
  return { config: `[console]\nlisten = "${host}"\n${more}`, url: `http://${host}` };
}

export async function startConsole(
  t: Test,
  { config = "", console = "", ...options }: RunOptions & { console?: string } = {},
): Promise<ConsoleSetting> {
  const { url, ...section } = await consoleConfig(`${console}\n${config}`);
  return { gateway: await startGateway(t, { ...options, ...section }), url };
}

/** A console over a gateway with these grants (`user database role`). */
export async function staffedConsole(
  t: Test,
  grants: readonly string[],
  config: string,
  more = "",
): Promise<ConsoleSetting> {
  const { url, ...section } = await consoleConfig(config);
  const { gateway } = await openStaffed(t, grants, { ...section, more });
  return { gateway, url };
}

export const auditFile = '[audit]\nfile = "audit.log"\n';

export async function ask(url: string, options: Ask = {}) {
  const { status, headers, body } = await askServer(url, options);
  return { status, headers, text: body.toString() };
}

type ConsoleAnswer = Awaited<ReturnType<typeof ask>>;

/** A client that keeps cookies and sends forms as the console's own pages do. */
export class ConsoleClient {
  readonly url: string;
  readonly cookies = new Map<string, string>();
  #csrf = "";
  #password = "";

  constructor(url: string) {
    this.url = url;
  }

  get cookie(): string {
    return Array.from(this.cookies, ([name, value]) => `${name}=${value}`).join("; ");
  }

  async get(route: string, headers: Readonly<Record<string, string>> = {}): Promise<ConsoleAnswer> {
    const answer = await ask(`${this.url}${route}`, {
      headers: { cookie: this.cookie, ...headers },
    });
    return this.#keep(answer);
  }

  async post(
    route: string,
    fields: Readonly<Record<string, string>>,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<ConsoleAnswer> {
    const answer = await ask(`${this.url}${route}`, {
      method: "POST",
      headers: {
        cookie: this.cookie,
        "content-type": "application/x-www-form-urlencoded",
        "sec-fetch-site": "same-origin",
        ...headers,
      },
      body: String(new URLSearchParams({ csrf: this.#csrf, ...fields })),
    });
    return this.#keep(answer);
  }

  /** Loads a form of `/access` and submits it with the user's password and the fields it hides. */
  async submit(
    route: string,
    fields: Readonly<Record<string, string>> = {},
  ): Promise<ConsoleAnswer> {
    const { pathname, searchParams } = new URL(route, this.url);
    const seen = await seenOn(this, route);
    const given = { ...Object.fromEntries(searchParams), seen, password: this.#password };
    return this.post(pathname, { ...given, ...fields });
  }

  async signIn(username = "admin", password = consolePassword(username)): Promise<ConsoleAnswer> {
    this.#password = password;
    await this.get("/sign-in");
    return this.post("/sign-in", { username, password, next: "/" });
  }

  #keep(answer: ConsoleAnswer): ConsoleAnswer {
    for (const line of answer.headers["set-cookie"] ?? []) {
      const [name = "", value = ""] = (line.split(";")[0] ?? "").split("=");
      if (value === "") this.cookies.delete(name);
      else this.cookies.set(name, value);
    }
    this.#csrf = /name="csrf" value="([^"]+)"/.exec(answer.text)?.[1] ?? this.#csrf;
    return answer;
  }
}

/** The password of a test's users. */
function consolePassword(username: string): string {
  return username === "admin" ? ADMIN_PASSWORD : passwordOf(username);
}

export async function signedIn(
  url: string,
  username = "admin",
  password = consolePassword(username),
): Promise<ConsoleClient> {
  const client = new ConsoleClient(url);
  const { status } = await client.signIn(username, password);
  if (status !== 303) throw new Error(`sign-in of ${username}: ${status}`);
  // For the token of the session's forms.
  await client.get("/sessions");
  return client;
}

export function unescaped(text: string): string {
  return text.replaceAll("&quot;", '"').replaceAll("&#39;", "'").replaceAll("&amp;", "&");
}

export function textOf(page: string): string {
  return unescaped(page.replaceAll(/<[^>]*>/g, " ").replaceAll(/\s+/g, " "));
}

export async function seenOn(client: ConsoleClient, route: string): Promise<string> {
  const { text } = await client.get(route);
  // A message about the last change may have a form of its own before the page's.
  const [, seen = ""] = [...text.matchAll(/name="seen" value="([^"]*)"/g)].at(-1) ?? [];
  return unescaped(seen);
}

let browser: Promise<Browser> | undefined;

/** One browser for all tests of a file. */
async function sharedBrowser(): Promise<Browser> {
  const { launch } = await import("../oauth/chromium.ts");
  browser ??= launch(root);
  return browser;
}

/** An empty page in a context of its own. */
export async function openPage(t: Test): Promise<Page> {
  const context = await (await sharedBrowser()).newContext({ reducedMotion: "reduce" });
  t.teardown(() => context.close());
  return context.newPage();
}

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Signs in with a browser, by keyboard alone. */
export async function signInBrowser(page: Page, url: string, username = "admin"): Promise<void> {
  await page.goto(`${url}/sign-in`);
  await page.locator("#username:focus").waitFor();
  await page.keyboard.type(username);
  await page.keyboard.press("Tab");
  await page.keyboard.type(consolePassword(username));
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Sign out" }).waitFor();
}

/** A page of the console in a browser that has signed in. */
export async function openSignedIn(
  t: Test,
  url: string,
  path = "/",
  username = "admin",
): Promise<Page> {
  const page = await openPage(t);
  await signInBrowser(page, url, username);
  if (path !== "/") await page.goto(url + path);
  return page;
}

/** Finds short words that are broken across lines, and cells that are cut off. */
const brokenText = `(() => {
  const found = [];
  for (const cell of document.querySelectorAll("td, th, button, a.button")) {
    if (cell.scrollWidth > cell.clientWidth + 1 && cell.clientWidth > 1) found.push("cut: " + cell.textContent);
    if (window.innerWidth < 1024) continue;
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      for (const { index, 0: word } of text.data.matchAll(/[^\\s-]{2,23}(?![^\\s-])/g)) {
        const range = document.createRange();
        range.setStart(text, index);
        range.setEnd(text, index + word.length);
        const tops = new Set([...range.getClientRects()].map(({ top }) => Math.round(top)));
        if (tops.size > 1) found.push("broken: " + word);
      }
    }
  }
  return found;
})()`;

const allRules =
  '["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], rules: { "meta-refresh": { enabled: false } }';
/** Rules that depend on the width or the colors, none of which depends on the other. */
const phoneRules = JSON.stringify({
  type: "rule",
  values: [
    "target-size",
    "scrollable-region-focusable",
    "label",
    "color-contrast",
    "link-in-text-block",
  ],
});

const screens = [
  { name: "desktop", width: 1280, height: 900, isDark: false, rules: allRules },
  { name: "dark-phone", width: 390, height: 844, isDark: true, rules: phoneRules },
];

let looks = 0;

/**
 * Checks a page on each screen: it fits its width, has its landmarks, and axe-core finds no violation
 * of WCAG 2.2 AA. The pages run no script, so an open page can change its screen. Takes pictures if
 * `GATEHOUSE_TEST_SCREENSHOTS` names a directory.
 */
export async function lookAt(t: Test, page: Page, label: string): Promise<void> {
  looks += 1;
  // A click does not wait for the page that it opens.
  await page.getByRole("main").waitFor();
  await page.waitForLoadState();
  t.equal(await page.getByRole("main").count(), 1, `${label} has a main landmark`);
  t.equal(await page.getByRole("heading", { level: 1 }).count(), 1, `${label} has one heading`);
  // A page may refresh itself if the reader can pause it (WCAG 2.2.1), which axe-core cannot see.
  const refreshes = await page.locator("meta[http-equiv=refresh]").count();
  t.equal(await page.getByRole("link", { name: "Pause" }).count(), refreshes);
  // The page may run no script, but the browser's debugger may.
  await page.evaluate(axe);
  const usual = page.viewportSize();
  for (const { name, isDark, rules, ...size } of screens) {
    await page.setViewportSize(size);
    await page.emulateMedia({ colorScheme: isDark ? "dark" : "light" });
    // Axe takes most of the time: each night for all, otherwise for one dark phone in four.
    const isSampled = !isDark || nightly.skip === false || looks % 4 === 1;
    await look(t, page, `${label}-${name}`, isSampled ? rules : undefined);
  }
  await page.emulateMedia({ colorScheme: null });
  if (usual !== null) await page.setViewportSize(usual);
}

async function look(t: Test, page: Page, label: string, rules?: string): Promise<void> {
  const directory = process.env.GATEHOUSE_TEST_SCREENSHOTS;
  const picture = directory && path.join(directory, `console-${label}.png`);
  if (picture) await page.screenshot({ path: picture, fullPage: true });
  const width = await page.evaluate("document.documentElement.scrollWidth - window.innerWidth");
  t.ok(Number(width) <= 0, `${label} fits its width`);
  t.strictSame(await page.evaluate(brokenText), [], `${label} shows its text whole`);
  if (rules === undefined) return;
  const found = await page.evaluate(
    `axe.run({ runOnly: ${rules}, resultTypes: ["violations"] }).then(({ violations }) => violations.map(({ id, nodes }) => id + ": " + nodes.map(({ html, failureSummary }) => html + " " + failureSummary).join(" | ")))`,
  );
  t.strictSame(found, [], `${label} is accessible`);
}
