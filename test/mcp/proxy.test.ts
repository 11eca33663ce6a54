import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { request } from "node:http";
import path from "node:path";
import { pipeline, Readable } from "node:stream";
import * as fc from "fast-check";
import t, { type Test } from "tap";
import type { ToolRule } from "../../src/features/mcp/proxy/proxy.ts";
import {
  assignTasks,
  MAX_STREAMS_PER_USER,
  OpenStreams,
  openSessionFile,
  type SessionRegister,
  Sessions,
  taskKey,
} from "../../src/features/mcp/proxy/sessions.ts";
import { type Ask, ask, open, type PlainAnswer } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { type Answer, RecordingUpstream } from "../kit/upstream.ts";
import { eras } from "./clients.ts";
import { fixtureTools } from "./fixture-tools.ts";
import { principalOf } from "./kit.ts";
import { handshakeCall, initialize, statelessCall } from "./messages.ts";
import { everyTool, openProxied } from "./proxied.ts";

const readers = { alice: { main: "ReadOnly" }, bob: { main: "ReadOnly" } } as const;

function messageOf({ body }: PlainAnswer) {
  return JSON.parse(body.toString());
}

async function checkError(t: Test, url: string, sent: Ask, status: number, code: number) {
  const answer = await ask(url, sent);
  const found = { status: answer.status, error: messageOf(answer).error };
  t.match(found, { status, error: { code } }, JSON.stringify(sent));
}

for (const [client, connect] of eras) {
  t.test(`${client} works with the upstream server`, async (t) => {
    const { endpoint } = await openProxied(t, { grants: readers });
    const mcp = await connect(t, endpoint.url);
    t.same((await mcp.toolNames()).toSorted(), fixtureTools.toSorted());
    t.match(await mcp.call("test_simple_text", {}), { isError: false, text: /simple text/ });
    t.match(await mcp.call("test_tool_with_progress", {}), { isError: false, text: "done" });
    t.match(await mcp.call("query_database", { database: "main" }), { text: "asked main" });
    t.same(await mcp.resourceUris(), ["test://static-text", "test://static-binary"]);
    t.match(await mcp.read("test://static-text"), /static text/);
  });

  t.test(`${client} sees and may call only the tools of the policy`, async (t) => {
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
    await t.rejects(mcp.call("query_database", {}), /is not a database name/);
    for (const name of ["Test_Simple_Text", "test_simple_text ", "ｔest_simple_text", "__proto__"])
      await t.rejects(mcp.call(name, {}), /tool_without_policy/, name);
    t.same(fixture.take(), [], "no denied call reaches the upstream");
    t.same(called, ["query_database"], "allowed calls are recorded");
    t.same(denials.slice(0, 4), [
      "tool_without_policy",
      "role_insufficient",
      "role_insufficient",
      "no_grant",
    ]);
  });
}

t.test("events arrive as they happen, and disconnecting cancels the call", async (t) => {
  const { endpoint, fixture } = await openProxied(t, { grants: readers });
  const call = statelessCall("tools/call", { name: "wait", arguments: {} }, { logLevel: "info" });
  const answer = await open(endpoint.url, call);
  t.match(answer.headers, { "content-type": "text/event-stream", "x-accel-buffering": "no" });
  const { value } = await answer[Symbol.asyncIterator]().next();
  t.match(String(value), /waiting/);
  answer.destroy();
  await eventually("the call is cancelled", () => fixture.cancelled === 1);
});

t.test("a header that mirrors the database must match the argument", async (t) => {
  const { endpoint, fixture } = await openProxied(t, { grants: readers });
  const params = { name: "query_database", arguments: { database: "main" } };
  const call = statelessCall("tools/call", params);
  for (const { headers, ...rest } of [call, handshakeCall("tools/call", params)]) {
    for (const wrong of [
      { "mcp-param-database": "secret" },
      { Mcp_Param_Database: "secret" },
      { "mcp-param-database": "=?base64?c2VjcmV0?=" },
      { "mcp-param-database": "=?base64?bWFpbg?=" },
      { "mcp-param-database": ["main", "secret"] },
    ]) {
      await checkError(
        t,
        endpoint.url,
        { ...rest, headers: { ...headers, ...wrong } },
        400,
        -32020,
      );
    }
  }
  t.same(fixture.take(), []);
  const headers = { ...call.headers, "mcp-param-database": "=?base64?bWFpbg==?=" };
  t.equal((await ask(endpoint.url, { ...call, headers })).status, 200);
});

