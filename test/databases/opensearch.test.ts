import { setTimeout as delay } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import t, { type Test } from "tap";
import { type Answer, auditOf, temporaryHome } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";
import { openPreset } from "./kit/open.ts";
import { OpenSearchStub } from "./kit/opensearch.ts";

const narrowed = `
[[acl]]
username = "fay"
database = "main"
tables = ["logs-1"]
role = "ReadOnly"
row_filter = [{ column = "owner", cmp = "=", value = "x" }]

[[acl]]
username = "app"
database = "main"
role = "ReadWrite"
require_approval = ["DELETE"]

[[acl]]
username = "dan"
database = "main"
role = "DbAdmin"
require_approval = ["DELETE"]

[[acl]]
username = "wilma"
database = "main"
role = "ReadWrite"
require_approval = ["SELECT"]

[[acl]]
username = "nick"
database = "main"
role = "ReadOnly"

[[acl]]
username = "nick"
database = "main"
tables = ["secret"]
role = "None"

[[acl]]
username = "lars"
database = "main"
tables = ["logs-*"]
role = "ReadOnly"
`;

async function open(t: Test) {
  const stub = await OpenSearchStub.open(t);
  for (const index of ["logs-1", "logs-2", "secret", ".kibana"]) {
    const init = { method: "PUT", body: JSON.stringify({ t: index }) };
    await fetch(`${stub.url}/${index}/_doc/1`, init);
  }
  const grants = [
    "root * Owner",
    "rita main ReadOnly",
    "wanda main ReadWrite",
    "dora main DbAdmin",
  ];
  const people = ["fay", "app", "dan", "wilma", "nick", "lars"].map(
    (name) => `${name} elsewhere ReadOnly`,
  );
  const all = [...grants, ...people];
  const opened = await openPreset(t, "opensearch", stub.url, { grants: all, more: narrowed });
  stub.take();
  return { stub, ...opened };
}

/** Longer than the gateway remembers what a name means. */
const FORGOTTEN_MS = 1200;

const shared = await open(t);
t.beforeEach(() => void shared.stub.take());

t.test("every check of the suite holds", { timeout: 120_000 }, async (t) => {
  const stub = await OpenSearchStub.open(t);
  const flags = ["preset", "test", "opensearch", "--url", stub.url, "--json"];
  const { code, stdout, stderr } = await runCommand(temporaryHome(t), flags);
  t.equal(code, 0, stderr);
  const { checks } = JSON.parse(stdout);
  t.ok(checks.length > 700, "it checks something");
  for (const { title, holds, found } of checks) if (!holds) t.fail(title, { found });
  const left = await fetch(`${stub.url}/_resolve/index/*`);
  t.notMatch(await left.text(), "gatehouse_test_", "it leaves nothing behind");
});

t.test("a search is forwarded as it was sent, and its names are in the audit", async (t) => {
  const { stub, gateway, login } = shared;
  const body = '{"query": {"term": {"n": 9007199254740993}},\n "size": 1.50}';
  const token = await login("rita");
  const answer = await gateway.send("POST", "/logs-1/_search?size=2&q=a%20b", body, token);
  t.equal(answer.status, 200);
  const sent = stub.take().find(({ method }) => method === "POST");
  t.equal(sent?.body.toString(), body);
  t.equal(sent?.url, "/logs-1/_search?size=2&q=a%20b");
  t.equal(sent?.headers.authorization, undefined);
  t.match(await auditOf(gateway, answer), {
    user: "rita",
    decision: "allow",
    operations: [{ operation: "SELECT", database: "main", tables: ["logs-1"] }],
  });
  const denied = await gateway.get("/secret/_search", await login("lars"));
  t.match(denied, { status: 403, body: { code: "no_grant" } });
  t.match(await auditOf(gateway, denied), {
    user: "lars",
    decision: "deny",
    operations: [{ operation: "SELECT", database: "main", tables: ["secret"] }],
  });
});

