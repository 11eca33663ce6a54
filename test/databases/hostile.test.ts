import { request as httpRequest } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import t, { type Test } from "tap";
import type { PresetName } from "../../src/core/config/upstream.ts";
import { grant } from "../access/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { auditOf, type TestGateway } from "../kit/gateway.ts";
import { longestTurn } from "../kit/loop-time.ts";
import { type Answer, RecordingUpstream } from "../kit/upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { type OpenOptions, openPreset, taken } from "./kit/open.ts";

const grants = [
  "root * Owner",
  "rita alpha ReadOnly",
  "rita other ReadOnly",
  "wanda alpha ReadWrite",
  "wim alpha ReadWrite",
  "lars main ReadOnly",
  "lena main ReadOnly",
  "liam main ReadOnly",
  "liam alpha ReadOnly",
  "dora main DbAdmin",
  "otto * Owner",
];

const none = `
${grant("dora", "main", "None", 'tables = ["secret"]')}
`;

/** A gateway with a preset, in front of an upstream that answers as the test says. */
async function open(
  t: Test,
  preset: PresetName,
  answer: Answer,
  { config = "", server = "", ...more }: Partial<OpenOptions> & { server?: string } = {},
) {
  const upstream = await new RecordingUpstream().listen(t);
  upstream.answer = answer;
  const opened = await openPreset(t, preset, upstream.url, {
    grants,
    more: none,
    config: `${config}\n[server]\nbase_path = "/_gatehouse"\n${server}`,
    ...more,
  });
  return { upstream, ...opened };
}

function json(body: unknown, status = 200, headers: Record<string, string> = {}): Answer {
  const text = JSON.stringify(body);
  return (_request, response) => {
    response.writeHead(status, { "content-type": "application/json", ...headers }).end(text);
  };
}

const couch = await open(t, "couchdb", json({}), {
  auth: 'accept = ["bearer", "basic"]',
  config: 'forward_headers = ["X-HTTP-Method-Override", "X-Own"]\n',
  isMeasured: true,
});
const search = await open(t, "opensearch", json({}), { isMeasured: true });
const chroma = await open(t, "chroma", json({}));
/** Forwards one request at a time. */
const narrow = await open(t, "couchdb", json({}), {
  config: "connections = 1\nmax_upload_bytes = 5000\n",
});

/** A gateway that tests share, before an upstream with another answer. */
function answering(answer: Answer, opened = couch): typeof couch {
  opened.upstream.answer = answer;
  opened.upstream.take();
  return opened;
}

/** As `answering`, with OpenSearch that has one index and this answer to anything but lookups. */
function searching(index: string, answer: Answer): typeof couch {
  const found = indexes([index]);
  return answering((request, response) => {
    (request.url.startsWith("/_resolve/") ? found : answer)(request, response);
  }, search);
}

const indexes = (names: readonly string[], padding = "") =>
  json({ indices: names.map((name) => ({ name, padding })), aliases: [], data_streams: [] });

/** The paths that are passed on, changed and streamed. */
const waysUp = [
  ["GET", "/alpha", "passed on"],
  ["GET", "/_all_dbs", "changed"],
  ["GET", "/alpha/_changes?feed=longpoll", "streamed"],
  ["HEAD", "/alpha", "streamed, without a body"],
] as const;

t.test("a credential of the gateway that the upstream refuses is not the client's", async (t) => {
  const refused = json([], 401, { "www-authenticate": 'Basic realm="inner"' });
  const { gateway, login } = answering(refused);
  const headers = { authorization: `Bearer ${await login("rita")}` };
  for (const [method, path, way] of waysUp) {
    const answer = await gateway.request(path, { method, headers });
    t.equal(answer.status, 502, way);
    t.equal(answer.headers.get("www-authenticate"), null, way);
    const { detail } = await gateway.service.logged(
      ({ msg, requestId }) => msg === "refused" && requestId === answer.headers.get("x-request-id"),
    );
    t.match(detail, /upstream\.credential/, "the log says what to look at");
  }
});

