import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import t, { type Test } from "tap";
import { decodePart } from "../identity/forge.ts";
import { open as openAnswer } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { auditOf, startGateway, type TestGateway } from "../kit/gateway.ts";
import { tables } from "../kit/tables.ts";
import { connectEarlier, connectStateless } from "../mcp/clients.ts";
import { FixtureServer } from "../mcp/fixture-server.ts";
import { handshakeCall, initialize, statelessCall } from "../mcp/messages.ts";
import { obtainTokens } from "../oauth/flow.ts";
import { postForm } from "../oauth/kit.ts";
import { type Loss, type Way, ways } from "./losses.ts";
import { callTool, checkDenied, malformed, refusalOf, send } from "./mcp.ts";
import { passwordOf, soon, staffedHome, tokenOf } from "./staff.ts";

const policy = tables("mcp.tools", [
  { name: "test_simple_text", permission: "SELECT", database: "main" },
  { name: "query_database", permission: "SELECT", database_argument: "database" },
  { name: "wait", permission: "UPDATE", database: "main" },
]);

interface Setting {
  readonly gateway: TestGateway;
  readonly fixture: FixtureServer;
}

/** A gateway in front of an MCP server that remembers what reached it. */
async function open(t: Test, grants: readonly string[], more = ""): Promise<Setting> {
  const fixture = new FixtureServer();
  const url = await fixture.listen();
  t.teardown(() => fixture.close());
  const gateway = await startGateway(t, {
    home: await staffedHome(t, grants),
    upstream: 'http://127.0.0.1:9"\nauthorization = "Bearer of-the-database',
    config: `[mcp]\nupstream = "${url}"\n${more}\n${policy}`,
  });
  return { gateway, fixture };
}

const staff = ["root * Owner", "alice main ReadOnly", "bob main ReadWrite", "eve side ReadOnly"];
const shared = await open(t, staff);
const revision = { "mcp-protocol-version": "2025-11-25" };

t.test("clients of every revision reach the server, as far as their roles go", async (t) => {
  const { gateway } = shared;
  const token = await tokenOf(gateway, "alice");
  for (const connect of [connectStateless, connectEarlier]) {
    const mcp = await connect(t, `${gateway.url}/mcp`, token);
    t.strictSame((await mcp.toolNames()).toSorted(), ["query_database", "test_simple_text"]);
    t.match(await mcp.call("test_simple_text", {}), { isError: false, text: /simple text/ });
    t.match(await mcp.call("query_database", { database: "main" }), { text: "asked main" });
    await t.rejects(mcp.call("query_database", { database: "side" }), /no_grant/);
    await t.rejects(mcp.call("wait", {}), /role_insufficient/);
    await t.rejects(mcp.call("test_error_handling", {}), /tool_without_policy/);
    t.match(await mcp.read("test://static-text"), /static text/);
  }
});

