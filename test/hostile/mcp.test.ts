/** Hostile messages to an upstream MCP server and to the embedded one. */
import t, { type Test } from "tap";
import { staffedHome, tokenOf } from "../journeys/staff.ts";
import { ask, type PlainAnswer } from "../kit/client.ts";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { RawUpstream } from "../kit/raw-upstream.ts";
import { tables } from "../kit/tables.ts";
import type { ReceivedRequest } from "../kit/upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { words } from "../kit/words.ts";
import { handshakeCall, initialize, postHeaders, statelessCall } from "../mcp/messages.ts";
import { statusesOf } from "./kit.ts";
import { Witness } from "./witness.ts";

const grants = [
  "root * Owner",
  "alice main ReadOnly",
  "bob main ReadWrite",
  "bob side ReadWrite",
  "carol side ReadOnly",
];

const policy = tables("mcp.tools", [
  { name: "look", permission: "SELECT", database: "main" },
  { name: "ask", permission: "SELECT", database_argument: "database" },
  { name: "change", permission: "UPDATE", database: "main" },
]);

interface McpSite {
  readonly gateway: TestGateway;
  readonly witness: Witness;
  readonly alice: string;
  readonly bob: string;
}

async function openMcpSite(t: Test, isEmbedded = false): Promise<McpSite> {
  const witness = await new Witness().listen(t);
  const gateway = await startGateway(t, {
    home: await staffedHome(t, grants),
    upstream: witness.url,
    config: isEmbedded ? "" : `[mcp]\nupstream = "${witness.url}/mcp"\n${policy}`,
  });
  const [alice, bob] = [await tokenOf(gateway, "alice"), await tokenOf(gateway, "bob")];
  return { gateway, witness, alice, bob };
}

function post(
  { gateway }: McpSite,
  token: string,
  body: string | Buffer,
  headers: Readonly<Record<string, string | string[]>> = {},
): Promise<PlainAnswer> {
  return ask(`${gateway.url}/mcp`, {
    method: "POST",
    headers: { ...postHeaders, authorization: `Bearer ${token}`, ...headers },
    body,
  });
}

/** True for an error of HTTP, JSON-RPC or a tool, and for the empty response to a notification. */
function isRefusal({ status, body }: PlainAnswer): boolean {
  if (status >= 400 || (status === 202 && body.length === 0)) return true;
  const text = body.toString();
  const { error, result } = JSON.parse(/^data: (?<json>.*)$/m.exec(text)?.groups?.json ?? text);
  return error !== undefined || result?.isError === true;
}

// Everything is started before the first test, since tap may end a file whose tests have all run.
const foreign = await openMcpSite(t);
const embedded = await openMcpSite(t, true);

const site = await openMcpSite(t);
const SESSION = "session-of-alice";
const usual = site.witness.answer;
site.witness.answer = (request, response) => {
  if (request.body.includes('"initialize"')) response.setHeader("Mcp-Session-Id", SESSION);
  usual(request, response);
};
await post(site, site.alice, initialize.body);
let answer = "";
const server = await new RawUpstream((socket) => void socket.end(answer, "latin1")).listen(t);
const gateway = await startGateway(t, {
  home: await staffedHome(t, ["root * Owner", "alice main ReadOnly", "eve side ReadOnly"]),
  config: `[mcp]\nupstream = "${server.url}/mcp"\n[[mcp.tools]]\nname = "look"\npermission = "SELECT"\ndatabase = "main"\n`,
});
const alice = await tokenOf(gateway, "alice");
const eve = await tokenOf(gateway, "eve");

const lookArguments = '{"database":"main"}';
const selectArguments = '{"database":"main","from":"t","columns":["*"]}';
const places = [
  { what: "an upstream server", site: foreign, tool: "ask", args: lookArguments },
  { what: "the embedded server", site: embedded, tool: "select", args: selectArguments },
];

function call(params: string, more = '"id":1,', method = '"tools/call"'): string {
  return `{"jsonrpc":"2.0",${more}"method":${method},"params":${params}}`;
}

