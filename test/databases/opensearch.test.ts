import { setTimeout as delay } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import t, { type Test } from "tap";
import { runAtOnce, runCooperatively } from "../../src/core/base/cooperative-scheduling.ts";
import { Refusal } from "../../src/core/base/refusal.ts";
import { JsonFault } from "../../src/core/json/fault.ts";
import { Lines } from "../../src/features/databases/body.ts";
import {
  BodyReader,
  type NamedIndex,
  readAlias,
  readAliasActions,
  readBulk,
  readDocuments,
  readSearches,
  type Uses,
  withoutHidden,
} from "../../src/features/databases/opensearch-bodies.ts";
import type { Json } from "../../src/features/databases/preset.ts";
import { grant } from "../access/kit.ts";
import { type Answer, auditOf } from "../kit/gateway.ts";
import { longestStall } from "../kit/stall.ts";
import { checkRights, checkSuite, openPreset } from "./kit/open.ts";
import { OpenSearchStub } from "./kit/opensearch.ts";

const narrowed = `
${grant("fay", "main", "ReadOnly", 'tables = ["logs-1"]\nrow_filter = [{ column = "owner", cmp = "=", value = "x" }]')}
${grant("app", "main", "ReadWrite", 'require_approval = ["DELETE"]')}
${grant("dan", "main", "DbAdmin", 'require_approval = ["DELETE"]')}
${grant("wilma", "main", "ReadWrite", 'require_approval = ["SELECT"]')}
${grant("nick", "main", "ReadOnly")}
${grant("nick", "main", "None", 'tables = ["secret"]')}
${grant("lars", "main", "ReadOnly", 'tables = ["logs-*"]')}
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
const { stub, gateway, login } = shared;
t.beforeEach(() => void shared.stub.take());

t.test("every check of the suite holds", { timeout: 120_000 }, async (t) => {
  const stub = await OpenSearchStub.open(t);
  await checkSuite(t, "opensearch", stub.url, 5000);
  const left = await fetch(`${stub.url}/_resolve/index/*`);
  t.notMatch(await left.text(), "gatehouse_test_", "it leaves nothing behind");
});

t.test("a search is forwarded as it was sent, and its names are in the audit", async (t) => {
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

t.test("the audit tells what a write does", async (t) => {
  await checkRights(t, await open(t), "root", [
    ["PUT", "/made", {}, ["CREATE"]],
    ["PUT", "/_data_stream/stream", undefined, ["CREATE"]],
    ["PUT", "/logs-1/_mapping", { properties: {} }, ["CREATE"]],
    ["POST", "/logs-1/_doc", {}, ["INSERT"]],
    ["PUT", "/logs-1/_create/2", {}, ["INSERT"]],
    ["PUT", "/logs-1/_doc/2", {}, ["INSERT UPDATE"]],
    ["PUT", "/absent/_doc/2", {}, ["INSERT UPDATE CREATE"]],
    ["POST", "/logs-1/_update/2", { doc: {} }, ["UPDATE"]],
    ["DELETE", "/logs-1/_doc/2", undefined, ["DELETE"]],
    ["DELETE", "/made", undefined, ["DROP"]],
  ]);
});

t.test("a request names at most 256 indexes", async (t) => {
  const docs = Array.from({ length: 257 }, (_, at) => ({ _index: `absent-${at}`, _id: "1" }));
  const token = await login("root");
  t.equal((await gateway.send("POST", "/_mget", { docs }, token)).status, 400);
  t.equal((await gateway.send("POST", "/_mget", { docs: docs.slice(1) }, token)).status, 404);
});

t.test("a wide name is refused with advice where an entry opens a part of it", async (t) => {
  const [root, lars] = [await login("root"), await login("lars")];
  const entry = "/_gatehouse/api/access/lars/main";
  t.equal((await gateway.send("PUT", entry, { role: "None" }, root)).status, 200);
  const denied = await gateway.get("/_search", lars);
  t.match(denied, { status: 403, body: { code: "name_too_wide", message: /name each one$/ } });
  t.match(await gateway.get("/secret/_search", lars), { body: { code: "role_insufficient" } });
  t.equal((await gateway.get("/logs-*/_search", lars)).status, 200);
  t.equal((await gateway.send("DELETE", entry, undefined, root)).status, 200);
});

