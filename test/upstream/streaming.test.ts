import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { setTimeout as delay, setImmediate as nextTurn } from "node:timers/promises";
import t, { type Test } from "tap";
import { BackendGroup } from "../../src/upstream/backends.ts";
import { parseTarget } from "../../src/upstream/target.ts";
import { open } from "../kit/client.ts";
import { eventually, untilStill } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";
import { residentBytes } from "../kit/process-info.ts";
import { insert, queryHeaders, select } from "../kit/queries.ts";
import { RawUpstream, wireAnswer } from "../kit/raw-upstream.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { backendOptions, queryFor } from "./asking.ts";

const MEGABYTE = 1024 * 1024;
const ANSWER_MEGABYTES = 400;
const chunk = Buffer.alloc(MEGABYTE, "x");

async function scene(t: Test, config = "") {
  const upstream = await new RecordingUpstream().listen(t);
  const gateway = await startGateway(t, { upstream: upstream.url, config });
  const headers = queryHeaders(await gateway.login());
  return { upstream, gateway, headers, url: `${gateway.url}/query` };
}

async function pour(response: ServerResponse, megabytes: number, progress: { written: number }) {
  for (let count = 0; count < megabytes && !response.destroyed; count++) {
    if (!response.write(chunk))
      await Promise.race([once(response, "drain"), once(response, "close")]);
    progress.written += chunk.length;
  }
  response.end();
}

t.test("a big answer to a slow client waits upstream, not in the gateway's memory", async (t) => {
  const { upstream, gateway, headers, url } = await scene(t);
  const pid = gateway.service.child.pid ?? 0;
  const progress = { written: 0 };
  upstream.answer = (_, response) => void pour(response, ANSWER_MEGABYTES, progress);
  const before = residentBytes(pid);
  const answer = await open(url, { method: "POST", headers, body: select });

  // Nothing is read until then.
  await untilStill("the upstream", () => progress.written);
  t.ok(progress.written < 50 * MEGABYTE, `the upstream was held back at ${progress.written} bytes`);

  let received = 0;
  let most = 0;
  for await (const part of answer) {
    received += part.length;
    most = Math.max(most, residentBytes(pid));
  }
  t.equal(received, ANSWER_MEGABYTES * MEGABYTE, "then all of it arrives");
  t.ok(most - before < 150 * MEGABYTE, `the gateway grew by ${(most - before) / MEGABYTE} MB`);
});

t.test("an answer that stops for too long is cut", async (t) => {
  const { upstream, gateway, headers } = await scene(t, "response_timeout = 1\n");
  upstream.answer = (_, response) => {
    response.writeHead(200);
    response.write("half");
  };
  const wire = await Wire.open(gateway.url);
  wire.send(wireRequest("POST /query", headers, select));
  t.notMatch(await wire.untilClosed(), /\r\n0\r\n\r\n$/);
});

t.test("a client that goes away while its query waits leaves nothing behind", async (t) => {
  const { upstream, gateway, headers } = await scene(t, "connections = 1\n");
  const held: ServerResponse[] = [];
  upstream.answer = (_, response) => held.push(response);
  const first = await Wire.open(gateway.url);
  const second = await Wire.open(gateway.url);
  const third = await Wire.open(gateway.url);
  t.teardown(() => [first, second, third].map((wire) => wire.cut()));
  first.send(wireRequest("POST /query", headers, select));
  await eventually("the first holds the only connection", () => held.length === 1);
  second.send(wireRequest("POST /query", headers, select));
  third.send(wireRequest("POST /query", headers, select));
  await gateway.request("/healthz");
  second.cut();
  const gone = ({ status }: Record<string, unknown>) => status === 499;
  await gateway.service.logged(gone);
  held.shift()?.end("{}");
  await first.until(/^HTTP\/1\.1 200/);
  await eventually("the third is next", () => held.length === 1);
  held.shift()?.end("{}");
  await third.until(/^HTTP\/1\.1 200/);
  t.equal(upstream.take().length, 2, "the second never went up");
});

const megabyte = Buffer.alloc(1024 * 1024, "x");