/** Messages that are not exactly one valid call. */
function envelopes(params: string): Record<string, string> {
  const whole = call(params);
  const ids = ["null", "{}", "[1]", "true", "1.5", "1e400", "9007199254740993", "-1e-1"];
  const versions = ['"2.0 "', "2.0", '"1.0"', '"2"', "null", '["2.0"]'];
  const twice = ["method", "params", "id", "jsonrpc"].flatMap((key) => {
    const escaped = `\\u00${key.charCodeAt(0).toString(16)}${key.slice(1)}`;
    return [key, escaped].map((again) => `{"${again}":"ping",${whole.slice(1)}`);
  });
  const inOtherCase = ["Method", "METHOD", "Params", "ID", "JsonRpc", "p\u0430rams", "method "];
  return {
    "no request but a notification": call(params, ""),
    "no version": whole.replace('"jsonrpc":"2.0",', ""),
    "a request and an answer": whole.replace("{", '{"result":{},'),
    "a request and an error": whole.replace("{", '{"error":{"code":1,"message":"x"},'),
    "an answer with a call in it": `{"jsonrpc":"2.0","id":1,"result":{},"params":${params}}`,
    "an array of one": `[${whole}]`,
    "an array of arrays": `[[${whole}]]`,
    "two in a row": `${whole}\n${whole}`,
    "a call after a NUL": `${whole}\0${whole}`,
    "an event": `data: ${whole}\n\n`,
    "JSON with a comment": `/**/${whole}`,
    "a call as a text": JSON.stringify(whole),
    ...Object.fromEntries(ids.map((id) => [`the id ${id}`, call(params, `"id":${id},`)])),
    ...Object.fromEntries(
      versions.map((text) => [`version ${text}`, whole.replace('"2.0"', text)]),
    ),
    ...Object.fromEntries(twice.map((text) => [text.slice(0, 30), text])),
    ...Object.fromEntries(
      inOtherCase.map((key) => [`${key} beside`, whole.replace("{", `{"${key}":{},`)]),
    ),
  };
}

const wrongMeta = '{"io.modelcontextprotocol/protocolVersion":1}';

const methods = [
  ...words(`
  Tools/Call TOOLS/CALL tools//call /tools/call tools/call/ rpc.tools/call tools.call tool/call *
  notifications/tools/call notifications/cancelled sampling/createMessage __proto__ roots/list
  elicitation/create constructor tools/call?x
`),
  "tools/call ",
  " tools/call",
  "tools/call\\u0000",
  "tools\\\\call",
  "tools\\uff0fcall",
  "tools/ca\\u217cl",
  "tools/call\\u200b",
  "t\\u043eols/call",
  "",
  "$/tools/call",
];

function names(tool: string): string[] {
  const wide = Array.from(tool, (letter) => String.fromCodePoint(letter.charCodeAt(0) + 0xfee0));
  return [
    tool.toUpperCase(),
    `${tool} `,
    ` ${tool}`,
    `${tool}\0`,
    `${tool}\u200b`,
    `\ufeff${tool}`,
    `${tool}/`,
    `../${tool}`,
    `${tool}?x`,
    `${tool}.x`,
    wide.join(""),
    `${tool}\u0301`,
    "",
    "__proto__",
    "constructor",
    "toString",
    "hasOwnProperty",
    "secret",
    "*",
    "null",
  ];
}

const otherNames = ["1", "null", "true", '["ask"]', '{"name":"ask"}'];

/** Values that resemble the name `main` or mean more than it. */
const databases = [
  '"side"',
  '"Main"',
  '"MAIN"',
  '"main "',
  '" main"',
  '"main\\u0000"',
  '"main\\n"',
  '"*"',
  '""',
  '"main/../side"',
  '"main,side"',
  '"main;side"',
  '"side\\u0000main"',
  '"\\uff4dain"',
  '"ma\\u0131n"',
  '"main\\u200b"',
  '"main.side"',
  '["main"]',
  '["main","side"]',
  "null",
  "1",
  "true",
  "{}",
  '{"database":"main"}',
  '{"$ne":""}',
  `"${"m".repeat(64)}"`,
];