t.test("the header of a task method must name the task of the body", async (t) => {
  const sessions = new Sessions();
  sessions.open(taskKey("task-1"), "alice");
  const { endpoint, fixture } = await openProxied(t, { grants: readers, sessions });
  for (const method of ["tasks/get", "tasks/update", "tasks/cancel"]) {
    const call = statelessCall(method, { taskId: "task-1" });
    await ask(endpoint.url, call);
    t.match(fixture.take(), [{ headers: { "mcp-name": "task-1" }, body: call.body }], method);
    const { "mcp-name": _, ...unnamed } = call.headers;
    for (const headers of [unnamed, { ...unnamed, "mcp-name": "task-2" }])
      await checkError(t, endpoint.url, { ...call, headers }, 400, -32020);
    t.same(fixture.take(), []);
  }
});

t.test("in revisions with sessions, 404 always means a lost session", async (t) => {
  const { endpoint, fixture, denials } = await openProxied(t, { grants: readers });
  const session = { "mcp-session-id": await begin(endpoint.url) };
  fixture.take();
  await checkError(t, endpoint.url, handshakeCall("tools/run", {}, session), 200, -32601);
  const body = '{"jsonrpc":"2.0","method":"notifications/odd"}';
  const noted = await ask(endpoint.url, { ...handshakeCall("", {}, session), body });
  t.strictSame([noted.status, noted.body.toString()], [202, ""]);
  t.same(fixture.take(), []);
  t.strictSame(denials, ["method_not_found", "method_not_found"]);
  const lost = handshakeCall("tools/run", {}, { "mcp-session-id": "lost" });
  t.equal((await ask(endpoint.url, lost)).status, 404);
});

t.test("a request without the token scope does not reach the upstream", async (t) => {
  const { endpoint, fixture } = await openProxied(t, { grants: readers });
  endpoint.principal = principalOf("alice", ["mcp:resources"]);
  const answer = await ask(endpoint.url, statelessCall("tools/list"));
  t.match([answer.status, messageOf(answer)], [403, { code: "insufficient_scope" }]);
  t.same(fixture.take(), []);
});

async function begin(url: string): Promise<string> {
  const answer = await ask(url, initialize);
  const id = String(answer.headers["mcp-session-id"]);
  const body = '{"jsonrpc":"2.0","method":"notifications/initialized"}';
  await ask(url, { ...handshakeCall("", {}, { "mcp-session-id": id }), body });
  return id;
}

t.test("a call that waited for its session is judged by the current policy", async (t) => {
  let policy = everyTool;
  const sessions: SessionRegister = {
    open: () => true,
    async use() {
      policy = [];
      return true;
    },
    end() {},
  };
  const setting = { grants: readers, policy: () => policy, sessions };
  const { endpoint, fixture, denials } = await openProxied(t, setting);
  const params = { name: fixtureTools[0], arguments: {} };
  const call = handshakeCall("tools/call", params, { "mcp-session-id": "session" });
  const { error } = messageOf(await ask(endpoint.url, call));
  t.match(error, { data: { code: "tool_without_policy" } });
  t.same(fixture.take(), []);
  t.strictSame(denials, ["tool_without_policy"]);
});

t.test("DELETE ends a session", async (t) => {
  const { endpoint, fixture } = await openProxied(t, { grants: readers });
  const headers = { "mcp-session-id": await begin(endpoint.url) };
  t.equal((await ask(endpoint.url, { method: "DELETE", headers })).status, 200);
  fixture.take();
  await checkError(t, endpoint.url, handshakeCall("tools/list", {}, headers), 404, -32001);
  t.same(fixture.take(), []);
});