t.test("all indexes are those that do not begin with a dot", async (t) => {
  const { stub, gateway, login } = shared;
  const token = await login("rita");
  const sent: readonly (readonly [asked: string, sent: string])[] = [
    ["/_search", "/*%2C-.*/_search"],
    ["/_all/_search?size=3", "/*%2C-.*/_search?size=3"],
    ["/*/_count", "/*%2C-.*/_count"],
    ["/*-1,logs-2/_mapping", "/*-1%2Clogs-2%2C-.*/_mapping"],
    ["/_cat/count", "/_cat/count/*%2C-.*"],
    ["/_cluster/health/_all", "/_cluster/health/*%2C-.*"],
    ["/_mapping/field/a%2Fb", "/*%2C-.*/_mapping/field/a%2Fb"],
    ["/*/_mapping/field/a%2Fb", "/*%2C-.*/_mapping/field/a%2Fb"],
  ];
  for (const [asked, url] of sent) {
    await gateway.get(asked, token);
    const found = stub.take().filter((one) => !/^\/(?:_resolve|$)/.test(one.url));
    t.strictSame(
      found.map((one) => one.url),
      [url],
      asked,
    );
  }
  const { body } = await gateway.get("/_search", token);
  t.notMatch(JSON.stringify(body), ".kibana");
});

t.test("a compressed bulk is forwarded inflated, and a denied one is not forwarded", async (t) => {
  const { stub, gateway, login } = shared;
  const lines = '{"index":{"_index":"logs-1","_id":"7"}}\n{"n":1.50}\n';
  const send = async (text: string, user: string) =>
    gateway.request("/_bulk", {
      method: "POST",
      headers: {
        "content-type": "application/x-ndjson",
        "content-encoding": "gzip",
        authorization: `Bearer ${await login(user)}`,
      },
      body: gzipSync(text),
    });
  t.equal((await send(lines, "wanda")).status, 200);
  const bulk = stub.take().find(({ url }) => url === "/_bulk");
  t.equal(bulk?.body.toString(), lines);
  t.equal(bulk?.headers["content-encoding"], undefined);
  const more = `${lines}{"delete":{"_index":"secret","_id":"1"}}\n`;
  t.match(await send(more, "lars"), { status: 403, body: { element: 0 } });
  t.strictSame(
    stub.take().filter(({ method }) => method !== "GET"),
    [],
  );
});

t.test("what cannot be kept is refused", async (t) => {
  const { gateway, login } = shared;
  const filtered = await gateway.get("/logs-1/_search", await login("fay"));
  t.match(filtered, { status: 403, body: { code: "not_narrowable" } });
  const app = await login("app");
  t.equal((await gateway.send("PUT", "/logs-1/_doc/2", {}, app)).status, 200);
  const removed = await gateway.send("DELETE", "/logs-1/_doc/2", undefined, app);
  t.match(removed, { status: 403, body: { code: "not_narrowable" } });
});

t.test("a script that may delete needs the right to delete", async (t) => {
  const { gateway, login } = shared;
  const dan = await login("dan");
  const script = { source: "ctx.op = 'delete'" };
  const update = '{"update":{"_index":"logs-1","_id":"1"}}';
  const deleting = [
    ["/logs-1/_update/1", { script }],
    ["/logs-1/_update_by_query", { query: { match_all: {} }, script }],
    ["/_bulk", `${update}\n${JSON.stringify({ script })}\n`],
  ] as const;
  for (const [path, body] of deleting) {
    const denied = await gateway.send("POST", path, body, dan);
    t.match(denied, { status: 403, body: { code: "not_narrowable" } }, path);
  }
  const others = [
    ["/logs-1/_update/1", { doc: { x: 1 } }],
    ["/logs-1/_update_by_query", { query: { match_all: {} } }],
    ["/logs-1/_search", { query: { script: { script } } }],
  ] as const;
  for (const [path, body] of others) {
    t.equal((await gateway.send("POST", path, body, dan)).status, 200, path);
  }
  const byDora = await gateway.send("POST", "/logs-1/_update/1", { script }, await login("dora"));
  t.equal(byDora.status, 200);
});

