import t from "tap";
import { ask } from "../kit/client.ts";
import { handshakeCall, statelessCall } from "../mcp/messages.ts";
import { send } from "./mcp.ts";
import { open } from "./mcp-open.ts";
import { tokenOf } from "./staff.ts";

const shared = await open(t);

t.test("a body that could be read in two ways goes nowhere", async (t) => {
  const token = await tokenOf(shared, "alice");
  const { body, headers } = statelessCall("tools/call", { name: "select", arguments: {} });
  const deep = `${'{"a":'.repeat(70)}1${"}".repeat(70)}`;
  const bodies: Record<string, [body: string | Buffer, code: number]> = {
    "a method twice": [body.replace('"method"', '"method":"ping","method"'), -32600],
    "a name twice": [body.replace('"name":"select"', '"name":"insert","name":"select"'), -32600],
    "an escaped key twice": [
      body.replace('"arguments"', '"argument\\u0073":{},"arguments"'),
      -32600,
    ],
    "another case": [body.replace('"params"', '"Params":{},"params"'), -32600],
    "an array": [`[${body}]`, -32600],
    "two messages": [`${body}${body}`, -32600],
    "a byte-order mark": [`\ufeff${body}`, -32700],
    "no UTF-8": [
      Buffer.concat([Buffer.from(body.slice(0, -1)), Buffer.from([0xff, 0x7d])]),
      -32700,
    ],
    "too deep": [body.replace('"arguments":{}', `"arguments":${deep}`), -32600],
    "half a pair": [body.replace("{}", '{"a":"\\ud800"}'), -32700],
    "no JSON": [body.slice(0, -1), -32700],
    nothing: ["", -32700],
  };
  const authorization = `Bearer ${token}`;
  for (const [name, [bad, code]] of Object.entries(bodies)) {
    const request = { method: "POST", headers: { ...headers, authorization }, body: bad };
    const answer = await ask(`${shared.url}/mcp`, request);
    t.equal(answer.status, 400, name);
    t.match(JSON.parse(answer.body.toString()), { jsonrpc: "2.0", id: null, error: { code } });
  }
});

t.test("headers that disagree with the body are refused", async (t) => {
  const token = await tokenOf(shared, "alice");
  const call = statelessCall("tools/call", { name: "select", arguments: {} });
  const wrong = {
    "mcp-name": "list_databases",
    "mcp-method": "tools/list",
    "mcp-protocol-version": "2025-11-25",
  };
  for (const [name, value] of Object.entries(wrong)) {
    const answer = await send(
      shared,
      { ...call, headers: { ...call.headers, [name]: value } },
      token,
    );
    t.equal(answer.status, 400, name);
    t.match(answer.body, { error: { code: -32020 } });
  }
  const earlier = handshakeCall("tools/list", {}, { "mcp-method": "tools/call" });
  t.match((await send(shared, earlier, token)).body, { error: { code: -32020 } });
});
