import { request as httpRequest } from "node:http";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { grant } from "../access/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { auditOf, startGateway, temporaryHome } from "../kit/gateway.ts";
import { runWarm } from "../kit/warm-command.ts";
import { ChromaStub } from "./kit/chroma.ts";
import { checkRights, checkSuite, openPreset } from "./kit/open.ts";

const databases = "/api/v2/tenants/default_tenant/databases";
const collections = `${databases}/alpha/collections`;

const filtered = `
${grant("fay", "alpha", "ReadWrite", 'row_filter = [{ column = "owner", cmp = "=", value = "x" }]')}
${grant("cora", "alpha", "ReadWrite", 'columns = ["id"]')}
${grant("max", "alpha", "ReadWrite", "max_rows = 5")}
${grant("app", "alpha", "ReadWrite", 'require_approval = ["DELETE"]')}
${grant("dora", "alpha", "DbAdmin", 'require_approval = ["SELECT"]')}
`;

async function open(t: Test, config = "") {
  const stub = await ChromaStub.open(t);
  const grants = [
    "root * Owner",
    "rita alpha ReadOnly",
    "wanda alpha ReadWrite",
    "nina bravo Owner",
  ];
  const people = ["fay", "cora", "max", "app", "dora"].map((name) => `${name} elsewhere ReadOnly`);
  const opened = await openPreset(t, "chroma", stub.url, {
    grants: [...grants, ...people],
    more: filtered,
    config,
  });
  const docs = stub.addCollection("alpha", "docs", "for all");
  const secret = stub.addCollection("bravo", "secret", "hush");
  return { stub, docs, secret, ...opened };
}

const shared = await open(t);
const { stub, gateway, login } = shared;
const token = await login("rita");
t.beforeEach(() => void shared.stub.take());

t.test("every check of the suite holds", { timeout: 120_000 }, async (t) => {
  const stub = await ChromaStub.open(t);
  await checkSuite(t, "chroma", stub.url, 1000);
  const left = await fetch(`${stub.url}${databases}`);
  t.notMatch(await left.text(), "gatehouse_test_", "it leaves nothing behind");
});

t.test("a server that does not respond is an error of its own", async (t) => {
  const flags = ["preset", "test", "chroma", "--url", "http://127.0.0.1:1"];
  const { code, stderr } = await runWarm(temporaryHome(t), flags);
  t.equal(code, 1);
  t.match(stderr, /no response from http:\/\/127\.0\.0\.1:1/);
});

t.test("the suite says when the server is another one, and sends nothing else", async (t) => {
  const stub = await ChromaStub.open(t);
  for (const name of ["couchdb", "opensearch"]) {
    const flags = ["preset", "test", name, "--url", stub.url];
    const { code, stderr } = await runWarm(temporaryHome(t), flags);
    t.equal(code, 1);
    t.match(stderr, new RegExp(`${stub.url} does not answer as ${name} does: .*--credential-file`));
    t.same([...new Set(stub.take().map(({ method, url }) => `${method} ${url}`))], ["GET /"]);
  }
});

t.test("the start warns of an upstream that is another one, or wants a credential", async (t) => {
  const stub = await ChromaStub.open(t);
  const warningsOf = async (preset: "chroma" | "couchdb") => {
    const { gateway } = await openPreset(t, preset, stub.url, { grants: ["root * Owner"] });
    return () =>
      gateway.service.log.flatMap(
        ({ msg }) => / does not answer as /.exec(String(msg))?.input ?? [],
      );
  };
  const remedy = "check upstream.url and upstream.credential";
  const other = await warningsOf("couchdb");
  await eventually("another server is reported", () => other().length > 0);
  const title = "CouchDB 3 and PouchDB Server";
  t.same(other(), [`the upstream does not answer as ${title}: ${remedy}`]);
  const same = await warningsOf("chroma");
  await delay(1000);
  stub.intercept = (_, response) => {
    response.writeHead(401, { "content-type": "application/json" }).end("{}");
    return true;
  };
  const refused = await warningsOf("chroma");
  await eventually("a refusal is reported", () => refused().length > 0);
  t.same(refused(), [`the upstream does not answer as Chroma: ${remedy}`]);
  t.same(same(), []);
});