t.test("an update that answers with the document needs the right to read", async (t) => {
  const { gateway, login } = shared;
  const wilma = await login("wilma");
  const update = '{"update":{"_index":"logs-1","_id":"1"}}\n{"doc":{}}\n';
  for (const [path, body, status] of [
    ["/logs-1/_doc/1", undefined, 403],
    ["/logs-1/_update/1", { doc: {} }, 200],
    ["/logs-1/_update/1?_source=true", { doc: {} }, 403],
    ["/logs-1/_update/1?_source_includes=t", { doc: {} }, 403],
    ["/logs-1/_update/1", { doc: {}, _source: true }, 403],
    ["/_bulk", update, 200],
    ["/_bulk?_source=true", update, 403],
  ] as const) {
    const method = body === undefined ? "GET" : "POST";
    const answer = await gateway.send(method, path, body, wilma);
    t.equal(answer.status, status, `${path} ${answer.text}`);
    if (status === 403) t.equal(answer.body.code, "not_narrowable");
  }
});

t.test("a lookup that fails denies everybody", async (t) => {
  const { stub, gateway, login } = await open(t);
  const token = await login("dora");
  for (const status of [500, 401, 302]) {
    stub.lookupStatus = status;
    const answer = await gateway.get("/logs-1/_search", token);
    t.match(answer, { status: 502, body: { code: "upstream_broken" } }, String(status));
  }
  t.ok(stub.take().every(({ url }) => /^\/(?:_resolve|$)/.test(url)));
});

t.test("an alias means what it means now", async (t) => {
  const { stub, gateway, login } = await open(t);
  const lars = await login("lars");
  const dora = await login("dora");
  const add = (index: string) =>
    gateway.send("POST", "/_aliases", { actions: [{ add: { index, alias: "current" } }] }, dora);
  t.equal((await add("logs-1")).status, 200);
  t.equal((await gateway.get("/current/_search", lars)).status, 200);
  t.equal((await add("secret")).status, 200);
  await fetch(`${stub.url}/secret/_alias/shown`, { method: "PUT" });
  await delay(FORGOTTEN_MS);
  const denied = await gateway.get("/current/_search", lars);
  t.match(denied, { status: 403, body: { code: "no_grant" } });
  t.equal((await gateway.get("/current/_search", dora)).status, 200);
  const absent = await gateway.get("/newest/_search", lars);
  const { message } = denied.body;
  t.equal(message, String(absent.body.message).replace("newest", "current"), "as if it were none");
  const covered = await gateway.get("/shown/_search", await login("nick"));
  t.match(covered.body.message, "is an alias of a name");
});

t.test("an alias of an index of a data stream needs the right for all", async (t) => {
  const { stub, gateway, login } = shared;
  const backing = ".ds-secret-2026.11.29-000001";
  await fetch(`${stub.url}/${backing}/_doc/1`, { method: "PUT", body: '{"t":1}' });
  await fetch(`${stub.url}/${backing}/_alias/shown`, { method: "PUT" });
  const nick = await login("nick");
  for (const path of ["/shown/_search", "/show*/_search", "/logs-1,shown/_search"]) {
    const denied = await gateway.get(path, nick);
    t.match(denied, { status: 403, body: { code: "name_too_wide" } }, path);
  }
  t.equal((await gateway.get("/logs-1/_search", nick)).status, 200);
  const found = await gateway.get("/shown/_search", await login("rita"));
  t.equal(found.status, 200);
  t.match(found.text, backing);
  await fetch(`${stub.url}/${backing}`, { method: "DELETE" });
});