const besides = [
  '"database":"side"',
  '"d\\u0061tabase":"side"',
  '"Database":"side"',
  '"DATABASE":"side"',
  '"databa\\u017fe":"side"',
  '"data\\u200bbase":"side"',
  '"data_base":"side"',
];

/** Checks that calls with these params are refused and not forwarded. */
async function checkAllRefused(t: Test, site: McpSite, all: readonly string[]): Promise<void> {
  for (const params of all) t.ok(isRefusal(await post(site, site.alice, call(params))), params);
  t.strictSame(site.witness.take(), []);
}

for (const { what, site, tool, args } of places) {
  const good = `{"name":"${tool}","arguments":${args}}`;

  t.test(`only a valid call is carried out by ${what}`, async (t) => {
    const { witness, alice } = site;
    const bodies = envelopes(good);
    for (const method of methods) bodies[`method ${method}`] = call(good, '"id":1,', `"${method}"`);
    for (const params of ["null", "[]", `[${good}]`, '"x"', "1", "{}", `{"params":${good}}`]) {
      bodies[`params ${params}`] = call(params);
    }
    const deep = `${"[".repeat(80)}${"]".repeat(80)}`;
    bodies["deep params"] = call(good.replace("{", `{"x":${deep},`));
    bodies["a key twice in rows"] = call(good.replace(":{", ':{"rows":[{"a":{"b":1,"b":2}}],'));
    bodies["half a character"] = call(good.replace(":{", ':{"x":"\\ud800",'));
    bodies["a version that is no text"] = call(good.replace("{", `{"_meta":${wrongMeta},`));
    bodies["no method"] = '{"jsonrpc":"2.0","id":1}';
    bodies["a method that is no text"] = call(good, undefined, "7");
    bodies["another member"] = call(good).replace("{", '{"extra":1,');
    for (const [name, body] of Object.entries(bodies)) {
      const answer = await post(site, alice, body);
      t.ok(isRefusal(answer), `${name}: ${answer.status}`);
      t.notMatch(answer.body.toString(), /"content":\[\]/, name);
    }
    t.strictSame(witness.take(), []);
    t.notOk(isRefusal(await post(site, alice, call(good))), "a valid one is carried out");
    t.equal(witness.take().length, 1);
  });

  t.test(`other spellings of a tool name are refused for ${what}`, async (t) => {
    const spellings = [...names(tool).map((text) => JSON.stringify(text)), ...otherNames];
    const keys = ["name", "n\\u0061me", "Name", "NAME", "arguments", "Arguments", "_META"];
    await checkAllRefused(t, site, [
      ...spellings.map((name) => `{"name":${name},"arguments":${args}}`),
      ...keys.map((key) => good.replace("{", `{"${key}":"change",`)),
      `{"arguments":${args}}`,
    ]);
  });

  t.test(`other spellings of a database name are refused for ${what}`, async (t) => {
    const { witness, alice } = site;
    const own = '"database":"main"';
    const both = besides.flatMap((beside) => [`${own},${beside}`, `${beside},${own}`]);
    const wrapped = [`{"arguments":${args}}`, `[${args}]`, JSON.stringify(args), "null"];
    await checkAllRefused(t, site, [
      ...databases.map((name) => good.replace('"main"', name)),
      ...both.map((members) => good.replace(own, members)),
      ...wrapped.map((value) => `{"name":"${tool}","arguments":${value}}`),
    ]);
    const escaped = good.replace('"database":"main"', '"d\\u0061tabase":"m\\u0061in"');
    t.notOk(isRefusal(await post(site, alice, call(escaped))), "escapes are allowed");
    t.equal(witness.take().length, 1);
  });

  t.test(`headers cannot change the call for ${what}`, async (t) => {
    const { witness, alice } = site;
    const { body, headers } = statelessCall("tools/call", JSON.parse(good));
    const wrong: Record<string, string | string[]>[] = [
      { "mcp-name": "change" },
      { "mcp-name": [tool, tool] },
      { "mcp-name": `=?base64?${Buffer.from("change").toString("base64")}?=` },
      { "mcp-name": `=?base64?${Buffer.from(tool).toString("base64")}` },
      { "mcp-name": tool.toUpperCase() },
      { "mcp-method": "tools/list" },
      { "mcp-method": ["tools/call", "tools/call"] },
      { "mcp-protocol-version": "2025-11-25" },
      { "mcp-protocol-version": ["2026-07-28", "2026-07-28"] },
      { "mcp-protocol-version": "2026-07-28 " },
      { "mcp-protocol-version": "" },
      { "mcp-protocol-version": "2024-11-05, 2026-07-28" },
      { "content-type": "application/json; charset=utf-16" },
      { "content-type": "application/json; charset*=utf-8''utf-7" },
      { "content-type": "text/plain" },
      { "content-encoding": "gzip" },
    ];
    for (const odd of wrong) {
      const answer = await post(site, alice, body, { ...headers, ...odd });
      const isTrimmed = odd["mcp-protocol-version"] === "2026-07-28 ";
      t.equal(isRefusal(answer), !isTrimmed, JSON.stringify(odd));
    }
    t.ok(witness.take().length <= 1);
  });
}

