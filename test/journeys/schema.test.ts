import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { startPostgres } from "../engine/postgres/server.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway, type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { columnsOf, select } from "../kit/queries.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { runWarm } from "../kit/warm-command.ts";
import { statelessCall } from "../mcp/messages.ts";
import { reserveMetrics } from "../observe/exposition.ts";
import { callTool, refusalOf, send } from "./mcp.ts";

const columns = columnsOf({ id: "int", note: "text" });
const schemaTools = ["list_databases", "list_tables", "describe_table"];

async function toolNames(gateway: TestGateway, token: string): Promise<string[]> {
  const { text } = await send(gateway, statelessCall("tools/list"), token);
  return [...text.matchAll(/"name":"(\w+)","title"/g)].map(([, name = ""]) => name);
}

async function hasSchemaTools(gateway: TestGateway, token: string): Promise<boolean> {
  const names = await toolNames(gateway, token);
  return schemaTools.every((name) => names.includes(name));
}

t.test("a database that is broken has no schema, and its queries say why", async (t) => {
  const home = temporaryHome(t);
  mkdirSync(path.join(home, "data"), { mode: 0o700 });
  writeFileSync(path.join(home, "data", "broken.sqlite"), "no database at all. ".repeat(100));
  mkdirSync(path.join(home, "data", "folder.sqlite"));
  symlinkSync("nowhere", path.join(home, "data", "link.sqlite"));
  const whole = new DatabaseSync(path.join(home, "data", "whole.sqlite"));
  whole.exec("create table notes (id int); create view lost as select * from gone");
  whole.close();
  const gateway = await startGateway(t, { home });
  const root = await gateway.login();
  const databases = ["broken", "main", "whole"];
  t.strictSame((await gateway.get("/schema", root)).body.data, { databases });
  const tables = ["lost", "notes"];
  t.strictSame((await gateway.get("/schema/whole", root)).body.data, { tables });
  const described = { code: "schema_not_found", message: /cannot describe this; a query/ };
  for (const route of ["/schema/broken", "/schema/broken/notes", "/schema/whole/lost"]) {
    t.match(await gateway.get(route, root), { status: 404, body: described });
  }
  const resources = await send(gateway, statelessCall("resources/list"), root);
  const uris = tables.map((table) => ({ uri: `gatehouse:///whole/${table}` }));
  t.match(resources.body.result, { resources: uris });

  const types = ["types", "--url", gateway.url];
  const printed = await runWarm(home, types, "", { GATEHOUSE_TOKEN: root });
  t.match(printed, { code: 0, stdout: /^ {2}whole: \{$\n {4}notes: \{$/m });
  const warnings = /^warning: .*\/broken: .* left out\nwarning: .*\/whole\/lost: .* left out\n$/;
  t.match(printed.stderr, warnings);
  const entry = ["access", "grant", "admin", "whole", "ReadOnly", "--row-filter", "tenant = acme"];
  t.match(await runWarm(home, entry), { stderr: /whole\.notes has no column tenant/ });
  const rita = await gateway.addUser("rita", "ReadOnly", "broken");
  const answer = await gateway.query(
    { Select: { database: "broken", from: "notes", columns: ["id"] } },
    rita,
  );
  const message = /file is not a database \(database broken\)$/;
  t.match(answer, { status: 409, body: { code: "statement_failed", message } });
});

t.test("the schema routes show each caller only what it may read", async (t) => {
  const server = await startPostgres(t);
  const gateway = await startGateway(t, { upstream: server.url() });
  const root = await gateway.login();
  for (const database of ["main", "hidden"]) {
    await gateway.query({ CreateDatabase: { database } }, root);
    await gateway.query({ CreateTable: { database, table: "notes", columns } }, root);
  }
  const rita = await gateway.addUser("rita", "ReadOnly");

  const list = await gateway.get("/schema", rita);
  t.strictSame(list.body, { status: "success", data: { databases: ["main"] } });
  t.equal(list.headers.get("x-gatehouse-decision"), "allow");
  t.match((await gateway.get("/schema", root)).body.data, {
    databases: ["hidden", "main", "public"],
  });
  t.strictSame((await gateway.get("/schema/main", rita)).body.data, { tables: ["notes"] });
  t.strictSame((await gateway.get("/schema/main/notes", rita)).body.data, {
    columns: [
      { name: "id", type: "bigint", primary_key: true, nullable: false },
      { name: "note", type: "text", primary_key: false, nullable: true },
    ],
    keys: [["id"]],
  });
  const refusals: [string, string | undefined, number, string][] = [
    ["/schema", undefined, 401, "unauthenticated"],
    ["/schema/hidden", rita, 403, "no_grant"],
    ["/schema/hidden/notes", rita, 403, "no_grant"],
    ["/schema/nowhere", rita, 403, "no_grant"],
    ["/schema/*", rita, 400, "invalid_database"],
    ["/schema/nowhere", root, 404, "schema_not_found"],
    ["/schema/main/nothing", rita, 404, "schema_not_found"],
    ["/schema/main/..%2fx", rita, 404, "schema_not_found"],
    ["/schema/main/notes/id", rita, 404, "not_found"],
  ];
  for (const [route, token, status, code] of refusals) {
    t.match(await gateway.get(route, token), { status, body: { code } }, route);
  }
  t.match(await gateway.service.logged(({ path }) => path === "/schema/hidden/notes"), {
    decision: "deny",
    reason: "no_grant",
    operations: [{ operation: "DescribeTable" }],
  });

  t.ok(await hasSchemaTools(gateway, rita));
  const tables = await callTool(gateway, "list_tables", { database: "main" }, rita);
  t.match(tables.body.result, { structuredContent: { tables: ["notes"] } });
  const denied = await callTool(gateway, "list_tables", { database: "hidden" }, rita);
  t.equal(refusalOf(denied), "no_grant");
  const resources = await send(gateway, statelessCall("resources/list"), rita);
  t.match(resources.body.result, { resources: [{ uri: "gatehouse:///main/notes" }] });

  await server.crash();
  t.match(await gateway.get("/schema", rita), { status: 502 });
  t.ok(await hasSchemaTools(gateway, rita), "while the database is gone, its tools stay");
});

t.test("the schema includes upstreams that start later or run elsewhere", async (t) => {
  const ports = [await freePort(), await freePort()] as const;
  const [here, there] = ports.map((port) => `http://127.0.0.1:${port}`);
  const elsewhere = `[[upstream.databases]]\ndatabases = ["far"]\nurl = "${there}"\n`;
  const gateway = await startGateway(t, { upstream: String(here), config: elsewhere });
  const root = await gateway.login();
  t.match(await gateway.get("/schema", root), { status: 502 });
  const open = { auth: "enabled = false", config: "[mcp]\nenabled = false\n" };
  for (const port of ports) await startGateway(t, { ...open, port });
  t.strictSame((await gateway.get("/schema", root)).body.data, { databases: ["main"] });
  for (const database of ["far", "near"]) {
    await gateway.query({ CreateDatabase: { database } }, root);
  }
  await gateway.query({ CreateTable: { database: "far", table: "notes", columns } }, root);
  t.strictSame((await gateway.get("/schema", root)).body.data, {
    databases: ["far", "main", "near"],
  });
  t.strictSame((await gateway.get("/schema/far", root)).body.data, { tables: ["notes"] });
});

t.test("schema tools appear once the upstream offers its schema", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  upstream.answer = (_request, response) => response.writeHead(404).end("{}");
  const gateway = await startGateway(t, { upstream: upstream.url });
  const token = await gateway.login();
  t.match(await gateway.get("/schema", token), {
    status: 404,
    body: { code: "schema_not_offered" },
  });
  const names = await toolNames(gateway, token);
  t.ok(names.includes("select"));
  for (const name of schemaTools) t.notOk(names.includes(name), name);
  const call = await callTool(gateway, "list_databases", {}, token);
  t.match(call.body.error, { message: 'Unknown tool: "list_databases"' });

  upstream.answer = (_request, response) =>
    response.end('{"status":"success","data":{"databases":["main"]}}');
  await eventually("its tools are there", () => hasSchemaTools(gateway, token));
  t.match(upstream.received.at(-1), {
    method: "GET",
    url: "/schema",
    headers: { "x-gatehouse-user": "admin", "x-request-id": String },
  });
});

async function narrow(t: Test) {
  const upstream = await new RecordingUpstream().listen(t);
  const held: { user: string; url: string; response: ServerResponse }[] = [];
  const metrics = await reserveMetrics();
  const config = `connections = 1\n${metrics.section}`;
  upstream.answer = ({ headers, url }, response) => {
    const isHeld = url === "/query" || url.startsWith("/schema/");
    if (isHeld) held.push({ user: String(headers["x-gatehouse-user"]), url, response });
    else response.end('{"data":{"databases":["main"]}}');
  };
  const gateway = await startGateway(t, { upstream: upstream.url, config });
  const flood = await gateway.addUser("flood", "ReadWrite");
  const alice = await gateway.addUser("alice", "ReadWrite");
  t.ok(await hasSchemaTools(gateway, flood));
  return { gateway, held, metrics, flood, alice };
}

t.test("schema requests share the fair queue with queries and are in the metrics", async (t) => {
  const { gateway, held, metrics, flood, alice } = await narrow(t);
  const ask = () => callTool(gateway, "list_tables", { database: "main" }, flood);
  const answers = [ask(), ask(), ask()];
  await eventually("one is asked", () => held.length === 1);
  await eventually("the others wait", async () => {
    const text = await metrics.read();
    return /upstream_queries_waiting 2/.test(text) && /connections_busy 1/.test(text);
  });
  const query = gateway.query(select, alice);
  await eventually("another user's query waits too", async () =>
    /upstream_queries_waiting 3/.test(await metrics.read()),
  );
  for (let at = 0; at < 4; at++) {
    await eventually("the next one is forwarded", () => held.length > at);
    held[at]?.response.end('{"data":{"tables":[]}}');
  }
  const users = held.map(({ user }) => user);
  t.strictSame(users, ["flood", "alice", "flood", "flood"], "each has its turn");
  t.equal((await query).status, 200);
  for (const { status } of await Promise.all(answers)) t.equal(status, 200);
});

t.test("a schema is not shown to a caller who loses the right while it is read", async (t) => {
  const { gateway, held, alice } = await narrow(t);
  const answer = gateway.get("/schema/main", alice);
  await eventually("it is asked", () => held.length === 1);
  const admin = await gateway.login();
  await gateway.send("DELETE", "/api/access/alice/main", undefined, admin);
  await delay(500);
  held[0]?.response.end('{"data":{"tables":[]}}');
  t.match(await answer, { status: 403, body: { code: "role_insufficient" } });
});

t.test("a schema request is canceled when its client disconnects", async (t) => {
  const { gateway, held, flood, alice } = await narrow(t);
  const client = new AbortController();
  const headers = { authorization: `Bearer ${flood}` };
  const route = `${gateway.url}/schema/main`;
  const left = fetch(route, { headers, signal: client.signal }).catch(() => "left");
  await eventually("it is asked", () => held.length === 1);
  const query = gateway.query(select, alice);
  client.abort();
  t.equal(await left, "left");
  await eventually("its connection is free for others", () => held.length === 2);
  held[1]?.response.end("{}");
  t.equal((await query).status, 200);
  t.ok(held[0]?.response.destroyed, "and the upstream request is canceled");
});