t.test("the upstream's cookies and addresses do not reach a client", async (t) => {
  const given = {
    "set-cookie": "AuthSession=admin",
    task_resource_usage: '{"taskId":7}',
    "www-authenticate": "Basic",
    location: "http://127.0.0.1:5984/alpha/x",
    "x-kept": "yes",
  };
  const { gateway, login } = answering(json(["alpha"], 200, given));
  const headers = { authorization: `Bearer ${await login("rita")}` };
  for (const [method, path, way] of waysUp) {
    const answer = await gateway.request(path, { method, headers });
    t.equal(answer.status, 200, way);
    for (const name of ["set-cookie", "www-authenticate", "location", "task_resource_usage"]) {
      t.equal(answer.headers.get(name), null, `${way}: ${name}`);
    }
    t.equal(answer.headers.get("x-kept"), "yes");
  }
});

t.test("a page that was stored cannot act for a browser that opens it", async (t) => {
  const page: Answer = (_request, response) => {
    response.writeHead(200, { "content-type": "text/html" }).end('["<script>1</script>"]');
  };
  const unprotected = await open(t, "couchdb", page, { auth: "enabled = false" });
  for (const opened of [answering(page), unprotected]) {
    const typed = `Basic ${Buffer.from("rita:rita password").toString("base64")}`;
    for (const [method, path, way] of [
      ...waysUp,
      ["GET", "/alpha/a/file.html", "a file"] as const,
    ]) {
      const headers = { authorization: typed };
      const answer = await opened.gateway.request(path, { method, headers });
      t.equal(answer.status, 200, way);
      t.equal(answer.headers.get("content-security-policy"), "sandbox", way);
    }
  }
});

t.test("a Location at the gateway is kept", async (t) => {
  const place = { location: "" };
  const { gateway, upstream, login } = answering(json([], 200, place));
  const headers = { authorization: `Bearer ${await login("rita")}` };
  for (const [location, kept] of [
    ["/alpha/x", "/alpha/x"],
    [`${gateway.url}/alpha/x`, `${gateway.url}/alpha/x`],
    ["//evil.test/x", null],
    [`${gateway.url}.evil.test/`, null],
  ] as const) {
    upstream.answer = json([], 201, { location });
    const answer = await gateway.request("/alpha", { headers });
    t.equal(answer.headers.get("location"), kept, location);
  }
});

async function reload(gateway: TestGateway, change: (text: string) => string): Promise<void> {
  const { log } = gateway.service;
  const before = log.length;
  await gateway.edit(change);
  await gateway.service.logged(
    (line) => line.msg === "access file reloaded" && log.indexOf(line) >= before,
  );
}

t.test("a list does not show what the caller lost while the upstream answered", async (t) => {
  const named = [
    { name: "alpha", id: "1" },
    { name: "other", id: "2" },
  ];
  const databases = "/api/v2/tenants/default_tenant/databases";
  for (const [{ gateway, upstream, login }, path, body] of [
    [couch, "/_all_dbs", ["alpha", "other"]],
    [couch, "/_dbs_info", [{ key: "alpha" }, { key: "other" }]],
    [chroma, databases, named],
    [chroma, "/api/v2/auth/identity", named],
  ] as const) {
    const arrived = Promise.withResolvers<() => void>();
    upstream.answer = (request, response) => {
      if (request.url === "/" || request.url.endsWith("/version")) json({})(request, response);
      else arrived.resolve(() => json(body)(request, response));
    };
    const answer = gateway.get(path, await login("rita"));
    const proceed = await arrived.promise;
    const [held, lost] = [
      'username = "rita"\ndatabase = "alpha"',
      'username = "rita"\ndatabase = "old"',
    ];
    await reload(gateway, (text) => text.replace(held, lost));
    proceed();
    const { status, text } = await answer;
    t.equal(status, 200, text);
    t.match(text, "other", path);
    t.notMatch(text, "alpha", path);
    await reload(gateway, (text) => text.replace(lost, held));
  }
});