t.test("a session with an open stream is not idle", async (t) => {
  let now = 0;
  let uses = 0;
  class CountingSessions extends Sessions {
    override use(id: string, username: string): boolean {
      uses++;
      return super.use(id, username);
    }
  }
  const sessions = new CountingSessions({ total: 9, perUser: 9, idleMs: 100 }, () => now);
  const { endpoint } = await openProxied(t, { grants: readers, sessions, sessionTouch: 5 });
  const session = { "mcp-session-id": await begin(endpoint.url) };
  const stream = await open(endpoint.url, { headers: { ...session, accept: "text/event-stream" } });
  for (now = 99; now < 500; now += 99) {
    const before = uses;
    await eventually("it counts as used", () => uses > before);
  }
  t.equal((await ask(endpoint.url, handshakeCall("tools/list", {}, session))).status, 200);
  const again = { ...session, accept: "text/event-stream", "last-event-id": "1" };
  t.equal((await ask(endpoint.url, { headers: again })).status, 409, "the server decides on it");
  stream.destroy();
});

t.test("a client that disconnects while it is judged keeps no session in use", async (t) => {
  const [judging, left] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let uses = 0;
  const sessions: SessionRegister = {
    open: () => true,
    async use() {
      uses++;
      judging.resolve();
      await left.promise;
      return true;
    },
    end() {},
  };
  const { endpoint } = await openProxied(t, { grants: readers, sessions, sessionTouch: 1 });
  const sent = request(endpoint.url, { headers: { "mcp-session-id": "session" } });
  sent.on("error", () => {}).end();
  await judging.promise;
  sent.destroy();
  const list = statelessCall("tools/list");
  t.equal((await ask(endpoint.url, list)).status, 200, "the proxy has seen it disconnect");
  left.resolve();
  for (let turn = 0; turn < 3; turn++) await ask(endpoint.url, list);
  t.equal(uses, 2, "of the session and of its rights");
});

t.test("a session file survives kill -9 and contains no usable session ids", async (t) => {
  const file = path.join(temporaryHome(t), "mcp_sessions");
  const openFile = () => {
    const records = openSessionFile(file, (error) => t.fail(String(error)));
    const sessions = new Sessions({ total: 3, perUser: 9, idleMs: 100 }, () => 0, records);
    return { records, sessions };
  };
  const first = openFile();
  for (const id of ["a", "b", "c", "d"]) first.sessions.open(id, "alice");
  first.sessions.end("c");
  // As after kill -9: nothing was closed.
  const { records, sessions } = openFile();
  t.equal(statSync(file).mode & 0o777, 0o600);
  t.strictSame(
    ["a", "b", "c", "d"].map((id) => sessions.use(id, "alice")),
    [false, true, false, true],
  );
  t.notOk(sessions.use("b", "bob"));
  t.notOk(records.all().some(([key]) => key.length < 20));
  first.records.close();
  records.close();
});

t.test("sessions end when idle, and when a user or all users have too many", async (t) => {
  let now = 0;
  const sessions = new Sessions({ total: 3, perUser: 2, idleMs: 100 }, () => now);
  t.ok(sessions.open("a", "alice"));
  t.notOk(sessions.open("a", "bob"), "the id belongs to another user");
  t.ok(sessions.open("b", "alice"));
  t.ok(sessions.use("a", "alice"));
  t.ok(sessions.open("c", "alice"), "above the limit of one user");
  t.notOk(sessions.use("b", "alice"), "the one idle longest is forgotten");
  t.ok(sessions.open("d", "bob"));
  t.ok(sessions.open("e", "carol"), "above the limit of all users");
  t.equal(sessions.size, 3);
  t.notOk(sessions.use("a", "alice"));
  now = 99;
  t.ok(sessions.use("e", "carol"));
  now = 100;
  t.notOk(sessions.use("d", "bob"));
  t.equal(sessions.size, 1);
});

const policy = [{ name: "shown", permission: "SELECT", database: "main" }] as const;
const list = statelessCall("tools/list");
const call = statelessCall("tools/call", { name: "shown", arguments: {} });
const resultOf = (result: string) => `{"jsonrpc":"2.0","id":1,"result":${result}}`;
const shownTool = '{"name":"shown","inputSchema":{"maximum":9223372036854775807}}';
const tools = resultOf(`{"tools":[${shownTool},{"name":"hidden"},{"n\\u0061me":"hidden"}]}`);
const shown = resultOf(`{"tools":[${shownTool}]}`);

