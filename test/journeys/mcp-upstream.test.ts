import { EventEmitter, once } from "node:events";
import { readFile, rename, writeFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { McpServer } from "@modelcontextprotocol/server";
import t, { type Test } from "tap";
import { makeKey } from "../../src/core/identity/key-store.ts";
import { groupGrant } from "../access/kit.ts";
import { decodePart } from "../identity/forge.ts";
import { open as openAnswer } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { auditOf, startGateway, type TestGateway } from "../kit/gateway.ts";
import { tables } from "../kit/tables.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { connectEarlier, connectStateless } from "../mcp/clients.ts";
import { FixtureServer, keepEvents } from "../mcp/fixture-server.ts";
import { handshakeCall, initialize, statelessCall } from "../mcp/messages.ts";
import { obtainTokens } from "../oauth/flow.ts";
import { TestIssuer } from "../oauth/issuer.ts";
import { postForm } from "../oauth/kit.ts";
import { type Loss, oneWayEach, type Way } from "./losses.ts";
import {
  beginSession,
  callTool,
  checkDenied,
  malformed,
  openProxied,
  refusalOf,
  revision,
  send,
  staff,
} from "./mcp.ts";
import { passwordOf, soon, staffedHome, succeed, tokenOf } from "./staff.ts";
import { servedBy } from "./supervised.ts";

const shared = await openProxied(t, staff);
const { gateway, fixture } = shared;
const sessionServer = new FixtureServer();
const sessionUrl = await sessionServer.listen(t);
const sessionGrants = ["root * Owner", "alice main ReadWrite", "bob main ReadOnly"];

t.test("no credential of the client or database reaches the MCP server", async (t) => {
  const token = await tokenOf(gateway, "bob");
  fixture.take();
  const { headers, ...call } = statelessCall("tools/call", {
    name: "query_database",
    arguments: { database: "main" },
  });
  const spoofed = {
    "x-gatehouse-user": "root",
    x_gatehouse_role: "Owner",
    cookie: "session=1",
    "proxy-authorization": `Bearer ${token}`,
    "x-forwarded-for": "192.0.2.1",
  };
  const answer = await send(gateway, { ...call, headers: { ...headers, ...spoofed } }, token);
  t.equal(answer.status, 200);
  await connectEarlier(t, `${gateway.url}/mcp`, token);
  const received = fixture.take();
  t.ok(received.length > 1);
  t.notMatch(JSON.stringify(received), token);
  t.notMatch(JSON.stringify(received), /of-the-database|session=1|root/);
  t.match(received[0]?.headers, {
    "x-gatehouse-user": "bob",
    "x-gatehouse-role": "ReadWrite",
    "x-gatehouse-database": "main",
    "x-forwarded-for": "127.0.0.1",
    "x-request-id": answer.headers.get("x-request-id"),
  });
  t.equal(received[0]?.body.toString(), call.body, "the very bytes that were judged");
  for (const { headers } of received) t.notOk("authorization" in headers);
});

t.test("the audit records the caller and the permission of a tool call", async (t) => {
  const token = await tokenOf(gateway, "alice");
  const { jti: tokenId } = decodePart(token, 1);
  const asked = await callTool(gateway, "query_database", { database: "main" }, token);
  t.match(await auditOf(gateway, asked), {
    user: "alice",
    tokenId,
    decision: "allow",
    status: 200,
    operations: [{ operation: "SELECT", database: "main", role: "ReadOnly" }],
  });
  fixture.take();
  const denied = await callTool(gateway, "wait", {}, token);
  t.equal(denied.headers.get("x-gatehouse-decision"), "deny");
  t.match(await auditOf(gateway, denied), {
    user: "alice",
    tokenId,
    decision: "deny",
    reason: "role_insufficient",
    operations: [{ operation: "UPDATE", database: "main", role: "ReadOnly" }],
  });
  t.strictSame(fixture.take(), [], "the server is not asked");
});

t.test("the audit of a denied call names the boundary that denies it", async (t) => {
  const { gateway } = await openProxied(t, staff);
  const token = await tokenOf(gateway, "bob");
  await gateway.edit((text) => `${text}\n[[boundaries]]\nvia = "mcp"\nrole = "ReadOnly"\n`);
  const listed = () => send(gateway, statelessCall("tools/list"), token);
  await soon(t, "it is in force", async () => !(await listed()).text.includes('"wait"'));
  const { operations } = await auditOf(gateway, await callTool(gateway, "wait", {}, token));
  t.match(operations, [{ operation: "UPDATE", boundary: "mcp" }]);
});

t.test("every refusal of the MCP proxy has its reason in header and audit", async (t) => {
  const token = await tokenOf(gateway, "alice");
  fixture.take();
  for (const [reason, request] of Object.entries(malformed)) {
    await checkDenied(t, gateway, await send(gateway, request, token), reason);
  }
  const calls: [reason: string, name: string, args: Record<string, unknown>][] = [
    ["tool_without_policy", "test_error_handling", {}],
    ["invalid_params", "query_database", {}],
    ["no_grant", "query_database", { database: "side" }],
  ];
  for (const [reason, name, args] of calls) {
    await checkDenied(t, gateway, await callTool(gateway, name, args, token), reason);
  }
  const lost = { headers: { ...revision, "mcp-session-id": "of-unknown" }, method: "DELETE" };
  await checkDenied(t, gateway, await send(gateway, lost, token), "session_not_found");
  t.strictSame(fixture.take(), []);
});

t.test("only the MCP server receives its credential", async (t) => {
  const own = 'authorization = "Bearer of-the-server"';
  const { gateway, fixture } = await openProxied(t, staff, own);
  const token = await tokenOf(gateway, "alice");
  const args = { database: "main" };
  const answers = [
    await callTool(gateway, "query_database", args, token),
    await send(gateway, initialize, token),
  ];
  const received = fixture.take();
  t.equal(received.length, answers.length);
  for (const { headers } of received) t.equal(headers.authorization, "Bearer of-the-server");
  t.notMatch(JSON.stringify(received), token);
  t.notMatch(JSON.stringify(received), "of-the-database");
  for (const { text, headers } of answers) {
    t.notMatch(text + JSON.stringify([...headers]), "of-the-server");
  }
  t.notMatch(gateway.service.output, "of-the-server");
});

async function openStream(
  gateway: TestGateway,
  { method, headers, body }: ReturnType<typeof statelessCall> | Record<string, never>,
  token: string,
  more: Readonly<Record<string, string>> = {},
): Promise<IncomingMessage> {
  const answer = await openAnswer(`${gateway.url}/mcp`, {
    method: method ?? "GET",
    headers: { accept: "text/event-stream", ...headers, ...more, authorization: `Bearer ${token}` },
    ...(body === undefined ? {} : { body }),
  });
  answer.on("error", () => {}).resume();
  return answer;
}

async function checkCut(
  t: Test,
  { how, code }: Way,
  call: IncomingMessage,
  listening: IncomingMessage,
): Promise<void> {
  await soon(t, `the call is cut: ${how}`, () => call.destroyed);
  t.notOk(call.complete, "it does not look as if it had ended");
  const keepsToken = code === "no_grant" || code === "role_insufficient";
  if (!keepsToken) await soon(t, "and so is the session's stream", () => listening.destroyed);
  else t.notOk(listening.destroyed, "a stream that no grant opened stays");
  listening.destroy();
}

t.test("an open stream is cut when its token or its right is lost", async (t) => {
  const names = oneWayEach.map((_, number) => `user-${number}`);
  const everybody = ["root * Owner", ...names.map((name) => `${name} main ReadWrite`)];
  const { gateway, fixture } = await openProxied(t, everybody);
  const root = await tokenOf(gateway, "root");
  const wait = statelessCall("tools/call", { name: "wait", arguments: {} });
  const cuts: Promise<void>[] = [];
  for (const [number, way] of oneWayEach.entries()) {
    const name = names[number] ?? "";
    const loss: Loss = { gateway, name, token: await tokenOf(gateway, name), root };
    const session = { ...revision, "mcp-session-id": await beginSession(gateway, loss.token) };
    const call = await openStream(gateway, wait, loss.token);
    const listening = await openStream(gateway, {}, loss.token, session);
    t.strictSame([call.statusCode, listening.statusCode], [200, 200]);
    await way.act(loss);
    cuts.push(checkCut(t, way, call, listening));
  }
  await Promise.all(cuts);
  await eventually("the server is notified", () => fixture.cancelled === oneWayEach.length);
  const isCut = ({ msg }: Record<string, unknown>) => msg === "an open stream is cut";
  const codes = () => new Set(gateway.service.log.filter(isCut).map(({ code }) => code));
  const expected = new Set(oneWayEach.map(({ code }) => code));
  await eventually("each code is in the log", () => codes().size >= expected.size);
  t.same(codes(), expected);
});

t.test("a wait for a task is cut when its caller may call no tool any more", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  upstream.answer = ({ body }, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const created = 'data: {"jsonrpc":"2.0","id":1,"result":{"taskId":"t-1"}}\n\n';
    if (String(body).includes("tools/call")) response.end(created);
    else response.flushHeaders();
  };
  const rules = tables("mcp.tools", [{ name: "job", permission: "SELECT", database: "main" }]);
  const gateway = await startGateway(t, {
    home: await staffedHome(t, staff),
    config: `[mcp]\nupstream = "${upstream.url}/mcp"\n${rules}`,
  });
  const token = await tokenOf(gateway, "alice");
  await callTool(gateway, "job", {}, token);
  const filter = { notifications: { taskIds: ["t-1"] } };
  const waits = [
    await openStream(gateway, statelessCall("tasks/result", { taskId: "t-1" }), token),
    await openStream(gateway, statelessCall("subscriptions/listen", filter), token),
  ];
  t.ok(waits.every(({ statusCode }) => statusCode === 200));
  await gateway.edit((text) => text.replace('"ReadOnly"', '"None"'));
  await soon(t, "they are cut", () => waits.every(({ destroyed }) => destroyed));
  t.notOk(waits.some(({ complete }) => complete));
});

