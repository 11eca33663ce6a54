import path from "node:path";
import type { Page } from "playwright-core";
import t, { type Test } from "tap";
import { refusedBy, temporaryDirectory } from "../access/kit.ts";
import { launch, openCallback } from "./chromium.ts";
import { exchange } from "./flow.ts";
import { authorizeUrl, makePkce, openSetting, PASSWORD, registered } from "./kit.ts";

/** Where screenshots go: a directory of the caller's, to be looked at, or one of the test's own. */
function screenshotDirectory(t: Test): string {
  return process.env.GATEHOUSE_TEST_SCREENSHOTS ?? temporaryDirectory(t);
}

const screens = [
  { name: "desktop", viewport: { width: 1280, height: 900 }, colorScheme: "light" },
  { name: "phone", viewport: { width: 360, height: 740 }, colorScheme: "light" },
  { name: "narrow", viewport: { width: 320, height: 640 }, colorScheme: "dark" },
  { name: "dark", viewport: { width: 1280, height: 900 }, colorScheme: "dark" },
] as const;

/** Nothing stands beyond the edge, and every control that is seen has a name. */
async function checkPage(t: Test, page: Page, label: string): Promise<void> {
  const width = await page.evaluate("document.documentElement.scrollWidth - window.innerWidth");
  t.ok(Number(width) <= 0, `${label} fits its width`);
  t.equal(await page.getByRole("main").count(), 1, `${label} has a main landmark`);
  t.equal(await page.getByRole("heading", { level: 1 }).count(), 1, `${label} has one heading`);
  const controls = await page.locator("input:not([type=hidden]), select, button").all();
  for (const control of controls) t.match(await control.ariaSnapshot(), /"[^"]+"/, label);
}

t.test("a person lets a client in with a browser", async (t) => {
  const setting = await openSetting(t);
  const browser = await launch(t);
  const directory = screenshotDirectory(t);
  for (const { name, ...screen } of screens) {
    const redirect = await openCallback(t);
    const clientId = await registered(setting, {
      client_name: "Notebook",
      redirect_uris: [redirect],
    });
    const { verifier, challenge } = makePkce();
    const context = await browser.newContext(screen);
    const page = await context.newPage();
    const complaints: string[] = [];
    page.on("console", (message) => complaints.push(message.text()));
    const shoot = async (label: string) => {
      await page.screenshot({ path: path.join(directory, `${label}-${name}.png`), fullPage: true });
      await checkPage(t, page, `${label} on ${name}`);
    };

    await page.goto(
      authorizeUrl(setting, {
        client_id: clientId,
        redirect_uri: redirect,
        code_challenge: challenge,
      }),
    );
    await shoot("login");
    t.equal(await page.evaluate("document.activeElement.id"), "username", "typing can begin");
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
    t.strictSame(complaints, [], "the browser has nothing to complain of");
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
    await page.getByLabel("Username").fill("alice");
    await page.getByLabel("Password").fill(PASSWORD);
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByText("No app is connected.").waitFor();
    t.strictSame(complaints, [], "the browser has nothing to complain of");

    await page.goto(authorizeUrl(setting, { client_id: "nobody" }));
    await shoot("error");
    await page.goto(
      authorizeUrl(setting, { client_id: clientId, redirect_uri: redirect, prompt: "login" }),
    );
    await page.getByLabel("Username").fill("alice");
    await page.getByLabel("Password").fill("wrong horse");
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("alert").waitFor();
    await shoot("wrong");
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.waitForURL(`${redirect}?error=access_denied**`);
    await context.close();
  }
});
