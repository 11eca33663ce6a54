import t, { type Test } from "tap";
import { ask } from "../kit/client.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { principalOf } from "./kit.ts";
import { handshakeCall, statelessCall } from "./messages.ts";
import { openProxied } from "./proxied.ts";

const grants = { alice: { main: "ReadOnly" }, bob: { main: "ReadOnly" } } as const;
const policy = [{ name: "work", permission: "SELECT", database: "main" }] as const;
const work = statelessCall("tools/call", { name: "work", arguments: {} });
const result = (task: string) => `{"jsonrpc":"2.0","id":1,"result":${task}}`;

/** The proxy in front of a server that answers with these pieces. */
async function open(t: Test, type: string, ...pieces: string[]) {
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
  upstream.answer = async (_, response) => {
    response.writeHead(200, { "content-type": type });
    for (const piece of pieces) await new Promise((sent) => response.write(piece, sent));
    response.end();
  };
  const setting = await openProxied(t, { grants, policy, target: `${upstream.url}/mcp` });
  return { upstream, ...setting };
}

for (const [what, type, id, ...pieces] of [
  ["JSON", "application/json", "t-1", result('{"task":{"taskId":"t-1","status":"working"}}')],
  ["an extension's form", "application/json", "t 2", result('{"taskId" : "t\\u00202"}')],
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
    const { endpoint, upstream } = await open(t, type, ...pieces);
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
    const { endpoint, upstream } = await open(t, "application/json", result('{"taskId":"t-1"}'));
    await ask(endpoint.url, work);
    const mine = '{"taskId":"t-1","status":"working"}';
    const list = `{"tasks":[{"taskId":"t-2","status":"working"},${mine}],"nextCursor":"more"}`;
    upstream.answer = async (_, response) => {
      response.writeHead(200, { "content-type": type });
      response.end(frame(result(list)));
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
  const { endpoint, upstream } = await open(t, "text/event-stream");
  const headers = { accept: "text/event-stream", "last-event-id": "7" };
  const answer = await ask(endpoint.url, { headers });
  t.equal(answer.status, 400);
  t.match(JSON.parse(String(answer.body)), { error: { code: -32600 } });
  const others = { ...headers, "mcp-session-id": "of-somebody" };
  t.equal((await ask(endpoint.url, { headers: others })).status, 404);
  t.strictSame(upstream.take(), []);
});