const revision = { "mcp-protocol-version": "2025-11-25" };
const own = { ...revision, "mcp-session-id": SESSION };
const list = handshakeCall("tools/list").body;

async function sendLines(lines: readonly string[], body = ""): Promise<string> {
  const wire = await Wire.open(site.gateway.url);
  wire.send([...lines, "Host: 127.0.0.1", "Connection: close", "", body].join("\r\n"));
  return wire.untilClosed();
}

function protocolHeaders({ rawHeaders }: ReceivedRequest): string[] {
  const pairs = rawHeaders.flatMap((name, at) =>
    at % 2 === 0 ? [`${name.toLowerCase()}: ${rawHeaders[at + 1]}`] : [],
  );
  return pairs.filter((pair) => /^(?:mcp|last.event|content.(?:type|encoding))/.test(pair)).sort();
}

t.test("a body of GET, DELETE or HEAD is not forwarded", async (t) => {
  const { witness, alice } = site;
  const forged = handshakeCall("tools/call", { name: "change", arguments: {} }).body;
  const smuggled = `POST /mcp HTTP/1.1\r\nHost: x\r\nX-Gatehouse-User: root\r\nContent-Length: ${forged.length}\r\n\r\n${forged}`;
  const shapes = {
    "a length": [`Content-Length: ${smuggled.length}`, smuggled],
    chunks: [
      "Transfer-Encoding: chunked",
      `${smuggled.length.toString(16)}\r\n${smuggled}\r\n0\r\n\r\n`,
    ],
    Expect: [`Content-Length: ${smuggled.length}\r\nExpect: 100-continue`, smuggled],
    "Content-Length named in Connection": [
      `Content-Length: ${smuggled.length}\r\nConnection: content-length`,
      smuggled,
    ],
  } as const;
  const methods = ["GET", "DELETE", "HEAD"];
  witness.takeBytes();
  // At once, since the gateway waits before it closes a connection with an unread body.
  const sent = methods.flatMap((method) =>
    Object.entries(shapes).map(async ([what, [line, body]]) => {
      const lines = [`${method} /mcp HTTP/1.1`, `Authorization: Bearer ${alice}`, line];
      const [status] = statusesOf(await sendLines(lines, body));
      t.equal(status, 200, `${method} with ${what}`);
    }),
  );
  await Promise.all(sent);
  const bytes = witness.takeBytes();
  const heads = bytes.split(/(?<=\r\n\r\n)/);
  t.equal(heads.length, sent.length, "only heads are forwarded");
  for (const head of heads) t.match(head, /^(?:GET|DELETE|HEAD) \/mcp HTTP\/1\.1\r\n.*\r\n\r\n$/s);
  t.notMatch(bytes, /change|root/);
});