t.test("the client's token stays here, and so does the database's", async (t) => {
  const { gateway, fixture } = shared;
  const token = await tokenOf(gateway, "bob");
  fixture.take();
  const { headers, ...call } = statelessCall("tools/call", {
    name: "query_database",
    arguments: { database: "main" },
  });
  const spoofed = {
    ...{ "x-gatehouse-user": "root", x_gatehouse_role: "Owner", cookie: "session=1" },
    ...{ "proxy-authorization": `Bearer ${token}`, "x-forwarded-for": "192.0.2.1" },
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
  for (const { headers } of received) t.notOk("authorization" in headers);
});

t.test("the audit says who called which kind of tool", async (t) => {
  const { gateway, fixture } = shared;
  const token = await tokenOf(gateway, "alice");
  const { jti: tokenId } = decodePart(token, 1);
  const asked = await callTool(gateway, "query_database", { database: "main" }, token);
  t.match(await auditOf(gateway, asked), {
    ...{ user: "alice", tokenId, decision: "allow", status: 200 },
    operations: [{ operation: "SELECT", database: "main", role: "ReadOnly" }],
  });
  fixture.take();
  const denied = await callTool(gateway, "wait", {}, token);
  t.equal(denied.headers.get("x-gatehouse-decision"), "deny");
  t.match(await auditOf(gateway, denied), {
    ...{ user: "alice", tokenId, decision: "deny", reason: "role_insufficient" },
    operations: [{ operation: "UPDATE", database: "main", role: "ReadOnly" }],
  });
  t.strictSame(fixture.take(), [], "the server is not asked");
});

t.test("whatever the gateway refuses is said to be denied, and why", async (t) => {
  const { gateway, fixture } = shared;
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
  const lost = { headers: { ...revision, "mcp-session-id": "of-nobody" }, method: "DELETE" };
  await checkDenied(t, gateway, await send(gateway, lost, token), "session_not_found");
  t.strictSame(fixture.take(), []);
});

t.test("what is refused before a tool is known never reaches the server", async (t) => {
  const { gateway, fixture } = shared;
  const token = await tokenOf(gateway, "alice");
  fixture.take();
  const call = statelessCall("tools/call", { name: "test_simple_text" });
  const twice = call.body.replace('"name"', '"name":"wait","name"');
  t.equal((await send(gateway, { ...call, body: twice }, token)).status, 400);
  const misnamed = { ...call, headers: { ...call.headers, "mcp-name": "wait" } };
  t.match((await send(gateway, misnamed, token)).body, { error: { code: -32020 } });
  t.equal((await send(gateway, call)).status, 401);
  t.equal((await send(gateway, statelessCall("x/unknown"), token)).status, 404);
  t.strictSame(fixture.take(), []);
});

t.test("the server is shown its own credential, and nobody else is", async (t) => {
  const { gateway, fixture } = await open(t, staff, 'authorization = "Bearer of-the-server"');
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

/** Begins a session, and gives its id. */
async function beginSession(gateway: TestGateway, token: string): Promise<string> {
  const { headers } = await send(gateway, initialize, token);
  return headers.get("mcp-session-id") ?? "";
}

t.test("a session is its user's alone", async (t) => {
  const { gateway, fixture } = shared;
  const [alice, bob] = [await tokenOf(gateway, "alice"), await tokenOf(gateway, "bob")];
  const session = await beginSession(gateway, alice);
  const headers = { ...revision, "mcp-session-id": session };
  const call = handshakeCall("tools/list", {}, headers);
  t.equal((await send(gateway, call, alice)).status, 200);
  t.equal(
    (await send(gateway, call, await tokenOf(gateway, "alice"))).status,
    200,
    "another login",
  );
  fixture.take();
  for (const method of ["GET", "DELETE"]) {
    t.equal((await send(gateway, { method, headers }, bob)).status, 404, method);
  }
  t.match((await send(gateway, call, bob)).body, { error: { code: -32001 } });
  t.strictSame(fixture.take(), []);
  t.equal((await send(gateway, { method: "DELETE", headers }, alice)).status, 200);
  t.equal((await send(gateway, call, alice)).status, 404, "it is over");
});

/** An answer that stays open, read as it comes. */
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

/** Holds that a call is cut, and the session's stream if it is the token that was lost. */
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
  const names = ways.map((_, number) => `user-${number}`);
  const everybody = ["root * Owner", ...names.map((name) => `${name} main ReadWrite`)];
  const { gateway, fixture } = await open(t, everybody);
  const root = await tokenOf(gateway, "root");
  const wait = statelessCall("tools/call", { name: "wait", arguments: {} });
  const cuts: Promise<void>[] = [];
  for (const [number, way] of ways.entries()) {
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
  await eventually("the server is told", () => fixture.cancelled === ways.length);
  const cut = gateway.service.log.filter(({ msg }) => msg === "an open stream is cut");
  t.strictSame(
    [...new Set(cut.map(({ code }) => code))],
    [...new Set(ways.map(({ code }) => code))],
  );
});

t.test("an open stream is cut when its app is no longer allowed", async (t) => {
  const { gateway, fixture } = shared;
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
  await eventually("both are over", () => fixture.cancelled === before + 2);
});

t.test("a client that goes away ends its call", async (t) => {
  const { gateway, fixture } = shared;
  const before = fixture.cancelled;
  const wait = statelessCall("tools/call", { name: "wait", arguments: {} });
  const stream = await openStream(gateway, wait, await tokenOf(gateway, "bob"));
  stream.destroy();
  await once(stream, "close");
  await eventually("the call is cancelled", () => fixture.cancelled > before);
  t.equal(fixture.cancelled, before + 1);
});

t.test("a grant that is new shows in the next list", async (t) => {
  const { gateway } = shared;
  const token = await tokenOf(gateway, "eve");
  const { toolNames } = await connectStateless(t, `${gateway.url}/mcp`, token);
  t.strictSame(await toolNames(), ["query_database"]);
  const call = () => callTool(gateway, "test_simple_text", {}, token);
  t.equal(refusalOf(await call()), "no_grant");
  await gateway.send(
    "PUT",
    "/api/access/eve/main",
    { role: "ReadWrite" },
    await tokenOf(gateway, "root"),
  );
  t.equal(refusalOf(await call()), undefined);
  t.equal((await toolNames()).length, 3, "the client does not go by the earlier list");
});
