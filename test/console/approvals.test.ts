import t, { type Test } from "tap";
import { type Careful, idIn, openCareful, orders, removal, step } from "../approvals/kit.ts";
import { passwordOf } from "../journeys/staff.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { type ConsoleClient, lookAt, onScreens, signedIn, signInBrowser, textOf } from "./kit.ts";

const update = {
  Update: { ...orders, set: { state: "gone" }, where: { column: "id", cmp: ">", value: 12 } },
};
const removeOne = (value: number) => ({
  Delete: { ...orders, where: { column: "id", cmp: "=", value } },
});

/** A gateway with a console, whose `bot` has to ask before it deletes or updates. */
async function open(t: Test, more = "", audit = ""): Promise<Careful & { url: string }> {
  const port = await freePort();
  const entry = `[[acl]]\nusername = "bot"\ndatabase = "main"\nrole = "ReadWrite"\nrequire_approval = ["DELETE", "UPDATE"]\n${more}\n`;
  const config = `[console]\nlisten = "127.0.0.1:${port}"\n${audit}`;
  const careful = await openCareful(t, { more: entry, config });
  return { ...careful, url: `http://127.0.0.1:${port}` };
}

const as = (t: Test, url: string, name: string) => signedIn(t, url, name, passwordOf(name));

/** The digest of the rows that a page shows. */
async function touchedOn(client: ConsoleClient, id: string): Promise<string> {
  const { text } = await client.get(`/approvals/${id}`);
  return /name="touched" value="(\w+)"/.exec(text)?.[1] ?? "";
}

const untilGone = (client: ConsoleClient, page: string) =>
  eventually("the session is over", async () => (await client.get(page)).status === 303);

const approve = (name: string, touched = "") => ({
  ...{ decision: "approve", password: passwordOf(name) },
  ...(touched === "" ? {} : { touched }),
});

t.test("an approver sees the rows with a browser, and decides by keyboard", async (t) => {
  const { ask, bot, url, count } = await open(t);
  await onScreens(async (page, name, at) => {
    await signInBrowser(page, url, "dave", passwordOf("dave"));
    await page.goto(`${url}/approvals`);
    if (at === 0) await page.getByText("Nothing waits for you.").waitFor();
    await lookAt(t, page, `approvals-none-${name}`);
    const all = await ask(bot, removal);
    t.match(all.body.approval, { url: `${url}/approvals/${idIn(all)}` });
    const changed = idIn(await ask(bot, update));
    const id = idIn(await ask(bot, removeOne(at)));
    await page.reload();
    await lookAt(t, page, `approvals-${name}`);
    await page.getByRole("link", { name: "Update main.orders" }).first().click();
    await page.getByText("2 rows would be updated").waitFor();
    await page.locator("del", { hasText: "new" }).first().waitFor();
    await lookAt(t, page, `approval-update-${name}`);
    await page.getByLabel("Reason").fill("not before the audit");
    await page.keyboard.press("Enter");
    await page.getByText("not before the audit").waitFor();
    await lookAt(t, page, `approval-denied-${name}`);
    t.match(await ask(bot, update, changed), {
      status: 403,
      body: { code: "approval_denied", message: /: not before the audit$/ },
    });
    await page.goto(`${url}/approvals/${id}`);
    await page.getByText("1 row would be deleted").waitFor();
    await page.getByLabel("Your own password").fill("wrong horse");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").getByText("That is not your password").waitFor();
    await page.getByLabel("Your own password").fill(passwordOf("dave"));
    await page.keyboard.press("Enter");
    await page.getByText("for the rows that were shown").waitFor();
    const rows = await count();
    t.match(await ask(bot, removeOne(at), id), { status: 200, body: { affected: 1 } });
    t.equal(await count(), rows - 1);
    await page.goto(`${url}/approvals/${idIn(all)}`);
    await lookAt(t, page, `approval-${name}`);
  });
});

