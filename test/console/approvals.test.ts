import t, { type Test } from "tap";
import {
  type Careful,
  idIn,
  openCareful,
  orders,
  removal,
  removeOne,
  step,
} from "../approvals/kit.ts";
import { passwordOf, succeed } from "../journeys/staff.ts";
import { eventually } from "../kit/eventually.ts";
import {
  auditFile,
  type ConsoleClient,
  consoleConfig,
  lookAt,
  openSignedIn,
  signedIn,
  textOf,
} from "./kit.ts";

const update = {
  Update: { ...orders, set: { state: "gone" }, where: { column: "id", cmp: ">", value: 12 } },
};

/** A gateway with a console, where deletes and updates by `bot` require approval. */
async function open(t: Test, more = ""): Promise<Careful & { url: string }> {
  const { config, url } = await consoleConfig(more);
  const opened = await openCareful(t, { config });
  await limit(opened);
  return { ...opened, url };
}

const careful = { role: "ReadWrite", require_approval: ["DELETE", "UPDATE"] };

/** Replaces the entry of `bot`, or another one. */
async function limit(
  { gateway, root }: Careful,
  more: object = {},
  entry: object = careful,
  place = "bot/main",
): Promise<void> {
  await succeed(gateway.send("PUT", `/api/access/${place}`, { ...entry, ...more }, root));
}

/** Clients of these users. */
function signedInAs(_t: Test, url: string, ...names: string[]): Promise<ConsoleClient[]> {
  return Promise.all(names.map((name) => signedIn(url, name)));
}

const narrowed = {
  row_filter: [{ column: "state", cmp: "=", value: "old" }],
  max_changes: 50,
};

const approve = (name: string) => ({ decision: "approve", password: passwordOf(name) });

const plain = await open(t);
const { ask, bot, url, gateway, root } = plain;
/** Its audit is shown, and only two tests ask for approvals. */
const audited = await open(t, auditFile);

t.test("an approver sees the rows in a browser and decides by keyboard", async (t) => {
  const page = await openSignedIn(t, url, "/approvals", "dave");
  await page.getByText("No approvals are waiting for you.").waitFor();
  await lookAt(t, page, "approvals-none");
  const all = await ask(bot, removal);
  t.match(all.body.approval, { url: `${url}/approvals/${idIn(all)}` });
  const changed = idIn(await ask(bot, update));
  const id = idIn(await ask(bot, removeOne(0)));
  await page.reload();
  await lookAt(t, page, "approvals");
  await page.getByRole("link", { name: "Update main.orders" }).first().click();
  await page.getByText("2 rows would be updated").waitFor();
  await page.locator("del", { hasText: "new" }).first().waitFor();
  await lookAt(t, page, "approval-update");
  await page.getByLabel("Reason").fill("not before the audit");
  await page.keyboard.press("Enter");
  await page.getByText("not before the audit").waitFor();
  await lookAt(t, page, "approval-denied");
  t.match(await ask(bot, update, changed), {
    status: 403,
    body: { code: "approval_denied", message: /: not before the audit$/ },
  });
  await page.goto(`${url}/approvals/${id}`);
  await page.getByText("1 row would be deleted").waitFor();
  await page.getByLabel("Your password").fill("wrong horse");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").getByText("Incorrect password").waitFor();
  await page.getByLabel("Your password").fill(passwordOf("dave"));
  await page.keyboard.press("Enter");
  await page.getByText("for the rows shown").waitFor();
  const rows = await plain.count();
  t.match(await ask(bot, removeOne(0), id), { status: 200, body: { affected: 1 } });
  t.equal(await plain.count(), rows - 1);
  await page.goto(`${url}/approvals/${idIn(all)}`);
  await lookAt(t, page, "approval");
});

