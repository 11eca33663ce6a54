import t from "tap";
import { ask } from "../kit/client.ts";
import type { ReceivedRequest } from "../kit/upstream.ts";
import { Wire } from "../kit/wire.ts";
import { handshakeCall, initialize, postHeaders, statelessCall } from "../mcp/messages.ts";
import { statusesOf } from "./kit.ts";
import { type McpSite, openMcpSite, post } from "./mcp-site.ts";

const site = await openMcpSite(t);
const SESSION = "session-of-alice";
const usual = site.witness.answer;
site.witness.answer = (request, response) => {
  if (request.body.includes('"initialize"')) response.setHeader("Mcp-Session-Id", SESSION);
  usual(request, response);
};
await post(site, site.alice, initialize.body);
const revision = { "mcp-protocol-version": "2025-11-25" };
const own = { ...revision, "mcp-session-id": SESSION };
const list = handshakeCall("tools/list").body;

/** Sends the lines of a request as they are. */
async function sendLines(lines: readonly string[], body = ""): Promise<string> {
  const wire = await Wire.open(site.gateway.url);
  wire.send([...lines, "Host: 127.0.0.1", "Connection: close", "", body].join("\r\n"));
  return wire.untilClosed();
}

/** What the server behind is told by headers that it may read as one of the protocol's. */
function protocolHeaders({ rawHeaders }: ReceivedRequest): string[] {
  const pairs = rawHeaders.flatMap((name, at) =>
    at % 2 === 0 ? [`${name.toLowerCase()}: ${rawHeaders[at + 1]}`] : [],
  );
  return pairs.filter((pair) => /^(?:mcp|last.event|content.(?:type|encoding))/.test(pair)).sort();
}

t.test("a body where none belongs is no request of its own behind the gateway", async (t) => {
  const { witness, alice } = site;
  const forged = handshakeCall("tools/call", { name: "change", arguments: {} }).body;
  const smuggled = `POST /mcp HTTP/1.1\r\nHost: x\r\nX-Gatehouse-User: root\r\nContent-Length: ${forged.length}\r\n\r\n${forged}`;
  const shapes = {
    "a length": [`Content-Length: ${smuggled.length}`, smuggled],
    chunks: [
      "Transfer-Encoding: chunked",
      `${smuggled.length.toString(16)}\r\n${smuggled}\r\n0\r\n\r\n`,
    ],
    "the wish to be asked": [
      `Content-Length: ${smuggled.length}\r\nExpect: 100-continue`,
      smuggled,
    ],
    "the length as one of the connection": [
      `Content-Length: ${smuggled.length}\r\nConnection: content-length`,
      smuggled,
    ],
  } as const;
  for (const method of ["GET", "DELETE", "HEAD"]) {
    for (const [what, [line, body]] of Object.entries(shapes)) {
      witness.takeBytes();
      const lines = [`${method} /mcp HTTP/1.1`, `Authorization: Bearer ${alice}`, line];
      const [status] = statusesOf(await sendLines(lines, body));
      t.equal(status, 200, `${method} with ${what}`);
      const bytes = witness.takeBytes();
      t.match(bytes, new RegExp(`^${method} /mcp HTTP/1\\.1\r\n`));
      t.ok(bytes.endsWith("\r\n\r\n"), "the head is all that goes up");
      t.notMatch(bytes, /change|root/);
    }
  }
});

t.test("a header in another spelling says nothing to the server behind", async (t) => {
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
  }
});

t.test("Connection takes off nothing that was judged", async (t) => {
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

/** Requests by which somebody would like to be in a session that is another one's. */
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
    "one beside an invented one": as("GET /mcp", "Mcp-Session-Id: x", id),
    "one twice": as("GET /mcp", id, id),
    "one behind a comma": as("GET /mcp", `Mcp-Session-Id: x, ${SESSION}`),
    "one that was never begun": as("GET /mcp", "Mcp-Session-Id: x"),
    "an empty one": as("GET /mcp", "Mcp-Session-Id:"),
  };
}

t.test("nobody comes into the session of another one", async (t) => {
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
  t.strictSame(witness.take(), [], "and the server hears nothing of it");
  t.equal((await post(site, alice, list, own)).status, 200, "it goes on");
  witness.take();
  const stateless = statelessCall("tools/list");
  await post(site, bob, stateless.body, { ...stateless.headers, "mcp-session-id": SESSION });
  t.notMatch(witness.take()[0]?.headers, { "mcp-session-id": String }, "nor where there is none");
});

t.test("a session that the server gives away again is nobody else's", async (t) => {
  const { witness, alice, bob } = site;
  const answer = await post(site, bob, initialize.body);
  t.equal(answer.status, 502);
  t.notMatch(answer.rawHeaders.join(), SESSION);
  t.equal((await post(site, bob, list, own)).status, 404);
  t.equal((await post(site, alice, list, own)).status, 200);
  witness.take();
});

t.test("a token in any other place than its header is none", async (t) => {
  const { gateway, witness, alice } = site;
  const url = new URL(gateway.url);
  const targets = [
    ...[`/mcp?access_token=${alice}`, `/mcp?Authorization=Bearer%20${alice}`, `/mcp#${alice}`],
    ...[`/mcp?sessionId=${SESSION}&token=${alice}`],
  ];
  for (const target of targets) {
    const text = await sendLines([`GET ${target} HTTP/1.1`]);
    t.match(text, /^HTTP\/1\.1 40[014] /, target.slice(0, 30));
  }
  const places: Record<string, string> = {
    ...{ cookie: `access_token=${alice}`, authorization_: `Bearer ${alice}` },
    ...{ "x-authorization": `Bearer ${alice}`, "mcp-authorization": `Bearer ${alice}` },
    ...{ "proxy-authorization": `Bearer ${alice}`, "sec-websocket-protocol": `bearer, ${alice}` },
  };
  for (const [name, value] of Object.entries(places)) {
    const { status } = await ask(`${url.origin}/mcp`, { headers: { [name]: value } });
    t.equal(status, 401, name);
  }
  for (const scheme of ["Bearer\t", "Bearer\u00a0", "Basic ", "Token ", "DPoP ", "Bearer:", ""]) {
    const text = await sendLines(["GET /mcp HTTP/1.1", `Authorization: ${scheme}${alice}`]);
    t.match(text, /^HTTP\/1\.1 401 /, JSON.stringify(scheme));
    t.match(text, /^WWW-Authenticate: Bearer realm="mcp", resource_metadata="/m);
  }
  const twice = [`Authorization: Bearer ${alice}`, `authorization: Bearer ${alice}`];
  t.match(await sendLines(["GET /mcp HTTP/1.1", ...twice]), /^HTTP\/1\.1 400 /);
  t.strictSame(witness.take(), []);
});