function answering(type: string, ...pieces: readonly string[]): Answer {
  return async (_, response) => {
    response.writeHead(200, { "content-type": type });
    for (const piece of pieces) await new Promise((sent) => response.write(piece, sent));
    response.end();
  };
}

/** The proxy with an upstream that answers as given. */
async function openBefore(t: Test, answer: Answer) {
  const upstream = await new RecordingUpstream().listen(t);
  upstream.answer = answer;
  const target = `${upstream.url}/mcp`;
  return { upstream, ...(await openProxied(t, { grants: readers, policy, target })) };
}

for (const [what, type, id, ...pieces] of [
  ["JSON", "application/json", "t-1", resultOf('{"task":{"taskId":"t-1","status":"working"}}')],
  ["an extension's form", "application/json", "t 2", resultOf('{"taskId" : "t\\u00202"}')],
  [
    "events, cut anywhere",
    "text/event-stream",
    "t-3",
    'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"data":"\\"taskId\\":\\"no\\""}}\n\n',
    'data: {"jsonrpc":"2.0","id":1,"result":{"task":{"task',
    'Id":"t-',
    '3"}}}\n\n',
  ],
] as const) {
  t.test(`only the user whose call created a task can use it (${what})`, async (t) => {
    const { endpoint, upstream } = await openBefore(t, answering(type, ...pieces));
    const calls = ["get", "result", "update", "cancel"].flatMap((method) => [
      handshakeCall(`tasks/${method}`, { taskId: id }),
      statelessCall(`tasks/${method}`, { taskId: id }),
    ]);
    async function checkForwarded(expected: number, label: string) {
      upstream.take();
      const answers = await Promise.all(calls.map((each) => ask(endpoint.url, each)));
      t.equal(upstream.take().length, expected, label);
      const refused = { id: 1, error: { code: -32602 } };
      if (expected === 0) for (const answer of answers) t.match(messageOf(answer), refused);
    }
    await checkForwarded(0, "before the call");
    const answer = await ask(endpoint.url, call);
    t.equal(answer.body.toString(), pieces.join(""), "the response is unchanged");
    await checkForwarded(calls.length, "the owner");
    endpoint.principal = principalOf("bob");
    await checkForwarded(0, "another user");
    await ask(endpoint.url, call);
    await checkForwarded(0, "another user whose response names the task again");
  });
}

t.test("a request about a task names it once, by taskId", async (t) => {
  const created = answering("application/json", resultOf('{"taskId":"mine"}'));
  const { endpoint, upstream } = await openBefore(t, created);
  await ask(endpoint.url, call);
  upstream.take();
  const own = { taskId: "mine" };
  // The Python SDK also reads the names of its fields.
  const odd = [{}, { task_id: "other" }, { ...own, task_id: "other" }, { ...own, meta: {} }];
  for (const method of ["get", "result", "update", "cancel"]) {
    for (const params of odd) {
      const sent = handshakeCall(`tasks/${method}`, params);
      const { error } = messageOf(await ask(endpoint.url, sent));
      t.match(error, { code: /-3260[02]/ }, sent.body);
    }
  }
  t.same(upstream.take(), []);
});