t.test("an answer is refused once its right is lost while the upstream works", async (t) => {
  const arrived = Promise.withResolvers<() => void>();
  const { gateway, login } = answering((request, response) =>
    arrived.resolve(() => json({})(request, response)),
  );
  const answer = gateway.get("/alpha", await login("rita"));
  const proceed = await arrived.promise;
  const [held, lost] = ["alpha", "old"].map((name) => `username = "rita"\ndatabase = "${name}"`);
  await reload(gateway, (text) => text.replace(String(held), String(lost)));
  await delay(500);
  proceed();
  t.match(await answer, { status: 403, body: { code: "no_grant" } });
  await reload(gateway, (text) => text.replace(String(lost), String(held)));
});

t.test("a write is judged again after it has waited for a connection", async (t) => {
  const held: (() => void)[] = [];
  const { gateway, upstream, login } = answering((request, response) => {
    const pass = () => json({ ok: true })(request, response);
    if (request.url === "/alpha") held.push(pass);
    else pass();
  }, narrow);
  const root = await login("root");
  const rita = await login("rita");
  const first = gateway.get("/alpha", root);
  await eventually("the connection is taken", () => held.length === 1);
  const write = gateway.send("PUT", "/alpha/_local/x", {}, rita);
  await delay(300);
  await reload(gateway, (text) =>
    text.replace('username = "rita"\ndatabase = "alpha"', 'username = "root"\ndatabase = "old"'),
  );
  for (const pass of held) pass();
  t.equal((await first).status, 200);
  t.match(await write, { status: 403, body: { code: "no_grant" } });
  t.notOk(upstream.take().some(({ method }) => method === "PUT"));
});

t.test("a list that is none, or no JSON, is the upstream's fault", async (t) => {
  const { gateway, upstream, login } = answering(json({}));
  const token = await login("rita");
  const read = async (answer: Answer) => {
    upstream.answer = answer;
    const { status, body, headers } = await gateway.get("/_all_dbs", token);
    return [status, body.code, headers.get("content-encoding")];
  };
  const broken = [502, "upstream_broken", null];
  t.same(await read(json({ alpha: 1 })), broken);
  t.same(await read((_, response) => response.end("<html>")), broken);
  t.same(await read((_, response) => response.destroy()), broken);
  t.same(await read((_, response) => response.end(gzipSync('["alpha"]'))), broken);
  t.same(
    await read((_, response) => response.writeHead(200, { "content-length": 9 }).end("[]")),
    broken,
    "an answer that ends too early",
  );
  const huge = Buffer.alloc(34 * 1024 * 1024, "[");
  t.same(await read((_, response) => response.end(huge)), broken);
  t.same(await read(json(["alpha", 5, null, { a: 1 }, "_users"])), [200, undefined, null]);
});

t.test("a list of aliases or data streams that cannot be read is not an empty one", async (t) => {
  const { gateway, upstream, login } = answering(json({}), search);
  const token = await login("lars");
  for (const path of ["/_alias", "/_aliases", "/_alias/x*", "/_data_stream"]) {
    for (const answer of [json([]), json(null), json("no list", 404)]) {
      upstream.answer = answer;
      const { status, body } = await gateway.get(path, token);
      t.same([status, body.code], [502, "upstream_broken"], path);
    }
  }
});

t.test("a long answer to a lookup is not remembered", async (t) => {
  const lookups = (requests: readonly { url: string }[]) =>
    requests.filter(({ url }) => url.startsWith("/_resolve/")).length;
  for (const [index, padding, expected] of [
    ["short", "", 1],
    ["long", "x".repeat(2_000_000), 2],
  ] as const) {
    const { gateway, upstream, login } = answering((request, response) => {
      if (request.url.startsWith("/_resolve/")) indexes([index], padding)(request, response);
      else json({})(request, response);
    }, search);
    const token = await login("lars");
    for (const path of [`/${index}/_search`, `/${index}/_count`]) {
      t.equal((await gateway.get(path, token)).status, 200);
    }
    t.equal(lookups(upstream.take()), expected);
  }
});

