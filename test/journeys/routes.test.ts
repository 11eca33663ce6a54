import type { IncomingMessage, ServerResponse } from "node:http";
import t, { type Test } from "tap";
import { ask, open, type PlainAnswer } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { queryHeaders, select } from "../kit/queries.ts";
import { tables } from "../kit/tables.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";

const routes = tables("routes", [
  { path: "/status", access: "public" },
  { path: "/me", access: "authenticated" },
  { path: "/backup", methods: ["POST"], access: "administrator" },
  { path: "/db/:database/stats", methods: ["GET", "POST"], access: "SELECT" },
  { path: "/auth/:database", access: "authenticated" },
  { path: "/admin/:database", access: "administrator" },
  { path: "/db/:database/rows/:row", methods: ["PUT", "DELETE"], access: "DELETE" },
  { path: "/export", access: "INSERT", database_header: "X-Database" },
]);

async function scene(t: Test, config = "") {
  const upstream = await new RecordingUpstream().listen(t);
  const gateway = await startGateway(t, { upstream: upstream.url, config: `${config}${routes}` });
  return { upstream, gateway, admin: await gateway.login() };
}

/** Sends a path as written; fetch would normalize it. */
async function askRaw(
  gateway: TestGateway,
  line: string,
  headers: Record<string, string> = {},
): Promise<{ status: number; text: string }> {
  const wire = await Wire.open(gateway.url);
  wire.send(wireRequest(line, { Connection: "close", ...headers }));
  const text = await wire.untilClosed();
  return { status: Number(text.slice(9, 12)), text };
}

const shared = await scene(t);

const { answer: usual } = shared.upstream;

t.beforeEach(() => {
  shared.upstream.take();
  shared.upstream.answer = usual;
});

function bearer(token: string): Record<string, string> {
  return { Authorization: `Bearer ${token}` };
}

t.test("each kind of route access accepts only the callers that it names", async (t) => {
  const { upstream, gateway, admin } = shared;
  const reader = await gateway.addUser("reader", "ReadOnly");
  const writer = await gateway.addUser("writer", "ReadWrite");
  const narrowed = await gateway.addUser("narrowed", "ReadOnly", "other");
  const entry = { role: "ReadOnly", columns: ["id"] };
  await gateway.send("PUT", "/api/access/narrowed/main", entry, admin);
  const limited = await gateway.login("admin", undefined, "main");
  const stats = (database: string) => `GET /db/${database}/stats`;
  const table: [line: string, token: string, status: number, code?: string][] = [
    ["GET /status", "", 200],
    ["GET /me", "", 401, "unauthenticated"],
    ["GET /me", reader, 200],
    ["POST /backup", writer, 403, "role_insufficient"],
    ["POST /backup", limited, 403, "token_database"],
    ["POST /backup", admin, 200],
    [stats("main"), "", 401, "unauthenticated"],
    [stats("main"), reader, 200],
    [stats("other"), reader, 403, "no_grant"],
    [stats("MAIN"), reader, 403, "database_case_mismatch"],
    [stats("other"), limited, 403, "token_database"],
    [stats("other"), admin, 200],
    [stats("m%61in"), reader, 200],
    [stats("a.b"), admin, 400, "invalid_database"],
    [stats("*"), admin, 400, "invalid_database"],
    ["GET /auth/main", reader, 200],
    ["GET /auth/main", narrowed, 403, "not_narrowable"],
    ["GET /auth/MAIN", reader, 403, "database_case_mismatch"],
    ["GET /auth/MAIN", narrowed, 403, "database_case_mismatch"],
    ["GET /auth/mAi%6E", narrowed, 403, "database_case_mismatch"],
    ["GET /auth/elsewhere", narrowed, 200],
    ["GET /admin/MAIN", admin, 403, "database_case_mismatch"],
    ["GET /admin/main", admin, 200],
    ["DELETE /db/main/rows/7", reader, 403, "role_insufficient"],
    ["DELETE /db/main/rows/7", writer, 200],
    ["GET /db/main/rows/7", writer, 405, "method_not_allowed"],
    ["GET /db/main", writer, 404, "not_found"],
    ["GET /db/main/stats/", writer, 404, "not_found"],
    ["GET /DB/main/stats", writer, 404, "not_found"],
  ];
  for (const [line, token, status, code] of table) {
    const answer = await askRaw(gateway, line, token === "" ? {} : bearer(token));
    t.equal(answer.status, status, `${line} is ${status}`);
    if (code !== undefined) t.match(answer.text, `"code":"${code}"`);
    t.equal(upstream.take().length, status === 200 ? 1 : 0);
  }
});

t.test("the database of a route can be named by a header", async (t) => {
  const { upstream, gateway } = shared;
  const token = await gateway.addUser("exporter", "ReadWrite");
  const exported = async (headers: Record<string, string>): Promise<PlainAnswer> =>
    ask(`${gateway.url}/export`, { headers: { ...bearer(token), ...headers } });
  t.equal((await exported({ "X-Database": "main" })).status, 200);
  const [received] = upstream.take();
  t.match(received?.headers, { "x-gatehouse-database": "main", "x-gatehouse-role": "ReadWrite" });
  t.equal((await exported({ "X-Database": "other" })).status, 403);
  t.equal((await exported({})).status, 400);
  t.equal((await exported({ "X-Database": "main, other" })).status, 400);
  t.equal(upstream.take().length, 0);
});

