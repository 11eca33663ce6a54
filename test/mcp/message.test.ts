import t from "tap";
import { McpRefused, readMessage } from "../../src/features/mcp/message.ts";

const call = '"jsonrpc":"2.0","id":1,"method":"tools/call"';

t.test("a message keeps its method, name, version and the bytes of its arguments", async (t) => {
  const meta = '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}';
  const args = '"arguments":{"id":9223372036854775807,"n\\u0061me":[1.50, {"a":"b"}]}';
  const message = await readMessage(
    Buffer.from(` {${call},"params":{"name":"inse\\u0072t",${args},${meta}}} `),
  );
  const kind = "request";
  const named = { name: "insert", protocolVersion: "2026-07-28" };
  t.match(message, { kind, id: 1, method: "tools/call", ...named });
  t.equal(`"arguments":${message.arguments}`, args);
  const reading = await readMessage(
    Buffer.from('{"jsonrpc":"2.0","id":"x","method":"resources/read","params":{"uri":"a:b"}}'),
  );
  t.match(reading, { id: "x", name: "a:b", protocolVersion: undefined, arguments: undefined });
  const notification = '{"jsonrpc":"2.0","method":"notifications/cancelled"}';
  t.match(await readMessage(Buffer.from(notification)), { kind: "notification", id: undefined });
  const response = '{"jsonrpc":"2.0","id":3,"result":{}}';
  t.match(await readMessage(Buffer.from(response)), { kind: "response", id: 3, method: "" });
});

t.test("the name of a message is the member that its method identifies", async (t) => {
  const params = { name: "a", uri: "b", taskId: "c" };
  const names = {
    "tools/call": "a",
    "prompts/get": "a",
    "resources/read": "b",
    "tasks/get": "c",
    "tasks/update": "c",
    "tasks/cancel": "c",
    "tools/list": undefined,
  };
  for (const [method, name] of Object.entries(names)) {
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
    t.equal((await readMessage(Buffer.from(body))).name, name, method);
  }
});

t.test("a body that is not JSON in UTF-8 is a parse error", async (t) => {
  const bodies = [
    "",
    "{",
    `{${call},}`,
    "\ufeff{}",
    Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]),
    `{${call},"params":{"name":"\\ud800"}}`,
  ];
  for (const body of bodies) {
    const error = await readMessage(Buffer.from(body)).catch((error: unknown) => error);
    t.ok(error instanceof McpRefused && error.rpcCode === -32700, String(body));
  }
});
