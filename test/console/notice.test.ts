import { readFileSync } from "node:fs";
import t from "tap";
import { ADMIN_PASSWORD } from "../kit/gateway.ts";
import {
  type ConsoleClient,
  lookAt,
  openPage,
  signedIn,
  signInBrowser,
  startConsole,
  textOf,
  unescaped,
} from "./kit.ts";

const { gateway, url } = await startConsole(t);
await gateway.addUser("rita", "ReadWrite");
const accessOf = () => readFileSync(gateway.accessFile, "utf8").trimEnd();
const cookieName = "gatehouse-console-notice";

async function follow(client: ConsoleClient, answer: Awaited<ReturnType<ConsoleClient["get"]>>) {
  t.equal(answer.status, 303);
  return client.get(String(answer.headers.location));
}

function noticeOf(page: string): string {
  return unescaped(/<div role="status"><p><bdi>([^<]*)/.exec(page)?.[1] ?? "");
}

/** Submits the form that takes the change back. */
async function undo(client: ConsoleClient, page: string, given: Record<string, string> = {}) {
  const [, path = "", form = ""] =
    /<summary>Undo<\/summary><form method="post" action="([^"]+)"([\s\S]*?)<\/form>/.exec(page) ??
    [];
  const hidden = [...form.matchAll(/type="hidden" name="([^"]+)" value="([^"]*)"/g)];
  const fields = hidden.map(([, name = "", value = ""]) => [name, unescaped(value)]);
  return client.post(path, {
    ...Object.fromEntries(fields),
    password: ADMIN_PASSWORD,
    ...given,
  });
}

t.test(
  "a message tells the state after each change once, and Undo restores the one before",
  async (t) => {
    const client = await signedIn(t, url);
    const members = () => /members = .*/.exec(accessOf())?.[0];
    const before = accessOf();
    const entry = "/access/entry?user=rita&database=main";
    const limits = {
      max_rows: "20",
      row_filter: 'tenant = "a, b"\nid IN (1, 2)',
      columns: "id, tenant",
    };
    const limited = await client.submit(`${entry}&table=tickets&role=ReadOnly`, limits);
    t.match(
      limited.headers.location,
      /^\/access\/user\?user=rita$/,
      "the URL does not hold the message",
    );
    const { text: page } = await follow(client, limited);
    t.match(noticeOf(page), /^rita can read main\.tickets, 2 columns .*at most 20 rows\.$/);
    t.notOk(client.cookies.has(cookieName), "the message is shown once");
    t.equal(noticeOf((await client.get("/access/user?user=rita")).text), "");
    const withLimits = accessOf();

    const end = "/access/end?user=rita&database=main&table=tickets";
    const revoked = (await follow(client, await client.submit(end))).text;
    t.equal(
      noticeOf(revoked),
      "Removed the entry of rita for main.tickets. The entry for main applies there now: ReadWrite.",
    );
    t.equal(accessOf(), before);
    const restored = (await follow(client, await undo(client, revoked))).text;
    t.equal(accessOf(), withLimits, "all limits are restored");
    t.match(noticeOf(restored), /^rita can read main\.tickets/);
    await follow(client, await undo(client, restored));
    t.equal(accessOf(), before, "Undo can be taken back");

    const lowered = (await follow(client, await client.submit(`${entry}&table=&role=ReadOnly`)))
      .text;
    t.equal(noticeOf(lowered), "rita can read every table of main.");
    t.equal((await undo(client, lowered, { password: "wrong horse" })).status, 401);
    t.equal((await undo(client, lowered, { csrf: "" })).status, 403);
    t.not(accessOf(), before);
    await follow(client, await undo(client, lowered));
    t.equal(accessOf(), before);

    const act = "/access/act?user=rita&action=";
    const disabled = (await follow(client, await client.submit(`${act}disable`))).text;
    t.match(noticeOf(disabled), /^Disabled rita\. Logins are refused/);
    t.match(noticeOf((await follow(client, await undo(client, disabled))).text), /^Enabled rita\./);

    const add = { user: "", name: "readers", members: "rita" };
    const added = (await follow(client, await client.submit("/access/members", add))).text;
    t.equal(noticeOf(added), "The group readers has 1 member: rita.");
    const change = { user: "group:readers", members: "" };
    const emptied = await client.submit("/access/members?user=group:readers", change);
    const changed = (await follow(client, emptied)).text;
    t.equal(noticeOf(changed), "The group readers has no members.");
    await follow(client, await undo(client, changed));
    t.equal(members(), 'members = ["rita"]');
    const removed = await follow(client, await undo(client, added, { seen: "member rita" }));
    t.equal(noticeOf(removed.text), "Removed the group readers and its entries.");
    t.notMatch(removed.text, "<summary>Undo", "its entries are gone");
    const saved = { new_password: "another password" };
    const set = await follow(client, await client.submit(`${act}password`, saved));
    t.match(noticeOf(set.text), /^Set a new password for rita\./);
    t.notMatch(textOf(set.text), "Undo");
  },
);