t.test("an answer that the gateway writes names Elasticsearch as the upstream does", async (t) => {
  const found = { indices: [{ name: "a" }], aliases: [], data_streams: [] };
  const named = { "x-elastic-product": "Elasticsearch" };
  for (const [headers, product] of [
    [named, "Elasticsearch"],
    [{}, null],
  ] as const) {
    const { gateway, login } = answering(json(found, 200, headers), search);
    const token = await login("lars");
    for (const path of ["/_alias", "/_resolve/index/*", "/a/_search"]) {
      const answer = await gateway.get(path, token);
      t.equal(answer.status, 200, answer.text);
      t.equal(answer.headers.get("x-elastic-product"), product, path);
    }
  }
});

t.test("a list that the gateway writes keeps digits", async (t) => {
  const aliases = '{"a":{"aliases":{"x":{"filter":{"term":{"n":9007199254740993}}}}}}';
  const { gateway, login } = answering((_request, response) => {
    response.writeHead(200, { "content-type": "application/json" }).end(aliases);
  }, search);
  t.equal((await gateway.get("/_alias", await login("lars"))).text, aliases);
});

t.test("the next page of a scroll is asked for once, and its text may be long", async (t) => {
  let pages = 0;
  const id = "x".repeat(200_000);
  const { gateway, upstream, login } = searching("a", (request, response) => {
    if (request.url.startsWith("/a/_search")) json({ _scroll_id: id })(request, response);
    else if (request.url !== "/_search/scroll") json({})(request, response);
    else if (pages++ === 0) json({ hits: {}, _scroll_id: id })(request, response);
    else response.destroy();
  });
  const token = await login("lars");
  const { body } = await gateway.send("POST", "/a/_search?scroll=1m", {}, token);
  const next = { scroll_id: String(body._scroll_id) };
  const page = await gateway.send("POST", "/_search/scroll", next, token);
  t.equal(page.status, 200, page.text);
  upstream.take();
  t.equal((await gateway.send("POST", "/_search/scroll", next, token)).status, 502);
  t.equal(taken(upstream).length, 1, "a second one would skip a page");
});

t.test("a field for queries needs the right to read every index that they may name", async (t) => {
  const { gateway, login } = searching("mine", json({ acknowledged: true }));
  const field = { properties: { query: { type: "percolator" } } };
  const template = [{ any: { match: "*", mapping: { type: "percolator" } } }];
  for (const [user, status] of [
    ["dora", 403],
    ["root", 200],
  ] as const) {
    const token = await login(user);
    const put = (path: string, body: unknown) => gateway.send("PUT", path, body, token);
    for (const answer of [
      await put("/mine/_mapping", field),
      await put("/mine/_mapping", { dynamic_templates: template }),
      await put("/mine/_mapping", { runtime: { x: { type: "lookup", target_index: "secret" } } }),
      await put("/mine", { mappings: field }),
      await put("/mine", { mappings: { properties: { a: { properties: field.properties } } } }),
    ]) {
      t.equal(answer.status, status, `${user}: ${answer.text}`);
    }
    t.equal((await put("/mine/_mapping", { properties: { a: { type: "text" } } })).status, 200);
  }
});

t.test("a caller beyond a rate limit causes no lookups", async (t) => {
  const { gateway, upstream, login } = answering((request, response) => {
    if (request.url.startsWith("/_resolve/")) indexes(["a", "b"])(request, response);
    else json({})(request, response);
  }, search);
  const boundary = '[[boundaries]]\nusername = "lena"\nvia = "query"\nrate_limit = "4/hour"\n';
  await reload(gateway, (text) => `${text}\n${boundary}`);
  const token = await login("lena");
  const first = await gateway.get("/a,b/_search", token);
  t.equal(first.status, 200, first.text);
  const rate = { boundary: "query username=lena", limit: "4/hour" };
  t.match(await auditOf(gateway, first), { rates: [{ ...rate }, { ...rate, counted: 2 }] });
  t.equal((await gateway.get("/a/_search?unknown=1", token)).status, 400, "this counts too");
  t.equal((await gateway.get("/a/_search", token)).status, 200);
  taken(upstream);
  for (const path of ["/c/_search", "/c*/_search", "/_alias"]) {
    t.equal((await gateway.get(path, token)).status, 429, path);
  }
  t.same(taken(upstream), []);
});

