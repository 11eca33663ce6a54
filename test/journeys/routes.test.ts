import type { IncomingMessage, ServerResponse } from "node:http";
import t, { type Test } from "tap";
import { grant, groupGrant } from "../access/kit.ts";
import { type GatewaySetup, openGatewaySetup } from "../gateway/kit.ts";
import { ask, open, type PlainAnswer } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { auditOf, type TestGateway } from "../kit/gateway.ts";
import { queryHeaders, select } from "../kit/queries.ts";
import { tables } from "../kit/tables.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { words } from "../kit/words.ts";
import { editInForce } from "./staff.ts";

const routes = tables("routes", [
  { path: "/status", access: "public" },
  { path: "/me", access: "authenticated" },
  { path: "/backup", methods: ["POST"], access: "administrator" },
  { path: "/db/:database/stats", methods: ["GET", "POST"], access: "SELECT", query: ["*"] },
  { path: "/auth/:database", access: "authenticated" },
  { path: "/admin/:database", access: "administrator" },
  { path: "/db/:database/rows/:row", methods: ["PUT", "DELETE"], access: "DELETE" },
  { path: "/export", access: "INSERT", database_header: "X-Database" },
]);

async function scene(t: Test, config = "") {
  const { gateway, upstream } = await openGatewaySetup(t, { config: `${config}${routes}` });
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
const { upstream, gateway, admin } = shared;

const { answer: usual } = shared.upstream;

t.beforeEach(() => {
  shared.upstream.take();
  shared.upstream.answer = usual;
});

function bearer(token: string): Record<string, string> {
  return { Authorization: `Bearer ${token}` };
}

type Judged = readonly [line: string, token: string, status: number, code?: string];

/** Checks each response, and that only allowed requests reach the upstream. */
async function checkEach(t: Test, { upstream, gateway }: GatewaySetup, cases: readonly Judged[]) {
  for (const [line, token, status, code] of cases) {
    const answer = await askRaw(gateway, line, token === "" ? {} : bearer(token));
    t.equal(answer.status, status, line);
    if (code !== undefined) t.match(answer.text, `"code":"${code}"`, line);
    const received = upstream.take().map(({ method, url }) => `${method} ${url}`);
    t.strictSame(received, status === 200 ? [line] : [], line);
  }
}

t.test("each kind of route access accepts only the callers that it names", async (t) => {
  const reader = await gateway.addUser("reader", "ReadOnly");
  const writer = await gateway.addUser("writer", "ReadWrite");
  const narrowed = await gateway.addUser("narrowed", "ReadOnly", "other");
  const entry = { role: "ReadOnly", columns: ["id"] };
  await gateway.send("PUT", "/api/access/narrowed/main", entry, admin);
  const limited = await gateway.login("admin", undefined, "main");
  const stats = (database: string) => `GET /db/${database}/stats`;
  const table: Judged[] = [
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
    [stats("a.b"), admin, 404, "not_found"],
    [stats("*"), admin, 404, "not_found"],
    [stats("_all"), admin, 404, "not_found"],
    [stats("%5fall"), admin, 404, "not_found"],
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
  await checkEach(t, shared, table);
});

t.test("the database of a route can be named by a header", async (t) => {
  const token = await gateway.addUser("exporter", "ReadWrite");
  const exported = async (headers: Record<string, string>): Promise<PlainAnswer> =>
    ask(`${gateway.url}/export`, { headers: { ...bearer(token), ...headers } });
  t.equal((await exported({ "X-Database": "main" })).status, 200);
  const [received] = upstream.take();
  t.match(received?.headers, { "x-gatehouse-database": "main", "x-gatehouse-role": "ReadWrite" });
  t.equal((await exported({ "X-Database": "other" })).status, 403);
  t.equal((await exported({})).status, 400);
  t.equal((await exported({ "X-Database": "main, other" })).status, 400);
  t.equal((await exported({ "X-Database": "_all" })).status, 400);
  t.equal(upstream.take().length, 0);
});

t.test("a route forwards path, query string and only the listed headers", async (t) => {
  const target = "/db/main/stats?a=%2e%2e%2f&b=//;c&d=?&e=caf%C3%A9|";
  const dropped = words(`
    X-Hop Cookie Prefer Origin X-Forwarded-For X-Real-IP Forwarded X-Gatehouse-Role X_Gatehouse_User
    X.Gatehouse.User X-Gatehouse-Table X-WEBAUTH-USER Remote-User Remote_User X-Remote-User api-key
    X-Api-Key es-security-runas-user X-Auth-CouchDB-UserName X-Scope-OrgID X-ClickHouse-User
    X-HTTP-Method-Override X-Original-URL Sec-WebSocket-Protocol Content_Type
  `);
  const kept = {
    accept: "a/b",
    "accept-language": "en",
    "content-type": "a/b",
    "user-agent": "me",
    "if-none-match": '"1"',
    "if-unmodified-since": "Sat, 28 Nov 2026 00:00:00 GMT",
    range: "bytes=0-1",
    "if-range": '"1"',
    traceparent: "00-1",
    baggage: "a=b",
  };
  await askRaw(gateway, `POST ${target}`, {
    ...bearer(admin),
    ...Object.fromEntries(dropped.map((name) => [name, "dropped"])),
    ...kept,
    Connection: "close, X-Hop",
  });
  const [received] = upstream.take();
  t.equal(received?.url, target);
  t.match(received?.headers, {
    ...kept,
    host: new URL(upstream.url).host,
    "x-forwarded-for": "127.0.0.1",
    "x-forwarded-proto": "http",
    "x-forwarded-host": "gate.test",
    "x-gatehouse-user": "admin",
    "x-gatehouse-role": "Owner",
    "x-gatehouse-database": "main",
    "x-request-id": String,
  });
  t.notOk(received?.headers.authorization);
  const values = Object.values(received?.headers ?? {});
  t.notOk(values.includes("dropped"), JSON.stringify(received?.headers));
  await ask(`${gateway.url}/status`, { headers: { "X-Gatehouse-User": "root" } });
  const [anonymous] = upstream.take();
  t.equal(anonymous?.headers["x-gatehouse-user"], undefined, "no user is forwarded");
});

t.test("a route returns the answer without hop-by-hop and internal headers", async (t) => {
  upstream.answer = (_, response) => {
    response.writeHead(404, {
      "Set-Cookie": ["a=1", "b=2"],
      Connection: "X-Hop",
      "X-Hop": "1",
      X_Gatehouse_User: "root",
      "X-Request-Id": "theirs",
    });
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

t.test("no cache may give a response to another user", async (t) => {
  const cases: [sent: Record<string, string>, control: string][] = [
    [{}, "private"],
    [{ "Cache-Control": "public, max-age=60, s-maxage=600" }, "private, max-age=60"],
    [{ "cache-control": "Max-Age=60,PUBLIC" }, "private, Max-Age=60"],
    [{ "Cache-Control": "s-maxage=600", "X-Accel-Expires": "600" }, "private"],
    [{ "Cache-Control": "no-store", "CDN-Cache-Control": "max-age=600" }, "private, no-store"],
    [{ "Cache-Control": "max-age=9", "Surrogate-Control": "max-age=9" }, "private, max-age=9"],
  ];
  const stored = /^(?:x-accel-expires|cdn-cache-control|surrogate-control)$/;
  for (const [sent, control] of cases) {
    upstream.answer = (_, response) => response.writeHead(200, sent).end("mine");
    const { headers } = await ask(`${gateway.url}/me`, { headers: bearer(admin) });
    t.equal(headers["cache-control"], control);
    t.match(headers.vary, "Authorization");
    t.notOk(Object.keys(headers).some((name) => stored.test(name)));
    const open = await ask(`${gateway.url}/status`);
    const names = Object.keys(sent).map((name) => name.toLowerCase());
    t.strictSame(
      names.map((name) => open.headers[name]),
      Object.values(sent),
      "a public route may be cached",
    );
    t.equal(open.headers.vary, undefined);
  }
});

t.test("a stored page runs scripts in a browser only on a route with pages", async (t) => {
  const opened = await scene(
    t,
    tables("routes", [
      { path: "/files/:name", access: "public" },
      { path: "/own", access: "authenticated" },
      { path: "/files/index", access: "public" },
    ]).concat("pages = true\n"),
  );
  opened.upstream.answer = (_, response) => {
    response
      .writeHead(200, { "content-type": "image/svg+xml" })
      .end("<svg><script>1</script></svg>");
  };
  for (const [path, policy] of [
    ["/files/a", "sandbox"],
    ["/files/index", null],
    ["/own", "sandbox"],
    ["/status", "sandbox"],
  ] as const) {
    const answer = await opened.gateway.get(path, opened.admin);
    t.equal(answer.status, 200, path);
    t.equal(answer.headers.get("content-security-policy"), policy, path);
  }
});

t.test("HEAD works on every GET route", async (t) => {
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

const ranked = [
  { path: "/*", access: "authenticated", methods: ["GET", "POST"] },
  { path: "/", access: "public" },
  { path: "/:database", access: "SELECT" },
  { path: "/:database/", access: "INSERT" },
  { path: "/:database/:doc", access: "SELECT", "values.doc": "any", methods: ["GET", "PUT"] },
  { path: "/:database/:id", access: "DELETE", methods: ["DELETE"], "values.id": "number" },
  { path: "/:database/_search", access: "SELECT", methods: ["POST"] },
  { path: "/:database/_security", access: "administrator" },
  { path: "/:database/_local/", access: "administrator" },
  { path: "/files/*", access: "authenticated" },
  { path: "/files/private/*", access: "administrator" },
  { path: "/users/:id", access: "authenticated", "values.id": "any" },
  { path: "/users/1", access: "administrator" },
  { path: "/users/-1", access: "administrator" },
  { path: "/docs/:name", access: "public", "values.name": ["intro", "_index"] },
  { path: "/docs/:name", access: "administrator", "values.name": ["secret"] },
  { path: "/items/:id/part", access: "public", "values.id": "uuid" },
];
const uuid = "0e984725-c51c-4bf4-9960-e1c80e27aba0";

for (const order of ["as written", "reversed"]) {
  t.test(`the most specific route decides in a file ${order}`, async (t) => {
    const config = tables("routes", order === "reversed" ? ranked.toReversed() : ranked);
    const { gateway, upstream } = await openGatewaySetup(t, { config });
    const reader = await gateway.addUser("reader", "ReadOnly");
    const cases: [line: string, status: number][] = [
      ["GET /", 200],
      ["POST /", 405],
      ["GET /main", 200],
      ["HEAD /main", 200],
      ["GET /main/", 403],
      ["GET /main?limit=1", 400],
      ["POST /main", 405],
      ["GET /other", 403],
      ["GET /_all", 404],
      ["GET /%5Fall", 404],
      ["GET /main.txt", 404],
      ["POST /main/_search", 200],
      ["GET /main/_search", 405],
      ["POST /_all/_search", 404],
      ["POST /%5f%61ll/_search", 404],
      ["POST /main,side/_search", 404],
      ["POST /main/_Search", 404],
      ["POST /main/%5fsearch", 404],
      ["POST /main/_search/", 404],
      ["GET /main/_security", 403],
      ["GET /main/%5fsecurity", 404],
      ["GET /main/_securit%79", 404],
      ["GET /main/_SECURITY", 404],
      ["GET /main/_security/", 404],
      ["PUT /main/_security", 405],
      ["GET /main/_local/", 403],
      ["GET /main/_local", 404],
      ["GET /main/_design", 200],
      ["GET /main/a%3Fb", 400],
      ["DELETE /main/5", 403],
      ["DELETE /main/abc", 405],
      ["PATCH /main/5", 405],
      ["GET /users/1", 403],
      ["GET /users/01", 404],
      ["GET /users/+1", 404],
      ["GET /users/-1", 403],
      ["GET /users/-01", 404],
      ["GET /users/-2", 200],
      ["GET /users/%EF%BC%90%EF%BC%91", 404],
      ["GET /users/10", 200],
      ["GET /users/0", 200],
      ["GET /docs/intro", 200],
      ["GET /docs/_index", 200],
      ["GET /docs/secret", 403],
      ["GET /docs/other", 404],
      ["GET /DOCS/intro", 404],
      ["POST /docs/intro", 405],
      [`GET /items/${uuid}/part`, 200],
      [`GET /items/${uuid.slice(1)}/part`, 404],
      ["GET /a/b/c", 200],
      ["GET /a/b/c/", 200],
      ["POST /_all/b/c?q=_all", 200],
      ["GET /files/open/", 200],
      ["GET /files/private/a", 403],
      // Servers take these for the place below which the narrower route is.
      ["GET /files/private/", 404],
      ["GET /files/private", 404],
      ["GET /files/Private/", 404],
      ["GET /files/pr%C4%B0vate/a", 404],
      ["GET /files/priv%CC%81ate/a", 404],
      ["GET /files/priv%E2%80%8Bate/a", 404],
      ["GET /files/%EF%BD%90rivate/a", 404],
      ["GET /files/private./a", 404],
      ["GET /files/private%20/a", 404],
      ["GET /files/private%EF%BC%8Fa", 404],
      ["GET /files/private:x/a", 404],
      ["GET /files/PRIVATE::$INDEX_ALLOCATION/a", 404],
      ["GET /files/PRIVAT~1/a", 404],
      ["GET /files/pr3F1C~1/a", 404],
      ["GET /files/open~1/a", 200],
      ["GET /main/a%EF%BC%8Fb", 200],
      ["GET /files/", 404],
      ["DELETE /a/b/c", 405],
      // The gateway's own paths are never covered.
      ["GET /query", 405],
      ["GET /query/x/y", 404],
      ["GET /API/x/y", 404],
      ["GET /%61pi/x/y", 404],
      ["GET /schem%61", 404],
      ["GET /Login", 404],
      ["GET /oauth%5cx/y/z", 404],
      // An upstream could read these as another path.
      ["GET /main/..", 400],
      ["GET /main/%2e%2e/x/y", 400],
      ["GET /files/%EF%BC%8E%E2%80%A4/x", 400],
      ["GET //main/_security", 400],
      ["GET /main//_security", 400],
      ["GET /main;x/_security", 400],
      ["GET /main/_security;x", 400],
      ["GET /main/%5c_security", 400],
      ["GET /main%2f_security", 400],
      ["GET /main/%252f_security", 400],
      ["GET /main/%c0%ae", 400],
      ["GET /main/%", 400],
      ["GET /main/a%00b", 400],
      ["GET /main/x#y", 400],
    ];
    for (const [line, status] of cases) {
      upstream.take();
      const answer = await askRaw(gateway, line, bearer(reader));
      t.equal(answer.status, status, `${line} is ${status}`);
      const forwarded = upstream.take().map(({ method, url }) => `${method} ${url}`);
      t.strictSame(forwarded, status === 200 ? [line] : [], line);
      if (status === 405) t.match(answer.text, /^Allow: /m, line);
    }
    t.match(
      (await askRaw(gateway, "PATCH /main/5", bearer(reader))).text,
      /^Allow: (?=.*PUT).*DELETE/m,
    );
    t.match(
      (await askRaw(gateway, "PATCH /main/abc", bearer(reader))).text,
      /^Allow: (?!.*DELETE)/m,
    );
  });
}

t.test("a long path is compared with the routes at once", async (t) => {
  const { gateway } = await openGatewaySetup(t, { config: tables("routes", ranked) });
  for (const [start, part] of [
    ["a", "."],
    ["a", "%20"],
    ["", "0"],
  ] as const) {
    const startedAt = performance.now();
    const path = `/${start}${part.repeat(15_000 / part.length)}a/b`;
    t.equal((await askRaw(gateway, `GET ${path}`)).status, 404);
    t.ok(performance.now() - startedAt < 500, `${performance.now() - startedAt} ms`);
  }
});

const listing = tables("routes", [
  { path: "/rows/:database", access: "SELECT", query: ["limit", "tag"] },
  { path: "/docs/:name", access: "authenticated" },
  { path: "/fixed", access: "SELECT", database: "main", methods: ["PUT"] },
  { path: "/wide/:database", access: "SELECT", query: ["*"], forward_headers: ["X-Own", "Prefer"] },
  { path: "/coded/:database", access: "SELECT", forward_headers: ["Content-Encoding"] },
  { path: "/forms/:name", access: "authenticated", query: ["*", "_method"] },
]);

t.test("a route forwards only the query parameters that it lists, each once", async (t) => {
  const config = `forward_headers = ["X-Method-Override"]\n${listing}`;
  const { gateway, upstream } = await openGatewaySetup(t, { config });
  const token = await gateway.addUser("reader", "ReadOnly");
  const cases: [target: string, code: string | undefined, message?: RegExp][] = [
    ["/rows/main", undefined],
    ["/rows/main?limit=1&tag=a%26b=c", undefined],
    ["/rows/main?&%6cimit=&", undefined],
    ["/rows/main?limit=1&limit=2", "bad_request", /"limit" is sent twice/],
    ["/rows/main?limit=1&%6Cimit=2", "bad_request"],
    ["/rows/main?limit=1;limit=2", "bad_request"],
    ["/rows/main?limit=1&q=_all", "unknown_parameter", /"q"; allowed: limit, tag/],
    ["/rows/main?limit=1;q=_all", "unknown_parameter"],
    ["/rows/main?LIMIT=1", "unknown_parameter"],
    ["/rows/main?limit[]=1", "unknown_parameter"],
    ["/rows/main?limit%00=1", "unknown_parameter"],
    ["/rows/main?=1", "unknown_parameter"],
    ["/rows/main?a?limit=1", "unknown_parameter"],
    ["/fixed?source={}", "unknown_parameter", /allowed: none/],
    ["/docs/a?x=1&y=2", undefined],
    ["/docs/a?x=1&x=2", "bad_request"],
    ["/wide/main?anything", undefined],
    ["/wide/main?a&a", "bad_request"],
    // By these, frameworks run a DELETE that is sent as a POST. PHP folds the second and third.
    ["/docs/a?x=1&_method=DELETE", "unknown_parameter", /"_method"/],
    ["/docs/a?.method=DELETE", "unknown_parameter"],
    ["/docs/a?x;%20%5Bmethod=DELETE", "unknown_parameter"],
    ["/wide/main?X-HTTP-Method-Override=DELETE", "unknown_parameter"],
    ["/wide/main?x_http_method=DELETE", "unknown_parameter"],
    ["/wide/main?method=a&http_method=b&x-methods=c", undefined],
    ["/forms/a?_method=DELETE", undefined],
  ];
  for (const [target, code, message = /./] of cases) {
    const method = target.startsWith("/fixed") ? "PUT" : "GET";
    const answer = await askRaw(gateway, `${method} ${target}`, bearer(token));
    t.equal(answer.status, code === undefined ? 200 : 400, target);
    if (code !== undefined) {
      const body = JSON.parse(answer.text.slice(answer.text.indexOf("\r\n\r\n")));
      t.match(body, { code, message }, target);
    }
    const forwarded = upstream.take().map(({ url }) => url);
    t.strictSame(forwarded, code === undefined ? [target] : [], target);
  }
  const other = await gateway.addUser("other", "ReadOnly", "side");
  t.equal((await askRaw(gateway, "GET /rows/main?x=1", bearer(other))).status, 400, "before 403");
  t.equal((await askRaw(gateway, "GET /rows/main?x=1")).status, 401, "after 401");
});

t.test("a route forwards further headers that it lists, and no coding in silence", async (t) => {
  const config = `forward_headers = ["X-Everywhere", "X-Method-Override"]\n${listing}`;
  const { gateway, upstream } = await openGatewaySetup(t, { config });
  const token = await gateway.addUser("reader", "ReadOnly");
  const headers = {
    ...bearer(token),
    "X-Own": "1",
    X_Own: "2",
    Prefer: "3",
    "X-Everywhere": "4",
  };
  const ask = (line: string, more = {}) => askRaw(gateway, line, { ...headers, ...more });
  await ask("GET /wide/main", { "X-Method-Override": "DELETE" });
  const [wide] = upstream.take();
  t.match(wide?.headers, { "x-own": "1", prefer: "3", "x-everywhere": "4" });
  for (const name of ["x_own", "x-method-override"]) t.notOk(wide?.headers[name], name);
  const own = { ...queryHeaders(token), "X-Everywhere": "4", "X-Method-Override": "DELETE" };
  await gateway.request("/query", { method: "POST", headers: own, body: select });
  const [query] = upstream.take();
  t.equal(query?.headers["x-everywhere"], "4");
  t.notOk(query?.headers["x-method-override"]);
  await ask("GET /rows/main");
  const [plain] = upstream.take();
  for (const name of ["x-own", "prefer"]) t.notOk(plain?.headers[name], name);
  t.equal(plain?.headers["x-everywhere"], "4");

  const gzip = { "Content-Encoding": "gzip" };
  t.match(await ask("GET /rows/main", gzip), { status: 415, text: /unsupported_media_type/ });
  const unknown = await ask("GET /rows/main?unknown=1", gzip);
  t.equal(unknown.status, 415, "this comes before 400 and 403");
  t.equal(upstream.take().length, 0);
  t.equal((await ask("GET /coded/main", gzip)).status, 200);
  t.equal(upstream.take()[0]?.headers["content-encoding"], "gzip");
});

const perTable = tables("routes", [
  { path: "/t/:db/:collection", access: "SELECT", database: ":db", table: ":collection" },
  {
    path: "/t/:db/:collection",
    access: "INSERT",
    database: ":db",
    table: ":collection",
    methods: ["POST"],
  },
  {
    path: "/t/:db/:collection",
    access: "DROP",
    database: ":db",
    table: ":collection",
    methods: ["DELETE"],
  },
  { path: "/whole/:database", access: "SELECT" },
  { path: "/orders", access: "SELECT", database: "main", table: "orders" },
  { path: "/n/:database/:id", access: "SELECT", table: ":id", "values.id": "number" },
]);

t.test("a route with a table is judged by the entry of that table", async (t) => {
  const { gateway, upstream } = await openGatewaySetup(t, { config: perTable });
  const entries = `
[[groups]]
name = "team"
members = ["rita"]
${grant("rita", "third", "ReadOnly")}
${grant("rita", "third", "None", 'tables = ["7"]')}
${grant("rita", "main", "None")}
${grant("rita", "main", "ReadWrite", 'tables = ["orders", "open_*"]')}
${grant("rita", "main", "ReadOnly", 'tables = ["columns"]\ncolumns = ["id"]')}
${grant("rita", "main", "ReadOnly", 'tables = ["rows"]\nmax_rows = 5')}
${grant("rita", "main", "ReadWrite", 'tables = ["asked"]\nrequire_approval = ["INSERT"]')}
${grant("rita", "main", "ReadOnly", 'tables = ["past"]\nexpires = 2020-01-01T00:00:00Z')}
${groupGrant("team", "main", "ReadOnly", 'tables = ["shared"]')}
[[boundaries]]
via = "query"
username = "bound"
database = "main"
role = "ReadOnly"
[[boundaries]]
via = "query"
username = "few"
max_changes = 3
`;
  const rita = await gateway.addUser("rita", "ReadOnly", "side");
  const bound = await gateway.addUser("bound", "ReadWrite");
  const few = await gateway.addUser("few", "ReadWrite");
  const admin = await gateway.login();
  await editInForce(gateway, (text) => `${text}${entries}`);
  const limited = await gateway.login("rita", "rita password", "side");
  upstream.take();
  const cases: Judged[] = [
    ["GET /t/main/orders", rita, 200],
    ["GET /t/main/o%72ders", rita, 200],
    ["GET /orders", rita, 200],
    ["POST /t/main/orders", rita, 200],
    ["DELETE /t/main/orders", rita, 403, "role_insufficient"],
    ["GET /t/main/open_1", rita, 200],
    ["GET /t/main/closed_1", rita, 403, "role_insufficient"],
    ["GET /t/main/Orders", rita, 403, "name_case_mismatch"],
    ["GET /t/main/OPEN_1", rita, 403, "name_case_mismatch"],
    ["GET /t/MAIN/orders", rita, 403, "database_case_mismatch"],
    ["GET /t/main/columns", rita, 403, "not_narrowable"],
    ["GET /t/main/rows", rita, 403, "not_narrowable"],
    ["GET /t/main/asked", rita, 200],
    ["POST /t/main/asked", rita, 403, "not_narrowable"],
    ["GET /t/main/past", rita, 403, "grant_expired"],
    ["GET /t/main/shared", rita, 200],
    ["POST /t/main/shared", rita, 403, "role_insufficient"],
    ["GET /n/third/7", rita, 403, "role_insufficient"],
    ["GET /n/third/007", rita, 403, "role_insufficient"],
    ["GET /n/third/070", rita, 200],
    ["GET /n/third/-7", rita, 200],
    ["GET /t/side/any", rita, 200],
    ["GET /t/none/any", rita, 403, "no_grant"],
    ["GET /t/main/orders", limited, 403, "token_database"],
    ["GET /whole/main", rita, 403, "role_insufficient"],
    ["GET /whole/side", rita, 200],
    ["GET /t/main/orders", bound, 200],
    ["POST /t/main/orders", bound, 403, "role_insufficient"],
    ["GET /t/main/orders", few, 403, "not_narrowable"],
    ["DELETE /t/main/orders", admin, 200],
    ["GET /t/main/_all", admin, 404, "not_found"],
    ["GET /t/main/open_*", admin, 404, "not_found"],
    ["GET /t/main/open_%2A", admin, 404, "not_found"],
    ["GET /t/main/orders,columns", admin, 404, "not_found"],
    ["GET /t/_all/orders", admin, 404, "not_found"],
    ["GET /t/main/orders?source=columns", admin, 400, "unknown_parameter"],
  ];
  await checkEach(t, { upstream, gateway }, cases);
  const allowed = await gateway.get("/t/main/shared", rita);
  const [received] = upstream.take();
  t.match(received?.headers, { "x-gatehouse-database": "main", "x-gatehouse-role": "ReadOnly" });
  t.match(await auditOf(gateway, allowed), {
    decision: "allow",
    path: "/t/main/shared",
    status: 200,
    via: "query",
    operations: [
      {
        operation: "SELECT",
        database: "main",
        tables: ["shared"],
        entry: "main.shared (group team)",
      },
    ],
  });
  t.match(await auditOf(gateway, await gateway.get("/t/main/columns", rita)), {
    decision: "deny",
    reason: "not_narrowable",
    status: 403,
    operations: [
      { operation: "SELECT", database: "main", tables: ["columns"], entry: "main.columns" },
    ],
  });
});

const perTenant = tables("routes", [
  { path: "/:tenant/:database", access: "SELECT", database: ":tenant.:database" },
  {
    path: "/:tenant/:database/:collection",
    access: "SELECT",
    database: ":tenant.:database",
    table: ":collection",
  },
  { path: "/info/:database", access: "authenticated", database: "own.:database" },
]);

t.test("a database of two names has grants, tokens and audit lines of its own", async (t) => {
  const { gateway, upstream } = await openGatewaySetup(t, { config: perTenant });
  const admin = await gateway.login();
  const anna = await gateway.addUser("anna", "ReadOnly", "acme.shop");
  const bert = await gateway.addUser("bert", "ReadOnly", "acme");
  const table = { role: "ReadOnly" };
  const put = (route: string) => gateway.send("PUT", `/api/access/${route}`, table, admin);
  t.equal((await put("bert/other.shop/orders")).status, 200);
  t.equal((await put("bert/acme/shop")).status, 200);
  t.match(await put("anna/ACME.shop"), { status: 409, body: { code: "database_case_conflict" } });
  const limited = await gateway.login("anna", "anna password", "acme.shop");
  const cases: Judged[] = [
    ["GET /acme/shop", anna, 200],
    ["GET /acme/shop/orders", anna, 200],
    ["GET /acme/shop", limited, 200],
    ["GET /acme/other", anna, 403, "no_grant"],
    ["GET /acme/SHOP", anna, 403, "database_case_mismatch"],
    ["GET /shop/acme", anna, 403, "no_grant"],
    ["GET /acme/shop", bert, 403, "no_grant"],
    ["GET /acme/shop/orders", bert, 403, "no_grant"],
    ["GET /other/shop/orders", bert, 200],
    ["GET /other/shop/Orders", bert, 403, "name_case_mismatch"],
    ["GET /other/shop", bert, 403, "no_grant"],
    ["GET /other/shop", admin, 200],
    ["GET /acme/shop.x", admin, 404, "not_found"],
    ["GET /_acme/shop", admin, 404, "not_found"],
    ["GET /acme/_all/orders", admin, 404, "not_found"],
    ["GET /info/shop", limited, 403, "token_database"],
    ["GET /info/shop", anna, 200],
  ];
  upstream.take();
  await checkEach(t, { upstream, gateway }, cases);
  await gateway.get("/acme/shop", anna);
  t.equal(upstream.takeOne().headers["x-gatehouse-database"], "acme.shop");
  const line = await auditOf(gateway, await gateway.get("/other/shop/orders", bert));
  t.match(line.operations, [
    { database: "other.shop", tables: ["orders"], entry: "'other.shop'.orders" },
  ]);
  const { text } = await gateway.get("/api/access", admin);
  t.match(text, '"database":"acme.shop"');
});

t.test("without authentication, routes still accept only their paths and parameters", async (t) => {
  const [auth, config] = ["enabled = false", `${perTable}${listing}`];
  const { gateway, upstream } = await openGatewaySetup(t, { auth, config });
  for (const [route, status] of [
    ["/t/main/orders", 200],
    ["/t/_all/orders", 404],
    ["/t/main/_all", 404],
    ["/t/main/orders?x=1", 400],
    ["/rows/main?limit=1", 200],
  ] as const) {
    t.equal((await gateway.get(route)).status, status, route);
    const [received] = upstream.take();
    t.equal(received?.url, status === 200 ? route : undefined);
    t.notOk(received?.headers["x-gatehouse-user"]);
  }
});
