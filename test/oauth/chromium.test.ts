import { createServer } from "node:http";
import path from "node:path";
import type { Page } from "playwright-core";
import t, { type Test } from "tap";
import { refusedBy } from "../access/kit.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";
import { launch, openCallback, openSite } from "./chromium.ts";
import { exchange, obtainTokens } from "./flow.ts";
import {
  authorizeUrl,
  documentsOf,
  makePkce,
  openOAuthSetup,
  PASSWORD,
  registered,
} from "./kit.ts";

const browser = await launch(t);

function screenshotDirectory(t: Test): string {
  return process.env.GATEHOUSE_TEST_SCREENSHOTS ?? temporaryHome(t);
}

const screens = [
  { name: "desktop", viewport: { width: 1280, height: 900 }, colorScheme: "light" },
  { name: "narrow", viewport: { width: 320, height: 640 }, colorScheme: "dark" },
] as const;

async function checkPage(t: Test, page: Page, label: string): Promise<void> {
  const width = await page.evaluate("document.documentElement.scrollWidth - window.innerWidth");
  t.ok(Number(width) <= 0, `${label} fits its width`);
  t.equal(await page.getByRole("main").count(), 1, `${label} has a main landmark`);
  t.equal(await page.getByRole("heading", { level: 1 }).count(), 1, `${label} has one heading`);
  const controls = await page.locator("input:not([type=hidden]), select, button").all();
  for (const control of controls) t.match(await control.ariaSnapshot(), /"[^"]+"/, label);
}

async function logIn(page: Page, password = PASSWORD): Promise<void> {
  await page.getByLabel("Username").fill("alice");
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Log in" }).click();
}

t.test("a person connects and disconnects an app in a browser", async (t) => {
  const setting = await openOAuthSetup(t);
  const directory = screenshotDirectory(t);
  for (const { name, ...screen } of screens) {
    const redirect = await openCallback(t);
    const metadata = { client_name: "Notebook", redirect_uris: [redirect] };
    const clientId = await registered(setting, metadata);
    const { verifier, challenge } = makePkce();
    const context = await browser.newContext(screen);
    const page = await context.newPage();
    const errors: string[] = [];
    page.on("console", (message) => errors.push(message.text()));
    const shoot = async (label: string) => {
      await page.screenshot({ path: path.join(directory, `${label}-${name}.png`), fullPage: true });
      await checkPage(t, page, `${label} on ${name}`);
    };

    const client = { client_id: clientId, redirect_uri: redirect };
    await page.goto(authorizeUrl(setting, { ...client, code_challenge: challenge }));
    await shoot("login");
    t.equal(
      await page.evaluate("document.activeElement.id"),
      "username",
      "the first field has the focus",
    );
    await page.keyboard.type("alice");
    await page.getByLabel("Password").fill(PASSWORD);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Let Notebook use your databases?" }).waitFor();
    await shoot("consent");
    t.equal(await page.getByLabel("Which databases?").inputValue(), "archive");
    t.ok(await page.getByLabel("Only read").isChecked());
    await page.getByLabel("Which databases?").selectOption("main");
    await page.getByRole("button", { name: "Allow" }).click();
    await page.waitForURL(`${redirect}?**`);
    t.strictSame(errors, [], "no errors in the console");
    const callback = new URL(page.url());
    const answer = await exchange(setting, { clientId, verifier, callback, redirectUri: redirect });
    const token = await setting.server.verify(String(answer.body.access_token));
    t.match(token, { username: "alice", database: "main", readOnly: true });

    token.noteCall("select");
    await page.goto(`${setting.url}/oauth/applications`);
    await page.getByRole("heading", { name: "Your connected applications" }).waitFor();
    await shoot("applications");
    await page.getByRole("button", { name: "Disconnect Notebook" }).first().click();
    await page.getByText("No app is connected.").waitFor();
    await shoot("no-applications");
    const ended = await refusedBy(setting.server.verify(String(answer.body.access_token)));
    t.equal(ended.code, "token_revoked");
    await page.getByRole("button", { name: "Log out" }).click();
    await page.getByRole("heading", { name: "Log in to see" }).waitFor();
    await shoot("applications-login");
    await logIn(page);
    await page.getByText("No app is connected.").waitFor();
    t.strictSame(errors, [], "no errors in the console");

    await page.goto(authorizeUrl(setting, { client_id: "unknown" }));
    await shoot("error");
    await page.goto(authorizeUrl(setting, { ...client, prompt: "login" }));
    await logIn(page, "wrong horse");
    await page.getByRole("alert").waitFor();
    await shoot("wrong");
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.waitForURL(`${redirect}?error=access_denied**`);
    await context.close();
  }
});

const redirect_uri = "com.example.app:/callback";
const app = { client_name: "Desk", redirect_uris: [redirect_uri] };

t.test("an app on the user's machine receives the response by its own scheme", async (t) => {
  const setting = await openOAuthSetup(t);
  const clientId = await registered(setting, app);
  const tokens = await obtainTokens(setting, { clientId, parameters: { redirect_uri } });
  t.equal(tokens.callback.protocol, "com.example.app:");
  t.equal(tokens.callback.searchParams.get("iss"), setting.url);
  t.equal(tokens.callback.searchParams.get("state"), "s1");
  t.match(await setting.server.verify(tokens.accessToken), { clientId });
});

