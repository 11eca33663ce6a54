import { createServer } from "node:http";
import { createServer as createSecureServer } from "node:https";
import path from "node:path";
import type { Page } from "playwright-core";
import t, { type Test } from "tap";
import { refusedBy, temporaryDirectory } from "../access/kit.ts";
import { makeCertificate } from "../kit/certificate.ts";
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

function screenshotDirectory(t: Test): string {
  return process.env.GATEHOUSE_TEST_SCREENSHOTS ?? temporaryDirectory(t);
}

const screens = [
  { name: "desktop", viewport: { width: 1280, height: 900 }, colorScheme: "light" },
  { name: "phone", viewport: { width: 360, height: 740 }, colorScheme: "light" },
  { name: "narrow", viewport: { width: 320, height: 640 }, colorScheme: "dark" },
  { name: "dark", viewport: { width: 1280, height: 900 }, colorScheme: "dark" },
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
  const browser = await launch(t);
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
  const browser = await launch(t);
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
  const page = await (await launch(t)).newPage();
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

const names = [
  '<img src=x onerror="document.title=1">',
  "</title><script>document.title=1</script>",
  '"><a href="https://evil.example">Log in</a>',
  "&lt;b&gt;&#x202e;{{7*7}}",
  "W".repeat(100),
  "ש".repeat(40),
  "e\u0301\u0323".repeat(30),
];

async function checkName(t: Test, page: Page, name: string): Promise<void> {
  const heading = page.getByRole("heading", { level: 1 });
  t.equal(await heading.locator("bdi").textContent(), name, name);
  await checkIntact(t, page);
}

async function checkIntact(t: Test, page: Page): Promise<void> {
  const foreign = 'script, img, a:not([href="/oauth/applications"]), b, iframe';
  t.equal(await page.locator(foreign).count(), 0, "no element is created");
  t.match(await page.title(), /Gatehouse$/, "no script has run");
  const width = await page.evaluate("document.documentElement.scrollWidth - window.innerWidth");
  t.ok(Number(width) <= 0, "nothing is pushed off the page");
  t.ok(await page.getByRole("button").first().isVisible());
}

t.test("markup in a client's name is shown as text", async (t) => {
  const setting = await openOAuthSetup(t);
  const browser = await launch(t);
  const redirect_uri = await openCallback(t);
  const context = await browser.newContext({ viewport: { width: 360, height: 740 } });
  const page = await context.newPage();
  for (const client_name of names) {
    const metadata = { client_name, redirect_uris: [redirect_uri] };
    const client_id = await registered(setting, metadata);
    await page.goto(authorizeUrl(setting, { client_id, redirect_uri, prompt: "login" }));
    await checkName(t, page, client_name);
    await logIn(page);
    await page.getByText("Logged in as").waitFor();
    await checkName(t, page, client_name);
    await page.getByRole("button", { name: "Allow" }).click();
    await page.waitForURL(`${redirect_uri}?**`);
  }
  await page.goto(`${setting.url}/oauth/applications`);
  const shown = await page.getByRole("heading", { level: 2 }).locator("bdi").allTextContents();
  t.strictSame(shown.toSorted(), names.toSorted());
  await checkIntact(t, page);
});

// The other site is on the same host, so that SameSite cookies are sent.
t.test("over https, login cookies are bound to the host", async (t) => {
  const { cert, key } = makeCertificate("localhost");
  const front = createSecureServer({ cert, key }, (request, response) =>
    setting.server.handle(request, response),
  );
  const issuer = `https://localhost:${await listening(t, front)}`;
  const setting = await openOAuthSetup(t, { issuer });
  const browser = await launch(t);
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  const page = await context.newPage();
  await page.goto(`${issuer}/oauth/applications`);
  await logIn(page);
  await page.getByText("No app is connected.").waitFor();
  const redirect = await openCallback(t);
  const client_id = await registered(setting, { redirect_uris: [redirect] });
  const resource = `${issuer}/mcp`;
  const parameters = { client_id, redirect_uri: redirect, resource };
  await page.goto(authorizeUrl({ url: issuer }, parameters));
  await page.getByText("Logged in as alice").waitFor();
  for (const { name, domain, path, secure, httpOnly } of await context.cookies()) {
    t.match({ domain, secure, httpOnly }, { domain: "localhost", secure: true, httpOnly: true });
    const ofOnePage = ["gatehouse_interaction", "gatehouse_resume"].includes(name);
    if (ofOnePage) t.match(path, /^\/oauth\/(?:interaction|authorize)\//);
    else t.match(`${name} ${path}`, /^__Host-gatehouse_(?:session|browser) \/$/);
  }
  await page.getByRole("button", { name: "Allow" }).click();
  await page.waitForURL(`${redirect}?**`);
});

t.test("a page cannot be framed by another site", async (t) => {
  const setting = await openOAuthSetup(t);
  const browser = await launch(t);
  const client_id = await registered(setting);
  const source = authorizeUrl(setting, { client_id }).replaceAll("&", "&amp;");
  const site = await openSite(t, `<iframe src="${source}"></iframe>`);
  const page = await browser.newPage();
  const framed = page.waitForEvent("framenavigated", (frame) => frame !== page.mainFrame());
  await page.goto(site);
  const frame = await framed;
  t.equal(frame.url(), "chrome-error://chromewebdata/");
  t.equal(await frame.getByLabel("Password").count(), 0);
});

t.test("a form on another site cannot log in", async (t) => {
  const setting = await openOAuthSetup(t);
  const browser = await launch(t);
  const client_id = await registered(setting);
  const page = await browser.newPage();
  await page.goto(authorizeUrl(setting, { client_id }));
  const interaction = page.url();
  const site = await openSite(
    t,
    `<form method="post" action="${interaction}"><input name="username" value="bob">
<input name="password" value="${PASSWORD}"><button name="action" value="login">Win</button></form>`,
  );
  await page.goto(site);
  const answered = page.waitForResponse(interaction);
  await page.getByRole("button").click();
  t.equal((await answered).status(), 403);
  t.notOk(setting.events.some(({ name }) => name === "oauth_login"));
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