t.test("of two operators the second is told what was decided, and by whom", async (t) => {
  const narrowed =
    '[[acl]]\nusername = "wim"\ndatabase = "main"\ntables = ["orders"]\nrole = "ReadOnly"\ncolumns = ["id"]\n';
  const { ask, bot, url, gateway } = await open(t, `approvers = ["dave", "wim"]\n${narrowed}`);
  const [dave, wim] = [await as(t, url, "dave"), await as(t, url, "wim")];
  const id = idIn(await ask(bot, removal));
  const [seen, other] = [await touchedOn(dave, id), await touchedOn(wim, id)];
  t.equal(other, "", "who may not read all of the table is shown no rows");
  t.match(seen, /^[0-9a-f]{64}$/);
  t.match((await wim.get(`/approvals/${id}`)).text, "you may not read all of main.orders");
  const denied = await dave.post(`/approvals/${id}`, { decision: "deny", reason: "not\ntoday" });
  t.equal(denied.status, 303);
  const late = await wim.post(`/approvals/${id}`, approve("wim"));
  t.equal(late.status, 409);
  t.match(late.text, /Too late: this is denied by dave at \d\d:\d\d:\d\d UTC/);
  t.match(late.text, "not today");
  t.match(await ask(bot, removal, id), { body: { code: "approval_denied" } });
  t.match(await step(gateway, id, "approval_denied"), {
    author: { kind: "console", name: "dave" },
    reason: "not today",
  });
});

t.test("the audit names who approved or denied, and who asked", async (t) => {
  const { ask, bot, url } = await open(t, "", '[audit]\nfile = "audit.log"\n');
  const dave = await as(t, url, "dave");
  const denied = idIn(await ask(bot, update));
  await dave.post(`/approvals/${denied}`, { decision: "deny" });
  const approved = idIn(await ask(bot, removal));
  await dave.post(`/approvals/${approved}`, approve("dave"));
  t.equal((await ask(bot, removal, approved)).status, 200);
  let lines: string[] = [];
  await eventually("the use is in the audit", async () => {
    const { text } = await dave.get("/audit?user=bot");
    lines = [...text.matchAll(/<tr .*?<\/tr>/gs)].map(([row]) => textOf(row));
    return lines.some((line) => line.includes("used approval"));
  });
  const has = (who: RegExp) =>
    t.ok(
      lines.some((line) => who.test(line)),
      String(who),
    );
  has(/ dave asked by bot, console Update main\.orders denied /);
  has(/ dave asked by bot, console Delete main\.orders approved /);
  has(/ bot approved by dave Delete main\.orders used /);
  has(/ bot Delete main\.orders asked /);
});

t.test("approvers and administrators review what was decided, and nobody else", async (t) => {
  const { ask, bot, url } = await open(t, 'approvers = ["wim"]');
  const wim = await as(t, url, "wim");
  const [denied, approved] = [idIn(await ask(bot, update)), idIn(await ask(bot, removal))];
  const [onlooker, asker, root] = [
    await as(t, url, "dave"),
    await as(t, url, "bot"),
    await as(t, url, "root"),
  ];
  for (const client of [onlooker, asker]) {
    t.match((await client.get(`/approvals/${denied}`)).text, "Exactly these bytes");
  }
  await wim.post(`/approvals/${denied}`, { decision: "deny" });
  await wim.post(`/approvals/${approved}`, approve("wim"));
  for (const id of [denied, approved]) {
    for (const client of [wim, root]) {
      const { text } = await client.get(`/approvals/${id}`);
      t.match(textOf(text), /Exactly these bytes, \d+ of them, were decided on\./);
      t.match(text, "&quot;where&quot;");
      t.notMatch(text, /name="decision"|<h2>Rows/);
    }
    for (const client of [onlooker, asker]) {
      const { text } = await client.get(`/approvals/${id}`);
      t.match(text, "The query is hidden: approvers and administrators may review it.");
      t.notMatch(text, "&quot;where&quot;");
    }
  }
});

t.test("nobody decides on what it has asked for, or without the right", async (t) => {
  const { ask, bot, url, gateway } = await open(t, 'approvers = ["dave", "bot"]');
  const id = idIn(await ask(bot, removal));
  const page = `/approvals/${id}`;
  const asker = await as(t, url, "bot");
  t.match((await asker.get("/approvals")).text, "For others to decide");
  const own = await asker.get(page);
  t.match(own.text, /You have asked for this, so somebody else decides/);
  t.notMatch(own.text, /name="decision"|Rows/);
  t.equal((await asker.post(page, approve("bot"))).status, 403);
  t.equal((await asker.post(page, { decision: "deny" })).status, 403);
  const root = await as(t, url, "root");
  t.match((await root.get(page)).text, /You do not decide on this: <bdi>dave, bot/);
  t.equal((await root.post(page, approve("root"))).status, 403, "an administrator looks on");
  const wim = await as(t, url, "wim");
  t.notMatch((await wim.get("/approvals")).text, id);
  t.equal((await wim.get(page)).status, 404);
  t.equal((await wim.post(page, approve("wim"))).status, 404);
  for (const path of ["/approvals/x", `/approvals/${id.replace(/^./, "z")}`, "/approvals/%00"]) {
    t.equal((await root.get(path)).status, 404, path);
  }
  const dave = await as(t, url, "dave");
  for (const form of [{}, { decision: "" }, { decision: "approved" }]) {
    t.equal((await dave.post(page, form)).status, 400);
  }
  for (const password of ["", "wrong horse", passwordOf("bot")]) {
    t.equal((await dave.post(page, { decision: "approve", password })).status, 401);
  }
  const long = await dave.post(page, { decision: "deny", reason: "x".repeat(501) });
  t.match(long, { status: 400, text: "A reason has at most 500 characters" });
  await gateway.edit((text) =>
    text.replace('username = "dave"', 'username = "dave"\ndisabled = true'),
  );
  await untilGone(dave, page);
  t.match(await ask(bot, removal, id), { status: 202 }, "it still waits");
});