t.test("Chroma finds another database's records by their UUID, the gateway does not", async (t) => {
  const { stub, gateway, docs, secret, login } = await open(t);
  const path = `${collections}/${secret}/get`;
  const direct = await fetch(`${stub.url}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: "{}",
  });
  t.match(await direct.text(), "hush", "without a gateway it is read");
  const token = await login("rita");
  const own = await gateway.send("POST", `${collections}/${docs}/get`, {}, token);
  t.match(own.body, { documents: ["for all"] });
  stub.take();
  const refused = await gateway.send("POST", path, {}, token);
  t.equal(refused.status, 404);
  t.same(
    stub.take().map(({ url }) => url),
    [`${collections}/by-id/${secret}`],
  );
  stub.intercept = ({ url }, response) => {
    if (!url.includes("/by-id/")) return false;
    response.writeHead(200, { "content-type": "application/json" });
    const found = { id: secret, name: "secret", tenant: "default_tenant", database: "bravo" };
    response.end(JSON.stringify(found));
    return true;
  };
  await delay(1100);
  const careless = await gateway.send("POST", path, {}, token);
  t.equal(careless.status, 404, "also if a lookup finds it below the wrong database");
});

t.test("a lookup that fails refuses the request", async (t) => {
  const { stub, gateway, docs, login } = await open(t);
  const token = await login("rita");
  for (const [status, body] of [
    [500, "{}"],
    [401, "{}"],
    [200, "not JSON"],
    [200, "{}"],
    [200, "[]"],
  ] as const) {
    stub.intercept = ({ url }, response) => {
      if (!url.includes("/by-id/") && !url.endsWith("/collections/docs")) return false;
      response.writeHead(status, { "content-type": "application/json" }).end(body);
      return true;
    };
    stub.take();
    const answer = await gateway.send("POST", `${collections}/${docs}/get`, {}, token);
    t.equal(answer.status, 502, `${status} ${body}`);
    t.equal(
      stub.take().filter(({ url }) => url.endsWith("/get")).length,
      0,
      "nothing is forwarded",
    );
  }
  const shared = { name: "docs", get_or_create: true };
  stub.intercept = ({ method, url }, response) => {
    if (method !== "GET" || !url.endsWith("/collections/docs")) return false;
    response.writeHead(500, { "content-type": "application/json" }).end("{}");
    return true;
  };
  t.equal((await gateway.send("POST", collections, shared, token)).status, 502);
});

t.test("a name is looked up at most once a second, and again after it", async (t) => {
  const { stub, gateway, docs, login } = await open(t);
  const token = await login("rita");
  const lookups = () => stub.take().filter(({ url }) => url.includes("/by-id/")).length;
  for (let count = 0; count < 5; count++) {
    await gateway.send("POST", `${collections}/${docs}/get`, {}, token);
  }
  t.equal(lookups(), 1);
  await delay(1100);
  await gateway.send("POST", `${collections}/${docs}/get`, {}, token);
  t.equal(lookups(), 1);
});

t.test("a revoked right ends at the next request", async (t) => {
  const { gateway, docs, login } = await open(t);
  const token = await login("rita");
  const count = () => gateway.get(`${collections}/${docs}/count`, token);
  t.equal((await count()).status, 200);
  const root = await login("root");
  const revoked = await gateway.send(
    "DELETE",
    "/_gatehouse/api/access/rita/alpha",
    undefined,
    root,
  );
  t.equal(revoked.status, 200, revoked.text);
  t.equal((await count()).status, 403);
});

t.test("limits that Chroma cannot keep refuse every request for documents", async (t) => {
  const { gateway, docs, login } = shared;
  for (const user of ["fay", "cora", "max"]) {
    const token = await login(user);
    for (const action of ["get", "query", "add", "delete"]) {
      const answer = await gateway.send("POST", `${collections}/${docs}/${action}`, {}, token);
      t.match(answer, { status: 403, body: { code: "not_narrowable" } }, `${user}: ${action}`);
    }
    const list = await gateway.get(collections, token);
    t.same([list.status, list.text], [200, "[]"], "and its list is empty");
  }
  const token = await login("app");
  const read = await gateway.send("POST", `${collections}/${docs}/get`, {}, token);
  t.equal(read.status, 200, "an approval that is not needed here changes nothing");
  const removed = await gateway.send("POST", `${collections}/${docs}/delete`, {}, token);
  t.match(removed, { status: 403, body: { code: "not_narrowable" } });
});

t.test("each request is one line of the audit, with the name of its UUID", async (t) => {
  const { gateway, docs, secret } = shared;
  const read = await gateway.send("POST", `${collections}/${docs}/get`, {}, token);
  t.match(await auditOf(gateway, read), {
    user: "rita",
    decision: "allow",
    operations: [{ operation: "SELECT", database: "alpha", tables: ["docs"], role: "ReadOnly" }],
  });
  const written = await gateway.send("POST", `${collections}/${docs}/upsert`, {}, token);
  t.equal(written.status, 403);
  t.match(await auditOf(gateway, written), {
    decision: "deny",
    reason: "role_insufficient",
    operations: [{ database: "alpha", tables: ["docs"] }],
  });
  const elsewhere = await gateway.get(`${databases}/bravo/collections/secret`, token);
  t.match(await auditOf(gateway, elsewhere), {
    decision: "deny",
    reason: "no_grant",
    operations: [{ database: "bravo", tables: ["secret"] }],
  });
  const stolen = await gateway.get(`${collections}/by-id/${secret}`, token);
  t.match(await auditOf(gateway, stolen), { status: 404, operations: [{ database: "alpha" }] });
});

t.test("headers of a client that name another user or tenant do not go up", async (t) => {
  const names = ["x-chroma-token", "x-tenant", "x-webauth-user", "cookie", "x-original-url"];
  const headers = Object.fromEntries(names.map((name) => [name, "evil"]));
  const answer = await gateway.request(`${collections}/docs`, {
    headers: { ...headers, authorization: `Bearer ${token}` },
  });
  t.equal(answer.status, 200);
  const sent = JSON.stringify(stub.take().map((one) => one.headers));
  t.notMatch(sent, "evil");
  t.notMatch(sent, token, "nor does the credential");
});

t.test("long bodies pass in a stream, up to the limit", async (t) => {
  const { stub, gateway, docs, login } = await open(
    t,
    "max_upload_bytes = 3000000\n[server]\nmax_body_bytes = 2000\n",
  );
  const token = await login("wanda");
  const send = (length: number, isChunked: boolean) =>
    new Promise<{ status: number; text: string }>((resolve, reject) => {
      const { port } = new URL(gateway.url);
      const body = JSON.stringify({ ids: ["2"], documents: ["x".repeat(length)] });
      const sent = httpRequest(
        {
          port,
          method: "POST",
          path: `${collections}/${docs}/add`,
          headers: {
            authorization: `Bearer ${token}`,
            "content-type": "application/json",
            ...(isChunked ? {} : { "content-length": body.length }),
          },
        },
        async (answer) => resolve({ status: answer.statusCode ?? 0, text: await text(answer) }),
      );
      sent.on("error", reject);
      sent.end(body);
    });
  for (const isChunked of [false, true]) {
    stub.take();
    const passed = await send(2_500_000, isChunked);
    t.equal(passed.status, 201, passed.text);
    const added = stub.take().find(({ url }) => url.endsWith("/add"));
    t.ok((added?.body.length ?? 0) > 2_500_000);
  }
  t.match(await send(3_500_000, false), { status: 413 });
  const { body } = await gateway.send("POST", collections, { name: "y".repeat(3000) }, token);
  t.match(body, { code: "body_too_large" }, "a body that is read is shorter");
});

t.test("what a client asks for at its start names only what its user may use", async (t) => {
  const identity = await gateway.get("/api/v2/auth/identity", token);
  t.same(identity.body, { user_id: "rita", tenant: "default_tenant", databases: ["alpha"] });
  t.equal((await gateway.get("/api/v2/tenants/default_tenant", token)).status, 200);
  t.equal((await gateway.get(`${databases}/alpha`, token)).status, 200);
  t.equal((await gateway.get(`${databases}/default_database`, token)).status, 403);
});

t.test("without authentication everything that is listed passes, and nothing else", async (t) => {
  const stub = await ChromaStub.open(t);
  const docs = stub.addCollection("alpha", "docs", "for all");
  const gateway = await startGateway(t, {
    upstream: stub.url,
    config: 'preset = "chroma"\n',
    auth: "enabled = false",
  });
  t.equal((await gateway.send("POST", `${collections}/${docs}/get`, {})).status, 200);
  t.equal((await gateway.send("POST", "/api/v2/reset", {})).status, 404);
  const list = await gateway.get(databases);
  t.match(list.text, "alpha");
});

t.test("get_or_create returns no collection to a caller who may only create it", async (t) => {
  const token = await login("dora");
  for (const name of ["docs", "unknown"]) {
    stub.take();
    const existing = await gateway.send("POST", collections, { name, get_or_create: true }, token);
    t.match(existing, { status: 403, body: { code: "not_narrowable" } }, name);
    t.same(stub.take(), [], "nothing is looked up");
  }
  t.equal((await gateway.send("POST", collections, { name: "made" }, token)).status, 200);
  const body = { name: "docs", get_or_create: true };
  const narrowed = await gateway.send("POST", collections, body, await login("fay"));
  t.match(narrowed, { status: 403, body: { code: "not_narrowable" } }, "its limit is the reason");
  const other = await gateway.send("POST", collections, body, await login("nina"));
  t.match(other, { status: 403, body: { code: "no_grant" } });
});

t.test("get_or_create of a collection that exists is forwarded as reads", async (t) => {
  const body = { name: "docs", get_or_create: true };
  const token = await login("rita");
  stub.take();
  const found = await gateway.send("POST", collections, body, token);
  t.match(found, { status: 200, body: { name: "docs" } });
  t.same(new Set(stub.take().map(({ method }) => method)), new Set(["GET"]));
});

t.test("the audit tells what a write does", async (t) => {
  const { docs } = shared;
  const kept = { ids: ["1"], embeddings: [[1]] };
  await checkRights(t, shared, "root", [
    ["POST", databases, { name: "made" }, ["CREATE DATABASE"]],
    ["POST", collections, { name: "new" }, ["CREATE"]],
    ["POST", collections, { name: "newer", get_or_create: true }, ["CREATE"]],
    ["POST", `${collections}/${docs}/add`, kept, ["INSERT"]],
    ["POST", `${collections}/${docs}/upsert`, kept, ["INSERT UPDATE"]],
    ["POST", `${collections}/${docs}/update`, kept, ["UPDATE"]],
    ["POST", `${collections}/${docs}/delete`, { ids: ["1"] }, ["DELETE"]],
    ["DELETE", `${databases}/made`, undefined, ["DROP DATABASE"]],
  ]);
});

t.test("a token for one database opens no other", async (t) => {
  const body = { username: "root", password: "root password", database: "alpha" };
  const { token } = (await gateway.send("POST", "/_gatehouse/login", body)).body;
  const get = (path: string) => gateway.get(path, String(token));
  t.equal((await get(collections)).status, 200);
  t.equal((await get(`${databases}/bravo/collections`)).status, 403);
  const list = await get(databases);
  t.match(list.text, "alpha");
  t.notMatch(list.text, "bravo");
  t.match((await get("/api/v2/auth/identity")).body, { databases: ["alpha"] });
});
