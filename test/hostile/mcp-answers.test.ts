import t from "tap";
import { staffedHome, tokenOf } from "../journeys/staff.ts";
import { startGateway } from "../kit/gateway.ts";
import { RawUpstream } from "../kit/raw-upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { handshakeCall, initialize, postHeaders } from "../mcp/messages.ts";
import { statusesOf } from "./kit.ts";

/** What the server behind answers, byte by byte. */
let answer = "";
const server = await new RawUpstream((socket) => void socket.end(answer, "latin1")).listen();
t.teardown(() => server.close());
const gateway = await startGateway(t, {
  home: await staffedHome(t, ["root * Owner", "alice main ReadOnly", "eve side ReadOnly"]),
  config: `[mcp]\nupstream = "${server.url}/mcp"\n[[mcp.tools]]\nname = "look"\npermission = "SELECT"\ndatabase = "main"\n`,
});
const alice = await tokenOf(gateway, "alice");
const eve = await tokenOf(gateway, "eve");

const list = handshakeCall("tools/list");
const call = handshakeCall("tools/call", { name: "look", arguments: {} });

/** All that comes back to a request by the end of its connection. */
async function received(line: string, body: string, token = alice): Promise<string> {
  const wire = await Wire.open(gateway.url);
  const own = { Host: "127.0.0.1", Authorization: `Bearer ${token}`, Connection: "close" };
  wire.send(wireRequest(line, { ...postHeaders, ...own }, body));
  return wire.untilClosed();
}

/** An answer with a body of its length. */
function answerOf(body: string, head = "Content-Type: application/json\r\n"): string {
  return `HTTP/1.1 200 OK\r\n${head}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

const good = '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}';

t.test("an answer of the server behind is one answer, or none", async (t) => {
  const heads = {
    "a CR in a value": "X-A: b\rSet-Cookie: evil=1\r\n",
    "a line end without CR": "X-A: b\nSet-Cookie: evil=1\r\n",
    "a NUL in a value": "X-A: b\0Set-Cookie: evil=1\r\n",
    "a folded line": "X-A: b\r\n Set-Cookie: evil=1\r\n",
    "a line end in a session": "Mcp-Session-Id: b\rSet-Cookie: evil=1\r\n",
    "two lengths": "Content-Length: 0\r\n",
    "a length and chunks": "Transfer-Encoding: chunked\r\n",
  };
  for (const body of [call.body, list.body, initialize.body]) {
    for (const [what, head] of Object.entries(heads)) {
      answer = answerOf(good, `Content-Type: application/json\r\n${head}`);
      const text = await received("POST /mcp", body);
      t.match(text, /^HTTP\/1\.1 502 .*"upstream_broken"/s, what);
      t.notMatch(text, /Set-Cookie/i, what);
    }
  }
  answer = `${answerOf(good)}HTTP/1.1 200 OK\r\nSet-Cookie: evil=1\r\nContent-Length: 0\r\n\r\n`;
  t.strictSame(statusesOf(await received("POST /mcp", call.body)), [200], "what follows stays");
  const interim = "HTTP/1.1 103 Early Hints\r\nLink: </evil>\r\n\r\n".repeat(3);
  answer = interim + answerOf(good);
  t.strictSame(statusesOf(await received("POST /mcp", call.body)), [200], "hints stay");
  const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
  answer = `${switching}${good}`;
  t.strictSame(statusesOf(await received("POST /mcp", call.body)), [502], "nobody asked for it");
  for (const status of [401, 301, 302, 303, 307, 308]) {
    answer = `HTTP/1.1 ${status} X\r\nLocation: http://evil.test/\r\nWWW-Authenticate: Bearer resource_metadata="http://evil.test"\r\nContent-Length: 0\r\n\r\n`;
    const text = await received("POST /mcp", call.body);
    t.strictSame(statusesOf(text), [502]);
    t.notMatch(text, /evil/, `${status}`);
  }
});