t.test("an onlooker sees no query that touches a database that they may not read", async (t) => {
  const also = '[[acl]]\nusername = "bot"\ndatabase = "side"\nrole = "ReadWrite"\n';
  const { ask, bot, url } = await open(t, `approvers = ["wim"]\n${also}`);
  const insert = (note: string) => ({
    Insert: { database: "side", table: "notes", values: [{ note }] },
  });
  const mixed = idIn(await ask(bot, { Batch: [removal, insert("secret")] }));
  const long = Array.from({ length: 16 }, () => removal);
  const unlisted = idIn(await ask(bot, { Batch: [...long, insert("secret")] }));
  const own = idIn(await ask(bot, { Batch: [removal, update] }));
  const [dave, wim, root] = [
    await as(t, url, "dave"),
    await as(t, url, "wim"),
    await as(t, url, "root"),
  ];
  for (const id of [mixed, unlisted]) {
    const seen = await dave.get(`/approvals/${id}`);
    t.match(seen, { status: 200, text: "The query is hidden" });
    t.notMatch(seen.text, "secret");
    for (const client of [wim, root])
      t.match((await client.get(`/approvals/${id}`)).text, "secret");
  }
  t.match((await dave.get(`/approvals/${own}`)).text, "Exactly these bytes");
});

t.test("what a stranger can write is text, and what cannot be seen is spelt out", async (t) => {
  const { ask, bot, root, url } = await open(t);
  const state = "<img src=x onerror=alert(1)>\u202e</pre>";
  await ask(root, { Insert: { ...orders, values: [{ id: 77, state }] } });
  const id = idIn(
    await ask(bot, { Delete: { ...orders, where: { column: "state", cmp: "=", value: state } } }),
  );
  const dave = await as(t, url, "dave");
  const { text } = await dave.get(`/approvals/${id}`);
  t.match(text, "1 row would be deleted");
  t.notMatch(text, /<img src=x|\u202e/);
  t.equal(text.split("&lt;img src=x onerror=alert(1)&gt;\\u202e&lt;/pre&gt;").length, 3);
  await dave.post(`/approvals/${id}`, { decision: "deny", reason: state });
  t.notMatch((await dave.get("/approvals")).text, /<img src=x/);
  t.notMatch((await dave.get(`/approvals/${id}`)).text, /<img src=x/);
});

t.test("pending approvals of a kind are told apart by condition and rows", async (t) => {
  const { ask, bot, url } = await open(t);
  await ask(bot, removal);
  await ask(bot, removeOne(3));
  const both = { and: [removal.Delete.where, { not: { column: "id", cmp: "<", value: 5 } }] };
  await ask(bot, { Delete: { ...orders, where: both } });
  await ask(bot, update);
  const rowsOn = async (name: string) => {
    const client = await as(t, url, name);
    const { text } = await client.get("/approvals");
    t.match(text, '<meta http-equiv="refresh" content="30; url=/approvals?refresh=auto">');
    const rows = text.matchAll(/<tr role="row"><td.*?<\/tr>/gs);
    return [...rows].map(([row]) =>
      textOf(row)
        .replace(/ \d{4}-.*/, "")
        .trim(),
    );
  };
  const asked = "bot /query";
  const queries = [
    `Update main.orders set state = "gone" where id &gt; 12 ${asked}`,
    `Delete main.orders where state = "old" and not (id &lt; 5) ${asked}`,
    `Delete main.orders where id = 3 ${asked}`,
    `Delete main.orders where state = "old" ${asked}`,
  ];
  const counts = [2, 7, 1, 12];
  t.strictSame(
    await rowsOn("dave"),
    queries.map((query, at) => `${query} ${counts[at]}`),
  );
  t.strictSame(
    await rowsOn("bot"),
    queries.map((query) => `${query} not counted`),
    "its asker is shown no rows",
  );
});