t.test("a message that the gateway has not signed for this user is not shown", async (t) => {
  const client = await signedIn(t, url);
  const forged = Buffer.from(JSON.stringify({ text: "All is well." })).toString("base64url");
  await client.submit("/access/entry?user=rita&database=side", { table: "", role: "ReadOnly" });
  const given = client.cookies.get(cookieName) ?? "";
  const [body = "", signature = ""] = given.split(".");
  for (const value of [
    forged,
    `${forged}.`,
    `${forged}.${signature}`,
    body,
    `${body}.${forged}`,
    ".",
  ]) {
    client.cookies.set(cookieName, value);
    const { status, text } = await client.get("/access");
    t.equal(status, 200);
    t.equal(noticeOf(text), "", value);
  }
  await gateway.addUser("owen", "Owner");
  const owen = await signedIn(t, url, "owen", "owen password");
  owen.cookies.set(cookieName, given);
  t.equal(noticeOf((await owen.get("/access")).text), "");
  client.cookies.set(cookieName, given);
  t.equal(noticeOf((await client.get("/access")).text), "rita can read every table of side.");
});

t.test("Undo is used by keyboard, and its message fits each screen", async (t) => {
  const page = await openPage(t);
  await signInBrowser(page, url);
  await page.goto(`${url}/access/entry?user=rita&database=notes`);
  await page.getByLabel("Your password").fill(ADMIN_PASSWORD);
  await page.keyboard.press("Enter");
  await page.getByText("rita can read every table of notes.").waitFor();
  await lookAt(t, page, "notice");
  await page.locator("summary", { hasText: "Undo" }).focus();
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  await page.keyboard.type(ADMIN_PASSWORD);
  await lookAt(t, page, "undo");
  await page.keyboard.press("Enter");
  await page.getByText("Removed the entry of rita for notes.").waitFor();
  t.notMatch(accessOf(), "notes");
});

t.test("a grant for an unknown name warns with the nearest one", async (t) => {
  const token = await gateway.login();
  const columns = [{ name: "id", type: "int", primary_key: true }];
  await gateway.query({ CreateDatabase: { database: "shop" } }, token);
  await gateway.query({ CreateTable: { database: "shop", table: "tickets", columns } }, token);
  const client = await signedIn(t, url);
  const warningFor = async (database: string, table: string) => {
    const fields = { database, table, role: "ReadOnly" };
    const answer = await client.submit("/access/entry?user=rita", fields);
    return textOf((await follow(client, answer)).text)
      .match(/Warning: .*?\. /)?.[0]
      .trim();
  };
  const unknown = "Warning: shop has no table tikets (did you mean tickets?).";
  t.equal(await warningFor("shop", "tikets"), unknown);
  t.equal(await warningFor("shop", "people"), "Warning: shop has no table people.");
  t.equal(await warningFor("shop", "tock*"), "Warning: No table of shop begins with tock.");
  const missing = "Warning: The database shpo does not exist (did you mean shop?).";
  t.equal(await warningFor("shpo", ""), missing);
  for (const table of ["tickets", "tick*", ""]) t.equal(await warningFor("shop", table), undefined);
  t.equal(await warningFor("*", "tikets"), undefined);
  const page = await openPage(t);
  await signInBrowser(page, url);
  await page.goto(`${url}/access/entry?user=rita&database=shop&table=tikcets`);
  await page.getByLabel("Your password").fill(ADMIN_PASSWORD);
  await page.keyboard.press("Enter");
  await page.getByText("shop has no table tikcets (did you mean tickets?).").waitFor();
  await lookAt(t, page, "notice-warning");
});