t.test("a stream is resumed only with the rights of its session's calls", async (t) => {
  const ends = new EventEmitter();
  const addReport = (server: McpServer) =>
    server.registerTool("report", {}, async () => {
      await once(ends, "report");
      return { content: [{ type: "text", text: "the report" }] };
    });
  const fixture = new FixtureServer(addReport, {}, keepEvents());
  const url = await fixture.listen(t);
  const rules = tables("mcp.tools", [{ name: "report", permission: "SELECT", database: "main" }]);
  const gateway = await startGateway(t, {
    home: await staffedHome(t, staff),
    config: `[mcp]\nupstream = "${url}"\n${rules}`,
  });
  const token = await tokenOf(gateway, "alice");
  async function giveAlice(role: string) {
    await gateway.edit((text) => text.replace(/(?<="alice"\n.*\nrole = ")\w+/, role));
    const list = statelessCall("tools/list");
    await soon(t, "it is in force", async () => {
      const { text } = await send(gateway, list, token);
      return text.includes('"report"') === (role !== "None");
    });
  }

  /** Calls the tool, and leaves before its response. */
  async function call(session: string): Promise<string> {
    const report = handshakeCall("tools/call", { name: "report", arguments: {} });
    const more = { ...revision, "mcp-session-id": session };
    const answer = await openStream(gateway, report, token, more);
    const [first] = await once(answer, "data");
    answer.destroy();
    return /^id: (\d+)$/m.exec(String(first))?.[1] ?? "";
  }
  async function resume(session: string, last: string) {
    const more = { ...revision, "mcp-session-id": session, "last-event-id": last };
    const answer = await openStream(gateway, {}, token, more);
    const received: string[] = [];
    answer.on("data", (piece) => received.push(String(piece)));
    return { answer, text: () => received.join("") };
  }

  const first = await beginSession(gateway, token);
  const last = await call(first);
  const resumed = await resume(first, last);
  ends.emit("report");
  await eventually("the response comes", () => resumed.text().includes("the report"));

  const second = await beginSession(gateway, token);
  const again = await call(second);
  const open = await resume(second, again);
  t.equal(open.answer.statusCode, 200);
  await giveAlice("None");
  await soon(t, "the resumed stream is cut", () => open.answer.destroyed);
  ends.emit("report");
  for (const [session, event] of [
    [first, last],
    [second, again],
  ] as const)
    t.equal((await resume(session, event)).answer.statusCode, 404);
  t.notMatch(open.text(), "the report");

  const third = await beginSession(gateway, token);
  await giveAlice("ReadOnly");
  const granted = await call(third);
  await giveAlice("None");
  ends.emit("report");
  t.equal((await resume(third, granted)).answer.statusCode, 404, "a right that was had for a time");
});

t.test("a stream is resumed with the same groups in another order", async (t) => {
  const issuer = await TestIssuer.start(t);
  const fixture = new FixtureServer(() => {}, {}, keepEvents());
  const url = await fixture.listen(t);
  const opens = issuer.section('groups_claim = "groups"').replace('["query"]', '["mcp"]');
  const gateway = await startGateway(t, {
    home: await staffedHome(t, ["root * Owner"], groupGrant("staff:b", "main", "ReadOnly")),
    config: `[mcp]\nupstream = "${url}"\n${opens}`,
  });
  const tokenWith = (...groups: string[]) => issuer.sign("gatehouse", { claims: { groups } });
  const session = { "mcp-session-id": await beginSession(gateway, await tokenWith("b", "a")) };
  const resumed = { ...revision, ...session, "last-event-id": "1" };
  for (const [groups, status] of [
    [["a", "b"], 200],
    [["b"], 404],
  ] as const) {
    const answer = await openStream(gateway, {}, await tokenWith(...groups), resumed);
    t.equal(answer.statusCode, status, groups.join());
    answer.destroy();
  }
});

t.test("a stream is not resumed if the configuration forbids it", async (t) => {
  const { gateway, fixture } = await openProxied(t, staff, "forward_last_event_id = false\n");
  const token = await tokenOf(gateway, "alice");
  const session = { ...revision, "mcp-session-id": await beginSession(gateway, token) };
  fixture.take();
  const list = handshakeCall("tools/list");
  for (const request of [{}, { ...list, headers: { ...list.headers, ...session } }]) {
    const answer = await openStream(gateway, request, token, { ...session, "last-event-id": "1" });
    t.equal(answer.statusCode, 200);
    answer.destroy();
  }
  const received = fixture.take();
  t.match(received, [{ headers: session }, { headers: session }]);
  for (const { headers } of received) t.notOk("last-event-id" in headers);
});

t.test("an open stream is cut when another key gets the id of that of its token", async (t) => {
  const { gateway } = await openProxied(t, staff);
  const token = await tokenOf(gateway, "bob");
  const session = { ...revision, "mcp-session-id": await beginSession(gateway, token) };
  const listening = await openStream(gateway, {}, token, session);
  t.equal(listening.statusCode, 200);
  const kid = String(decodePart(token, 0).kid);
  const file = path.join(gateway.home, "keys", `${kid}.json`);
  const stored = JSON.parse(await readFile(file, "utf8"));
  async function put(key: object): Promise<void> {
    await writeFile(`${file}.new`, JSON.stringify(key), { mode: 0o600 });
    await rename(`${file}.new`, file);
  }
  await put({ ...stored, machine_tokens_until: 9_000_000_000 });
  await delay(1500);
  t.notOk(listening.destroyed, "the same key, loaded again");
  const { jwk } = await makeKey(stored.alg);
  await put({ ...stored, jwk });
  const { code } = await gateway.service.logged(({ msg }) => msg === "an open stream is cut");
  t.equal(code, "token_invalid");
  await soon(t, "the stream", () => listening.destroyed);
  t.equal(refusalOf(await send(gateway, initialize, token)), "token_invalid");
});

t.test("an open stream is cut when its app is no longer allowed", async (t) => {
  const before = fixture.cancelled;
  const options = { username: "bob", password: passwordOf("bob") };
  const { accessToken, refreshToken, clientId } = await obtainTokens(gateway, options);
  const wait = statelessCall("tools/call", { name: "wait", arguments: {} });
  const streams = [
    await openStream(gateway, wait, accessToken),
    await openStream(gateway, wait, await tokenOf(gateway, "bob")),
  ];
  const fields = { token: refreshToken, client_id: clientId };
  t.equal((await postForm(`${gateway.url}/oauth/revoke`, fields)).status, 200);
  await soon(t, "the app's stream", () => streams[0]?.destroyed === true);
  t.notOk(streams[1]?.destroyed, "and no other");
  streams[1]?.destroy();
  await eventually("both have ended", () => fixture.cancelled === before + 2);
});

t.test("a new grant changes the next list of tools", async (t) => {
  const token = await tokenOf(gateway, "eve");
  const { toolNames } = await connectStateless(t, `${gateway.url}/mcp`, token);
  t.strictSame(await toolNames(), ["query_database"]);
  const call = () => callTool(gateway, "test_simple_text", {}, token);
  t.equal(refusalOf(await call()), "no_grant");
  const root = await tokenOf(gateway, "root");
  await gateway.send("PUT", "/api/access/eve/main", { role: "ReadWrite" }, root);
  t.equal(refusalOf(await call()), undefined);
  t.equal((await toolNames()).length, 3, "the client does not go by the earlier list");
});

t.test("a session of a removed user is not that of a new user of that name", async (t) => {
  const { gateway, fixture } = await openProxied(t, staff);
  const root = await tokenOf(gateway, "root");
  async function begin(token: string) {
    const session = { ...revision, "mcp-session-id": await beginSession(gateway, token) };
    return handshakeCall("tools/list", {}, session);
  }
  const [bob, alice] = [await tokenOf(gateway, "bob"), await tokenOf(gateway, "alice")];
  const [ofBob, ofAlice] = [await begin(bob), await begin(alice)];
  t.equal((await send(gateway, ofBob, bob)).status, 200);
  await succeed(gateway.send("DELETE", "/api/users/bob", undefined, root));
  const anew = { username: "bob", password: passwordOf("bob"), database: "main", role: "ReadOnly" };
  t.equal((await gateway.send("POST", "/api/users", anew, root)).status, 201);
  const token = await tokenOf(gateway, "bob");
  fixture.take();
  await checkDenied(t, gateway, await send(gateway, ofBob, token), "session_not_found");
  t.strictSame(fixture.take(), [], "the server is not asked");
  t.equal((await send(gateway, await begin(token), token)).status, 200);
  t.equal((await send(gateway, ofAlice, alice)).status, 200);
});

t.test("a session survives a restart of the gateway, in each worker", async (t) => {
  const home = await staffedHome(t, sessionGrants);
  const options = {
    home,
    upstream: "http://127.0.0.1:9",
    ...servedBy(2, { config: `[mcp]\nupstream = "${sessionUrl}"` }),
  };
  const first = await startGateway(t, options);
  const [alice, bob] = [await tokenOf(first, "alice"), await tokenOf(first, "bob")];
  async function begin(): Promise<Record<string, string>> {
    const { headers } = await send(first, initialize, alice);
    return { ...revision, "mcp-session-id": String(headers.get("mcp-session-id")) };
  }
  const sessions = [await begin(), await begin(), await begin()];
  const [over = {}, ...open] = sessions.map((session) => handshakeCall("tools/list", {}, session));
  t.equal((await send(first, { ...over, method: "DELETE" }, alice)).status, 200);
  // A worker notifies the others without waiting for them.
  await eventually("the session has ended in all processes", async () => {
    sessionServer.take();
    await send(first, over, alice);
    return sessionServer.take().length === 0;
  });
  await first.service.stop("SIGKILL");

  const second = await startGateway(t, options);
  sessionServer.take();
  t.equal((await send(second, over, alice)).status, 404);
  for (const list of open) t.equal((await send(second, list, bob)).status, 404);
  t.strictSame(sessionServer.take(), [], "the server is not asked");
  for (const list of open) t.equal((await send(second, list, alice)).status, 200);
  t.equal(await second.service.stop(), 0);
});