t.test("headers in other spellings are not forwarded", async (t) => {
  const { witness, bob } = site;
  const call = statelessCall("tools/list");
  const plain = { ...postHeaders, ...revision };
  for (const { headers, body } of [call, { headers: plain, body: list }]) {
    witness.take();
    t.equal((await post(site, bob, body, headers)).status, 200);
    const expected = witness.take().map(protocolHeaders);
    for (const name of ["Mcp-Session-Id", "Mcp-Method", "Mcp-Name", "MCP-Protocol-Version"]) {
      for (const sign of ["_", ".", "~", "!"]) {
        const odd = { [name.replaceAll("-", sign)]: SESSION, [name.replace("-", sign)]: "x" };
        t.equal((await post(site, bob, body, { ...headers, ...odd })).status, 200);
        t.strictSame(witness.take().map(protocolHeaders), expected, Object.keys(odd).join());
      }
    }
    for (const name of ["Last_Event_ID", "Content_Type", "Content.Encoding"]) {
      await post(site, bob, body, { ...headers, [name]: "x" });
      t.strictSame(witness.take().map(protocolHeaders), expected, name);
    }
    const typed = { ...headers, "content-type": 'application/json; charset="utf-8"; a=b' };
    t.equal((await post(site, bob, body, typed)).status, 200);
    t.strictSame(witness.take().map(protocolHeaders), expected, "parameters of the type");
  }
});

t.test("Connection removes no header that was judged", async (t) => {
  const { witness, alice } = site;
  const call = statelessCall("tools/call", { name: "look", arguments: {} });
  const inSession = { headers: { ...postHeaders, ...own }, body: list };
  for (const { headers, body } of [call, inSession]) {
    witness.take();
    await post(site, alice, body, headers);
    const expected = witness.take().map(protocolHeaders);
    const judged = ["mcp-session-id", "mcp-method", "mcp-name", "mcp-protocol-version"];
    for (const name of [...judged, "content-type", judged.join(", ")]) {
      const odd = { ...headers, connection: `close, ${name}` };
      t.equal((await post(site, alice, body, odd)).status, 200, name);
      t.strictSame(witness.take().map(protocolHeaders), expected, name);
    }
  }
});

function intrusions({ bob }: McpSite): Record<string, readonly string[]> {
  const as = (line: string, ...headers: string[]) => [
    `${line} HTTP/1.1`,
    `Authorization: Bearer ${bob}`,
    ...headers,
  ];
  const id = `Mcp-Session-Id: ${SESSION}`;
  return {
    "its stream": as("GET /mcp", id),
    "its stream, from where it was": as("GET /mcp", id, "Last-Event-ID: 1"),
    "the head of its stream": as("HEAD /mcp", id),
    "its end": as("DELETE /mcp", id),
    "its end, in capitals": as("DELETE /mcp", id.toUpperCase().replace(/:.*/, `: ${SESSION}`)),
    "an unknown one and this one": as("GET /mcp", "Mcp-Session-Id: x", id),
    "this one twice": as("GET /mcp", id, id),
    "this one after a comma": as("GET /mcp", `Mcp-Session-Id: x, ${SESSION}`),
    "an unknown one": as("GET /mcp", "Mcp-Session-Id: x"),
    "an empty one": as("GET /mcp", "Mcp-Session-Id:"),
  };
}