t.test("a second approver sees what was decided, and by whom", async (t) => {
  await limit(plain, { approvers: ["dave", "wim"] });
  await limit(plain, { columns: ["id"] }, { role: "ReadOnly" }, "wim/main/orders");
  const [dave, wim] = await Promise.all([signedIn(url, "dave"), signedIn(url, "wim")]);
  const page = `/approvals/${idIn(await ask(bot, removal))}`;
  t.match((await dave.get(page)).text, /name="touched" value="[0-9a-f]{64}"/);
  const partial = (await wim.get(page)).text;
  t.notMatch(partial, 'name="touched"', "no rows for a user who may not read the whole table");
  t.match(partial, "you may not read all of main.orders");
  const denied = await dave.post(page, { decision: "deny", reason: "not\ntoday" });
  t.equal(denied.status, 303);
  const late = await wim.post(page, approve("wim"));
  t.equal(late.status, 409);
  t.match(late.text, /Already denied by dave at \d\d:\d\d:\d\d UTC/);
  t.match(late.text, "not today");
  const id = page.slice("/approvals/".length);
  t.match(await ask(bot, removal, id), { body: { code: "approval_denied" } });
  t.match(await step(gateway, id, "approval_denied"), {
    author: { kind: "console", name: "dave" },
    reason: "not today",
  });
  await succeed(gateway.send("DELETE", "/api/access/wim/main/orders", undefined, root));
});

t.test("only approvers and administrators can review a decided query", async (t) => {
  await limit(plain, { approvers: ["wim"] });
  const [denied, approved] = [idIn(await ask(bot, update)), idIn(await ask(bot, removal))];
  const reviewers = await signedInAs(t, url, "wim", "root");
  const others = await signedInAs(t, url, "dave", "bot");
  for (const client of others) {
    t.match((await client.get(`/approvals/${denied}`)).text, "<h2>Query</h2>");
  }
  await reviewers[0]?.post(`/approvals/${denied}`, { decision: "deny" });
  await reviewers[0]?.post(`/approvals/${approved}`, approve("wim"));
  for (const id of [denied, approved]) {
    for (const client of reviewers) {
      const { text } = await client.get(`/approvals/${id}`);
      t.match(textOf(text), /The decision applies to exactly these \d+ bytes\./);
      t.match(text, "&quot;where&quot;");
      t.notMatch(text, /name="decision"|<h2>Rows/);
    }
    for (const client of others) {
      const { text } = await client.get(`/approvals/${id}`);
      t.match(text, "The query is hidden: only approvers and administrators can review it.");
      t.notMatch(text, "&quot;where&quot;");
    }
  }
});

t.test("an observer cannot see a query on a database that they may not read", async (t) => {
  await limit(plain, { approvers: ["wim"] });
  await limit(plain, {}, { role: "ReadWrite" }, "bot/side");
  const insert = (note: string) => ({
    Insert: { database: "side", table: "notes", values: [{ note }] },
  });
  const mixed = idIn(await ask(bot, { Batch: [removal, insert("secret")] }));
  const long = Array.from({ length: 16 }, () => removal);
  const unlisted = idIn(await ask(bot, { Batch: [...long, insert("secret")] }));
  const own = idIn(await ask(bot, { Batch: [removal, update] }));
  const [dave, ...others] = await signedInAs(t, url, "dave", "wim", "root");
  for (const id of [mixed, unlisted]) {
    const page = await dave?.get(`/approvals/${id}`);
    t.match(page, { status: 200, text: "The query is hidden" });
    t.notMatch(page?.text, "secret");
    for (const client of others) t.match((await client.get(`/approvals/${id}`)).text, "secret");
  }
  t.match((await dave?.get(`/approvals/${own}`))?.text, "<h2>Query</h2>");
});

t.test("rows and reasons are escaped, and invisible characters are spelled out", async (t) => {
  await limit(plain);
  const state = "<img src=x onerror=alert(1)>\u202e</pre>";
  await ask(root, { Insert: { ...orders, values: [{ id: 77, state }] } });
  const id = idIn(
    await ask(bot, { Delete: { ...orders, where: { column: "state", cmp: "=", value: state } } }),
  );
  const dave = await signedIn(url, "dave");
  const { text } = await dave.get(`/approvals/${id}`);
  t.match(text, "1 row would be deleted");
  t.notMatch(text, /<img src=x|\u202e/);
  t.equal(text.split("&lt;img src=x onerror=alert(1)&gt;\\u202e&lt;/pre&gt;").length, 4);
  await dave.post(`/approvals/${id}`, { decision: "deny", reason: state });
  t.notMatch((await dave.get("/approvals")).text, /<img src=x/);
  t.notMatch((await dave.get(`/approvals/${id}`)).text, /<img src=x/);
});

