import type { Page } from "playwright-core";
import t, { type Test } from "tap";
import { launch, openCallback, openSite } from "./chromium.ts";
import { authorizeUrl, documentsOf, openSetting, PASSWORD, registered } from "./kit.ts";

/** Names that would be something else than a name if a page let them. */
const names = [
  '<img src=x onerror="document.title=1">',
  "</title><script>document.title=1</script>",
  '"><a href="https://evil.example">Log in</a>',
  "&lt;b&gt;&#x202e;{{7*7}}",
  "W".repeat(100),
  "ש".repeat(40),
  "e\u0301\u0323".repeat(30),
];

/** The page holds the name as text, and nothing that the name brought along. */
async function checkName(t: Test, page: Page, name: string): Promise<void> {
  const heading = page.getByRole("heading", { level: 1 });
  t.equal(await heading.locator("bdi").textContent(), name, name);
  await checkIntact(t, page);
}

/** Nothing that a name brought along has come to be. */
async function checkIntact(t: Test, page: Page): Promise<void> {
  const foreign = 'script, img, a:not([href="/oauth/applications"]), b, iframe';
  t.equal(await page.locator(foreign).count(), 0, "no element is made");
  t.match(await page.title(), /Gatehouse$/, "no script has run");
  const width = await page.evaluate("document.documentElement.scrollWidth - window.innerWidth");
  t.ok(Number(width) <= 0, "nothing is pushed off the page");
  t.ok(await page.getByRole("button").first().isVisible());
}

t.test("a name is shown as a name, whatever is in it", async (t) => {
  const setting = await openSetting(t);
  const browser = await launch(t);
  const redirect_uri = await openCallback(t);
  const context = await browser.newContext({ viewport: { width: 360, height: 740 } });
  const page = await context.newPage();
  for (const client_name of names) {
    const metadata = { client_name, redirect_uris: [redirect_uri] };
    const client_id = await registered(setting, metadata);
    await page.goto(authorizeUrl(setting, { client_id, redirect_uri, prompt: "login" }));
    await checkName(t, page, client_name);
    await page.getByLabel("Username").fill("alice");
    await page.getByLabel("Password").fill(PASSWORD);
    await page.getByRole("button", { name: "Log in" }).click();
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

// The other site is on the same host, so that cookies which are kept to one site go along.
t.test("a page cannot be put in another one's frame", async (t) => {
  const setting = await openSetting(t);
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

t.test("a form of another site logs nobody in", async (t) => {
  const setting = await openSetting(t);
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

t.test("no client has a name that hides or covers something", async (t) => {
  const client_id = "https://app.example.com/client.json";
  const redirect_uris = ["http://127.0.0.1:4999/callback"];
  const hidden = ["\u202e", "\u2066", "\u200b", "\u200f", "\u00ad", "\0", "\u2028", "\n"];
  for (const sign of ["\u0301".repeat(8), ...hidden]) {
    const client_name = `Ba${sign}nk`;
    const documents = documentsOf({ [client_id]: { client_id, client_name, redirect_uris } });
    const setting = await openSetting(t, { documents });
    const answer = await fetch(authorizeUrl(setting, { client_id }));
    const label = `U+${sign.charCodeAt(0).toString(16)}`;
    t.equal(answer.status, 400, `${label} in a document`);
    t.equal(await registered(setting, { client_name, redirect_uris }), "undefined", label);
  }
});