t.test("a user cannot enter the session of another user", async (t) => {
  const { witness, bob, alice } = site;
  witness.take();
  for (const [what, lines] of Object.entries(intrusions(site))) {
    const text = await sendLines(lines);
    t.strictSame(statusesOf(text), [404], what);
    if (!what.includes("head")) t.match(text, /"code":-32001/);
  }
  const calls = [
    initialize.body,
    handshakeCall("ping").body,
    list,
    '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
    '{"jsonrpc":"2.0","id":1,"result":{"action":"accept","content":{}}}',
    '{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}',
  ];
  for (const body of calls) {
    t.equal((await post(site, bob, body, own)).status, 404, body.slice(0, 60));
  }
  t.strictSame(witness.take(), [], "nothing is forwarded");
  t.equal((await post(site, alice, list, own)).status, 200, "the owner can still use it");
  witness.take();
  const stateless = statelessCall("tools/list");
  await post(site, bob, stateless.body, { ...stateless.headers, "mcp-session-id": SESSION });
  t.notMatch(
    witness.take()[0]?.headers,
    { "mcp-session-id": String },
    "nor is its id forwarded without a session",
  );
});

t.test("a session id that the server issues twice stays with its first user", async (t) => {
  const { witness, alice, bob } = site;
  const answer = await post(site, bob, initialize.body);
  t.equal(answer.status, 502);
  t.notMatch(answer.rawHeaders.join(), SESSION);
  t.equal((await post(site, bob, list, own)).status, 404);
  t.equal((await post(site, alice, list, own)).status, 200);
  witness.take();
});

const listing = handshakeCall("tools/list");
const looking = handshakeCall("tools/call", { name: "look", arguments: {} });

async function received(line: string, body: string, token = alice): Promise<string> {
  const wire = await Wire.open(gateway.url);
  const own = { Host: "127.0.0.1", Authorization: `Bearer ${token}`, Connection: "close" };
  wire.send(wireRequest(line, { ...postHeaders, ...own }, body));
  return wire.untilClosed();
}