t.test("the list shows conditions and row counts of pending approvals", async (t) => {
  const { ask, bot, url } = audited;
  await ask(bot, removal);
  await ask(bot, removeOne(3));
  const both = { and: [removal.Delete.where, { not: { column: "id", cmp: "<", value: 5 } }] };
  await ask(bot, { Delete: { ...orders, where: both } });
  await ask(bot, update);
  const rowsOn = async (name: string) => {
    const client = await signedIn(url, name);
    const { text } = await client.get("/approvals");
    t.match(text, '<meta http-equiv="refresh" content="30; url=/approvals?refresh=auto">');
    const rows = text.matchAll(/<tr role="row"><td.*?<\/tr>/gs);
    return [...rows].map(([row]) =>
      textOf(row)
        .replace(/ \d{4}-.*/, "")
        .trim(),
    );
  };
  const source = "bot /query";
  const queries = [
    `Update main.orders set state to "gone" in the rows of main.orders where id &gt; 12 ${source}`,
    `Delete main.orders delete the rows of main.orders where state is "old" and not (id &lt; 5) ${source}`,
    `Delete main.orders delete the rows of main.orders where id is 3 ${source}`,
    `Delete main.orders delete the rows of main.orders where state is "old" ${source}`,
  ];
  const counts = [2, 7, 1, 12];
  t.strictSame(
    await rowsOn("dave"),
    queries.map((query, at) => `${query} ${counts[at]}`),
  );
  t.strictSame(
    await rowsOn("bot"),
    queries.map((query) => `${query} not counted`),
    "the requester sees no rows",
  );
});

t.test("an approval says in words what will happen, and shows readable JSON", async (t) => {
  await limit(plain, narrowed);
  const id = idIn(
    await ask(bot, { Delete: { ...orders, where: { column: "id", cmp: "<", value: 5 } } }),
  );
  const batch = {
    Batch: [
      removeOne(1),
      { Update: { ...orders, set: { state: "old" }, where: { column: "id", cmp: "=", value: 2 } } },
    ],
  };
  const both = idIn(await ask(bot, batch));
  const [dave, bots] = await signedInAs(t, url, "dave", "bot");
  const { text = "" } = (await dave?.get(`/approvals/${id}`)) ?? {};
  t.match(textOf(text), "bot will delete the rows of main.orders where id &lt; 5 : 4 rows now.");
  t.match(
    textOf(text),
    'The row filter of bot is added for main.orders: only rows where state is "old".',
  );
  t.match(textOf(text), "The database refuses it beyond 50 changed rows.");
  t.match(text, "{\n  &quot;Delete&quot;: {\n    &quot;database&quot;: &quot;main&quot;,");
  const own = textOf((await bots?.get(`/approvals/${id}`))?.text ?? "");
  t.match(own, "bot will delete the rows of main.orders where id &lt; 5 .");
  t.notMatch(own, /rows now|row filter/, "the requester sees neither rows nor entries");
  const listed = textOf((await dave?.get(`/approvals/${both}`))?.text ?? "");
  t.match(
    listed,
    'bot will do this in one Batch, all of it or nothing: delete the rows of main.orders where id is 1 set state to "old" in the rows of main.orders where id is 2',
  );
  const page = await openSignedIn(t, url, `/approvals/${both}`, "dave");
  await lookAt(t, page, "approval-words");
  await gateway.send("PUT", "/api/access/bot/main", { role: "ReadOnly", max_rows: 9 }, root);
  await eventually("the query would be denied", async () => {
    const now = textOf((await dave?.get(`/approvals/${id}`))?.text ?? "");
    return now.includes("It would be denied now, also when approved: DELETE is not among");
  });
});

