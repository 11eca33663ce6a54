import { statSync } from "node:fs";
import { request, type ServerResponse } from "node:http";
import path from "node:path";
import { pipeline, Readable } from "node:stream";
import t, { type Test } from "tap";
import {
  OpenStreams,
  openSessionFile,
  type SessionRegister,
  Sessions,
  taskKey,
} from "../../src/mcp/proxy/sessions.ts";
import { ask, open, type PlainAnswer } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { connectEarlier, connectStateless } from "./clients.ts";
import { fixtureTools } from "./fixture-tools.ts";
import { principalOf } from "./kit.ts";
import { handshakeCall, initialize, statelessCall } from "./messages.ts";
import { everyTool, openProxied, type ProxiedSetting } from "./proxied.ts";

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
    await t.rejects(mcp.call("query_database", {}), /is not a database name/);
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

const readers = { alice: { main: "ReadOnly" }, bob: { main: "ReadOnly" } } as const;

async function begin({ endpoint }: ProxiedSetting): Promise<string> {
  const answer = await ask(endpoint.url, initialize);
  const id = String(answer.headers["mcp-session-id"]);
  const headers = { "mcp-session-id": id };
  await ask(endpoint.url, {
    ...handshakeCall("notifications/initialized", {}, headers),
    body: '{"jsonrpc":"2.0","method":"notifications/initialized"}',
  });
  return id;
}

t.test("a call is judged by the policy in force once it has waited for its session", async (t) => {
  let policy = everyTool;
  const sessions: SessionRegister = {
    open: () => true,
    async use() {
      policy = [];
      return true;
    },
    end() {},
  };
  const setting = { grants: reader, policy: () => policy, sessions };
  const { endpoint, fixture, denials } = await openProxied(t, setting);
  const params = { name: fixtureTools[0], arguments: {} };
  const { body } = await ask(
    endpoint.url,
    handshakeCall("tools/call", params, { "mcp-session-id": "session" }),
  );
  t.match(JSON.parse(body.toString()).error, { data: { code: "tool_without_policy" } });
  t.same(fixture.take(), [], "nothing goes up");
  t.strictSame(denials, ["tool_without_policy"]);
});

t.test("a session ends with its DELETE", async (t) => {
  const setting = await openProxied(t, { grants: readers });
  const { endpoint, fixture } = setting;
  const headers = { "mcp-session-id": await begin(setting) };
  t.equal((await ask(endpoint.url, { method: "DELETE", headers })).status, 200);
  fixture.take();
  const answer = await ask(endpoint.url, handshakeCall("tools/list", {}, headers));
  t.equal(answer.status, 404);
  t.match(JSON.parse(answer.body.toString()), { id: 1, error: { code: -32001 } });
  t.same(fixture.take(), []);
});

t.test("a session is in use as long as a stream of it is open", async (t) => {
  let now = 0;
  let uses = 0;
  const own = new Sessions({ total: 9, perUser: 9, idleMs: 100 }, () => now);
  const sessions: SessionRegister = {
    open: (id, username) => own.open(id, username),
    use(id, username) {
      uses++;
      return own.use(id, username);
    },
    end: (id) => own.end(id),
  };
  const setting = await openProxied(t, { grants: readers, sessions, sessionTouch: 5 });
  const session = { "mcp-session-id": await begin(setting) };
  const headers = { ...session, accept: "text/event-stream" };
  const stream = await open(setting.endpoint.url, { headers });
  const list = handshakeCall("tools/list", {}, session);
  for (now = 99; now < 500; now += 99) {
    const before = uses;
    await eventually("it counts as used", () => uses > before);
  }
  t.equal((await ask(setting.endpoint.url, list)).status, 200);
  stream.destroy();
});

t.test("a client that leaves while it is judged keeps no session in use", async (t) => {
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
  const { endpoint } = await openProxied(t, { grants: reader, sessions, sessionTouch: 1 });
  const sent = request(endpoint.url, { headers: { "mcp-session-id": "session" } });
  sent.on("error", () => {}).end();
  await judging.promise;
  sent.destroy();
  const list = statelessCall("tools/list");
  t.equal((await ask(endpoint.url, list)).status, 200, "the proxy has seen it leave");
  left.resolve();
  for (let turn = 0; turn < 3; turn++) await ask(endpoint.url, list);
  t.equal(uses, 1);
});