t.test("a client that stops reading gives its connection to the upstream back", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  const options = backendOptions({ connections: 1, clientTimeoutMs: 200 });
  const group = new BackendGroup([parseTarget(upstream.url)], options);
  t.teardown(() => group.close());
  const server = createServer((_request, response) => {
    group.forward(...queryFor(response, {}));
  });
  const url = `http://127.0.0.1:${await listening(t, server)}`;

  upstream.answer = (_, response) => {
    for (let count = 0; count < 50; count++) response.write(megabyte);
    response.end();
  };
  const stalled = await open(url);
  upstream.answer = (_, response) => response.end("{}");
  const next = await open(url);
  t.equal(next.statusCode, 200, "the next query has its turn");
  next.resume();
  stalled.resume();
  await t.rejects(once(stalled, "end"), { code: "ECONNRESET" }, "and the answer is cut, not ended");
});

const config = `
[[routes]]
path = "/files"
methods = ["GET", "POST", "DELETE", "OPTIONS"]
access = "public"
`;
const inner = "GET /inner HTTP/1.1\r\nHost: x\r\n\r\n";
const size = inner.length.toString(16);
const chunked = { "Transfer-Encoding": "chunked" };

async function connect(t: Test, url: string): Promise<Wire> {
  const gateway = await startGateway(t, { upstream: url, config });
  const wire = await Wire.open(gateway.url);
  t.teardown(() => wire.cut());
  return wire;
}

t.test("a body is never left without its length, as a request of its own", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  const wire = await connect(t, upstream.url);
  const length = { "Content-Length": String(inner.length) };
  const framings: [headers: Record<string, string>, body: string][] = [
    [chunked, `${size}\r\n${inner}\r\n0\r\n\r\n`],
    [{ ...chunked, Connection: "transfer-encoding" }, `${size}\r\n${inner}\r\n0\r\n\r\n`],
    [length, inner],
    [{ ...length, Connection: "content-length" }, inner],
  ];
  for (const method of ["GET", "POST", "DELETE", "OPTIONS"]) {
    for (const [headers, body] of framings) {
      wire.text = "";
      wire.send(`${wireRequest(`${method} /files`, headers)}${body}`);
      await wire.until(/\r\n0\r\n\r\n$/);
      const received = upstream.take();
      const name = `${method} with ${Object.keys(headers).join(" and ")}`;
      t.equal(received.length, 1, `${name} is one request`);
      t.equal(received[0]?.url, "/files");
      t.equal(received[0]?.body.toString(), inner, "and its body is a body");
    }
  }
});

t.test("a body streams up while it comes", async (t) => {
  let seen = "";
  const upstream = await new RawUpstream(() => {}).listen(t);
  upstream.server.on("connection", (socket) => {
    socket.on("data", (text) => {
      seen += text;
      if (seen.endsWith("0\r\n\r\n")) socket.write(wireAnswer('{"done":true}'));
    });
  });
  const wire = await connect(t, upstream.url);
  wire.send(wireRequest("POST /files", { ...chunked, Expect: "100-continue" }));
  t.equal(await wire.until(/\r\n\r\n/), "HTTP/1.1 100 Continue\r\n\r\n");
  wire.send("5\r\nfirst\r\n");
  await eventually("the first part is there", () => seen.includes("5\r\nfirst\r\n"));
  t.notMatch(seen, /^expect:/im);
  wire.send("6\r\nsecond\r\n0\r\n\r\n");
  await wire.until(/\{"done":true\}/);
});

t.test("an answer that comes before the body has ended is not lost", async (t) => {
  const upstream = await new RawUpstream((socket) => {
    socket.end(wireAnswer('{"enough":true}', "Connection: close\r\n"));
  }).listen(t);
  const wire = await connect(t, upstream.url);
  wire.send(`${wireRequest("POST /files", chunked)}5\r\nfirst\r\n`);
  await wire.until(/^HTTP\/1\.1 200 .*\{"enough":true\}/s);
});