function answerOf(body: string, head = "Content-Type: application/json\r\n"): string {
  return `HTTP/1.1 200 OK\r\n${head}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

const good = '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}';

t.test("a malformed response of the upstream server cannot become two responses", async (t) => {
  const heads = {
    "a CR in a value": "X-A: b\rSet-Cookie: evil=1\r\n",
    "a line end without CR": "X-A: b\nSet-Cookie: evil=1\r\n",
    "a NUL in a value": "X-A: b\0Set-Cookie: evil=1\r\n",
    "a folded line": "X-A: b\r\n Set-Cookie: evil=1\r\n",
    "a line end in a session": "Mcp-Session-Id: b\rSet-Cookie: evil=1\r\n",
    "two lengths": "Content-Length: 0\r\n",
    "a length and chunks": "Transfer-Encoding: chunked\r\n",
  };
  for (const body of [looking.body, listing.body, initialize.body]) {
    for (const [what, head] of Object.entries(heads)) {
      answer = answerOf(good, `Content-Type: application/json\r\n${head}`);
      const text = await received("POST /mcp", body);
      t.match(text, /^HTTP\/1\.1 502 .*The MCP server .*"upstream_broken"/s, what);
      t.notMatch(text, /Set-Cookie/i, what);
    }
  }
  answer = `${answerOf(good)}HTTP/1.1 200 OK\r\nSet-Cookie: evil=1\r\nContent-Length: 0\r\n\r\n`;
  t.strictSame(
    statusesOf(await received("POST /mcp", looking.body)),
    [200],
    "bytes after a response are dropped",
  );
  const interim = "HTTP/1.1 103 Early Hints\r\nLink: </evil>\r\n\r\n".repeat(3);
  answer = interim + answerOf(good);
  t.strictSame(
    statusesOf(await received("POST /mcp", looking.body)),
    [200],
    "interim responses are dropped",
  );
  const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
  answer = `${switching}${good}`;
  t.strictSame(
    statusesOf(await received("POST /mcp", looking.body)),
    [502],
    "an upgrade was not requested",
  );
});

t.test("the upstream server cannot set headers of the gateway", async (t) => {
  const fields = [
    "X-Gatehouse-Decision: deny",
    "X_Gatehouse_User: root",
    "X-Request-Id: evil",
    "Access-Control-Allow-Origin: *",
    "Access-Control-Allow-Credentials: true",
    "Set-Cookie: gatehouse_session=evil; path=/oauth",
    "WWW-Authenticate: Basic evil",
    "Mcp-Session-Id: evil",
    "Connection: x-evil",
    "X-Evil: evil",
    "Proxy-Authenticate: evil",
  ];
  answer = answerOf(good, `Content-Type: application/json\r\n${fields.join("\r\n")}\r\n`);
  const text = await received("POST /mcp", looking.body);
  t.strictSame(statusesOf(text), [200]);
  t.notMatch(text, /evil|root|Access-Control|deny/i);
  t.match(text, /^X-Gatehouse-Decision: allow\r$/m);
});

const tools = '{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"hidden"},{"name":"look"}]}}';
const events = "Content-Type: text/event-stream\r\n";

t.test("no form of a list shows a tool that the caller may not use", async (t) => {
  const prefix = '{"jsonrpc":"2.0","id":1,"x":';
  const mark = "\xef\xbb\xbf";
  const streams: Record<string, string> = {
    "an event": `data: ${tools}\n\n`,
    "an event without a space": `data:${tools}\n\n`,
    "an event in two lines": `data: ${tools.slice(0, 40)}\ndata: ${tools.slice(40)}\n\n`,
    "an event after a byte-order mark": `${mark}data: ${tools}\n\n`,
    "an event after a comment": `:${mark}\ndata: ${tools}\n\n`,
    "an event of another name": `event: x\ndata: ${tools}\nid: 1\n\n`,
    "lines that become fields after a mark": `:\n\n${mark}data: ${prefix}\ndata: ${tools}\n${mark}data: }\n\n`,
    "lines that end in every way": `data: ${tools.slice(0, 40)}\rdata: ${tools.slice(40)}\r\n\r\n`,
    "a name that is escaped": `data: ${tools.replace("hidden", "hi\\u0064den")}\n\n`,
    "keys that are escaped": `data: ${tools.replace("tools", "t\\u006fols").replace("name", "n\\u0061me")}\n\n`,
    "no end": `data: ${tools}\n`,
  };
  for (const [what, stream] of Object.entries(streams)) {
    answer = `HTTP/1.1 200 OK\r\n${events}\r\n${stream}`;
    for (const [line, body] of [
      ["POST /mcp", listing.body],
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
    "with an invalid name": tools.replace('"hidden"', '["hidden"]'),
  };
  for (const [what, body] of Object.entries(bodies)) {
    for (const type of ["application/json", "application/problem+json", "text/json; x=y"]) {
      answer = answerOf(body, `Content-Type: ${type}\r\n`);
      t.notMatch(await received("POST /mcp", listing.body), /hidden/, `${what} as ${type}`);
    }
  }
  for (const type of ["text/plain", "application/octet-stream", ""]) {
    answer = answerOf(tools, `Content-Type: ${type}\r\n`);
    t.notMatch(await received("POST /mcp", listing.body), /hidden/, type);
  }
});

t.test("a caller without tools has no tasks and sees no tools", async (t) => {
  answer = answerOf(good);
  const before = server.requests.length;
  for (const method of ["get", "list", "result", "update", "cancel"]) {
    const { body } = handshakeCall(`tasks/${method}`, { taskId: "task-of-alice" });
    t.match(await received("POST /mcp", body, eve), /"code":"no_grant"/, method);
  }
  t.equal(server.requests.length, before, "nothing is forwarded");
  answer = answerOf(tools);
  t.match(await received("POST /mcp", listing.body, eve), /"tools":\[\]/);
  const about = handshakeCall("tasks/get", { taskId: "task-of-alice" });
  answer = answerOf('{"jsonrpc":"2.0","id":1,"result":{"task":{"taskId":"task-of-alice"}}}');
  await received("POST /mcp", looking.body);
  answer = answerOf(good);
  t.match(
    await received("POST /mcp", about.body),
    good,
    "the caller who started a task may ask for it",
  );
});