t.test("the server behind speaks for itself, and never for the gateway", async (t) => {
  const said = [
    ...["X-Gatehouse-Decision: deny", "X_Gatehouse_User: root", "X-Request-Id: evil"],
    ...["Access-Control-Allow-Origin: *", "Access-Control-Allow-Credentials: true"],
    ...["Set-Cookie: gatehouse_session=evil; path=/oauth", "WWW-Authenticate: Basic evil"],
    ...["Mcp-Session-Id: evil", "Connection: x-evil", "X-Evil: evil", "Proxy-Authenticate: evil"],
  ];
  answer = answerOf(good, `Content-Type: application/json\r\n${said.join("\r\n")}\r\n`);
  const text = await received("POST /mcp", call.body);
  t.strictSame(statusesOf(text), [200]);
  t.notMatch(text, /evil|root|Access-Control|deny/i);
  t.match(text, /^X-Gatehouse-Decision: allow\r$/m);
});

const tools = '{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"hidden"},{"name":"look"}]}}';
const events = "Content-Type: text/event-stream\r\n";

t.test("no form of a list shows a tool that its reader may not call", async (t) => {
  const other = '{"jsonrpc":"2.0","id":1,"x":';
  const mark = "\xef\xbb\xbf";
  const streams: Record<string, string> = {
    "an event": `data: ${tools}\n\n`,
    "an event without a space": `data:${tools}\n\n`,
    "an event in two lines": `data: ${tools.slice(0, 40)}\ndata: ${tools.slice(40)}\n\n`,
    "an event behind a mark": `${mark}data: ${tools}\n\n`,
    "an event behind a comment": `:${mark}\ndata: ${tools}\n\n`,
    "an event of another name": `event: x\ndata: ${tools}\nid: 1\n\n`,
    "lines that a mark makes fields of": `:\n\n${mark}data: ${other}\ndata: ${tools}\n${mark}data: }\n\n`,
    "lines that end in every way": `data: ${tools.slice(0, 40)}\rdata: ${tools.slice(40)}\r\n\r\n`,
    "a name that is escaped": `data: ${tools.replace("hidden", "hi\\u0064den")}\n\n`,
    "keys that are escaped": `data: ${tools.replace("tools", "t\\u006fols").replace("name", "n\\u0061me")}\n\n`,
    "no end": `data: ${tools}\n`,
  };
  for (const [what, stream] of Object.entries(streams)) {
    answer = `HTTP/1.1 200 OK\r\n${events}\r\n${stream}`;
    for (const [line, body] of [
      ["POST /mcp", list.body],
      ["GET /mcp", ""],
    ] as const) {
      const text = await received(line, body);
      t.notMatch(text, /hid|hi\\u/, `${line}: ${what}`);
    }
  }
  const bodies: Record<string, string> = {
    "in JSON": tools,
    twice: tools.replace('"tools":', '"tools":[],"tools":'),
    "as an array": `[${tools}]`,
    "in a result in a result": `${tools}${tools}`,
    "as an object": tools.replace("[", '{"a":').replace("]", "}"),
    "with a name twice": tools.replace('"name":"hidden"', '"name":"look","name":"hidden"'),
    "with a name that is none": tools.replace('"hidden"', '["hidden"]'),
  };
  for (const [what, body] of Object.entries(bodies)) {
    for (const type of ["application/json", "application/problem+json", "text/json; x=y"]) {
      answer = answerOf(body, `Content-Type: ${type}\r\n`);
      t.notMatch(await received("POST /mcp", list.body), /hidden/, `${what} as ${type}`);
    }
  }
  for (const type of ["text/plain", "application/octet-stream", ""]) {
    answer = answerOf(tools, `Content-Type: ${type}\r\n`);
    t.notMatch(await received("POST /mcp", list.body), /hidden/, type);
  }
});

t.test("who may call no tool has no tasks, and learns of no tool", async (t) => {
  answer = answerOf(good);
  const before = server.requests.length;
  for (const method of ["get", "list", "result", "update", "cancel"]) {
    const { body } = handshakeCall(`tasks/${method}`, { taskId: "task-of-alice" });
    t.match(await received("POST /mcp", body, eve), /"code":"no_grant"/, method);
  }
  t.equal(server.requests.length, before, "the server is not asked");
  answer = answerOf(tools);
  t.match(await received("POST /mcp", list.body, eve), /"tools":\[\]/);
  const about = handshakeCall("tasks/get", { taskId: "task-of-alice" });
  answer = answerOf('{"jsonrpc":"2.0","id":1,"result":{"task":{"taskId":"task-of-alice"}}}');
  await received("POST /mcp", call.body);
  answer = answerOf(good);
  t.match(await received("POST /mcp", about.body), good, "whose call it came of may ask");
});
