/** A day at the console without a mouse. */
import type { Page } from "playwright-core";
import t from "tap";
import { ADMIN_PASSWORD } from "../kit/gateway.ts";
import { launch } from "../oauth/chromium.ts";
import { signedIn, signInBrowser, startConsole } from "./kit.ts";

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
  const browser = await launch(t);
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
