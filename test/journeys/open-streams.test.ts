import { readFileSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { grant } from "../access/kit.ts";
import type { GatewaySetup } from "../gateway/kit.ts";
import { decodePart, readKey } from "../identity/forge.ts";
import { eventually } from "../kit/eventually.ts";
import { putInPlace, startGateway, type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { columnsOf, insert, select as oneQuery, queryHeaders } from "../kit/queries.ts";
import { tables } from "../kit/tables.ts";
import { runWarm } from "../kit/warm-command.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { connectStateless } from "../mcp/clients.ts";
import { statelessCall } from "../mcp/messages.ts";
import { type IssuerKey, makeKey, TestIssuer } from "../oauth/issuer.ts";
import { oneWayEach } from "./losses.ts";
import { openBriefly, openStaffed, soon, succeed, tokenOf } from "./staff.ts";

const config = tables("routes", [
  { path: "/public/events", access: "public" },
  { path: "/events", access: "authenticated" },
  { path: "/admin/events", access: "administrator" },
  { path: "/db/:database/events", access: "INSERT" },
]);

function keepOpen({ upstream }: GatewaySetup): ServerResponse[] {
  const streams: ServerResponse[] = [];
  upstream.answer = (_, response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write("data: first\n\n");
    streams.push(response);
  };
  return streams;
}

async function openStream(gateway: TestGateway, route: string, token?: string): Promise<Wire> {
  const wire = await Wire.open(gateway.url);
  const headers: Record<string, string> = token ? { Authorization: `Bearer ${token}` } : {};
  wire.send(wireRequest(`GET ${route}`, headers));
  const answer = await wire.until(/\r\n\r\n/);
  if (!answer.startsWith("HTTP/1.1 200 ")) throw new Error(answer);
  await wire.until(/data: first/);
  return wire;
}

function sendMore(streams: readonly ServerResponse[]): void {
  for (const stream of streams) stream.write("data: more\n\n");
}

function isCut(streams: readonly ServerResponse[], stream: Wire): () => boolean {
  return () => {
    // A silent upstream would end it, too.
    sendMore(streams);
    return stream.isClosed;
  };
}

async function checkCut(
  t: Test,
  how: string,
  stream: Wire,
  upstreamSide: ServerResponse | undefined,
): Promise<void> {
  await soon(t, `cut: ${how}`, () => stream.isClosed);
  t.notMatch(stream.text, /\r\n0\r\n\r\n$/, "it does not look as if it had ended");
  await eventually("the upstream sees it", () => upstreamSide?.destroyed === true);
}

const names = oneWayEach.map((_, number) => `user-${number}`);
const writers = ["eve", "bob", ...names].map((name) => `${name} main ReadWrite`);
const grants = ["root * Owner", "rex * Owner", "bob side ReadOnly", ...writers];
const shared = await openStaffed(t, grants, { config });

t.test("a stream is cut when its right is lost, and others stay open", async (t) => {
  const { gateway } = shared;
  const streams = keepOpen(shared);
  const root = await tokenOf(gateway, "root");
  const others = [
    await openStream(gateway, "/db/main/events", await tokenOf(gateway, "eve")),
    await openStream(gateway, "/admin/events", root),
    await openStream(gateway, "/public/events"),
  ];
  const cuts: Promise<void>[] = [];
  for (const [number, way] of oneWayEach.entries()) {
    const name = names[number] ?? "";
    const token = await tokenOf(gateway, name);
    const stream = await openStream(gateway, "/db/main/events", token);
    const upstreamSide = streams.at(-1);
    await way.act({ gateway, name, token, root });
    cuts.push(checkCut(t, way.how, stream, upstreamSide));
  }
  await Promise.all(cuts);
  const cut = () => gateway.service.log.filter(({ msg }) => msg === "an open stream is cut");
  await eventually("each is in the log", () => cut().length === oneWayEach.length);
  const codes = cut().map(({ code }) => code);
  t.strictSame(codes.sort(), oneWayEach.map(({ code }) => code).sort(), "the log says why");
  sendMore(streams);
  for (const stream of others) {
    t.notOk(stream.isClosed);
    await stream.until(/data: more/);
    stream.cut();
  }
});

t.test("a stream is cut when its token expires", async (t) => {
  const { gateway } = shared;
  const streams = keepOpen(shared);
  const lasting = await openStream(gateway, "/events", await tokenOf(gateway, "bob"));
  const open = (token: string) => openStream(gateway, "/events", token);
  const { opened: stream, exp } = await openBriefly(gateway, open);
  await stream.untilClosed();
  t.ok(Date.now() / 1000 >= exp, "not before its time");
  sendMore(streams);
  await lasting.until(/data: more/);
  lasting.cut();
});

t.test("a stream is cut when its token's key is revoked, not when it is rotated", async (t) => {
  const { gateway } = shared;
  const streams = keepOpen(shared);
  const run = async (...words: string[]) => (await runWarm(gateway.home, words)).stdout.trim();
  const { kid } = readKey(gateway.home);
  const opaque = await run("token", "issue", "bob", "--opaque");
  const signed = await openStream(gateway, "/events", await tokenOf(gateway, "bob"));
  const issued = await openStream(gateway, "/events", opaque);
  await run("key", "rotate");
  await eventually("the new key signs", async () => {
    return decodePart(await tokenOf(gateway, "bob"), 0).kid !== kid;
  });
  sendMore(streams);
  await signed.until(/data: more/);
  await run("key", "revoke", kid);
  await soon(t, "the stream of the revoked key", isCut(streams, signed));
  t.notOk(issued.isClosed);
  writeFileSync(path.join(gateway.home, "tokens"), "", { mode: 0o600 });
  await soon(t, "the stream of a token whose record is deleted", isCut(streams, issued));
});

t.test("a stream is cut when its issuer removes the key of its token", async (t) => {
  const issuer = await TestIssuer.start(t);
  const [gone, left] = [await makeKey("gone"), await makeKey("left")];
  const file = path.join(temporaryHome(t), "keys.json");
  const publish = (...keys: IssuerKey[]) =>
    writeFileSync(file, JSON.stringify({ keys: keys.map(({ jwk }) => jwk) }));
  publish(gone, left);
  const setting = await openStaffed(t, ["root * Owner"], {
    config: `${config}${issuer.section(`jwks_file = "${file}"`)}`,
    more: grant("staff:alice", "main", "ReadOnly"),
  });
  const { gateway } = setting;
  const streams = keepOpen(setting);
  const open = async (key: IssuerKey) =>
    openStream(gateway, "/events", await issuer.sign("gatehouse", { key }));
  const [cut, kept] = [await open(gone), await open(left)];
  publish(left, await makeKey("new"));
  await checkCut(t, "its key is gone", cut, streams[0]);
  sendMore(streams);
  await kept.until(/data: more/);
  kept.cut();
});

t.test("the response of a Select is cut once its entry decides otherwise", async (t) => {
  const entry = { database: "main", role: "ReadOnly" };
  const asking = { ...entry, require_approval: ["SELECT"] };
  const more = tables("acl", [
    { username: "ann", ...entry },
    { username: "ben", ...asking },
    { username: "cat", ...asking },
  ]);
  const setting = await openStaffed(
    t,
    ["root * Owner", ...["ann", "ben", "cat"].map((name) => `${name} side ReadOnly`)],
    { more },
  );
  const { gateway } = setting;
  const streams = keepOpen(setting);
  const ask = async (name: string, isApproved: boolean) => {
    const headers: Record<string, string> = queryHeaders(await tokenOf(gateway, name));
    if (isApproved) {
      const asked = await gateway.request("/query", { method: "POST", headers, body: oneQuery });
      const { id } = Object(asked.body.approval);
      t.equal((await runWarm(gateway.home, ["approvals", "approve", id])).code, 0);
      headers["X-Gatehouse-Approval"] = id;
    }
    const wire = await Wire.open(gateway.url);
    wire.send(wireRequest("POST /query", headers, oneQuery));
    await wire.until(/data: first/);
    return wire;
  };
  const [ann, ben, cat] = [await ask("ann", false), await ask("ben", true), await ask("cat", true)];
  await gateway.edit((text) =>
    text.replace(/(username = "(?:ann|ben)"\ndatabase = "main"\nrole = )"ReadOnly"/g, '$1"None"'),
  );
  await soon(t, "the plain entry", isCut(streams, ann));
  await soon(t, "the entry that requires approvals", isCut(streams, ben));
  t.notOk(cat.isClosed, "another user's");
  cat.cut();
});

t.test("a query that reads is refused once its right is lost, a change is not", async (t) => {
  const users = ["ann", "ben", "cat", "dan"];
  const grants = ["root * Owner", ...users.map((name) => `${name} main ReadWrite`)];
  const { gateway, upstream } = await openStaffed(t, grants);
  const waiting: ServerResponse[] = [];
  upstream.answer = (_, response) => void waiting.push(response);
  const tokens = await Promise.all(users.map((name) => tokenOf(gateway, name)));
  const queries = [oneQuery, oneQuery, insert, oneQuery];
  const answers = Promise.all(queries.map((query, at) => gateway.query(query, tokens[at])));
  await eventually("the upstream has them all", () => waiting.length === users.length);
  await gateway.edit((text) =>
    text.replace(/(username = "(?:ann|cat)"\ndatabase = "main"\nrole = )"ReadWrite"/g, '$1"None"'),
  );
  const root = await tokenOf(gateway, "root");
  t.equal((await gateway.send("DELETE", "/api/users/ben/tokens", undefined, root)).status, 200);
  const isInForce = async () => (await gateway.get("/api/access", root)).text.includes("None");
  await eventually("the edit is in force", isInForce);
  // An answer within half a second goes by the rights that the query was judged by.
  await delay(500);
  for (const response of waiting) response.end('{"status":"success","data":[{"id":1}]}');
  t.match(await answers, [
    { status: 403, body: { code: "role_insufficient" } },
    { status: 401, body: { code: "token_revoked" } },
    { status: 200 },
    { status: 200 },
  ]);
});

t.test("a tool that reads is cut once its grant or token is lost, a change is not", async (t) => {
  const grants = ["root * Owner", "ann main ReadWrite", "ben main ReadWrite"];
  const setting = await openStaffed(t, grants, {
    config: 'connections = 4\n[query]\nlevel = "full"\n',
  });
  const { gateway } = setting;
  const streams = keepOpen(setting);
  const send = async (name: string, tool: string, args: object) => {
    const { headers, body } = statelessCall("tools/call", { name: tool, arguments: args });
    const wire = await Wire.open(gateway.url);
    const { host } = new URL(gateway.url);
    const token = `Bearer ${await tokenOf(gateway, name)}`;
    wire.send(wireRequest("POST /mcp", { ...headers, Host: host, Authorization: token }, body));
    return wire;
  };
  const call = async (...given: Parameters<typeof send>) => {
    const before = streams.length;
    const wire = await send(...given);
    await eventually("it is forwarded", () => streams.length > before);
    return wire;
  };
  const select = { database: "main", from: "t", columns: ["*"] };
  const lost = await call("ann", "select", select);
  const kept = await call("ben", "select", select);
  const row = { database: "main", table: "t", values: [{ id: 1 }] };
  const change = await call("ann", "insert", row);
  const regrant = (text: string, name: string, role: string) =>
    text.replace(
      new RegExp(`(username = "${name}"\ndatabase = "main"\nrole = )"\\w+"`),
      `$1"${role}"`,
    );
  await gateway.edit((text) => regrant(regrant(text, "ann", "None"), "ben", "DbAdmin"));
  await soon(t, "the tool that reads", isCut(streams, lost));
  await eventually("the upstream sees it", () => streams[0]?.destroyed === true);
  t.notOk(kept.isClosed, "a grant that was raised");
  t.notOk(change.isClosed, "a tool that changes rows runs to its end");

  const preview = await call("ben", "preview", { Insert: row });
  const running = await call("ben", "insert", row);
  const waiting = await send("ben", "insert", row);
  const root = await tokenOf(gateway, "root");
  t.equal((await gateway.send("DELETE", "/api/users/ben/tokens", {}, root)).status, 200);
  await soon(t, "the tool that reads, without its token", isCut(streams, kept));
  await soon(t, "a Preview", isCut(streams, preview));
  await waiting.until(/Token revoked/);
  t.notOk(running.isClosed, "a change that was sent before runs to its end");
  for (const wire of [change, running, waiting]) wire.cut();
});

t.test("a stream is not cut when an unrelated token or grant is lost", async (t) => {
  const { gateway } = shared;
  const streams = keepOpen(shared);
  const [root, rex] = [await tokenOf(gateway, "root"), await tokenOf(gateway, "rex")];
  const [kept, dropped] = [await tokenOf(gateway, "bob"), await tokenOf(gateway, "bob")];
  const lasting = await openStream(gateway, "/db/main/events", kept);
  const anyUser = await openStream(gateway, "/events", kept);
  const administrator = await openStream(gateway, "/admin/events", rex);
  const doomed = await openStream(gateway, "/events", dropped);

  await succeed(gateway.send("POST", "/logout", undefined, dropped));
  await succeed(gateway.send("DELETE", "/api/access/bob/side", undefined, root));
  await succeed(gateway.send("PUT", "/api/access/rex/*", { role: "DbAdmin" }, root));
  await soon(t, "the token that logged out", () => doomed.isClosed);
  await soon(t, "the former administrator", () => administrator.isClosed);
  sendMore(streams);
  for (const stream of [lasting, anyUser]) await stream.until(/data: more/);

  await succeed(gateway.send("DELETE", "/api/access/bob/main", undefined, root));
  await soon(t, "the grant that the stream needs", () => lasting.isClosed);
  t.notOk(anyUser.isClosed, "a route for everybody needs no grant");
  anyUser.cut();
});

t.test("a stream is cut when its table's grant or its route changes, others stay", async (t) => {
  const grants = ["root * Owner", "bob main ReadWrite"];
  const more = tables("acl", [
    { username: "bob", database: "main", tables: ["orders"], role: "ReadOnly" },
  ]);
  const own = { access: "SELECT", database: "main", table: ":table" };
  const before = [
    { path: "/t/:table/events", ...own },
    { path: "/old/:name", access: "authenticated" },
    { path: "/open/:name", access: "public" },
  ];
  const setting = await openStaffed(t, grants, { config: tables("routes", before), more });
  const { gateway } = setting;
  const streams = keepOpen(setting);
  const token = await tokenOf(gateway, "bob");
  const orders = await openStream(gateway, "/t/orders/events", token);
  const items = await openStream(gateway, "/t/items/events", token);
  const old = await openStream(gateway, "/old/a", token);
  const taken = await openStream(gateway, "/old/b?x=1", token);
  const closed = await openStream(gateway, "/open/a");
  const open = await openStream(gateway, "/open/b");

  await gateway.edit((text) => text.replace('role = "ReadOnly"', 'role = "None"'));
  await soon(t, "the table's grant", () => orders.isClosed);
  t.notOk(items.isClosed, "another table");

  const file = path.join(gateway.home, "gateway.toml");
  const after = [
    { path: "/open/a", access: "authenticated" },
    { path: "/old/b", access: "authenticated", query: [] },
    { path: "/old/:any", access: "authenticated" },
    { path: "/open/:name", access: "public" },
    { path: "/t/:table/events", ...own },
  ];
  const text = readFileSync(file, "utf8").replace(/\[\[routes\]\].*$/s, tables("routes", after));
  await putInPlace(file, text);
  await soon(t, "a route that now requires a user", () => closed.isClosed);
  await soon(t, "a route that now takes no parameter", () => taken.isClosed);
  sendMore(streams);
  for (const stream of [items, old, open]) {
    await stream.until(/data: more/);
    stream.cut();
  }
});

const place = { database: "main", table: "t" };
const columns = columnsOf({ id: "bigint", text: "text" });
const select = {
  Select: { database: "main", from: "t", columns: ["*"], order_by: { column: "id" } },
};
const filler = "x".repeat(100);
const rowCount = 20_000;

const gateway = await startGateway(t, {
  config: "[mcp]\nrow_limit = 50\nresult_bytes = 16384\n",
});
const token = await gateway.login();

t.test("rows are streamed through the gateway in the requested format", async (t) => {
  await gateway.query({ CreateDatabase: { database: "main" } }, token);
  await gateway.query({ CreateTable: { ...place, columns } }, token);
  const values = Array.from({ length: rowCount }, (_, id) => ({ id, text: `${id},${filler}` }));
  t.equal((await gateway.query({ Insert: { ...place, values } }, token)).status, 200);
  const ask = (accept: string, body: object, bearer = token) => {
    const headers = {
      "content-type": "application/json",
      authorization: `Bearer ${bearer}`,
      accept,
    };
    return gateway.request("/query", { method: "POST", headers, body: JSON.stringify(body) });
  };

  const lines = await ask("application/x-ndjson", select);
  t.equal(lines.headers.get("content-type"), "application/x-ndjson");
  t.equal(lines.headers.get("x-gatehouse-decision"), "allow");
  t.equal(lines.text, values.map((row) => `${JSON.stringify(row)}\n`).join(""));

  const csv = await ask("text/csv;q=0.9, application/json;q=0.1", select);
  t.equal(csv.headers.get("content-type"), "text/csv; charset=utf-8; header=present");
  t.equal(csv.text, `id,text\r\n${values.map(({ id, text }) => `${id},"${text}"\r\n`).join("")}`);

  const json = "application/json";
  const nothing = { Select: { ...select.Select, from: "nothing" } };
  const missing = await ask("text/csv", nothing);
  t.match(missing, { status: 404, body: { code: "table_not_found" } });
  t.equal(missing.headers.get("content-type"), json);
  const none = { ...place, where: { column: "id", cmp: "<", value: 0 } };
  t.match(await ask("text/csv", { Delete: none }), { status: 200, body: { affected: 0 } });
  const stranger = await gateway.addUser("stranger", "ReadOnly", "elsewhere");
  t.match(await ask("text/csv", select, stranger), { status: 403, body: { code: "no_grant" } });

  const audit = await gateway.service.logged(
    ({ status, bytes }) => status === 200 && Number(bytes) > lines.text.length,
  );
  t.match(audit, { decision: "allow", user: "admin", operations: [{ operation: "Select" }] });
  const exports = () => gateway.service.log.filter(({ format }) => format !== undefined);
  t.match(exports(), [
    { format: "ndjson", rows: rowCount },
    { format: "csv", rows: rowCount },
    { format: "csv", rows: 0, status: 404 },
  ]);
  const few = { Select: { ...select.Select, limit: 3 } };
  t.equal((await ask("text/csv", few)).text.split("\r\n").length, 5);
  await gateway.service.logged(({ format, rows }) => format === "csv" && rows === 3);
  const empty = { Select: { ...few.Select, where: none.where } };
  t.equal((await ask("application/x-ndjson", empty)).text, "");
  await gateway.service.logged(({ format, rows }) => format === "ndjson" && rows === 0);
});

t.test("over MCP, the audit counts the rows in the tool's result", async (t) => {
  const wide = { database: "main", table: "wide" };
  await gateway.query({ CreateTable: { ...wide, columns } }, token);
  const values = Array.from({ length: 100 }, (_, id) => ({ id, text: filler.repeat(5) }));
  await gateway.query({ Insert: { ...wide, values } }, token);
  const mcp = await connectStateless(t, `${gateway.url}/mcp`, token);
  const { structured } = await mcp.call("select", { ...select.Select, from: "wide", limit: 40 });
  const rows = structured?.rows;
  const shown = Array.isArray(rows) ? rows.length : 0;
  t.ok(shown > 0 && shown < 40, `${shown} rows fit`);
  const line = await gateway.service.logged(({ via, rows }) => via === "mcp" && rows !== undefined);
  t.equal(line.rows, shown);
  const missing = await mcp.call("select", { ...select.Select, from: "nothing" });
  t.equal(missing.isError, true);
  await gateway.service.logged(({ via, toolStatus }) => via === "mcp" && toolStatus === 404);
});