t.test("a subscription reports only on the caller's own tasks", async (t) => {
  const created = answering("application/json", resultOf('{"taskId":"mine"}'));
  const { endpoint, upstream } = await openBefore(t, created);
  await ask(endpoint.url, call);
  const listen = (notifications: unknown) =>
    statelessCall("subscriptions/listen", { notifications });
  const own = listen({ taskIds: ["mine"], resourceSubscriptions: ["a:b"] });
  upstream.take();
  t.equal((await ask(endpoint.url, own)).status, 200);
  t.equal(upstream.take()[0]?.body.toString(), own.body);
  const odd = [
    { taskIds: ["mine", "other"] },
    { taskIds: "other" },
    { taskIds: [["other"]] },
    { task_ids: ["other"] },
    { TaskIds: ["other"] },
    ["other"],
  ];
  for (const notifications of odd) {
    const { error } = messageOf(await ask(endpoint.url, listen(notifications)));
    t.match(error, { code: /-3260[02]/ }, JSON.stringify(notifications));
  }
  const twice = { Notifications: { taskIds: ["other"] }, notifications: {} };
  await checkError(t, endpoint.url, statelessCall("subscriptions/listen", twice), 400, -32600);

  for (const [scope, notifications] of [
    ["mcp:resources", { taskIds: ["mine"] }],
    ["mcp:tools", { resourceSubscriptions: ["a:b"] }],
  ] as const) {
    endpoint.principal = principalOf("alice", [scope]);
    const answer = await ask(endpoint.url, listen(notifications));
    t.match([answer.status, messageOf(answer)], [403, { code: "insufficient_scope" }], scope);
  }
  endpoint.principal = principalOf("bob");
  await checkError(t, endpoint.url, own, 200, -32602);
  t.same(upstream.take(), []);
  endpoint.principal = principalOf("alice", []);
  const none = listen({ toolsListChanged: true, taskIds: [], resourceSubscriptions: [] });
  t.equal((await ask(endpoint.url, none)).status, 200, "others need no scope");
});

t.test("a task id that a tool returns at another place assigns no task", async (t) => {
  const row = '{"taskId":"t-1","task":{"taskId":"t-1"}}';
  const { endpoint, upstream } = await openBefore(t, answering("application/json"));
  for (const result of [`{"structuredContent":${row}}`, '{"content":[],"taskId":"t-1"}']) {
    upstream.answer = answering("application/json", resultOf(result));
    await ask(endpoint.url, call);
    upstream.take();
    await checkError(t, endpoint.url, handshakeCall("tasks/get", { taskId: "t-1" }), 200, -32602);
    t.strictSame(upstream.take(), []);
  }
});

t.test("the id of a created task is found, however its response is cut", async () => {
  const key = fc.constantFrom("taskId", "task", "result", '"', "\\");
  const values = [fc.string({ maxLength: 40, unit: "binary" })];
  const tree = fc.object({ key, values, maxDepth: 3 });
  const message = fc.record({ id: tree, result: tree });
  const size = fc.integer({ min: 1, max: 30 });
  const frame = fc.constantFrom("", "event: message\nid: 1_2\ndata: ");
  const property = fc.asyncProperty(message, size, frame, async (content, length, start) => {
    const opened: string[] = [];
    const open = (key: string) => opened.push(key) > 0;
    const filter = assignTasks({ open, use: () => false, end() {} }, "alice");
    const bytes = Buffer.from(`${start}${JSON.stringify(content)}\n\n`);
    for (let at = 0; at < bytes.length; at += length) {
      await filter.pass(bytes.subarray(at, at + length));
    }
    const { task, taskId } = content.result;
    const ids = [taskId, typeof task === "object" ? Object(task).taskId : undefined];
    const expected = ids.filter((one) => typeof one === "string").map(taskKey);
    assert.equal(opened.length, Math.min(1, expected.length));
    assert.ok(opened.every((key) => expected.includes(key)));
  });
  const examples: [object, number, string][] = [[{ id: {}, result: { taskId: "\0" } }, 1, ""]];
  await fc.assert(property, { numRuns: 200, examples });
});

for (const [type, frame] of [
  ["application/json", (json: string) => json],
  ["text/event-stream", (json: string) => `data: ${json}\n\n`],
] as const) {
  t.test(`a list of tasks contains only the caller's own (${type})`, async (t) => {
    const created = answering("application/json", resultOf('{"taskId":"t-1"}'));
    const { endpoint, upstream } = await openBefore(t, created);
    await ask(endpoint.url, call);
    const mine = '{"taskId":"t-1","status":"working"}';
    const all = `{"tasks":[{"taskId":"t-2","status":"working"},${mine}],"nextCursor":"more"}`;
    upstream.answer = answering(type, frame(resultOf(all)));
    const seen = async () => {
      const { body } = await ask(endpoint.url, handshakeCall("tasks/list"));
      return JSON.parse(body.toString().replace(/^data: /, ""));
    };
    const result = { tasks: [JSON.parse(mine)], nextCursor: "more" };
    t.strictSame(await seen(), { jsonrpc: "2.0", id: 1, result });
    endpoint.principal = principalOf("bob");
    t.match(await seen(), { result: { tasks: [] } });
  });
}

