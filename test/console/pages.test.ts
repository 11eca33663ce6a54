import t from "tap";
import { launch } from "../oauth/chromium.ts";
import { lookAt, screens, signInBrowser, startConsole } from "./kit.ts";

t.test("every page can be used on a phone, in the dark, and by keyboard alone", async (t) => {
  const { gateway, url } = await startConsole(t);
  await gateway.addUser("alice", "ReadWrite");
  const browser = await launch(t);
  for (const { name, ...screen } of screens) {
    const context = await browser.newContext(screen);
    const page = await context.newPage();
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
    await context.close();
    const other = await browser.newContext(screen);
    const alice = await other.newPage();
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
    await other.close();
  }
});
