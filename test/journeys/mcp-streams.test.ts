import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import t, { type Test } from "tap";
import { open as openAnswer } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import type { TestGateway } from "../kit/gateway.ts";
import { connectStateless } from "../mcp/clients.ts";
import { statelessCall } from "../mcp/messages.ts";
import { obtainTokens } from "../oauth/flow.ts";
import { postForm } from "../oauth/kit.ts";
import { type Loss, type Way, ways } from "./losses.ts";
import { callTool, refusalOf } from "./mcp.ts";
import { beginSession, open, revision, staff } from "./mcp-server.ts";
import { passwordOf, soon, tokenOf } from "./staff.ts";

const shared = await open(t, staff);

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
  const isCut = ({ msg }: Record<string, unknown>) => msg === "an open stream is cut";
  const codes = () => new Set(gateway.service.log.filter(isCut).map(({ code }) => code));
  const expected = new Set(ways.map(({ code }) => code));
  await eventually("each code is in the log", () => codes().size >= expected.size);
  t.same(codes(), expected);
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