t.test("a route forwards path, query string and headers except the protected ones", async (t) => {
  const { upstream, gateway, admin } = shared;
  const target = "/db/main/stats?a=%2e%2e%2f&b=//;c&d=?&e=caf%C3%A9|";
  await askRaw(gateway, `POST ${target}`, {
    ...bearer(admin),
    Connection: "close, X-Hop",
    "X-Hop": "1",
    "X-Kept": "yes",
    Cookie: "session=1",
    "X-Forwarded-For": "6.6.6.6",
    "X-Real-IP": "6.6.6.6",
    Forwarded: "for=6.6.6.6",
    X_Gatehouse_User: "root",
    "X-Gatehouse-Role": "root",
  });
  const [received] = upstream.take();
  t.equal(received?.url, target);
  t.match(received?.headers, {
    host: new URL(upstream.url).host,
    "x-kept": "yes",
    "x-forwarded-for": "127.0.0.1",
    "x-forwarded-proto": "http",
    "x-forwarded-host": "gate.test",
    "x-gatehouse-user": "admin",
    "x-gatehouse-role": "Owner",
    "x-gatehouse-database": "main",
    "x-request-id": String,
  });
  const own = ["authorization", "cookie", "x-hop", "forwarded", "x-real-ip", "x_gatehouse_user"];
  for (const name of own) t.equal(received?.headers[name], undefined, `${name} stays here`);
  await ask(`${gateway.url}/status`, { headers: { "X-Gatehouse-User": "root" } });
  const [anonymous] = upstream.take();
  t.equal(anonymous?.headers["x-gatehouse-user"], undefined, "no user is forwarded");
});

t.test("a route returns the answer without hop-by-hop and internal headers", async (t) => {
  const { upstream, gateway } = shared;
  upstream.answer = (_, response) => {
    response.writeHead(404, [
      ...["Set-Cookie", "a=1", "Set-Cookie", "b=2", "Connection", "X-Hop", "X-Hop", "1"],
      ...["X_Gatehouse_User", "root", "X-Request-Id", "theirs"],
    ]);
    response.end("nothing");
  };
  const answer = await ask(`${gateway.url}/status`);
  t.equal(answer.status, 404);
  t.equal(answer.body.toString(), "nothing");
  t.strictSame(answer.headers["set-cookie"], ["a=1", "b=2"]);
  t.equal(answer.headers["x-hop"], undefined);
  t.equal(answer.headers.x_gatehouse_user, undefined);
  t.match(answer.headers["x-request-id"], /^[0-9a-f-]{36}$/);
  t.equal(answer.headers["x-gatehouse-decision"], "allow");
});

t.test("HEAD works on every GET route", async (t) => {
  const { upstream, gateway } = shared;
  upstream.answer = (_, response) => {
    response.writeHead(200, { "Content-Length": "1234" });
    response.end();
  };
  const answer = await ask(`${gateway.url}/status`, { method: "HEAD" });
  t.equal(answer.status, 200);
  t.equal(answer.headers["content-length"], "1234");
  t.equal(answer.body.length, 0);
  t.equal(upstream.take()[0]?.method, "HEAD");
});

t.test("events of a stream arrive at once", async (t) => {
  const { upstream, gateway } = shared;
  const { promise, resolve } = Promise.withResolvers<ServerResponse>();
  upstream.answer = (_, response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.flushHeaders();
    resolve(response);
  };
  const answer: IncomingMessage = await open(`${gateway.url}/status`);
  t.equal(answer.headers["content-type"], "text/event-stream");
  const response = await promise;
  const events: string[] = [];
  answer.setEncoding("utf8").on("data", (text) => events.push(text));
  response.write("data: 1\n\n");
  await eventually("the first event", () => events.join("") === "data: 1\n\n");
  response.end("data: 2\n\n");
  await eventually("the second event", () => events.join("").endsWith("data: 2\n\n"));
});

t.test("configured routes do not change /query", async (t) => {
  const { upstream, gateway, admin } = shared;
  const headers = { ...queryHeaders(admin), "X-Kept": "no" };
  const answer = await ask(`${gateway.url}/query?x=1`, { method: "POST", headers, body: select });
  t.equal(answer.status, 200);
  const [received] = upstream.take();
  t.equal(received?.url, "/query");
  t.equal(received?.headers["x-kept"], undefined);
});

t.test("a route reports an upstream that is down, silent or broken", async (t) => {
  const { upstream, gateway } = await scene(t, "response_timeout = 1\n");
  upstream.answer = () => {};
  const status = () => gateway.request("/status");
  t.match(await status(), { status: 504, body: { code: "upstream_timeout" } });
  upstream.answer = (_, response) => response.socket?.resetAndDestroy();
  t.match(await status(), { status: 502, body: { code: "upstream_broken" } });
  upstream.answer = (_, response) => {
    response.write("half", () => response.socket?.destroy());
  };
  const wire = await Wire.open(gateway.url);
  wire.send(wireRequest("GET /status", {}));
  t.notMatch(await wire.untilClosed(), /\r\n0\r\n\r\n$/, "half an answer does not look whole");
  await upstream.close();
  t.match(await status(), { status: 502, body: { code: "upstream_unreachable" } });
  upstream.server.listen(0);
});