t.test("a rate limit counts each action, document and search of a body", async (t) => {
  const { gateway, upstream, login } = searching("a", json({}));
  const boundary = '[[boundaries]]\nusername = "liam"\nvia = "query"\nrate_limit = "9/hour"\n';
  await reload(gateway, (text) => `${text}\n${boundary}`);
  const token = await login("liam");
  const ask = (path: string, ...lines: object[]) =>
    gateway.request(path, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: lines.map((line) => `${JSON.stringify(line)}\n`).join(""),
    });
  const search = [{ index: "a" }, {}];
  for (const [answer, counted] of [
    [await ask("/_msearch", ...search, ...search, ...search), 3],
    [await ask("/a/_mget", { ids: ["1", "2", "3"] }), 6],
    [await ask("/_mget", { docs: Array(2).fill({ _index: "a", _id: "1" }) }), 8],
  ] as const) {
    t.equal(answer.status, 200, answer.text);
    t.match(await auditOf(gateway, answer), { rates: [{}, { counted }] });
  }
  taken(upstream);
  const erase = { delete: { _index: "a", _id: "1" } };
  t.equal((await ask("/_bulk", erase, erase)).status, 429);
  t.same(
    taken(upstream).filter(({ method }) => method === "POST"),
    [],
  );
});

t.test("a rate limit counts the documents and queries that CouchDB is asked for", async (t) => {
  const { gateway, login } = answering(json({ results: [] }));
  const boundary = '[[boundaries]]\nusername = "liam"\nvia = "query"\nrate_limit = "9/hour"\n';
  await reload(gateway, (text) => `${text}\n${boundary}`);
  const token = await login("liam");
  for (const [path, body, counted] of [
    ["/alpha/_bulk_get", { docs: [{ id: "a" }, { id: "b" }] }, 2],
    ["/alpha/_all_docs/queries", { queries: [{}, {}, {}] }, 5],
  ] as const) {
    const answer = await gateway.send("POST", path, body, token);
    t.equal(answer.status, 200, answer.text);
    t.match(await auditOf(gateway, answer), { rates: [{}, { counted }] });
  }
});

t.test("a long body stops no other request while it is read", async (t) => {
  const { gateway, login } = answering(json({ ok: true }));
  const token = await login("rita");
  const keys = Array.from({ length: 700_000 }, (_, at) => `"k${at}":1`).join(",");
  const long = gateway.send("POST", "/alpha/_find", `{"selector":{${keys}}}`, token);
  let isRead = false;
  let served = 0;
  void long.finally(() => {
    isRead = true;
  });
  while (!isRead) {
    await gateway.request("/_gatehouse/healthz");
    served++;
  }
  t.equal((await long).status, 200);
  t.ok(served > 10, `${served} requests are served in the meantime`);
});

t.test("a body of many small parts stops no other request", async (t) => {
  const repeated = (head: string, part: string, tail: string) =>
    head + Array.from({ length: 9_000_000 / (part.length + 1) }, () => part).join(",") + tail;
  for (const [opened, path, body, status] of [
    [couch, "/alpha/_bulk_docs", repeated('{"docs":[', "{}", "]}"), 200],
    [couch, "/_dbs_info", repeated('{"keys":[', '"alpha"', "]}"), 400],
    [search, "/_mget", repeated('{"docs":[', '{"_index":"a"}', "]}"), 400],
    [search, "/a/_search", repeated('{"sort":[', "[]", "]}"), 400],
    [search, "/_aliases", repeated('{"actions":[', '{"add":{}}', "]}"), 400],
    [search, "/a/_search", repeated('{"query":{"terms":{"n":[', "1", "]}}}"), 200],
  ] as const) {
    const { gateway, login } = answering(indexes(["a"]), opened);
    const token = await login("root");
    await longestTurn(gateway.home);
    t.equal((await gateway.send("POST", path, body, token)).status, status, path);
    const turn = await longestTurn(gateway.home);
    t.ok(turn < 400, `${path}: ${turn}`);
  }
});