t.test("an approval of several megabytes holds up no other request", async (t) => {
  await limit(plain);
  // The spelling of the last number must be kept, which makes parsing slow.
  const ids = `${"1,".repeat(2_000_000)}1e0`;
  const unseen = "\u3164".repeat(300_000);
  const removeAll = (where: string) =>
    `{"Delete":{"database":"main","table":"orders","where":${where}}}`;
  const queries = [
    removeAll(`{"column":"id","cmp":"IN","value":[${ids}]}`),
    removeAll(`{"and":[{"column":"state","cmp":"=","value":"${unseen}\u{1f600}"}]}`),
  ];
  const [dave] = await signedInAs(t, url, "dave");
  for (const query of queries) {
    const id = idIn(await ask(bot, query));
    const read = async () => {
      const list = (await dave?.get("/approvals"))?.text ?? "";
      return { list, page: (await dave?.get(`/approvals/${id}`))?.text ?? "" };
    };
    let list = "";
    let page = "";
    // Other load on the machine only adds time.
    let longest = Number.POSITIVE_INFINITY;
    for (let tries = 0; longest >= 1500 && tries < 5; tries++) {
      let isOver = false;
      const reading = read().finally(() => (isOver = true));
      let slowest = 0;
      while (!isOver) {
        const start = performance.now();
        await gateway.request("/query", { method: "POST", body: "{}" });
        slowest = Math.max(slowest, performance.now() - start);
      }
      ({ list, page } = await reading);
      longest = Math.min(longest, slowest);
    }
    t.match(list, `run a query of ${Buffer.byteLength(query)} bytes, which is too long to tell`);
    t.match(page, `run a query of ${Buffer.byteLength(query)} bytes, which is too long to tell`);
    t.match(page, "The query below is whole.");
    const whole = query.replaceAll('"', "&quot;").replaceAll("\u3164", "\\u3164");
    t.ok(page.includes(`<pre>${whole}</pre>`), "the page has every byte");
    t.ok(longest < 1500, `another request took ${longest} ms`);
  }
});

t.test("an approver who may not see an entry learns nothing of its contents", async (t) => {
  await limit(plain, { ...narrowed, approvers: ["wim"] });
  const id = idIn(await ask(bot, removeOne(1)));
  const [wim, admin] = await signedInAs(t, url, "wim", "root");
  const told = textOf((await wim?.get(`/approvals/${id}`))?.text ?? "");
  t.match(told, "The row filter of bot is added for main.orders.");
  t.notMatch(told, /only rows where|beyond 50/);
  const all = textOf((await admin?.get(`/approvals/${id}`))?.text ?? "");
  t.match(all, 'The row filter of bot is added for main.orders: only rows where state is "old".');
  t.match(all, "The database refuses it beyond 50 changed rows.");
  const missing = { column: "state", cmp: "=", value: "@secret" };
  await limit(plain, { row_filter: [missing] }, { role: "ReadWrite" });
  let now = "";
  await eventually("the query would be denied", async () => {
    now = textOf((await wim?.get(`/approvals/${id}`))?.text ?? "");
    return now.includes("It would be denied now, also when approved.");
  });
  t.notMatch(now, "@secret");
  const why = textOf((await admin?.get(`/approvals/${id}`))?.text ?? "");
  t.match(why, "It would be denied now, also when approved: Rows are limited by");
});

t.test("the audit names who approved or denied, and who requested", async (t) => {
  const { ask, bot, url } = audited;
  const dave = await signedIn(url, "dave");
  const denied = idIn(await ask(bot, update));
  await dave.post(`/approvals/${denied}`, { decision: "deny" });
  const approved = idIn(await ask(bot, removal));
  await dave.post(`/approvals/${approved}`, approve("dave"));
  t.equal((await ask(bot, removal, approved)).status, 200);
  let text = "";
  await eventually("the use is in the audit", async () => {
    ({ text } = await dave.get("/audit?user=bot"));
    return textOf(text).includes("used approval");
  });
  const lines = textOf(text.replaceAll("</tr>", "\n"));
  t.match(lines, / dave requested by bot, console Update main\.orders denied /);
  t.match(lines, / dave requested by bot, console Delete main\.orders approved /);
  t.match(lines, / bot approved by dave Delete main\.orders Details of (?:(?!Delete).)* used /);
  t.match(lines, / bot Delete main\.orders Details of (?:(?!Delete).)* asked /);
});

