import t from "tap";
import { Sessions, taskKey } from "../../src/mcp/proxy/sessions.ts";
import { ask, open } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { connectEarlier, connectStateless } from "./clients.ts";
import { fixtureTools } from "./fixture-tools.ts";
import { principalOf } from "./kit.ts";
import { handshakeCall, initialize, statelessCall } from "./messages.ts";
import { everyTool, openProxied } from "./proxied.ts";

const reader = { alice: { main: "ReadOnly" } } as const;

for (const [client, connect] of [
  ["a client of 2026-07-28", connectStateless],
  ["a client that begins by a handshake", connectEarlier],
] as const) {
  t.test(`${client} works with the server behind`, async (t) => {
    const { endpoint } = await openProxied(t, { grants: reader });
    const mcp = await connect(t, endpoint.url);
    t.same((await mcp.toolNames()).toSorted(), fixtureTools.toSorted());
    t.match(await mcp.call("test_simple_text", {}), { isError: false, text: /simple text/ });
    t.match(await mcp.call("test_tool_with_progress", {}), { isError: false, text: "done" });
    t.match(await mcp.call("query_database", { database: "main" }), { text: "asked main" });
    t.same(await mcp.resourceUris(), ["test://static-text", "test://static-binary"]);
    t.match(await mcp.read("test://static-text"), /static text/);
  });

  t.test(`${client} is listed and may call only what the policy gives it`, async (t) => {
    const { endpoint, fixture, denials } = await openProxied(t, {
      grants: { alice: { main: "ReadOnly", other: "ReadWrite" } },
      policy: [
        { name: "test_simple_text", permission: "SELECT", database: "main" },
        { name: "test_error_handling", permission: "INSERT", database: "main" },
        { name: "query_database", permission: "INSERT", database_argument: "database" },
      ],
    });
    const called: string[] = [];
    endpoint.principal = { ...principalOf("alice"), noteCall: (tool) => called.push(tool) };
    const mcp = await connect(t, endpoint.url);
    t.same(await mcp.toolNames(), ["test_simple_text", "query_database"]);
    t.match(await mcp.call("query_database", { database: "other" }), { text: "asked other" });
    fixture.take();
    await t.rejects(mcp.call("wait", {}), /tool_without_policy/);
    await t.rejects(mcp.call("test_error_handling", {}), /role_insufficient/);
    await t.rejects(mcp.call("query_database", { database: "main" }), /role_insufficient/);
    await t.rejects(mcp.call("query_database", { database: "third" }), /no_grant/);
    await t.rejects(mcp.call("query_database", {}), /names no database/);
    for (const name of [
      "Test_Simple_Text",
      "test_simple_text ",
      "ｔest_simple_text",
      "__proto__",
    ]) {
      await t.rejects(mcp.call(name, {}), /tool_without_policy/, name);
    }
    t.same(fixture.take(), [], "nothing went up");
    t.same(called, ["query_database"], "what was allowed is noted, for its user to see");
    t.same(denials.slice(0, 4), [
      "tool_without_policy",
      "role_insufficient",
      "role_insufficient",
      "no_grant",
    ]);
  });
}

t.test("a filtered list is said to be private, and good for this once", async (t) => {
  const { endpoint } = await openProxied(t, { grants: reader });
  const answer = await ask(endpoint.url, statelessCall("tools/list"));
  const { result } = JSON.parse(answer.body.toString());
  t.match(result, { cacheScope: "private", ttlMs: 0 });
  t.match(answer.headers, { "cache-control": "no-store", "x-request-id": "request-1" });
});

t.test("identity goes up, and no credential, cookie or made-up header", async (t) => {
  const { endpoint, fixture } = await openProxied(t, { grants: reader });
  const call = statelessCall("tools/call", {
    name: "query_database",
    arguments: { database: "main" },
  });
  await ask(endpoint.url, {
    ...call,
    headers: {
      ...call.headers,
      authorization: "Bearer secret",
      cookie: "session=secret",
      "x-gatehouse-user": "root",
      x_gatehouse_role: "Owner",
      "mcp-param-database": "main",
    },
  });
  const [received] = fixture.take();
  t.match(received?.headers, {
    "x-gatehouse-user": "alice",
    "x-gatehouse-role": "ReadOnly",
    "x-gatehouse-database": "main",
    "x-forwarded-for": "192.0.2.7",
    "mcp-param-database": "main",
  });
  t.equal(received?.headers.authorization, undefined);
  t.equal(received?.headers.cookie, undefined);
  t.equal(received?.headers.x_gatehouse_role, undefined);
  t.equal(received?.body, call.body, "the very bytes that were judged");
});