t.test("a response to HEAD ends with its head, and its connection is used again", async (t) => {
  for (const length of [{ "content-length": "50" }, { "transfer-encoding": "chunked" }]) {
    const { endpoint, upstream } = await openBefore(t, (_, response) => {
      response.writeHead(200, { "content-type": "application/json", ...length });
      response.end();
    });
    let connections = 0;
    upstream.server.on("connection", () => connections++);
    for (let turn = 0; turn < 2; turn++) {
      const answer = await ask(endpoint.url, { method: "HEAD" });
      t.match([answer.status, answer.headers["content-length"]], [200, length["content-length"]]);
    }
    t.equal(connections, 1);
  }
});

t.test("a stream can be resumed only in a session of the caller", async (t) => {
  const { endpoint, upstream } = await openBefore(t, answering("text/event-stream"));
  const headers = { accept: "text/event-stream", "last-event-id": "7" };
  await checkError(t, endpoint.url, { headers }, 400, -32600);
  const others = { ...headers, "mcp-session-id": "of-another-user" };
  t.equal((await ask(endpoint.url, { headers: others })).status, 404);
  t.strictSame(upstream.take(), []);
});

t.test("each user has an own limit of open subscriptions", async (t) => {
  const streams = new OpenStreams(2);
  const { endpoint, fixture, denials } = await openProxied(t, { grants: readers, streams });
  const listen = { notifications: { toolsListChanged: true } };
  const subscribe = statelessCall("subscriptions/listen", listen);
  const session = { "mcp-session-id": await begin(endpoint.url) };
  const ofSession = { headers: { ...session, accept: "text/event-stream" } };
  const first = await open(endpoint.url, subscribe);
  const second = await open(endpoint.url, ofSession);
  t.same([first.statusCode, second.statusCode], [200, 200]);
  fixture.take();
  for (const request of [subscribe, ofSession])
    await checkError(t, endpoint.url, request, 429, -32011);
  t.same(fixture.take(), []);
  t.same(denials, ["too_many_streams", "too_many_streams"]);
  t.equal((await ask(endpoint.url, list)).status, 200, "other requests are served");

  endpoint.principal = principalOf("bob");
  const ofBob = await open(endpoint.url, subscribe);
  t.equal(ofBob.statusCode, 200);
  endpoint.principal = principalOf("alice");

  first.destroy();
  await eventually("there is room again", async () => {
    const again = await open(endpoint.url, subscribe);
    again.destroy();
    return again.statusCode === 200;
  });
  second.destroy();
  ofBob.destroy();
  const isFree = (user: string) => {
    const taken = [streams.take(user), streams.take(user)];
    for (const release of taken) release?.();
    return !taken.includes(undefined);
  };
  await eventually("no counts are left", () => ["alice", "bob"].every(isFree));
});

t.test("calls of one user beyond a number wait, and no others do", async (t) => {
  const held: (() => void)[] = [];
  const upstream = await new RecordingUpstream().listen(t);
  const cut = new Set<object>();
  upstream.answer = ({ body }, response) => {
    response.once("close", () => response.writableFinished || cut.add(response));
    if (String(body).includes("shown")) held.push(() => response.end(resultOf("{}")));
    else response.writeHead(202).end();
  };
  let rules: readonly ToolRule[] = policy;
  const setting = { grants: readers, policy: () => rules, target: `${upstream.url}/mcp` };
  const { endpoint } = await openProxied(t, setting);
  const most = MAX_STREAMS_PER_USER;
  const arrived = (count: number) =>
    eventually(`${count} have arrived`, () => held.length === count);
  const calls = Array.from({ length: most }, () => ask(endpoint.url, call));
  await arrived(most);
  const beLeft = () => {
    const left = request(endpoint.url, { method: "POST", headers: call.headers });
    return left.on("error", () => {}).end(call.body);
  };
  const left = beLeft();
  calls.push(ask(endpoint.url, call));
  const reply = { ...handshakeCall(""), body: '{"jsonrpc":"2.0","id":7,"result":{}}' };
  const { status } = await ask(endpoint.url, reply);
  t.equal(status, 202, "a response to the server, for which a call may wait");
  endpoint.principal = principalOf("bob");
  calls.push(ask(endpoint.url, call));
  await arrived(most + 1);
  const leftByBob = beLeft();
  await arrived(most + 2);
  leftByBob.destroy();
  await eventually("the call that bob left is cut", () => cut.size === 1);
  left.destroy();
  for (let turn = 0; turn < 3; turn++) await ask(endpoint.url, reply);
  held[0]?.();
  await arrived(most + 3);

  endpoint.principal = principalOf("alice");
  const denied = ask(endpoint.url, call);
  for (let turn = 0; turn < 3; turn++) await ask(endpoint.url, reply);
  rules = [];
  for (const end of held) end();
  t.equal((await denied).status, 403, "it is judged again after the wait");
  t.ok((await Promise.all(calls)).every(({ status }) => status === 200));
  t.equal(held.length, most + 3, "neither is that made which its client left");
});