t.test("an index named views is not the list of views of OpenSearch 3", async (t) => {
  await gateway.get("/views", await login("rita"));
  t.equal(stub.take().at(-1)?.url, "/views,views");
});

t.test("all indexes are those that do not begin with a dot", async (t) => {
  const token = await login("rita");
  const sent: readonly (readonly [asked: string, sent: string])[] = [
    ["/_search", "/*%2C-.*/_search"],
    ["/_all/_search?size=3", "/*%2C-.*/_search?size=3"],
    ["/*/_count", "/*%2C-.*/_count"],
    ["/*-1,logs-2/_mapping", "/*-1%2Clogs-2%2C-.*/_mapping"],
    ["/_cat/count", "/_cat/count/*%2C-.*"],
    ["/_cluster/health/_all", "/_cluster/health/*%2C-.*"],
    [
      "/_cluster/state/metadata/*?filter_path=metadata",
      "/_cluster/state/metadata/*%2C-.*?filter_path=metadata.indices",
    ],
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
  t.ok(stub.take().every(({ method }) => method === "GET"));
});

t.test("what cannot be kept is refused", async (t) => {
  const filtered = await gateway.get("/logs-1/_search", await login("fay"));
  t.match(filtered, { status: 403, body: { code: "not_narrowable" } });
  const app = await login("app");
  t.equal((await gateway.send("PUT", "/logs-1/_doc/2", {}, app)).status, 200);
  const removed = await gateway.send("DELETE", "/logs-1/_doc/2", undefined, app);
  t.match(removed, { status: 403, body: { code: "not_narrowable" } });
});

t.test("a script that may delete needs the right to delete", async (t) => {
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

t.test("a document is not stored where the mapping of its index cannot be read", async (t) => {
  const { stub, gateway, login } = await open(t);
  const { answer: answerOthers } = stub;
  stub.answer = (request, response) => {
    if (!request.url.includes("/_mapping")) return answerOthers(request, response);
    response.writeHead(403, { "content-type": "application/json" }).end("{}");
  };
  const answer = await gateway.send("PUT", "/logs-1/_doc/2", {}, await login("wanda"));
  t.match(answer, { status: 502, body: { code: "upstream_broken" } });
  t.ok(stub.take().every(({ method }) => method === "GET"));
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
    "application/json; charset*=utf-8''utf-7",
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

/** `SELECT a`, with `+` for an index that may be made and `@1` for the element. */
function wordsOf({ name, permissions, element, makesIndex, isNew }: NamedIndex): string {
  const mark = `${makesIndex ? "+" : ""}${isNew ? "!" : ""}`;
  return `${permissions.join(",")}${mark} ${name}${element === undefined ? "" : `@${element}`}`;
}

function shown(uses: Uses): string {
  const marks = [uses.scripts ? "scripts" : [], uses.pipelines ? "pipelines" : []].flat();
  if (uses.parsed.size > 0) marks.push(`parsed ${[...uses.parsed].join(" ")}`);
  return [...uses.names.map(wordsOf), ...marks].join("; ");
}

/** The uses of a body, or the code of its refusal. */
function outcome(read: () => Uses): string {
  try {
    return shown(read());
  } catch (error) {
    if (error instanceof Refusal || error instanceof JsonFault) return error.code;
    throw error;
  }
}

function linesOf(...items: readonly Json[]): Lines {
  const lines = items.map((one) => `${typeof one === "string" ? one : JSON.stringify(one)}\n`);
  return new Lines(Buffer.from(lines.join("")));
}

function readBody(kind: string, body: Json): Uses {
  const reader = new BodyReader();
  reader.read(kind, body);
  return reader.uses;
}

const lookup = { index: "b", id: "1", path: "p" };

const searches: readonly (readonly [body: Json, expected: string])[] = [
  [{}, ""],
  [{ query: { match_all: {} }, size: 1, sort: ["a", { b: "desc" }], _source: false }, ""],
  [{ query: { match: { index: "b" } } }, ""],
  [{ query: { pinned: { ids: ["1"], organic: { terms: { k: lookup } } } } }, "SELECT b"],
  [{ query: { pinned: { docs: [{ _index: "b", _id: "1" }] } } }, "SELECT b"],
  [{ aggs: { a: { top_metrics: { metrics: { field: "n" }, sort: { d: "desc" } } } } }, ""],
  [{ query: { match: { f: { query: "x", operator: "and" } } } }, ""],
  [{ query: { term: { index: { value: "b" } } } }, ""],
  [{ query: { terms: { f: ["a", "b"], boost: 2 } } }, ""],
  [{ query: { terms: { f: lookup } } }, "SELECT b"],
  [{ query: { terms: { f: [lookup] } } }, "SELECT b"],
  [{ query: { terms: { f: { id: "1", path: "p" } } } }, "bad_request"],
  [{ query: { terms: { f: { ...lookup, index: ["b"] } } } }, "SELECT b"],
  [{ query: { terms: { f: { ...lookup, index: 7 } } } }, "bad_request"],
  [{ query: { terms: { boost: lookup } } }, "bad_request"],
  [{ query: { bool: { must_not: { terms: { f: lookup } }, should: [] } } }, "SELECT b"],
  [{ query: { geo_shape: { f: { indexed_shape: { id: "1" } } } } }, "bad_request"],
  [{ query: { geo_shape: { f: { shape: { type: "point", coordinates: [[1, 2]] } } } } }, ""],
  [{ query: { more_like_this: { like: ["x", { _index: "b", _id: "1" }] } } }, "SELECT b"],
  [{ query: { more_like_this: { like: { doc: { _index: "b" } } } } }, ""],
  [{ query: { percolate: { field: "q", document: { index: "b" } } } }, ""],
  [{ query: { percolate: { field: "q", index: "b", id: "1" } } }, "SELECT b; parsed *"],
  [{ query: { percolate: { documents: [{ a: { "b.c": [{}] } }] } } }, "parsed a c"],
  [{ query: { more_like_this: { like: [{ doc: { a: { b: 1 } } }] } } }, "parsed a"],
  [{ query: { wrapper: { query: "e30=" } } }, "unknown_member"],
  [{ query: { template: {} } }, "unknown_member"],
  [{ query: { match: { f: { query: "x", unheard_of: 1 } } } }, "unknown_member"],
  [{ query: { match: { f: { query: { terms: { f: lookup } } } } } }, "bad_request"],
  [{ query: { script: { script: "1" } } }, "scripts"],
  [{ query: { intervals: { f: { match: { filter: { script: { source: "1" } } } } } } }, "scripts"],
  [{ query: { knn: { v: { vector: [1], k: 2, filter: { terms: { f: lookup } } } } } }, "SELECT b"],
  [{ knn: { field: "v", query_vector: [1], filter: { terms: { f: lookup } } } }, "SELECT b"],
  [{ knn: { field: "v", query_vector_builder: { text_embedding: {} } } }, "unknown_member"],
  [{ aggs: { terms: { terms: { field: "f" } } } }, ""],
  [{ aggs: { a: { filter: { terms: { f: lookup } } } } }, "SELECT b"],
  [{ aggs: { a: { filters: { filters: [{ terms: { f: lookup } }] } } } }, "SELECT b"],
  [{ aggs: { a: { adjacency_matrix: { filters: { x: { terms: { f: lookup } } } } } } }, "SELECT b"],
  [{ aggs: { a: { terms: { field: "f", script: "1" } } } }, "scripts"],
  [{ aggs: { a: { bucket_script: { buckets_path: { x: "y" }, script: "1" } } } }, "scripts"],
  [{ aggs: { a: { composite: { sources: [{ s: { terms: { script: "1" } } }] } } } }, "scripts"],
  [{ aggs: { a: { top_hits: { script_fields: { x: { script: "1" } } } } } }, "scripts"],
  [{ aggs: { a: { unheard_of: {} } } }, "unknown_member"],
  [{ aggs: { a: { meta: { terms: lookup }, max: { field: "f" } } } }, ""],
  [{ aggregations: { a: { global: {}, aggs: { b: { sum: { script: "1" } } } } } }, "scripts"],
  [{ suggest: { text: "x", s: { phrase: { field: "f", collate: { query: {} } } } } }, "scripts"],
  [{ suggest: { s: { text: "x", term: { field: "f" } } } }, ""],
  [{ collapse: { field: "f", inner_hits: { sort: { _script: { script: "1" } } } } }, "scripts"],
  [{ sort: { _geo_distance: { p: { lat: 1, lon: 2 }, order: "asc" } } }, ""],
  [{ sort: { _geo_distance: { nested_filter: { terms: { f: lookup } } } } }, "unknown_member"],
  [{ indices_boost: [{ b: 2 }, { c: 1 }] }, "SELECT b; SELECT c"],
  [{ runtime_mappings: { f: { type: "lookup", target_index: "b" } } }, "pipelines"],
  [{ search_pipeline: { request_processors: [] } }, "pipelines"],
  [{ script_fields: {} }, "scripts"],
  [{ ext: {} }, "unknown_member"],
  [{ index: "b" }, "unknown_member"],
  [{ retriever: { standard: {} } }, "unknown_member"],
  [JSON.parse('{"__proto__":{}}'), "unknown_member"],
];

t.test("a search uses the indexes that it names, scripts and pipelines", async (t) => {
  for (const [body, expected] of searches) {
    t.equal(
      outcome(() => readBody("search", body)),
      expected,
      JSON.stringify(body),
    );
  }
});

const all: readonly Json[] = [{ index: { _index: "a", _id: "1" } }, {}];
const bulks: readonly (readonly [lines: readonly Json[], expected: string, index?: string])[] = [
  [[], ""],
  [all, "INSERT,UPDATE+ a@0"],
  [['{"index": {"_index": "a", "_id": "1"}}', {}], "INSERT,UPDATE+ a@0"],
  [['{"index":{"_id":"1","_index":"a"}}', {}], "INSERT,UPDATE+ a@0"],
  [['{"index":{"_index":"\\u0061","_id":"1"}}', {}], "INSERT,UPDATE+ a@0"],
  [['{"index":{"_index":"a","_id":"1"}}\r', '{"x":1}\r'], "INSERT,UPDATE+ a@0"],
  [[{ index: { _index: "a" } }, {}], "INSERT+ a@0"],
  [[{ index: { _id: "1" } }, {}], "INSERT,UPDATE+ p@0", "p"],
  [[{ index: {} }, {}], "INSERT+ p@0", "p"],
  [[{ index: {} }, {}], "bad_request"],
  [[{ index: { _index: "a", _id: "1", op_type: "create" } }, {}], "INSERT+ a@0"],
  [[{ create: { _index: "a", _id: "1", op_type: "index" } }, {}], "INSERT+ a@0"],
  [[{ create: { _index: "a", _id: 1 } }, {}], "INSERT+ a@0"],
  [[{ delete: { _index: "a", _id: "1" } }], "DELETE a@0"],
  [[{ delete: { _index: "a", _id: "1", version_type: "external" } }], "DELETE+ a@0"],
  [[{ update: { _index: "a", _id: "1" } }, { doc: {} }], "UPDATE+ a@0"],
  [[{ update: { _index: "a", _id: "1" } }, { upsert: {} }], "INSERT,UPDATE+ a@0"],
  [[{ update: { _index: "a", _id: "1" } }, { doc: {}, _source: "x" }], "UPDATE,SELECT+ a@0"],
  [[{ update: { _index: "a", _id: "1", _source: true } }, { doc: {} }], "UPDATE,SELECT+ a@0"],
  [[{ update: { _index: "a", _id: "1" } }, { doc: {}, doc_as_upsert: true }], "INSERT,UPDATE+ a@0"],
  [[{ update: { _index: "a", _id: "1" } }, { doc: {}, doc_as_upsert: false }], "UPDATE+ a@0"],
  [
    [{ update: { _index: "a", _id: "1" } }, { doc: {}, doc_as_upsert: "true" }],
    "INSERT,UPDATE+ a@0",
  ],
  [[{ update: { _index: "a", _id: "1" } }, { script: "1" }], "UPDATE,DELETE+ a@0; scripts"],
  [
    [{ update: { _index: "a", _id: "1" } }, { script: "1", scripted_upsert: "true" }],
    "INSERT,UPDATE,DELETE+ a@0; scripts",
  ],
  [[{ update: { _index: "a", _id: "1" } }, { index: "b" }], "unknown_member"],
  [[{ index: { _index: "a", pipeline: "p" } }, {}], "INSERT+ a@0; pipelines"],
  [
    [...all, ...all, { delete: { _index: "b", _id: "1" } }, ...all],
    "INSERT,UPDATE+ a@0; DELETE b@2",
  ],
  [
    [...all, { index: { _index: "b", _id: "1" } }, {}, ...all],
    "INSERT,UPDATE+ a@0; INSERT,UPDATE+ b@1",
  ],
  [[...all, ""], "INSERT,UPDATE+ a@0"],
  // An action like the one before it, and not quite like it.
  [[...all, '{"index":{"_index":"a","_id":"2"}}', "[]"], "INSERT,UPDATE+ a@0"],
  [[...all, '{"index":{"_index":"a"}}', {}], "INSERT,UPDATE+ a@0; INSERT+ a@1"],
  [[...all, '{"index":{"_index":"ab","_id":"1"}}', {}], "INSERT,UPDATE+ a@0; INSERT,UPDATE+ ab@1"],
  [[...all, '{"index":{"_index":"a","_id":"2","_index":"b"}}', {}], "duplicate_key"],
  [[...all, '{"index":{"_index":"a","_id":"2"},"index":{}}', {}], "duplicate_key"],
  [[...all, '{"index":{"_index":"a","_id":"2"}}{}', {}], "trailing_data"],
  [[...all, '{"index":{"_index":"a","_id":"2', {}], "invalid_json"],
  [[...all, '{"index":{"_index":"a","_id":""}}', {}], "INSERT,UPDATE+ a@0"],
  [[...all, '{"index":{"_index":"a","_id":"\\u0022"}}', {}], "INSERT,UPDATE+ a@0"],
  [
    [{ index: {} }, {}, { index: {} }, {}, { index: { _index: "q" } }, {}],
    "INSERT+ p@0; INSERT+ q@2",
    "p",
  ],
  [
    [...all, ...["b", "bc", "b", "b"].flatMap((_index) => [{ index: { _index, _id: "1" } }, {}])],
    "INSERT,UPDATE+ a@0; INSERT,UPDATE+ b@1; INSERT,UPDATE+ bc@2",
  ],
  [
    ["a", null, "a", null].flatMap((_index) => [{ create: { _index } }, {}]),
    "INSERT+ a@0; INSERT+ p@1",
    "p",
  ],
  [
    ["a", "b", "c", "d"].flatMap((other) => [
      { create: { dynamic_templates: { _index: other, _id: other }, _index: "a" } },
      {},
      { create: { _index: other } },
      {},
    ]),
    "INSERT+ a@0; INSERT+ b@3; INSERT+ c@5; INSERT+ d@7",
  ],
  [
    [{ create: { _index: "a" } }, {}, { create: { _index: "b" } }, {}].concat(
      ["x", "y"].flatMap((other) => [
        { create: { dynamic_templates: { _index: other }, _index: "a" } },
        {},
      ]),
    ),
    "INSERT+ a@0; INSERT+ b@1",
  ],
  [["1", "2", 3, {}].flatMap((_id) => [{ create: { _index: "a", _id } }, { x: 1 }]), "bad_request"],
  [
    ["index", "create"].flatMap((op) => [{ index: { _index: "a", _id: "1", op_type: op } }, {}]),
    "INSERT,UPDATE+ a@0; INSERT+ a@1",
  ],
  [[...all, ...all, ...all, all[0] ?? "", '{"x":{"y":1,"y":2}}'], "duplicate_key"],
  [[{ index: { _index: "a" } }, '{"x":', "1}"], "invalid_json"],
  [[{ index: { _index: "a" } }, '{"x":1', "}"], "invalid_json"],
  [[{ index: { _index: "a" } }, "{", '"x":1}'], "invalid_json"],
  [[{ index: { _index: "a" } }, '["x",', '"y"]'], "invalid_json"],
  [[...all, "", ...all], "invalid_json"],
  [["", ...all], "invalid_json"],
  [[{ index: { _index: "a" } }], "bad_request"],
  [[{ index: { _index: "a" } }, ""], "bad_request"],
  [[{ index: { _index: "a" } }, "{"], "invalid_json"],
  [[{ index: { _index: "a" } }, '{"x":1,"x":2}'], "duplicate_key"],
  [[{ index: { _index: "a" } }, '{"x":1}{"x":2}'], "trailing_data"],
  [['{"index":{"_index":"a","_index":"b"}}', {}], "duplicate_key"],
  [['{"index":{"_index":"a"},"index":{}}', {}], "duplicate_key"],
  [['{"index":{"_index":"a"}}{}', {}], "trailing_data"],
  [['{"index":{"_index":"a""_id":"1"}}', {}], "invalid_json"],
  [['{"index":{"_index":"a",}}', {}], "invalid_json"],
  [[{ index: { _index: "a" }, delete: {} }, {}], "bad_request"],
  [[{ erase: { _index: "a" } }], "bad_request"],
  [[{ index: "a" }, {}], "bad_request"],
  [[{ index: { _index: ["a"] } }, {}], "bad_request"],
  [[["index"], {}], "bad_request"],
  [[{ index: { _index: "a", _type: "b" } }, {}], "unknown_member"],
  [[{ index: { _index: "a", index: "b" } }, {}], "unknown_member"],
];

t.test("a bulk has the rights of its actions, each index once", async (t) => {
  for (const [items, expected, index] of bulks) {
    t.equal(
      outcome(() => runAtOnce(readBulk(linesOf(...items), index, false))),
      expected,
      JSON.stringify(items),
    );
  }
  const update = linesOf({ update: { _index: "a", _id: "1" } }, { doc: {} }, ...all);
  const read = runAtOnce(readBulk(update, undefined, true));
  t.equal(shown(read), "UPDATE,SELECT+ a@0; INSERT,UPDATE+ a@1");
});

const every = ["*", "-.*"];
const heads: readonly (readonly [
  items: readonly Json[],
  expected: string,
  indexes?: readonly string[],
])[] = [
  [[{ index: "a" }, {}], "SELECT a@0"],
  [[{ index: "a,b" }, {}, { index: ["c"] }, {}], "SELECT a@0; SELECT b@0; SELECT c@1"],
  [[{}, {}], "SELECT p@0; SELECT q@0", ["p", "q"]],
  [[{}, {}], "SELECT _all@0"],
  [[{ index: "a" }, { query: { terms: { f: lookup } } }], "SELECT a@0; SELECT b@0"],
  [[{ index: "a" }, { pit: { id: "x" } }], "bad_request"],
  [[{ index: [] }, {}], "bad_request", ["p"]],
  [[{ index: null }, {}], "bad_request", ["p"]],
  [[{ indices: "a" }, {}], "unknown_member", ["p"]],
  [[{ index: "a", expand_wildcards: "open,closed" }, {}], "SELECT a@0"],
  [[{ index: "a", expand_wildcards: ["hidden"] }, {}], "bad_request"],
  [["", {}], "invalid_json", ["p"]],
  [[{ index: "a" }], "bad_request"],
  [[[], {}], "bad_request"],
];

t.test("searches in one request have the indexes of their headers", async (t) => {
  for (const [items, expected, indexes] of heads) {
    const read = () => runAtOnce(readSearches(linesOf(...items), indexes)).uses;
    t.equal(outcome(read), expected, JSON.stringify(items));
  }
  const searches = linesOf({ preference: "x" }, '{"size": 1.50}', { index: "a" }, {});
  const { body } = runAtOnce(readSearches(searches, undefined));
  const head = JSON.stringify({ preference: "x", index: every });
  t.equal(body?.toString(), `${head}\n{"size": 1.50}\n{"index":"a"}\n{}\n`);
  const exact = linesOf('{"preference":9007199254740993,"request_cache":1.50}', {});
  t.match(
    runAtOnce(readSearches(exact, undefined)).body?.toString(),
    '{"preference":9007199254740993,"request_cache":1.50,"index":',
    "a header that is rewritten keeps its digits",
  );
  const many = (count: number) => new Lines(Buffer.from("{}\n".repeat(2 * count)));
  t.equal(runAtOnce(readSearches(many(10_000), ["a"])).uses.elements, 10_000);
  t.equal(
    outcome(() => runAtOnce(readSearches(many(10_001), ["a"])).uses),
    "bad_request",
  );
  const named = linesOf({ index: "a" }, {});
  t.equal(runAtOnce(readSearches(named, undefined)).body, undefined);
});

t.test("indexes that begin with a dot are left out where all are meant", async (t) => {
  t.strictSame(withoutHidden(["_all"]), every);
  t.strictSame(withoutHidden(["a", "*b"]), ["a", "*b", "-.*"]);
  t.equal(withoutHidden(["a", "b*"]), undefined);
});

const readMget = (body: Json, index: string | undefined) =>
  readDocuments(body, index, "documents_read");

const others: readonly (readonly [title: string, read: () => Uses, expected: string])[] = [
  ["documents", () => readMget({ docs: [{ _index: "a", _id: "1" }] }, undefined), "SELECT a@0"],
  ["documents of the path", () => readMget({ docs: [{ _id: "1" }] }, "p"), "SELECT p@0"],
  ["ids", () => readMget({ ids: ["1"] }, "p"), "SELECT p"],
  ["ids of no index", () => readMget({ ids: ["1"] }, undefined), "bad_request"],
  [
    "vectors",
    () => readDocuments({ docs: [{ _index: "a", doc: { x: { y: {} } } }] }, "p", "vectors_read"),
    "SELECT a@0; parsed x y",
  ],
  [
    "parameters of vectors",
    () => readDocuments({ ids: ["1"], parameters: { _index: "b" } }, "p", "vectors_read"),
    "unknown_member",
  ],
  [
    "a filter that the server would read without an end",
    () => readDocuments({ ids: ["1"], parameters: { filter: "x" } }, "p", "vectors_read"),
    "bad_request",
  ],
  ["no documents", () => readMget({ docs: [] }, undefined), "bad_request"],
  ["an unknown list", () => readMget({ documents: [] }, "p"), "unknown_member"],
  ["an alias", () => readAlias(undefined, "x"), "CREATE! x"],
  ["a filter", () => readAlias({ filter: { terms: { f: lookup } } }, "x"), "CREATE! x; SELECT b"],
  ["an alias that names an index", () => readAlias({ index: "b" }, "x"), "unknown_member"],
  [
    "alias actions",
    () =>
      readAliasActions({
        actions: [{ add: { indices: ["a", "b"], alias: "x" } }, { remove_index: { index: "c" } }],
      }),
    "CREATE a@0; CREATE b@0; CREATE! x@0; DROP c@1",
  ],
  [
    "alias actions on a pattern",
    () => readAliasActions({ actions: [{ add: { index: "a*", alias: "x" } }] }),
    "CREATE a*@0; CREATE! x@0",
  ],
  ...["*", "_all", "*a", ["a", "*"]].flatMap((index) =>
    [{ add: { index, alias: "x" } }, { remove_index: { index } }].map(
      (action) =>
        [
          `an action on indexes of the server: ${JSON.stringify(action)}`,
          () => readAliasActions({ actions: [action] }),
          "bad_request",
        ] as const,
    ),
  ),
  [
    "two spellings",
    () => readAliasActions({ actions: [{ add: { index: "a", indices: "b", alias: "x" } }] }),
    "bad_request",
  ],
  [
    "a new index",
    () => readBody("new_index", { settings: { number_of_shards: 1 }, aliases: { x: {} } }),
    "CREATE! x",
  ],
  [
    "a new index with a pipeline",
    () => readBody("new_index", { settings: { "index.default_pipeline": "p" } }),
    "pipelines",
  ],
  ["an unknown member of an index", () => readBody("new_index", { warmers: {} }), "unknown_member"],
  ["settings", () => readBody("settings", { index: { refresh_interval: "1s" } }), ""],
  [
    "settings of a pipeline",
    () => readBody("settings", { index: { search: { default_pipeline: "p" } } }),
    "pipelines",
  ],
  [
    "settings of a snapshot",
    () => readBody("new_index", { settings: { "index.searchable_snapshot.repository": "r" } }),
    "pipelines",
  ],
  ...[
    { "index.ingestion_source.type": "kafka" },
    { max_regex_length: 100_000 },
    { analysis: { filter: { f: { type: "synonym", synonyms_path: "a.txt" } } } },
    { "analysis.char_filter.f": { mappings_path: "opensearch.yml" } },
  ].map((settings) => {
    const what = `settings that reach what is not of the index: ${JSON.stringify(settings)}`;
    return [what, () => readBody("settings", settings), "pipelines"] as const;
  }),
  [
    "a script in settings",
    () => readBody("new_index", { settings: { "index.similarity.s.script.source": "return 1" } }),
    "scripts",
  ],
  [
    "a script in a mapping",
    () =>
      readBody("new_index", {
        mappings: { derived: { script: { type: "long", script: "emit(1)" } } },
      }),
    "scripts",
  ],
  [
    "a field that is called script",
    () =>
      readBody("mappings", { properties: { script: { fields: { script: { type: "keyword" } } } } }),
    "",
  ],
  [
    "nested settings of a snapshot",
    () => readBody("new_index", { settings: { searchable_snapshot: { index: { id: "i" } } } }),
    "pipelines",
  ],
];

t.test("texts that overflow the stack of OpenSearch are refused", async (t) => {
  const bodies = (size: number) => [
    { suggest: { s: { regex: "a".repeat(size), completion: { field: "s" } } } },
    { query: { intervals: { t: { regexp: { pattern: "a".repeat(size) } } } } },
    { query: { simple_query_string: { query: "(".repeat(size) } } },
  ];
  for (const body of bodies(999)) t.doesNotThrow(() => new BodyReader().read("search", body));
  for (const body of bodies(1001)) {
    t.throws(() => new BodyReader().read("search", body), { code: "bad_request" });
  }
});

t.test("other bodies have their names", async (t) => {
  for (const [title, read, expected] of others) t.equal(outcome(read), expected, title);
});

t.test("a bulk of 10 MB stops other work for less than 100 ms at a time", async (t) => {
  const lines = Array.from({ length: 150_000 }, (_, at) =>
    at % 2 === 0
      ? `{"index":{"_index":"a${at % 6}","_id":"${at}"}}\n`
      : `{"x":"${"y".repeat(90)}"}\n`,
  );
  const bytes = Buffer.from(lines.join(""));
  t.ok(bytes.length > 9e6);
  let longestMs = Number.POSITIVE_INFINITY;
  for (let tries = 0; longestMs >= 100 && tries < 10; tries++) {
    const stall = await longestStall(async () => {
      const uses = await runCooperatively(readBulk(new Lines(bytes), undefined, false));
      t.equal(uses.names.length, 3);
    });
    longestMs = Math.min(longestMs, stall);
  }
  t.ok(longestMs < 100, `${longestMs.toFixed(0)} ms`);
});