t.test("a right that is removed cuts an upload before its end", async (t) => {
  const { gateway, upstream, login } = answering(json({ ok: true }));
  const token = await login("wim");
  const { port } = new URL(gateway.url);
  const ended = Promise.withResolvers<string>();
  const upload = httpRequest({
    port,
    method: "PUT",
    path: "/alpha/doc/file",
    headers: { authorization: `Bearer ${token}`, "content-type": "text/plain" },
  });
  upload.on("response", ({ statusCode }) => ended.resolve(String(statusCode)));
  upload.on("error", ({ message }) => ended.resolve(message));
  const timer = setInterval(() => upload.write("x".repeat(1000)), 50);
  t.teardown(() => clearInterval(timer));
  await delay(500);
  await reload(gateway, (text) =>
    text.replace('username = "wim"\ndatabase = "alpha"', 'username = "wim"\ndatabase = "old"'),
  );
  t.match(await ended.promise, /403|hang up|reset|EPIPE/i);
  t.notOk(
    upstream.take().some(({ method }) => method === "PUT"),
    "no upload was complete",
  );
});

t.test("a client may leave while its upload waits for a connection", async (t) => {
  const { gateway, upstream, login } = answering(json({ ok: true }), narrow);
  const headers = {
    authorization: `Bearer ${await login("wanda")}`,
    "content-type": "text/plain",
    "transfer-encoding": "chunked",
  };
  const upload = async () => {
    const wire = await Wire.open(gateway.url);
    wire.send(`${wireRequest("PUT /alpha/doc/file", headers)}1\r\nx\r\n`);
    return wire;
  };
  let begun = 0;
  upstream.server.on("request", ({ method }) => (begun += method === "PUT" ? 1 : 0));
  const first = await upload();
  await eventually("the upload has begun", () => begun === 1);
  const second = await upload();
  const third = await upload();
  t.teardown(() => [first, second, third].map((wire) => wire.cut()));
  await delay(300);
  second.socket.resetAndDestroy();
  third.send(`1388\r\n${"x".repeat(5000)}\r\n`);
  t.match(await third.until(/body_too_large/), /^HTTP\/1\.1 413 /, "it need not wait for that");
  await gateway.service.logged(({ status }) => status === 499);
  first.send("0\r\n\r\n");
  await first.until(/^HTTP\/1\.1 200 /);
  t.notOk(gateway.service.log.some(({ msg }) => msg === "uncaught error"));
  t.equal(begun, 1);
});

t.test("slow uploads of a user leave room for requests and uploads of others", async (t) => {
  const { gateway, upstream, login } = await open(t, "couchdb", json({ ok: true }), {
    config: "connections = 4\n",
  });
  const [token, second, reader] = [await login("wanda"), await login("root"), await login("rita")];
  let begun = 0;
  upstream.server.on("request", ({ method }) => (begun += method === "PUT" ? 1 : 0));
  const headers = {
    authorization: `Bearer ${token}`,
    "content-type": "text/plain",
    "transfer-encoding": "chunked",
  };
  const uploads: Wire[] = [];
  for (let count = 0; count < 3; count++) {
    const wire = await Wire.open(gateway.url, t);
    wire.send(`${wireRequest("PUT /alpha/doc/file", headers)}1\r\nx\r\n`);
    uploads.push(wire);
  }
  await eventually("an upload has begun", () => begun > 0);
  await delay(300);
  t.equal((await gateway.get("/alpha", reader)).status, 200);
  t.equal(begun, 1);
  const quick = await Wire.open(gateway.url, t);
  const chunked = { ...headers, authorization: `Bearer ${second}` };
  quick.send(`${wireRequest("PUT /alpha/doc/file", chunked)}1\r\nx\r\n0\r\n\r\n`);
  await quick.until(/^HTTP\/1\.1 200 /);
  t.equal(begun, 2);
  for (const wire of uploads) wire.send("0\r\n\r\n");
  for (const wire of uploads) await wire.until(/^HTTP\/1\.1 200 /);
});