async function bodyScene(t: Test, server: string) {
  const upstream = await new RecordingUpstream().listen(t);
  const config = `[server]\n${server}\n`;
  const gateway = await startGateway(t, { upstream: upstream.url, config });
  const headers = queryHeaders(await gateway.login());
  const connect = async () => {
    const wire = await Wire.open(gateway.url);
    t.teardown(() => wire.cut());
    return wire;
  };
  return { upstream, gateway, headers, connect };
}

function head(headers: Record<string, string>, length: number, more = {}): string {
  return wireRequest("POST /query", { ...headers, "Content-Length": String(length), ...more });
}

const json = { "Content-Type": "application/json" };

function padded(length: number): string {
  return `${select.slice(0, -1)}${" ".repeat(length - select.length)}}`;
}

t.test("a body over the limit is 413, which names the limit", async (t) => {
  const { upstream, gateway, headers, connect } = await bodyScene(t, "max_body_bytes = 1000");
  const token = headers.Authorization?.slice("Bearer ".length);
  t.equal((await gateway.query(padded(1000), token)).status, 200, "at the limit it is taken");
  upstream.take();

  const declared = await connect();
  declared.send(head(headers, 1001));
  t.match(await declared.until(/body_too_large.*\}/), /^HTTP\/1\.1 413 .*limit is 1000 bytes/s);

  const chunked = await connect();
  chunked.send(wireRequest("POST /query", { ...headers, "Transfer-Encoding": "chunked" }));
  for (let count = 0; count < 11; count++) chunked.send(`64\r\n${" ".repeat(100)}\r\n`);
  t.match(await chunked.until(/body_too_large.*\}/), /^HTTP\/1\.1 413 .*limit is 1000 bytes/s);
  chunked.send(`0\r\n\r\n${wireRequest("POST /query", headers, select)}`);
  const [, ...more] = (await chunked.untilClosed()).split("HTTP/1.1 ");
  t.equal(more.length, 1, "and the connection ends");
  t.equal(upstream.take().length, 0);
});

t.test("a body is asked for only from whoever may send it", async (t) => {
  const { upstream, headers, connect } = await bodyScene(t, "max_body_bytes = 1000");
  const expect = { Expect: "100-continue" };

  const stranger = await connect();
  stranger.send(head(json, select.length, expect));
  t.match(await stranger.untilClosed(), /^HTTP\/1\.1 401 /, "and the connection ends");

  const long = await connect();
  long.send(head(headers, 1001, expect));
  t.match(await long.untilClosed(), /^HTTP\/1\.1 413 /);

  const known = await connect();
  known.send(head(headers, select.length, expect));
  t.equal(await known.until(/\r\n\r\n/), "HTTP/1.1 100 Continue\r\n\r\n");
  known.send(select);
  t.match(await known.until(/"status":"success"/), /\r\n\r\nHTTP\/1\.1 200 OK/);
  const [received, ...more] = upstream.take();
  t.equal(received?.body.toString(), select);
  t.equal(received?.headers.expect, undefined);
  t.equal(more.length, 0);
});

t.test("a body that comes too slowly ends with 408, also in the audit", async (t) => {
  const { upstream, gateway, headers, connect } = await bodyScene(t, "request_timeout = 1");
  const wire = await connect();
  wire.send(`${head(headers, insert.length)}${insert.slice(0, 10)}`);
  const text = await wire.untilClosed();
  t.match(text, /^HTTP\/1\.1 408 .*Connection: close.*"code":"request_timeout"/s);
  t.equal(text.match(/HTTP\/1\.1/g)?.length, 1);
  const audited = await gateway.service.logged(({ reason }) => reason === "request_timeout");
  t.match(audited, { status: 408, decision: "deny", user: "admin" });
  t.equal(upstream.take().length, 0);
});