t.test("sessions are kept in a file, under names by which nobody can use them", async (t) => {
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

t.test("sessions are forgotten when they are idle, and when there are too many", async (t) => {
  let now = 0;
  const sessions = new Sessions({ total: 3, perUser: 2, idleMs: 100 }, () => now);
  t.ok(sessions.open("a", "alice"));
  t.notOk(sessions.open("a", "bob"), "an id that is another user's");
  t.ok(sessions.open("b", "alice"));
  t.ok(sessions.use("a", "alice"));
  t.ok(sessions.open("c", "alice"), "past a user's own bound");
  t.notOk(sessions.use("b", "alice"), "the one that was idle longest is gone");
  t.ok(sessions.open("d", "bob"));
  t.ok(sessions.open("e", "carol"), "past the bound of all");
  t.equal(sessions.size, 3);
  t.notOk(sessions.use("a", "alice"));
  now = 99;
  t.ok(sessions.use("e", "carol"));
  now = 100;
  t.notOk(sessions.use("d", "bob"));
  t.equal(sessions.size, 1);
});

const workPolicy = [{ name: "work", permission: "SELECT", database: "main" }] as const;
const work = statelessCall("tools/call", { name: "work", arguments: {} });
const resultOf = (task: string) => `{"jsonrpc":"2.0","id":1,"result":${task}}`;

async function openOver(t: Test, type: string, ...pieces: string[]) {
  const upstream = await new RecordingUpstream().listen(t);
  upstream.answer = async (_, response) => {
    response.writeHead(200, { "content-type": type });
    for (const piece of pieces) await new Promise((sent) => response.write(piece, sent));
    response.end();
  };
  const setting = await openProxied(t, {
    grants: readers,
    policy: workPolicy,
    target: `${upstream.url}/mcp`,
  });
  return { upstream, ...setting };
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
  t.test(`a task is for the user whose call it came of: ${what}`, async (t) => {
    const { endpoint, upstream } = await openOver(t, type, ...pieces);
    const calls = ["get", "result", "update", "cancel"].flatMap((method) => [
      handshakeCall(`tasks/${method}`, { taskId: id }),
      statelessCall(`tasks/${method}`, { taskId: id }),
    ]);
    async function answers() {
      upstream.take();
      const all = await Promise.all(calls.map((call) => ask(endpoint.url, call)));
      return { all, asked: upstream.take().length };
    }
    t.equal((await answers()).asked, 0, "one that came of nobody's call is nobody's");

    const answer = await ask(endpoint.url, work);
    t.equal(answer.body.toString(), pieces.join(""), "it passes as it is");
    t.equal((await answers()).asked, calls.length);

    endpoint.principal = principalOf("bob");
    const { all, asked } = await answers();
    t.equal(asked, 0);
    for (const { body } of all)
      t.match(JSON.parse(String(body)), { id: 1, error: { code: -32602 } });
    await ask(endpoint.url, work);
    t.equal((await answers()).asked, 0, "also if the server tells of it again");
  });
}

for (const [what, type, frame] of [
  ["JSON", "application/json", (json: string) => json],
  ["an event", "text/event-stream", (json: string) => `data: ${json}\n\n`],
] as const) {
  t.test(`a list of tasks holds the caller's own alone: ${what}`, async (t) => {
    const { endpoint, upstream } = await openOver(
      t,
      "application/json",
      resultOf('{"taskId":"t-1"}'),
    );
    await ask(endpoint.url, work);
    const mine = '{"taskId":"t-1","status":"working"}';
    const list = `{"tasks":[{"taskId":"t-2","status":"working"},${mine}],"nextCursor":"more"}`;
    upstream.answer = async (_, response) => {
      response.writeHead(200, { "content-type": type });
      response.end(frame(resultOf(list)));
    };
    const call = handshakeCall("tasks/list");
    const own = (await ask(endpoint.url, call)).body.toString().replace(/^data: /, "");
    t.strictSame(JSON.parse(own), {
      jsonrpc: "2.0",
      id: 1,
      result: { tasks: [JSON.parse(mine)], nextCursor: "more" },
    });
    endpoint.principal = principalOf("bob");
    const others = (await ask(endpoint.url, call)).body.toString().replace(/^data: /, "");
    t.match(JSON.parse(others), { result: { tasks: [] } });
  });
}

t.test("a stream goes on in one's own session alone", async (t) => {
  const { endpoint, upstream } = await openOver(t, "text/event-stream");
  const headers = { accept: "text/event-stream", "last-event-id": "7" };
  const answer = await ask(endpoint.url, { headers });
  t.equal(answer.status, 400);
  t.match(JSON.parse(String(answer.body)), { error: { code: -32600 } });
  const others = { ...headers, "mcp-session-id": "of-somebody" };
  t.equal((await ask(endpoint.url, { headers: others })).status, 404);
  t.strictSame(upstream.take(), []);
});

const ofMain = { main: "ReadOnly" } as const;
const subscribe = statelessCall("subscriptions/listen", {
  notifications: { toolsListChanged: true },
});

t.test("streams of changes are bounded for each user, not for all", async (t) => {
  const streams = new OpenStreams(2);
  const { endpoint, fixture, denials } = await openProxied(t, {
    grants: { alice: ofMain, bob: ofMain },
    streams,
  });
  const session = (await ask(endpoint.url, initialize)).headers["mcp-session-id"];
  const ofSession = {
    headers: { "mcp-session-id": String(session), accept: "text/event-stream" },
  };
  const first = await open(endpoint.url, subscribe);
  const second = await open(endpoint.url, ofSession);
  t.same([first.statusCode, second.statusCode], [200, 200]);
  fixture.take();
  for (const request of [subscribe, ofSession]) {
    const { status, body } = await ask(endpoint.url, request);
    t.equal(status, 429);
    t.match(JSON.parse(body.toString()).error, { code: -32011, message: /Too many streams/ });
  }
  t.same(fixture.take(), [], "the server is not asked");
  t.same(denials, ["too_many_streams", "too_many_streams"]);
  t.equal((await ask(endpoint.url, statelessCall("tools/list"))).status, 200, "others go on");

  endpoint.principal = principalOf("bob");
  const ofBob = await open(endpoint.url, subscribe);
  t.equal(ofBob.statusCode, 200, "another user has its own");
  endpoint.principal = principalOf("alice");

  first.destroy();
  await eventually("there is room again", async () => {
    const again = await open(endpoint.url, subscribe);
    again.destroy();
    return again.statusCode === 200;
  });
  second.destroy();
  ofBob.destroy();
  await eventually("nothing is kept of whoever has left", () => streams.size === 0);
});

const policy = [{ name: "shown", permission: "SELECT", database: "main" }] as const;
const grants = { alice: { main: "ReadOnly" } } as const;
const list = statelessCall("tools/list");
const call = statelessCall("tools/call", { name: "shown", arguments: {} });
const tools =
  '{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"shown","inputSchema":{"maximum":9223372036854775807}},{"name":"hidden"},{"n\\u0061me":"hidden"}]}}';
const shown =
  '{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"shown","inputSchema":{"maximum":9223372036854775807}}]}}';

async function openBefore(t: Test, answer: (response: ServerResponse) => void): Promise<string> {
  const upstream = await new RecordingUpstream().listen(t);
  upstream.answer = (_request, response) => answer(response);
  const { endpoint } = await openProxied(t, { grants, policy, target: `${upstream.url}/mcp` });
  return endpoint.url;
}

function codeOf({ body }: PlainAnswer): unknown {
  return JSON.parse(body.toString()).code;
}

t.test("a list in JSON is filtered, and every number in it keeps its digits", async (t) => {
  const url = await openBefore(t, (response) => {
    response.writeHead(200, { "content-type": "application/json", etag: '"of the whole"' });
    response.end(tools);
  });
  const answer = await ask(url, list);
  t.equal(answer.body.toString(), shown);
  t.equal(answer.headers.etag, undefined);
});

t.test("a list whose tools are long is filtered, wherever their names stand", async (t) => {
  const long = Array.from({ length: 5000 }, (_, at) => ({ at, of: "x".repeat(at % 40) }));
  const named = (name: unknown) => [{ name, long }, { long, name }, { name }, { long: { name } }];
  const listed = ["shown", [], ...["shown", "hidden", 1, "shown"].flatMap(named)];
  const url = await openBefore(t, (response) => {
    response.writeHead(200, { "content-type": "application/json" });
    response.end(
      JSON.stringify({ jsonrpc: "2.0", id: 1, result: { tools: listed } }, undefined, 1),
    );
  });
  const { body } = await ask(url, list);
  const expected = listed.filter((tool) => Object(tool).name === "shown");
  t.strictSame(JSON.parse(body.toString()).result.tools, expected);
});

t.test("nobody is told to keep a filtered list, whatever the server says", async (t) => {
  const empty = { jsonrpc: "2.0", id: 1, result: { tools: [] } };
  const forNobody = { ttlMs: 0, cacheScope: "private" };
  const complete = { resultType: "complete" };
  for (const [hints, expected] of [
    [{}, {}],
    [complete, { ...complete, ...forNobody }],
    [{ ttlMs: 60_000 }, forNobody],
    [
      { ...complete, ttlMs: 1, cacheScope: "public" },
      { ...complete, ...forNobody },
    ],
  ]) {
    const url = await openBefore(t, (response) => {
      const cached = { "cache-control": "public, max-age=60", expires: "soon", age: "1" };
      response.writeHead(200, { "content-type": "application/json", ...cached });
      response.end(JSON.stringify({ ...empty, result: { ...empty.result, ...hints } }));
    });
    const { body, headers } = await ask(url, list);
    t.strictSame(JSON.parse(body.toString()).result, { tools: [], ...expected });
    t.equal(headers["cache-control"], "no-store");
    t.notOk("expires" in headers || "age" in headers);
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
    const url = await openBefore(t, async (response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      for (let at = 0; at < stream.length; at += cut) {
        response.write(stream.subarray(at, at + cut));
        if (cut < 20) await new Promise(setImmediate);
      }
      response.end();
    });
    for (cut of [1, 7, stream.length]) {
      const text = (await ask(url, list)).body.toString();
      t.match(text, ": é");
      t.match(text, `data: ${shown}`);
      t.match(text, "id: 7");
      t.notMatch(text, "hidden");
    }
  });
}

t.test("a list that comes again on the stream of a session is filtered too", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  upstream.answer = ({ method }, response) => {
    if (method === "POST") {
      response.writeHead(200, { "content-type": "application/json", "mcp-session-id": "s" });
      response.end('{"jsonrpc":"2.0","id":1,"result":{}}');
    } else {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end(`data: ${tools}\n\n`);
    }
  };
  const { endpoint } = await openProxied(t, { grants, policy, target: `${upstream.url}/mcp` });
  t.equal((await ask(endpoint.url, initialize)).headers["mcp-session-id"], "s");
  const headers = { "mcp-session-id": "s", accept: "text/event-stream", "last-event-id": "6" };
  const answer = await ask(endpoint.url, { headers });
  t.equal(answer.body.toString(), `data: ${shown}\n\n`);
});

t.test("a redirect, a 401 or a coded answer of the server behind is a 502", async (t) => {
  const gzip = { "content-type": "application/json", "content-encoding": "gzip" };
  for (const [status, headers, request] of [
    [307, { location: "http://127.0.0.1:1/" }, call],
    [401, { "www-authenticate": 'Bearer realm="inner"' }, call],
    [200, gzip, list],
    [200, { "content-type": "text/plain" }, list],
  ] as const) {
    const url = await openBefore(t, (response) => {
      response.writeHead(status, headers);
      response.end(tools);
    });
    const answer = await ask(url, request);
    t.equal(answer.status, 502);
    t.equal(codeOf(answer), "upstream_broken");
  }
});

t.test("a server that is not there is a 502", async (t) => {
  const { endpoint } = await openProxied(t, { grants, policy, target: "http://127.0.0.1:1/mcp" });
  const answer = await ask(endpoint.url, call);
  t.equal(answer.status, 502);
  t.equal(codeOf(answer), "upstream_unreachable");
});

t.test("a stream waits for a client that reads slowly", async (t) => {
  const chunk = Buffer.from(`: ${"x".repeat(64 * 1024)}\n\n`);
  let taken = 0;
  function* chunks(): Generator<Buffer> {
    for (; taken < 2000; taken++) yield chunk;
  }
  const url = await openBefore(t, (response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    pipeline(Readable.from(chunks()), response, () => {});
  });
  const stream = await open(url, call);
  let before = 0;
  await eventually("the server behind waits", () => {
    const isSame = taken === before;
    before = taken;
    return isSame && taken > 0;
  });
  t.ok(taken < 1000, `${taken} of 2000 chunks were taken`);
  stream.destroy();
});
