/** Previews for approvers. */
import { readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { auditLines } from "../../src/core/observe/audit-line.ts";
import { visibleJson } from "../../src/features/approvals/preview.ts";
import { groupGrant } from "../access/kit.ts";
import { auditFile, consoleConfig, signedIn } from "../console/kit.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { nightly } from "../kit/nightly.ts";
import { runWarm } from "../kit/warm-command.ts";
import { connectStateless } from "../mcp/clients.ts";
import { TestIssuer } from "../oauth/issuer.ts";
import { careful, idIn, openCareful, orders, removal, removeOne } from "./kit.ts";

const { ask, run, bot, root, count, gateway } = await openCareful(t);

const jsonLines = (text: string) =>
  text
    .split("\n")
    .filter(Boolean)
    .map((line): Record<string, unknown> => JSON.parse(line));

const set = (id: number, state: string) => ({
  Update: { ...orders, set: { state }, where: { column: "id", cmp: "=", value: id } },
});
const stale = { status: 409, body: { code: "approval_stale" } };

t.test("an approver sees the rows, and nothing changes", async (t) => {
  const id = idIn(await ask(bot, removal));
  const shown = await run("show", id);
  t.match(shown, {
    query: JSON.stringify(removal),
    preview: { affected: 12, before: { length: 12, 0: { id: 0, state: "old" } }, after: [] },
  });
  t.equal(await count(), 15);
  const { stdout, code } = await runWarm(gateway.home, ["approvals", "show", id]);
  t.equal(code, 0);
  t.match(
    stdout,
    /Delete main.orders\n.*DELETE by the entry for main; approvers: everyone who may grant on/,
  );
  t.match(
    stdout,
    /\nPreview: 12 rows. Effects on other tables are not shown.\nbefore:\n {2}\{"id":0,/,
  );
  await run("deny", id);
});

t.test("characters that show nothing are spelled out", async (t) => {
  const spelled: [character: string, text: string][] = [
    ["\u3164", "\\u3164"],
    ["\u034f", "\\u034f"],
    ["\ufe0f", "\\ufe0f"],
    ["\u{e0100}", "\\udb40\\udd00"],
    ["\u115f", "\\u115f"],
    ["\uffa0", "\\uffa0"],
    ["\u2800", "\\u2800"],
    ["\u202e", "\\u202e"],
    ["\ud800", "\\ud800"],
    ["\u2028", "\\u2028"],
  ];
  for (const [character, text] of spelled) {
    t.equal(visibleJson(`"x${character}y"`), `"x${text}y"`);
  }
  const visible = '"Zürich 北京 \u{1f600} a\u0301"\n\t';
  t.equal(visibleJson(visible), visible);
});

t.test("an approver sees whole rows, whatever columns the query returns", async (t) => {
  const id = idIn(await ask(bot, { Delete: { ...removal.Delete, returning: ["id"] } }));
  const shown = await run("show", id);
  t.match(shown, { preview: { affected: 12, before: { 0: { id: 0, state: "old" } } } });
  await run("deny", id);
});

t.test("an approval does not cover rows that have changed, gone or appeared", async (t) => {
  const insert = { Insert: { ...orders, values: [{ id: 20, state: "old" }] } };
  const remove = removeOne(20);
  const changes: [before: object, undo: object][] = [
    [set(3, "new"), set(3, "old")],
    [insert, remove],
  ];
  for (const [change, undo] of changes) {
    const id = idIn(await ask(bot, removal));
    await run("show", id);
    await run("approve", id);
    const rows = await count();
    t.equal((await ask(root, change)).status, 200);
    const changed = await count();
    t.match(await ask(bot, removal, id), stale);
    t.equal(await count(), changed, "nothing was removed");
    t.match(await ask(bot, removal, id), { body: { code: "approval_used" } }, "it is used");
    await ask(root, undo);
    t.equal(await count(), rows);
  }
});

const urls = {
  SQLite: async () => undefined,
  PostgreSQL: async () => {
    const server = await sharedServer();
    const name = await server.createDatabase();
    await server.sql("create schema main", name);
    return server.url(name);
  },
};
for (const [database, urlOf] of Object.entries(urls)) {
  const options = database === "SQLite" ? {} : nightly;
  t.test(`a Preview keeps to the requester's row filters (${database})`, options, async (t) => {
    const upstream = await urlOf();
    const more = careful('row_filter = [{ column = "id", cmp = "<", value = 5 }]');
    const filtered = await openCareful(t, { more, ...(upstream && { upstream }) });
    const { ask, bot, run, count } = filtered;
    const nested = { and: [removal.Delete.where, { column: "id", cmp: ">", value: 1 }] };
    const queries = [
      { query: { Delete: { ...orders, where: nested } }, ids: [2, 3, 4] },
      { query: { Delete: { ...orders, where: null } }, ids: [0, 1] },
    ];
    for (const { query, ids } of queries) {
      const id = idIn(await ask(bot, query));
      const before = ids.map((one) => ({ id: one }));
      t.match(await run("show", id), { preview: { affected: ids.length, before } });
      await run("approve", id);
      const answer = await ask(bot, query, id);
      t.match(answer, { status: 200, body: { affected: ids.length } });
    }
    t.equal(await count(), 10);
  });
}

t.test("other rows may change before an approved query runs", async (t) => {
  const id = idIn(await ask(bot, removal));
  await run("show", id);
  await run("approve", id);
  await ask(root, set(13, "other"));
  t.match(await ask(bot, removal, id), { status: 200, body: { affected: 12 } });
  t.equal(await count(), 3);
});

t.test("an approval without a preview covers any rows", async (t) => {
  const query = { Delete: { ...orders, where: { column: "id", cmp: ">", value: 13 } } };
  const id = idIn(await ask(bot, query));
  await run("approve", id);
  await ask(root, set(14, "unseen"));
  t.match(await ask(bot, query, id), { status: 200 });
});

t.test("`audit --failed` finds what the engine refused, and no query that waits", async (t) => {
  const more = careful("max_changes = 2\nmax_rows = 1");
  const limited = await openCareful(t, { more, config: auditFile });
  const { ask, run, bot, root, gateway } = limited;
  const first = { column: "id", cmp: "<", value: 2 };
  const change = { ...orders, set: { state: "x" }, where: first };
  const all = { ...change, where: null };
  t.match(await ask(bot, { Update: all }), { status: 409 });
  t.match(await ask(bot, { Update: { ...change, returning: ["id"] } }), { status: 409 });
  const mcp = await connectStateless(t, `${gateway.url}/mcp`, bot);
  t.match(await mcp.call("update", all), { isError: true, text: /too_many_changes/ });
  const remove = removeOne(7);
  const id = idIn(await ask(bot, remove));
  await run("show", id);
  await run("approve", id);
  t.equal((await ask(root, remove)).status, 200);
  t.match(await ask(bot, remove, id), stale);
  let found: unknown[] = [];
  await eventually("all denials are written", async () => {
    const { stdout } = await runWarm(gateway.home, ["audit", "--failed", "--json"]);
    found = jsonLines(stdout);
    return found.length === 4;
  });
  const denied = { level: "warn", user: "bot", decision: "deny" };
  t.match(found, [
    { ...denied, via: "query", reason: "too_many_changes", status: 409 },
    { ...denied, via: "query", reason: "too_many_rows", status: 409 },
    { ...denied, via: "mcp", reason: "too_many_changes", status: 200, toolStatus: 409 },
    { ...denied, reason: "approval_stale", approval: id, status: 409 },
  ]);
});

t.test("changes wait while a command shows a Preview", async (t) => {
  const { ask, bot, root, run } = await openCareful(t);
  for (let start = 1000; start < 95_000; start += 47_000) {
    const values = Array.from({ length: 47_000 }, (_, at) => ({ id: start + at, state: "large" }));
    t.match(await ask(root, { Insert: { ...orders, values } }), { status: 200 });
  }
  const everything = { Delete: { ...orders, where: { column: "id", cmp: ">", value: 0 } } };
  const id = idIn(await ask(bot, everything));
  let isShowing = true;
  const shown = run("show", id).finally(() => (isShowing = false));
  for (let changes = 0; isShowing; changes++) {
    t.match(await ask(root, set(0, `state ${changes}`)), { status: 200 });
  }
  t.match(await shown, { id });
});

t.test("rows that an approver is shown are a line of the audit", async (t) => {
  const pages = await consoleConfig(auditFile);
  const more = careful('approvers = ["dave"]');
  const shown = await openCareful(t, { more, config: pages.config });
  const { ask, run, bot, root, gateway } = shown;
  const id = idIn(await ask(bot, removal));
  const dave = await signedIn(pages.url, "dave");
  t.match((await dave.get("/approvals")).text, "12", "a count is no row");
  t.match((await dave.get(`/approvals/${id}`)).text, "12 rows would be deleted");
  await run("show", id);
  const other = idIn(await ask(bot, removeOne(14)));
  await ask(root, { Delete: { ...orders, where: { column: "id", cmp: "=", value: 14 } } });
  const rita = await signedIn(pages.url, "root");
  t.match((await rita.get(`/approvals/${id}`)).status, 200);
  const lines = () => {
    const all = jsonLines(readFileSync(path.join(gateway.home, "audit.log"), "utf8"));
    return all.filter(({ msg }) => msg === "approval_shown");
  };
  await eventually("both are written", async () => lines().length >= 2);
  const operations = [{ operation: "Delete", database: "main", tables: ["orders"] }];
  const common = { approval: id, requester: "bot", operations, tables: ["main.orders"], rows: 12 };
  const found = lines();
  t.match(found, [
    { ...common, user: "dave", author: { kind: "console", name: "dave" } },
    { ...common, author: { kind: "cli" } },
  ]);
  t.equal(found.length, 2, "root is no approver and sees no rows");
  t.not(other, id);
  for (const line of found) t.ok(auditLines.approval_shown.safeParse(line).success);
  t.notMatch(JSON.stringify(found), /"old"/);
  const { stdout } = await runWarm(gateway.home, ["audit", "--user", "dave", "--table", "orders"]);
  t.match(stdout, /dave \(console\) {2}approval_shown {2}.* {2}Delete main\.orders {2}rows 12/);
  const requested = await runWarm(gateway.home, ["audit", "--user", "bot", "--table", "orders"]);
  t.equal(requested.stdout.match(/approval_shown/g)?.length, 2, "also found by the requester");
});

t.test("an approver sees the rows by groups and attributes of the user's token", async (t) => {
  const staff = await TestIssuer.start(t);
  const plain = await TestIssuer.start(t);
  const groups = 'groups_claim = "groups"\n';
  const issuers =
    staff.section(`${groups}attribute_claims = { most = "most" }`) + plain.section(groups, "plain");
  const { config, url } = await consoleConfig(issuers);
  const limits =
    'require_approval = ["DELETE"]\nrow_filter = [{ column = "id", cmp = "<", value = ';
  const more = [
    '[[groups]]\nname = "wide"\nmembers = ["staff:alice"]\n\n',
    groupGrant("wide", "main", "ReadWrite", `${limits}10 }]`),
    groupGrant("plain:all", "main", "ReadWrite", 'require_approval = ["DELETE"]'),
    groupGrant("staff:ops", "main", "ReadWrite", `tables = ["orders"]\n${limits}"@most" }]`),
    '[[boundaries]]\nvia = "query"\ngroup = "staff:ops"\nmax_changes = 9\n\n',
  ].join("");
  const { ask, run, gateway } = await openCareful(t, { more, config });
  const alice = await staff.sign("gatehouse", { claims: { groups: ["ops"], most: 7 } });
  const id = idIn(await ask(alice, removal));
  t.match(await run("show", id), { query: JSON.stringify(removal), preview: { affected: 7 } });
  const dave = await signedIn(url, "dave");
  const { text } = await dave.get(`/approvals/${id}`);
  t.match(text, "7 rows would be deleted");
  t.match(text, "The row filter of staff:alice is added");
  t.match(text, "beyond 9 changed rows");
  t.match(text, `exactly these ${JSON.stringify(removal).length} bytes`);
  const bob = await plain.sign("gatehouse", { claims: { sub: "bob", groups: ["all"] } });
  const other = idIn(await ask(bob, removeOne(14)));
  t.match(await run("show", other), { preview: { affected: 1 } }, "groups alone");
  await run("approve", id);
  const file = readFileSync(path.join(gateway.home, "approvals.sqlite"));
  t.notOk(file.includes('"ops"'), "the groups are encrypted with the query");
  t.match(await ask(alice, removal, id), { status: 200, body: { affected: 7 } });
});

t.test("the audit counts rows for groups, users of an issuer, boundaries and MCP", async (t) => {
  const staff = await TestIssuer.start(t);
  const config = `${auditFile}${staff.section()}`;
  const filter = (most: number) => `row_filter = [{ column = "id", cmp = "<", value = ${most} }]`;
  const more = [
    '[[groups]]\nname = "bots"\nmembers = ["bot", "staff:alice"]\n\n',
    groupGrant("bots", "main", "ReadWrite", filter(7)),
    '[[boundaries]]\nvia = "query"\nrequire_approval = ["DELETE"]\n\n',
    '[[boundaries]]\nvia = "mcp"\nrequire_approval = ["DELETE"]\nmax_rows = 3\n\n',
  ].join("");
  const { ask, run, bot, gateway } = await openCareful(t, { more, config });
  const alice = await staff.sign("gatehouse");
  const mcp = await connectStateless(t, `${gateway.url}/mcp`, bot);
  const { structured } = await mcp.call("delete", removal.Delete);
  const pending = JSON.stringify(structured?.approval);
  const ids = [JSON.parse(pending).id, idIn(await ask(alice, removal))];
  for (const id of ids) await run("show", id);

  const read = { database: "main", from: "orders", columns: ["id"] };
  const body = JSON.stringify({ Select: read });
  const csv = { "content-type": "application/json", accept: "text/csv" };
  for (const token of [bot, alice]) {
    const headers = { ...csv, authorization: `Bearer ${token}` };
    const { status } = await gateway.request("/query", { method: "POST", headers, body });
    t.equal(status, 200);
  }
  t.match(await mcp.call("select", read), { structured: { rows: { length: 3 } } });
  const lines = async (...flags: string[]) => {
    const { stdout } = await runWarm(gateway.home, ["audit", "--json", ...flags]);
    return jsonLines(stdout).filter(({ rows }) => rows !== undefined);
  };
  await eventually("all is written", async () => (await lines()).length === 5);
  const all = await lines();
  const shown = { tables: ["main.orders"], author: { kind: "cli" } };
  t.match(
    all.filter(({ msg }) => msg === "approval_shown"),
    [
      { ...shown, approval: ids[0], requester: "bot", rows: 7 },
      { ...shown, approval: ids[1], requester: "staff:alice", rows: 7 },
    ],
  );
  const entry = "main (group bots)";
  const common = { operations: [{ entry }] };
  // A command's line is written when the gateway finds it.
  const key = ({ msg, requester, user, via }: Record<string, unknown>) =>
    `${msg} ${requester ?? user} ${via}`;
  const found = await lines("--group", "bots");
  t.match(Object.fromEntries(found.map((line) => [key(line), line])), {
    "approval_shown bot undefined": shown,
    "approval_shown staff:alice undefined": shown,
    "request bot query": { ...common, format: "csv", rows: 7 },
    "request staff:alice query": { ...common, format: "csv", rows: 7 },
    "request bot mcp": { ...common, format: undefined, rows: 3 },
  });
});
