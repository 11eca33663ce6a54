import t from "tap";
import { decodePart } from "../identity/forge.ts";
import { auditOf } from "../kit/gateway.ts";
import { connectEarlier, connectStateless } from "../mcp/clients.ts";
import { handshakeCall, initialize, statelessCall } from "../mcp/messages.ts";
import { callTool, checkDenied, malformed, send } from "./mcp.ts";
import { beginSession, open, revision, staff } from "./mcp-server.ts";
import { tokenOf } from "./staff.ts";

const shared = await open(t, staff);

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
