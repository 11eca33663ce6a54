import t from "tap";
import { errorCode, McpRefused, readMessage } from "../../src/mcp/message.ts";

async function refusalOf(body: string | Buffer): Promise<number | undefined> {
  try {
    await readMessage(Buffer.from(body));
    return undefined;
  } catch (error) {
    if (error instanceof McpRefused) return error.rpcCode;
    throw error;
  }
}

const call = '"jsonrpc":"2.0","id":1,"method":"tools/call"';

t.test("a message is read as far as it counts", async (t) => {
  const meta = '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}';
  const args = '"arguments":{"id":9223372036854775807,"n\\u0061me":[1.50, {"a":"b"}]}';
  const message = await readMessage(
    Buffer.from(` {${call},"params":{"name":"inse\\u0072t",${args},${meta}}} `),
  );
  t.match(message, {
    kind: "request",
    id: 1,
    method: "tools/call",
    name: "insert",
    protocolVersion: "2026-07-28",
  });
  t.equal(
    message.arguments?.toString(),
    '{"id":9223372036854775807,"n\\u0061me":[1.50, {"a":"b"}]}',
  );
  const reading = await readMessage(
    Buffer.from('{"jsonrpc":"2.0","id":"x","method":"resources/read","params":{"uri":"a:b"}}'),
  );
  t.match(reading, { id: "x", name: "a:b", protocolVersion: undefined, arguments: undefined });
  const notification = '{"jsonrpc":"2.0","method":"notifications/cancelled"}';
  t.match(await readMessage(Buffer.from(notification)), { kind: "notification", id: undefined });
  const response = '{"jsonrpc":"2.0","id":3,"result":{}}';
  t.match(await readMessage(Buffer.from(response)), { kind: "response", id: 3, method: "" });
});

t.test("a message's name is the member that its method is about, and no other", async (t) => {
  const params = { name: "a", uri: "b", taskId: "c" };
  const names = {
    ...{ "tools/call": "a", "prompts/get": "a", "resources/read": "b" },
    ...{ "tasks/get": "c", "tasks/update": "c", "tasks/cancel": "c", "tools/list": undefined },
  };
  for (const [method, name] of Object.entries(names)) {
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
    t.equal((await readMessage(Buffer.from(body))).name, name, method);
  }
});

t.test("what is no JSON in UTF-8 is a parse error", async (t) => {
  const bodies = [
    "",
    "{",
    `{${call},}`,
    "\ufeff{}",
    Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]),
    `{${call},"params":{"name":"\\ud800"}}`,
  ];
  for (const body of bodies) t.equal(await refusalOf(body), errorCode("parseError"), String(body));
});