t.test("a body that grows when it is inflated is refused", async (t) => {
  const { gateway, upstream, login } = await open(t, "couchdb", json({ ok: true }), {
    server: "max_body_bytes = 100000\nmax_buffered_bytes = 1000000\n",
  });
  const token = await login("wanda");
  const headers = {
    authorization: `Bearer ${token}`,
    "content-type": "application/json",
    "content-encoding": "gzip",
  };
  const send = (body: Uint8Array<ArrayBuffer>, path = "/alpha/x") =>
    gateway.request(path, { method: "PUT", headers, body });
  const bomb = new Uint8Array(gzipSync(Buffer.alloc(50_000_000, " ")));
  upstream.take();
  for (const path of ["/alpha/x", "/alpha/x/file"]) {
    const answers = await Promise.all(Array.from({ length: 10 }, () => send(bomb, path)));
    for (const { status } of answers) t.ok([413, 429, 503].includes(status), String(status));
  }
  t.same(taken(upstream), []);
  const small = new Uint8Array(gzipSync("{}"));
  t.equal((await send(small)).status, 200, "the memory is free again");
  t.equal((await send(small.slice(0, -5))).status, 400);
  const doubled = new Uint8Array(Buffer.concat([small, small]));
  t.equal((await send(doubled)).status, 400, "two bodies in one");
});

t.test("what a client may not send gets no 100 Continue", async (t) => {
  const { gateway, login } = answering(json({ ok: true }));
  const headers = { authorization: `Bearer ${await login("rita")}` };
  const wire = await Wire.open(gateway.url, t);
  const head = { ...headers, Expect: "100-continue", "Content-Type": "text/plain" };
  wire.send(wireRequest("PUT /alpha/x/file", { ...head, "Content-Length": "1500000" }));
  t.match(await wire.until(/\r\n\r\n/), /^HTTP\/1\.1 403 /);
});

t.test("no header of a client takes the place of one of the gateway", async (t) => {
  const { gateway, upstream, login } = answering(json({ ok: true }));
  const token = await login("rita");
  const wire = await Wire.open(gateway.url, t);
  upstream.take();
  wire.send(
    wireRequest("GET /alpha/_all_docs?startkey=%22a%0d%0aX-Evil:%201%22", {
      Authorization: `Bearer ${token}`,
      Connection: "x-gatehouse-user, x-request-id, content-type, close",
      "X-Gatehouse-User": "root",
      "X-Gatehouse-Role": "Owner",
      "X-Forwarded-For": "6.6.6.6",
      "X-Forwarded-Host": "evil.test",
      "X-HTTP-Method-Override": "DELETE",
      "X-Own": "1",
      "Proxy-Authorization": "Basic eDp5",
    }),
  );
  t.match(await wire.until(/\r\n\r\n/), /^HTTP\/1\.1 200 /);
  const [sent] = taken(upstream);
  const { headers = {}, url, method } = sent ?? {};
  t.equal(method, "GET");
  t.equal(url, "/alpha/_all_docs?startkey=%22a%0D%0AX-Evil%3A%201%22");
  t.equal(headers["x-gatehouse-user"], "rita");
  t.equal(headers["x-gatehouse-role"], "ReadOnly");
  t.equal(headers["x-own"], "1");
  t.notMatch(JSON.stringify(headers), /evil|6\.6\.6\.6|override|proxy-auth/i);
});

t.test("no spelling of the base path reaches the upstream", async (t) => {
  const { gateway, upstream, login } = answering(json({ ok: true }));
  const token = await login("root");
  upstream.take();
  for (const path of [
    "/_GATEHOUSE/api/users",
    "/%5Fgatehouse/api/users",
    "/_gatehouse%2Fapi/users",
    "/_gatehouse/%61pi/users",
    "/_gatehouse/api%2Fusers",
    "/_gatehouse",
    "/_gatehouse/",
    "/.WELL-known/x",
    "/%2ewell-known/x",
  ]) {
    const { status } = await gateway.get(path, token);
    t.ok(status === 404 || status === 400, `${path}: ${status}`);
  }
  t.same(taken(upstream), []);
});