t.test("a requester cannot decide under another name of the same person", async (t) => {
  await limit(plain, { approvers: ["dave", "root"] });
  const page = `/approvals/${idIn(await ask(bot, removal))}`;
  const [dave] = await signedInAs(t, url, "dave");
  t.match((await dave?.get(page))?.text, /name="decision"/);
  const patched = await gateway.send("PATCH", "/api/users/bot", { same_as: "dave" }, root);
  t.match(patched, { status: 200, body: { user: { username: "bot", same_as: "dave" } } });
  const own = await dave?.get(page);
  t.match(own?.text, "You requested this, so another approver must decide");
  t.notMatch(own?.text, /name="decision"|Rows/);
  t.equal((await dave?.post(page, approve("dave")))?.status, 403);
  const [admin] = await signedInAs(t, url, "root");
  for (const [name, other] of [
    ["bot", "dave"],
    ["dave", "bot"],
  ] as const) {
    const { text } = (await admin?.get(`/access/user?user=${name}`)) ?? {};
    t.match(text, `Same person as <bdi>${other}</bdi>`, name);
  }
  await succeed(gateway.send("PATCH", "/api/users/bot", { same_as: null }, root));
});

t.test("a new user of a name does not see what an earlier one requested", async (t) => {
  const own = await open(t);
  const id = idIn(await own.ask(own.bot, removal));
  await own.run("deny", id);
  const page = `/approvals/${id}`;
  const [before] = await signedInAs(t, own.url, "bot");
  t.match(await before?.get(page), { status: 200, text: /main\.orders/ });
  await succeed(own.gateway.send("DELETE", "/api/users/bot", undefined, own.root));
  const user = {
    username: "bot",
    password: passwordOf("bot"),
    database: "other",
    role: "ReadOnly",
  };
  t.equal((await own.gateway.send("POST", "/api/users", user, own.root)).status, 201);
  const [after, admin] = await signedInAs(t, own.url, "bot", "root");
  t.equal((await after?.get(page))?.status, 404);
  t.notMatch((await after?.get("/approvals"))?.text, /main\.orders/);
  t.match((await admin?.get("/approvals"))?.text, page, "an administrator does");
});

t.test("requesters and users without the right cannot decide", async (t) => {
  await limit(plain, { approvers: ["dave", "bot"] });
  const id = idIn(await ask(bot, removal));
  const page = `/approvals/${id}`;
  const bots = await signedIn(url, "bot");
  t.match((await bots.get("/approvals")).text, "For others to decide");
  const own = await bots.get(page);
  t.match(own.text, "You requested this, so another approver must decide");
  t.notMatch(own.text, /name="decision"|Rows/);
  t.equal((await bots.post(page, approve("bot"))).status, 403);
  t.equal((await bots.post(page, { decision: "deny" })).status, 403);
  const root = await signedIn(url, "root");
  t.match((await root.get(page)).text, /You are not an approver. Approvers: <bdi>dave, bot/);
  t.equal((await root.post(page, approve("root"))).status, 403, "not even an administrator");
  const wim = await signedIn(url, "wim");
  t.notMatch((await wim.get("/approvals")).text, id);
  t.equal((await wim.get(page)).status, 404);
  t.equal((await wim.post(page, approve("wim"))).status, 404);
  for (const path of ["/approvals/x", `/approvals/${id.replace(/^./, "z")}`, "/approvals/%00"]) {
    t.equal((await root.get(path)).status, 404, path);
  }
  const dave = await signedIn(url, "dave");
  for (const form of [{}, { decision: "" }, { decision: "approved" }]) {
    t.equal((await dave.post(page, form)).status, 400);
  }
  for (const password of ["", "wrong horse", passwordOf("bot")]) {
    t.equal((await dave.post(page, { decision: "approve", password })).status, 401);
  }
  const long = await dave.post(page, { decision: "deny", reason: "x".repeat(501) });
  t.match(long, { status: 400, text: "The reason may have at most 500 characters" });
  await gateway.edit((text) =>
    text.replace('username = "dave"', 'username = "dave"\ndisabled = true'),
  );
  await eventually("the session has ended", async () => (await dave.get(page)).status === 303);
  t.match(await ask(bot, removal, id), { status: 202 }, "it is still pending");
});