t.test("an app's redirect URI allows CORS to no page", async (t) => {
  const setting = await openOAuthSetup(t);
  const clientId = await registered(setting, {
    redirect_uris: ["com.example.app://pages.example/callback"],
  });
  const answer = await fetch(`${setting.url}/oauth/token`, {
    method: "POST",
    headers: { origin: "http://pages.example" },
    body: new URLSearchParams({ grant_type: "refresh_token", client_id: clientId }),
  });
  t.equal(answer.headers.get("access-control-allow-origin"), null);
});

t.test("a browser opens the app with the code", async (t) => {
  const setting = await openOAuthSetup(t);
  const client_id = await registered(setting, app);
  const page = await browser.newPage();
  const errors: string[] = [];
  page.on("console", (message) => errors.push(message.text()));
  await page.goto(authorizeUrl(setting, { client_id, redirect_uri }));
  await logIn(page);
  await page.getByText("the app that opens com.example.app: links").waitFor();
  await page.getByText("This gives access to a program on your own computer.").waitFor();
  const leaving = page.waitForRequest((request) => request.url().startsWith("com.example.app:"));
  await page.getByRole("button", { name: "Allow" }).click();
  const { searchParams } = new URL((await leaving).url());
  t.ok(searchParams.get("code"), "a code");
  t.strictSame(
    errors.filter((text) => /Content Security Policy/.test(text)),
    [],
  );
});

/** A client whose callback redirects once more, as those of hosted apps do. */
async function openRedirecting(t: Test, target: (query: string) => string) {
  let calls = 0;
  const server = createServer(({ url = "" }, response) => {
    if (!url.startsWith("/callback")) return response.writeHead(404).end();
    calls += 1;
    return response.writeHead(307, { location: target(url.slice("/callback".length)) }).end();
  });
  const port = await listening(t, server);
  return { redirect: `http://127.0.0.1:${port}/callback`, calls: () => calls };
}

async function openConsent(t: Test, redirect: string) {
  const setting = await openOAuthSetup(t);
  const clientId = await registered(setting, { redirect_uris: [redirect] });
  const { verifier, challenge } = makePkce();
  const page = await browser.newPage();
  const errors: string[] = [];
  page.on("console", (message) => errors.push(message.text()));
  const client = { client_id: clientId, redirect_uri: redirect, code_challenge: challenge };
  await page.goto(authorizeUrl(setting, client));
  const redeem = (callback: URL) =>
    exchange(setting, { clientId, verifier, callback, redirectUri: redirect });
  return { setting, page, errors, redeem };
}

t.test("a client's callback may redirect to another origin", async (t) => {
  const other = await openSite(t, "Connected.");
  const { redirect } = await openRedirecting(t, (query) => `${other}/done${query}`);
  for (const choice of ["Allow", "Deny", "Cancel"]) {
    const { page, errors, redeem } = await openConsent(t, redirect);
    if (choice !== "Cancel") await logIn(page);
    await page.getByRole("button", { name: choice }).click();
    await page.waitForURL(`${other}/done?**`);
    t.strictSame(errors, [], choice);
    if (choice !== "Allow") t.match(page.url(), "error=access_denied");
    else t.equal((await redeem(new URL(page.url()))).status, 200);
  }
});

t.test("a client's callback may open an app", async (t) => {
  const { redirect } = await openRedirecting(t, (query) => `claude://callback${query}`);
  const { page, errors } = await openConsent(t, redirect);
  await logIn(page);
  const opened = page.waitForRequest((request) => request.url().startsWith("claude:"));
  await page.getByRole("button", { name: "Allow" }).click();
  t.match((await opened).url(), "code=");
  t.notOk(errors.some((text) => /Content Security Policy/.test(text)));
});

t.test("a code is lost neither by a reload nor by a second click", async (t) => {
  const opened: string[] = [];
  const redirect = "com.example.app:/callback";
  const { page, redeem } = await openConsent(t, redirect);
  page.on("request", (request) => void opened.push(request.url()));
  await logIn(page);
  await page.getByRole("button", { name: "Allow" }).waitFor();
  const consent = page.url();
  await page.getByRole("button", { name: "Allow" }).click();
  const link = page.getByRole("link", { name: "Return to the app" });
  const target = (await link.getAttribute("href")) ?? "";
  t.match(target, /^com\.example\.app:\/callback\?code=/);
  await page.reload();
  t.equal(await link.getAttribute("href"), target, "a reload");
  await page.goto(consent);
  t.equal(await link.getAttribute("href"), target, "the page before");
  await link.click();
  t.ok(opened.filter((url) => url === target).length >= 1, "the app is opened");
  t.equal((await redeem(new URL(target))).status, 200);
  await page.goto(consent);
  await page.getByRole("heading", { name: "The app already has its answer" }).waitFor();
  t.equal(await link.count(), 0, "a used code is not sent again");
});

t.test("a client name with invisible or stacked characters is refused", async (t) => {
  const client_id = "https://app.example.com/client.json";
  const redirect_uris = ["http://127.0.0.1:4999/callback"];
  const hidden = ["\u202e", "\u2066", "\u200b", "\u200f", "\u00ad", "\0", "\u2028", "\n"];
  for (const sign of ["\u0301".repeat(8), ...hidden]) {
    const client_name = `Ba${sign}nk`;
    const documents = documentsOf({ [client_id]: { client_id, client_name, redirect_uris } });
    const setting = await openOAuthSetup(t, { documents });
    const answer = await fetch(authorizeUrl(setting, { client_id }));
    const label = `U+${sign.charCodeAt(0).toString(16)}`;
    t.equal(answer.status, 400, `${label} in a document`);
    t.equal(await registered(setting, { client_name, redirect_uris }), "undefined", label);
  }
});