t.test("the path may contain a scroll, as some clients write it", async (t) => {
  const { stub, gateway, login } = shared;
  const lars = await login("lars");
  const scrolled = await gateway.send("POST", "/logs-1/_search?scroll=1m", {}, lars);
  const path = `/_search/scroll/${scrolled.body._scroll_id}`;
  const ask = async (method: string, token: string, query = "") => {
    stub.take();
    const { status } = await gateway.send(method, path + query, undefined, token);
    const sent = stub.take().find(({ url }) => url.startsWith("/_search/scroll"));
    return [status, sent?.url, sent?.headers["content-type"], sent?.body.toString()];
  };
  const up = (query: string, body: RegExp) => [
    200,
    `/_search/scroll${query}`,
    "application/json",
    body,
  ];
  t.match(await ask("POST", lars, "?scroll=1m"), up("?scroll=1m", /^\{"scroll_id":"raw-[^"]*"\}$/));
  const nothing = [404, undefined, undefined, undefined];
  for (const method of ["POST", "GET", "DELETE"]) {
    t.same(await ask(method, await login("rita")), nothing, "another user");
  }
  t.match(await ask("DELETE", lars), up("", /^\{"scroll_id":\["raw-[^"]*"\]\}$/));
  for (const other of ["_all", "raw-1", "*"]) {
    const { status } = await gateway.send("DELETE", `/_search/scroll/${other}`, undefined, lars);
    t.equal(status, 404, other);
  }
});

t.test("a scroll and a point in time end with the right to read", async (t) => {
  const { stub, gateway, login } = await open(t);
  const lars = await login("lars");
  const scrolled = await gateway.send("POST", "/logs-1/_search?scroll=1m", {}, lars);
  const point = await gateway.send("POST", "/logs-1/_search/point_in_time", undefined, lars);
  const id = String(point.body.pit_id);
  const next = { scroll_id: String(scrolled.body._scroll_id), scroll: "1m" };
  const read = `{"pit":{"id":"${id}"},"query":{"term":{"n":9007199254740993}}}`;
  const answers = async (token: string) => [
    await gateway.send("POST", "/_search/scroll", next, token),
    await gateway.send("POST", "/_search", read, token),
  ];
  t.strictSame(await statuses(answers(lars)), [200, 200]);
  const sent = stub.take().findLast(({ url }) => url === "/_search");
  const inside = '"},"query":{"term":{"n":9007199254740993}}}';
  t.ok(sent?.body.toString().endsWith(inside), "the digits are kept");
  t.strictSame(await statuses(answers(await login("dora"))), [404, 404]);
  for (const { text } of [scrolled, point]) t.notMatch(text, "raw-");

  await gateway.edit((text) => text.replace(/tables = \["logs-\*"\]/, 'tables = ["other"]'));
  await gateway.service.logged(({ msg }) => msg === "access file reloaded");
  t.strictSame(await statuses(answers(lars)), [403, 403]);
  const ended = { scroll_id: [next.scroll_id] };
  t.equal((await gateway.send("DELETE", "/_search/scroll", ended, lars)).status, 200);
});

t.test("the media types and points in time of Elasticsearch pass", async (t) => {
  const { stub, gateway, login } = shared;
  const send = async (path: string, type: string, body: string) =>
    gateway.request(path, {
      method: "POST",
      headers: { "content-type": type, authorization: `Bearer ${await login("rita")}` },
      body,
    });
  const json = "application/vnd.elasticsearch+json; compatible-with=8";
  t.equal((await send("/logs-1/_search", json, "{}")).status, 200);
  const sent = stub.take().findLast(({ method }) => method === "POST");
  t.equal(sent?.headers["content-type"], json);
  const lines = "application/vnd.elasticsearch+x-ndjson; compatible-with=8";
  t.equal((await send("/logs-1/_msearch", lines, "{}\n{}\n")).status, 200);
  for (const type of [
    "application/yaml",
    "application/smile",
    "application/json; charset=utf-16",
  ]) {
    t.equal((await send("/logs-1/_search", type, "{}")).status, 415, type);
    const unknown = await send("/logs-1/_search?unknown=1", type, "{}");
    t.equal(unknown.status, 415, "this comes before 400");
  }
  const rita = await login("rita");
  const opened = await gateway.send("POST", "/logs-1/_pit?keep_alive=1m", undefined, rita);
  const { id } = opened.body;
  t.notMatch(opened.text, "raw-");
  t.equal((await gateway.send("POST", "/_search", { pit: { id } }, rita)).status, 200);
  const others = await gateway.send("DELETE", "/_pit", { id }, await login("dora"));
  t.match(others, { status: 404, body: { code: "handle_not_found" } });
  t.equal((await gateway.send("DELETE", "/_pit", { id }, rita)).status, 200);
  const last = stub.take().findLast(({ method }) => method === "DELETE");
  t.match(last?.body.toString(), '{"id":"raw-');
});

async function statuses(answers: Promise<readonly Answer[]>): Promise<number[]> {
  return (await answers).map(({ status }) => status);
}

t.test("a list does not tell whether an index exists that the caller may not read", async (t) => {
  const { stub, gateway, login } = await open(t);
  const lars = await login("lars");
  const answers = async (path: string, name: string) => {
    const { status, text } = await gateway.get(path.replace("NAME", name), lars);
    return { status, text: text.replaceAll(name, "NAME").replace(/"request_id":"[^"]*"/, "") };
  };
  for (const resolvesAll of [false, true]) {
    stub.resolvesAll = resolvesAll;
    for (const [path, status] of [
      ["/_resolve/index/NAME", resolvesAll ? 404 : 200],
      ["/_resolve/index/logs-1,NAME", resolvesAll ? 404 : 200],
      ["/_resolve/index/logs-*,NAME", resolvesAll ? 404 : 200],
      ["/_cat/indices/NAME", 403],
      ["/_cat/indices/logs-*,NAME", 403],
      ["/_alias/NAME", 404],
    ] as const) {
      const absent = await answers(path, "absent");
      t.equal(absent.status, status, path);
      t.strictSame(await answers(path, "secret"), absent, path);
    }
    const found = await gateway.get("/_resolve/index/logs-1,logs-2,s*", lars);
    t.match(found, { status: 200, body: { indices: [{ name: "logs-1" }, { name: "logs-2" }] } });
    const listed = await gateway.get("/_cat/indices/logs-2,logs-1*?format=json", lars);
    t.equal(listed.status, 200);
    t.match(listed.text, '"logs-1"');
    t.match(listed.text, '"logs-2"');
    stub.take();
    await gateway.get("/_cat/indices/absent,logs-*", await login("rita"));
    t.match(stub.take().at(-1)?.url, /^\/_cat\/indices\/absent%2Clogs-1%2Clogs-2$/);
    // Until the gateway asks again what names mean.
    await delay(FORGOTTEN_MS);
  }
});

t.test("a list of many indexes has only those that the caller may read", async (t) => {
  const { stub, gateway, login } = shared;
  for (let count = 0; count < 60; count++) {
    const name = `logs-${"long-".repeat(10)}${count}`;
    await fetch(`${stub.url}/${name}/_doc/1`, { method: "PUT", body: "{}" });
  }
  const lars = await login("lars");
  for (const path of ["/_cat/indices/logs-*", "/_cat/indices/logs-*?format=json"]) {
    const answer = await gateway.get(path, lars);
    t.equal(answer.status, 200, answer.text);
    t.match(answer.text, "logs-1");
    t.notMatch(answer.text, /secret|kibana/);
  }
  t.equal((await gateway.get("/_cat/indices", lars)).status, 403, "all would have to be named");
  const all = await gateway.get("/_cat/indices", await login("rita"));
  t.match(all.text, "secret");
  t.notMatch(all.text, "kibana");
});
