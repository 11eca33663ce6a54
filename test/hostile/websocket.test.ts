import type { Socket } from "node:net";
import t, { type Test } from "tap";
import { staffedHome, tokenOf } from "../journeys/staff.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { type OnRequest, RawUpstream, wireAnswer } from "../kit/raw-upstream.ts";
import { ACCEPT, handshake, KEY } from "../kit/web-socket.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { checkRefused, statusesOf } from "./kit.ts";

const config = `
[[routes]]
path = "/db/:database/live"
access = "SELECT"
upgrade = true
[[routes]]
path = "/public/live"
methods = ["GET", "POST"]
access = "public"
upgrade = true
`;

const agreement = [
  "HTTP/1.1 101 Switching Protocols",
  "Connection: Upgrade",
  "Upgrade: websocket",
  `Sec-WebSocket-Accept: ${ACCEPT}`,
];
const smuggled = "GET /db/side/live HTTP/1.1\r\nHost: x\r\nX-Gatehouse-User: root\r\n\r\n";

let answer: OnRequest = () => {};
const upstream = await new RawUpstream((...all) => answer(...all)).listen(t);
const gateway = await startGateway(t, {
  home: await staffedHome(t, ["root * Owner", "alice main ReadOnly"]),
  upstream: upstream.url,
  config,
});
const alice = await tokenOf(gateway, "alice");

async function send(t: Test, bytes: string): Promise<Wire> {
  upstream.requests.length = 0;
  const wire = await Wire.open(gateway.url, t);
  wire.send(bytes);
  return wire;
}

function asAlice(more: Readonly<Record<string, string>> = {}): string {
  return wireRequest("GET /db/main/live", handshake(alice, more));
}

function answerWith(lines: readonly string[], behind = ""): { socket?: Socket; text: string } {
  const side: { socket?: Socket; text: string } = { text: "" };
  answer = (socket) => {
    side.socket = socket;
    socket.on("data", (text) => (side.text += text));
    socket.write(`${[...lines, "", ""].join("\r\n")}${behind}`);
  };
  return side;
}

t.test("data after a handshake does not reach an upstream that does not agree", async (t) => {
  const without = (line: RegExp) => agreement.filter((other) => !line.test(other));
  const answers: [what: string, lines: string[], status: number][] = [
    ["a success", ["HTTP/1.1 200 OK", "Content-Length: 0"], 200],
    ["a success with the headers of an agreement", ["HTTP/1.1 200 OK", ...agreement.slice(1)], 200],
    ["a refusal", ["HTTP/1.1 426 Upgrade Required", "Content-Length: 0"], 426],
    ["no Sec-WebSocket-Accept", without(/^Sec/), 502],
    ["a wrong Sec-WebSocket-Accept", [...without(/^Sec/), `Sec-WebSocket-Accept: ${KEY}`], 502],
    ["two Sec-WebSocket-Accept", [...agreement, `Sec-WebSocket-Accept: ${ACCEPT}`], 502],
    ["another protocol", [...without(/^Upgrade/), "Upgrade: h2c"], 502],
    ["no protocol", without(/^Upgrade/), 502],
    ["no change", without(/^Connection/), 502],
    ["a length", [...agreement, "Content-Length: 5"], 502],
    ["chunks", [...agreement, "Transfer-Encoding: chunked"], 502],
  ];
  for (const [what, lines, status] of answers) {
    const side = answerWith(lines);
    const wire = await send(t, asAlice() + smuggled);
    const head = new RegExp(`^HTTP/1.1 ${status} `);
    await wire.until(head);
    wire.send(smuggled);
    if (what === "a success with the headers of an agreement") side.socket?.end();
    const text = await wire.untilClosed();
    t.strictSame(statusesOf(text), [status], what);
    t.match(text, /^Connection: close\r$/m, what);
    if (status === 502) checkRefused502(t, text, what);
    t.equal(upstream.requests.length, 1, what);
    t.equal(side.text, "", what);
  }
});

function checkRefused502(t: Test, text: string, what: string): void {
  const [, body = ""] = text.split("\r\n\r\n");
  t.match(JSON.parse(body), { status: "error", code: "upstream_broken" }, what);
}