t.test("a list in JSON is filtered, and every number in it keeps its digits", async (t) => {
  const { endpoint } = await openBefore(t, (_, response) => {
    response.writeHead(200, { "content-type": "application/json", etag: '"of the whole"' });
    response.end(tools);
  });
  const answer = await ask(endpoint.url, list);
  t.equal(answer.body.toString(), shown);
  t.equal(answer.headers.etag, undefined);
});

t.test("a list of long tools is filtered, wherever the name is in a tool", async (t) => {
  const long = Array.from({ length: 5000 }, (_, at) => ({ at, of: "x".repeat(at % 40) }));
  const named = (name: unknown) => [{ name, long }, { long, name }, { name }, { long: { name } }];
  const listed = ["shown", [], ...["shown", "hidden", 1, "shown"].flatMap(named)];
  const text = JSON.stringify({ jsonrpc: "2.0", id: 1, result: { tools: listed } }, undefined, 1);
  const { endpoint } = await openBefore(t, answering("application/json", text));
  const expected = listed.filter((tool) => Object(tool).name === "shown");
  t.strictSame(messageOf(await ask(endpoint.url, list)).result.tools, expected);
});

t.test("a filtered list is never cacheable, whatever the server says", async (t) => {
  const uncached = { ttlMs: 0, cacheScope: "private" };
  const complete = { resultType: "complete" };
  for (const [hints, expected] of [
    [{}, {}],
    [complete, { ...complete, ...uncached }],
    [{ ttlMs: 60_000 }, uncached],
    [{ ttlMs: 1, cacheScope: "public" }, uncached],
  ]) {
    const { endpoint } = await openBefore(t, (_, response) => {
      const cached = { "cache-control": "public, max-age=60", expires: "soon", age: "1" };
      response.writeHead(200, { "content-type": "application/json", ...cached });
      response.end(resultOf(JSON.stringify({ tools: [], ...hints })));
    });
    const answer = await ask(endpoint.url, list);
    t.strictSame(messageOf(answer).result, { tools: [], ...expected });
    t.equal(answer.headers["cache-control"], "no-store");
    t.notOk("expires" in answer.headers || "age" in answer.headers);
  }
});

t.test("no shared cache may store a response, whatever the server says", async (t) => {
  const { endpoint } = await openBefore(t, (_, response) => {
    const cached = { "cache-control": "public, max-age=60, s-maxage=600" };
    const outranking = { "x-accel-expires": "600", "CDN-Cache-Control": "max-age=600" };
    const type = { "content-type": "application/json", "mcp-session-id": "s" };
    response.writeHead(200, { ...type, ...cached, ...outranking });
    response.end(resultOf("{}"));
  });
  await ask(endpoint.url, initialize);
  for (const [request, control] of [
    [call, "private, max-age=60"],
    [{ headers: { accept: "text/event-stream", "mcp-session-id": "s" } }, "no-store"],
  ] as const) {
    const { headers } = await ask(endpoint.url, request);
    t.match(headers, { "cache-control": control, vary: "Authorization" });
    t.notOk("x-accel-expires" in headers || "cdn-cache-control" in headers);
  }
});