t.test("events come as they happen, and a client that leaves cancels the call", async (t) => {
  const { endpoint, fixture } = await openProxied(t, { grants: reader });
  const call = statelessCall("tools/call", { name: "wait", arguments: {} }, { logLevel: "info" });
  const answer = await open(endpoint.url, call);
  t.match(answer.headers, { "content-type": "text/event-stream", "x-accel-buffering": "no" });
  const { value } = await answer[Symbol.asyncIterator]().next();
  t.match(String(value), /waiting/);
  answer.destroy();
  await eventually("the call is cancelled", () => fixture.cancelled === 1);
});

t.test("a database's name may stand in one spelling of its argument only", async (t) => {
  const { endpoint, fixture } = await openProxied(t, { grants: reader });
  for (const other of ["Database", "DATABASE", "databaſe"]) {
    const args = { database: "main", [other]: "secret" };
    const call = statelessCall("tools/call", { name: "query_database", arguments: args });
    t.match(JSON.parse((await ask(endpoint.url, call)).body.toString()).error, { code: -32600 });
  }
  t.same(fixture.take(), []);
});

t.test("a header that mirrors the database says what the argument says", async (t) => {
  const { endpoint, fixture } = await openProxied(t, { grants: reader });
  const args = { database: "main" };
  const call = statelessCall("tools/call", { name: "query_database", arguments: args });
  const earlier = handshakeCall("tools/call", { name: "query_database", arguments: args });
  for (const { headers, ...rest } of [call, earlier]) {
    for (const [name, value] of [
      ["mcp-param-database", "secret"],
      ["Mcp_Param_Database", "secret"],
      ["mcp-param-database", "=?base64?c2VjcmV0?="],
      ["mcp-param-database", "=?base64?bWFpbg?="],
      ["mcp-param-database", ["main", "secret"]],
    ] as const) {
      const param = typeof value === "string" ? value : [...value];
      const answer = await ask(endpoint.url, { ...rest, headers: { ...headers, [name]: param } });
      t.equal(answer.status, 400);
      t.match(JSON.parse(answer.body.toString()), { id: 1, error: { code: -32020 } });
    }
  }
  t.same(fixture.take(), [], "nothing went up");
  const headers = { ...call.headers, "mcp-param-database": "=?base64?bWFpbg==?=" };
  t.equal((await ask(endpoint.url, { ...call, headers })).status, 200);
});

t.test("a task is named in the header as the official client names it", async (t) => {
  const sessions = new Sessions();
  sessions.open(taskKey("task-1"), "alice");
  const { endpoint, fixture } = await openProxied(t, { grants: reader, sessions });
  for (const method of ["tasks/get", "tasks/update", "tasks/cancel"]) {
    const call = statelessCall(method, { taskId: "task-1" });
    await ask(endpoint.url, call);
    t.match(fixture.take(), [{ headers: { "mcp-name": "task-1" }, body: call.body }], method);
    for (const name of ["task-2", undefined]) {
      const { "mcp-name": _, ...rest } = call.headers;
      const headers = name === undefined ? rest : { ...rest, "mcp-name": name };
      const answer = await ask(endpoint.url, { ...call, headers });
      t.match(JSON.parse(answer.body.toString()), { id: 1, error: { code: -32020 } });
    }
    t.same(fixture.take(), []);
  }
});

t.test("methods that nobody knows go nowhere", async (t) => {
  const { endpoint, fixture } = await openProxied(t, { grants: reader });
  const answer = await ask(endpoint.url, statelessCall("tools/run"));
  t.equal(answer.status, 404);
  t.match(JSON.parse(answer.body.toString()).error, { code: -32601 });
  t.same(fixture.take(), []);
});

t.test("in revisions with sessions, 404 is left to say that the session is lost", async (t) => {
  const { endpoint, fixture, denials } = await openProxied(t, { grants: reader });
  const begun = await ask(endpoint.url, initialize);
  const session = { "mcp-session-id": String(begun.headers["mcp-session-id"]) };
  fixture.take();
  const answer = await ask(endpoint.url, handshakeCall("tools/run", {}, session));
  t.equal(answer.status, 200);
  t.match(JSON.parse(answer.body.toString()), { id: 1, error: { code: -32601 } });
  const body = '{"jsonrpc":"2.0","method":"notifications/odd"}';
  const noted = await ask(endpoint.url, { ...handshakeCall("", {}, session), body });
  t.strictSame([noted.status, noted.body.toString()], [202, ""]);
  t.same(fixture.take(), [], "neither went up");
  t.strictSame(denials, ["method_not_found", "method_not_found"]);
  const lost = handshakeCall("tools/run", {}, { "mcp-session-id": "lost" });
  t.equal((await ask(endpoint.url, lost)).status, 404);
});

t.test("a token without the scope is refused before anything goes up", async (t) => {
  const { endpoint, fixture } = await openProxied(t, { grants: reader, policy: everyTool });
  endpoint.principal = principalOf("alice", ["mcp:resources"]);
  const answer = await ask(endpoint.url, statelessCall("tools/list"));
  t.equal(answer.status, 403);
  t.match(JSON.parse(answer.body.toString()), { code: "insufficient_scope" });
  t.same(fixture.take(), []);
});