t.test("data sent before the agreement is forwarded after it", async (t) => {
  const release = Promise.withResolvers<void>();
  let text = "";
  answer = async (socket) => {
    await release.promise;
    socket.on("data", (more) => (text += more));
    socket.write(`${[...agreement, "", ""].join("\r\n")}the upstream's first`);
  };
  const wire = await send(t, `${asAlice()}the client's first, `);
  wire.send("its second, ");
  await eventually("the upstream has the handshake", () => upstream.requests.length === 1);
  t.notMatch(upstream.requests[0], /first/);
  release.resolve();
  await wire.until(/^HTTP\/1\.1 101 .*\r\n\r\nthe upstream's first$/s);
  wire.send("its third");
  await eventually("all of it has arrived", () =>
    /^the client's first, its second, its third$/.test(text),
  );
});

t.test("an invalid handshake is served as a plain request", async (t) => {
  const usual = handshake(alice);
  const without = (name: string) =>
    Object.fromEntries(Object.entries(usual).filter(([other]) => other !== name));
  const line = "GET /db/main/live";
  const wishes: [what: string, request: string][] = [
    ...["h2c", "websocket, h2c", "websocket/13", "TLS/1.0", "web socket"].map(
      (protocol): [string, string] => [protocol, asAlice({ Upgrade: protocol })],
    ),
    ["two protocols", asAlice({ upgrade: "h2c" })],
    ["twice the same", asAlice({ upgrade: "websocket" })],
    ["no Upgrade in Connection", asAlice({ Connection: "close" })],
    ["no key", wireRequest(line, without("Sec-WebSocket-Key"))],
    ["a malformed key", asAlice({ "Sec-WebSocket-Key": "short" })],
    ["two keys", asAlice({ "sec-websocket-key": KEY })],
    ["a body", wireRequest(line, usual, smuggled)],
    ["a body in chunks", `${asAlice({ "Transfer-Encoding": "chunked" })}0\r\n\r\n`],
    ["a body with Expect", wireRequest(line, { ...usual, Expect: "100-continue" }, "1")],
    ["HTTP/1.0", asAlice().replace("HTTP/1.1", "HTTP/1.0")],
    ["HEAD", asAlice().replace("GET", "HEAD")],
    ["POST", wireRequest("POST /public/live", usual)],
  ];
  answer = (socket) => socket.end(wireAnswer("{}"));
  for (const [what, bytes] of wishes) {
    const wire = await send(t, bytes + smuggled);
    const text = await wire.untilClosed();
    t.match(statusesOf(text).at(-1), 200, what);
    t.match(text, /^Connection: close\r$/m, what);
    t.equal(upstream.requests.length, 1, what);
    t.notMatch(upstream.requests[0], /^upgrade:|^connection: .*upgrade/im, what);
  }
});

t.test("a long response to a handshake arrives complete", async (t) => {
  const long = "x".repeat(1_000_000);
  const chunked = `HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n${long.length.toString(16)}`;
  const responses = { measured: wireAnswer(long), chunked: `${chunked}\r\n${long}\r\n0\r\n\r\n` };
  for (const [what, response] of Object.entries(responses)) {
    answer = (socket) => socket.end(response);
    const text = await (await send(t, asAlice())).untilClosed();
    const [, content = ""] = text.split("\r\n\r\n");
    t.equal(content.replaceAll(/[^x]/g, "").length, long.length, what);
  }
});

t.test("a handshake is judged like every other request", async (t) => {
  const odd: [bytes: string, status: number, code: string][] = [
    [asAlice().replace("\r\n", "\r\nHost: other\r\n"), 400, "bad_request"],
    [asAlice({ authorization: "Bearer x" }), 400, "several_authorization_headers"],
    [asAlice({ "X-Filling": "x".repeat(17_000) }), 431, "headers_too_large"],
    [asAlice().replace("/db/main/", "/db/main/../"), 404, "not_found"],
    [asAlice().replace("/db/main/live", "/db/main/live#x"), 400, "path_not_canonical"],
    [asAlice().replace("/db/main/", "/db/ma%0ain/"), 400, "path_not_canonical"],
    [asAlice().replace("/db/main/", "//db/main/"), 404, "not_found"],
  ];
  for (const [bytes, status, code] of odd) {
    const wire = await send(t, bytes + smuggled);
    const text = await wire.untilClosed();
    if (status === 404) t.match(statusesOf(text), [/^40[04]$/]);
    else checkRefused(t, text, status, code, code);
    t.equal(upstream.requests.length, 0);
  }
});

t.test("a handshake is accepted only on an idle connection", async (t) => {
  const held: Socket[] = [];
  answer = (socket) => held.push(socket);
  const wire = await send(t, wireRequest("GET /public/live", {}) + asAlice() + smuggled);
  for (const at of [0, 1]) {
    await eventually("it has arrived", () => held.length > at);
    held[at]?.end(wireAnswer(`"${at}"`));
  }
  t.match(await wire.untilClosed(), /^HTTP\/1\.1 200 .*"0"HTTP\/1\.1 200 .*"1"$/s);
  t.equal(upstream.requests.length, 2);
  t.notMatch(upstream.requests[1], /^upgrade:/im);

  answer = (socket) => socket.end(wireAnswer("{}"));
  const kept = await send(t, wireRequest("GET /public/live", {}));
  await kept.until(/\{\}$/);
  answerWith(agreement, "hello");
  kept.send(asAlice({ "Content-Length": "0" }));
  await kept.until(/ 101 .*hello$/s);
});

t.test("a client that leaves before the agreement closes the upstream connection", async (t) => {
  answer = () => {};
  for (const leave of ["end", "destroy", "resetAndDestroy"] as const) {
    const closed = upstream.closed;
    const wire = await send(t, asAlice());
    await eventually("the upstream has the handshake", () => upstream.requests.length === 1);
    wire.socket[leave]();
    await eventually(`${leave}: the upstream connection is closed`, () => upstream.closed > closed);
  }
});

t.test("when one side closes, the other side is closed", async (t) => {
  for (const leave of ["end", "destroy", "resetAndDestroy"] as const) {
    const side = answerWith(agreement);
    const wire = await send(t, asAlice());
    await wire.until(/\r\n\r\n$/);
    const closed = upstream.closed;
    wire.socket[leave]();
    await eventually(`${leave}: the upstream connection is closed`, () => upstream.closed > closed);
    t.equal(side.text, "");

    const other = answerWith(agreement);
    const left = await send(t, asAlice());
    await left.until(/\r\n\r\n$/);
    other.socket?.[leave]();
    await left.untilClosed();
  }
  t.equal((await gateway.request("/healthz")).status, 200);
  const isFault = (line: { level?: unknown; audit?: unknown }) =>
    line.audit !== true && (line.level === "error" || line.level === "fatal");
  t.notOk(gateway.service.log.some(isFault));
  t.notMatch(gateway.service.output, /Warning/);
});

t.test("data sent before a side closes is delivered", async (t) => {
  const side = answerWith(agreement);
  const wire = await send(t, asAlice());
  await wire.until(/\r\n\r\n$/);
  side.socket?.once("end", () => side.socket?.end("and so is yours"));
  wire.send("my last word");
  wire.socket.end();
  t.match(await wire.untilClosed(), /\r\n\r\nand so is yours$/);
  t.equal(side.text, "my last word");
});

t.test("headers named in Connection are removed, and identities cannot be forged", async (t) => {
  answer = (socket) => socket.end(wireAnswer("{}"));
  const named = "Upgrade, Sec-WebSocket-Key, X-Gatehouse-User, X-Forwarded-For, Authorization";
  const wire = await send(t, asAlice({ Connection: named, X_Gatehouse_User: "root" }));
  t.strictSame(statusesOf(await wire.untilClosed()), [200]);
  const [request = ""] = upstream.requests;
  t.notMatch(request, /root|authorization|sec-websocket-key/i);
  t.match(request, /^x-gatehouse-user: alice\r$/m);
  t.match(request, /^connection: Upgrade\r$/m);
  t.strictSame(request.match(/^x-forwarded-for: .*$/gm), ["x-forwarded-for: 127.0.0.1"]);
});