for (const [name, end] of [
  ["line feeds", "\n"],
  ["carriage returns", "\r"],
  ["both", "\r\n"],
] as const) {
  t.test(`a list in events that end in ${name} is filtered, however it is cut`, async (t) => {
    const event = ["event: message", "id: 7", `data: ${tools}`, "", ""].join(end);
    const stream = Buffer.from(`: é${end}${end}${event}data:${end}${end}`);
    let cut = 1;
    const { endpoint } = await openBefore(t, async (_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      for (let at = 0; at < stream.length; at += cut) {
        response.write(stream.subarray(at, at + cut));
        if (cut < 20) await new Promise(setImmediate);
      }
      response.end();
    });
    for (cut of [1, 7, stream.length]) {
      const text = (await ask(endpoint.url, list)).body.toString();
      for (const kept of [": é", `data: ${shown}`, "id: 7"]) t.match(text, kept);
      t.notMatch(text, "hidden");
    }
  });
}

t.test("a list that is sent again on a session's stream is filtered too", async (t) => {
  const { endpoint } = await openBefore(t, ({ method }, response) => {
    if (method === "POST") {
      response.writeHead(200, { "content-type": "application/json", "mcp-session-id": "s" });
      response.end(resultOf("{}"));
    } else {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end(`data: ${tools}\n\n`);
    }
  });
  t.equal((await ask(endpoint.url, initialize)).headers["mcp-session-id"], "s");
  const headers = { "mcp-session-id": "s", accept: "text/event-stream", "last-event-id": "6" };
  const answer = await ask(endpoint.url, { headers });
  t.equal(answer.body.toString(), `data: ${shown}\n\n`);
});

t.test("a redirect, a 401, or a list that cannot be read is a 502", async (t) => {
  const json = { "content-type": "application/json" };
  for (const [status, headers, request] of [
    [307, { location: "http://127.0.0.1:1/" }, call],
    [401, { "www-authenticate": 'Bearer realm="inner"' }, call],
    [200, { ...json, "content-encoding": "gzip" }, list],
    [200, { "content-type": "text/plain" }, list],
  ] as const) {
    const { endpoint } = await openBefore(t, (_, response) => {
      response.writeHead(status, headers);
      response.end(tools);
    });
    const answer = await ask(endpoint.url, request);
    t.match([answer.status, messageOf(answer)], [502, { code: "upstream_broken" }]);
  }
});

t.test("a list in JSON whose content cannot be read, or is cut off, is a 502", async (t) => {
  const headers = { "content-type": "application/json" };
  for (const body of ["[]", '{"result":{"tools":{}}}', tools.replace("{", '{"id":1,'), "\xff"]) {
    const { endpoint } = await openBefore(t, (_, response) => {
      response.writeHead(200, headers);
      response.end(body, "latin1");
    });
    const answer = await ask(endpoint.url, list);
    t.match([answer.status, messageOf(answer)], [502, { code: "upstream_broken" }], body);
  }
  const { endpoint } = await openBefore(t, (_, response) => {
    response.writeHead(200, { ...headers, "content-length": tools.length });
    response.write(tools.slice(1), () => response.destroy());
  });
  const answer = await ask(endpoint.url, list);
  t.match([answer.status, messageOf(answer)], [502, { code: "upstream_broken" }]);
});

t.test("an unreachable server is a 502", async (t) => {
  const target = "http://127.0.0.1:1/mcp";
  const { endpoint } = await openProxied(t, { grants: readers, policy, target });
  const answer = await ask(endpoint.url, call);
  t.match([answer.status, messageOf(answer)], [502, { code: "upstream_unreachable" }]);
});

t.test("a stream waits for a client that reads slowly", async (t) => {
  const chunk = Buffer.from(`: ${"x".repeat(64 * 1024)}\n\n`);
  let taken = 0;
  function* chunks(): Generator<Buffer> {
    for (; taken < 2000; taken++) yield chunk;
  }
  const { endpoint } = await openBefore(t, (_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    pipeline(Readable.from(chunks()), response, () => {});
  });
  const stream = await open(endpoint.url, call);
  let before = 0;
  await eventually("the server waits", () => {
    const isSame = taken === before;
    before = taken;
    return isSame && taken > 0;
  });
  t.ok(taken < 1000, `${taken} of 2000 chunks were taken`);
  stream.destroy();
});