t.test("handles open in every worker, and while authentication is off", async (t) => {
  const scrolls: Answer = (request, response) => {
    if (request.url.startsWith("/_resolve/")) indexes(["a"])(request, response);
    else json({ _scroll_id: "raw" })(request, response);
  };
  const shared = await open(t, "opensearch", scrolls, { server: "workers = 2\n" });
  const token = await shared.login("lars");
  const { body } = await shared.gateway.send("POST", "/a/_search?scroll=1m", {}, token);
  const next = { scroll_id: String(body._scroll_id) };
  for (let count = 0; count < 6; count++) {
    const page = await shared.gateway.send("POST", "/_search/scroll", next, token);
    t.equal(page.status, 200, page.text);
  }
  const root = await shared.login("root");
  const users = "/_gatehouse/api/users";
  t.equal((await shared.gateway.send("DELETE", `${users}/lars`, undefined, root)).status, 200);
  const lars = {
    username: "lars",
    password: "lars password",
    database: "main",
    role: "ReadOnly",
  };
  t.equal((await shared.gateway.send("POST", users, lars, root)).status, 201);
  const anew = await shared.login("lars");
  const refused = await shared.gateway.send("POST", "/_search/scroll", next, anew);
  t.match(refused, { status: 404, text: /handle_not_found/ }, "of an earlier user of that name");
  const again = await shared.gateway.send("POST", "/a/_search?scroll=1m", {}, anew);
  const ownNext = { scroll_id: String(again.body._scroll_id) };
  t.equal((await shared.gateway.send("POST", "/_search/scroll", ownNext, anew)).status, 200);
  const opened = await open(t, "opensearch", scrolls, { auth: "enabled = false" });
  const first = await opened.gateway.send("POST", "/a/_search?scroll=1m", {});
  const own = { scroll_id: String(first.body._scroll_id) };
  t.equal((await opened.gateway.send("POST", "/_search/scroll", own)).status, 200);
});

t.test("a token for one database is no administrator's", async (t) => {
  const { gateway, upstream, login } = answering(json({}), chroma);
  const limited = await login("root", "alpha");
  const answer = await gateway.send("POST", "/api/v2/tenants", { name: "acme" }, limited);
  t.match(answer, { status: 403, body: { code: "token_database" } });
  t.same(taken(upstream), []);
  t.match(await auditOf(gateway, answer), { decision: "deny", reason: "token_database" });
  const whole = await login("root");
  t.equal((await gateway.send("POST", "/api/v2/tenants", { name: "acme" }, whole)).status, 200);
  upstream.answer = (_, response) => response.destroy();
  upstream.take();
  await gateway.send("POST", "/api/v2/tenants", { name: "other" }, whole);
  t.equal(taken(upstream).length, 1, "a tenant is not created twice");
});

t.test("a boundary also limits what only administrators may do", async (t) => {
  const boundary = '[[boundaries]]\nvia = "query"\nusername = "otto"\nrole = "ReadOnly"\n';
  for (const [opened, path, body] of [
    [chroma, "/api/v2/tenants", { name: "acme" }],
    [couch, "/_replicate", { source: "alpha", target: "other" }],
  ] as const) {
    const { gateway, upstream, login } = answering(json({}), opened);
    await reload(gateway, (text) => `${text}\n${boundary}`);
    const denied = await gateway.send("POST", path, body, await login("otto"));
    t.match(denied, { status: 403, body: { code: "role_insufficient" } }, path);
    t.match(JSON.stringify(await auditOf(gateway, denied)), "query username=otto");
    t.same(taken(upstream), []);
    const allowed = await gateway.send("POST", path, body, await login("root"));
    t.equal(allowed.status, 200);
  }
});