t.test("what is no HTTP is answered in JSON", async (t) => {
  const { upstream, headers, connect } = await bodyScene(t, "");
  const length = "Content-Length: 4\r\n";
  const broken = [
    "garbage\r\n\r\n",
    "GET /healthz HTTP/9.9\r\nHost: x\r\n\r\n",
    "GET /healthz HTTP/1.1\r\n\r\n",
    "GET /healthz HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "GET /healthz HTTP/1.1\r\nHost: x\r\nBad Name: 1\r\n\r\n",
    `POST /query HTTP/1.1\r\nHost: x\r\n${length}Content-Length: 5\r\n\r\nabcde`,
    `POST /query HTTP/1.1\r\nHost: x\r\n${length}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
  ];
  for (const text of broken) {
    const wire = await connect();
    wire.send(text);
    const answer = await wire.untilClosed();
    t.match(answer, /^HTTP\/1\.1 400 .*X-Request-Id: .*"code":"bad_request"/s, text.slice(0, 40));
  }
  const long = await connect();
  long.send(`GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: ${"x".repeat(100_000)}\r\n\r\n`);
  t.match(await long.untilClosed(), /^HTTP\/1\.1 431 .*"code":"headers_too_large"/s);

  const chunked = await connect();
  chunked.send(wireRequest("POST /query", { ...headers, "Transfer-Encoding": "chunked" }));
  chunked.send("not a size\r\n");
  t.match(await chunked.untilClosed(), /^HTTP\/1\.1 400 .*"code":"bad_request"/s);
  t.equal(upstream.take().length, 0);
});

/** An answer of so many bytes that no other one has at the same place. */
function content(seed: number, length: number): Buffer {
  const bytes = Buffer.allocUnsafeSlow(length);
  let state = seed * 2_654_435_761 + 1;
  for (let at = 0; at < length; at++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    bytes[at] = state >>> 24;
  }
  return bytes;
}

const digest = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");

async function forwarder(t: Test, upstream: RecordingUpstream): Promise<string> {
  const options = backendOptions({ connections: 2 });
  const group = new BackendGroup([parseTarget(upstream.url)], options);
  const server = createServer((request, response) => {
    const body = Buffer.from(request.url ?? "");
    group.forward(...queryFor(response, { body }));
  });
  t.teardown(() => group.close());
  return `http://127.0.0.1:${await listening(t, server)}`;
}

async function readSlowly(answer: IncomingMessage, pauseEvery: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of answer) {
    pieces.push(piece);
    if (pieces.length % pauseEvery === 0) await delay(1);
  }
  return Buffer.concat(pieces);
}

const sizes = [1, 4095, 4096, 4097, 8191, 8193, 65_537, 262_143, 262_145, 1_500_000];

t.test("long answers that clients take at their own pace never get mixed up", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  upstream.answer = ({ body }, response) => {
    const [seed = 0, length = 0, isChunked = 0] = body.toString().slice(1).split("-").map(Number);
    if (isChunked === 0) response.setHeader("Content-Length", length);
    const whole = content(seed, length);
    for (let at = 0; at < length; at += 50_000) response.write(whole.subarray(at, at + 50_000));
    response.end();
  };
  const url = await forwarder(t, upstream);
  const asked = Array.from({ length: 60 }, async (_, seed) => {
    const length = sizes[seed % sizes.length] ?? 0;
    const answer = await open(`${url}/${seed}-${length}-${seed % 2}`);
    const found = await readSlowly(answer, (seed % 7) + 1);
    return found.length === length && digest(found) === digest(content(seed, length));
  });
  const results = await Promise.all(asked);
  t.strictSame(
    results,
    asked.map(() => true),
  );
});

t.test("what a client has not taken yet is not written over by what comes behind it", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  const whole = content(1, 24_000_000);
  let written = 0;
  upstream.answer = async (_, response) => {
    response.setHeader("Content-Length", whole.length);
    // Pieces short enough that the answer takes several before it is full.
    for (let at = 0; at < whole.length; at += 10_000) {
      const hasRoom = response.write(whole.subarray(at, at + 10_000));
      if (!hasRoom) await once(response, "drain");
      written = at;
      await nextTurn();
    }
    response.end();
  };
  const answer = await open(await forwarder(t, upstream));
  await untilStill("the upstream", () => written);
  t.equal(digest(await readSlowly(answer, 50)), digest(whole));
});
