import { createHash } from "node:crypto";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { setTimeout as delay, setImmediate as nextTurn } from "node:timers/promises";
import t, { type Test } from "tap";
import { limitAnswers } from "../../src/core/http/connections.ts";
import { BackendGroup, type BackendOptions } from "../../src/core/upstream/backends.ts";
import { createReverseProxy } from "../../src/core/upstream/reverse-proxy.ts";
import { parseTarget } from "../../src/core/upstream/target.ts";
import { ask, open } from "../kit/client.ts";
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
const ANSWER_MEGABYTES = 200;
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

t.test("a large response to a slow client does not fill the gateway's memory", async (t) => {
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
  t.equal(received, ANSWER_MEGABYTES * MEGABYTE, "then the whole response arrives");
  t.ok(most - before < 150 * MEGABYTE, `the gateway grew by ${(most - before) / MEGABYTE} MB`);
});

t.test("a response that stalls for too long is cut", async (t) => {
  const { upstream, gateway, headers } = await scene(t, "response_timeout = 1\n");
  upstream.answer = (_, response) => {
    response.writeHead(200);
    response.write("half");
  };
  const wire = await Wire.open(gateway.url);
  wire.send(wireRequest("POST /query", headers, select));
  t.notMatch(await wire.untilClosed(), /\r\n0\r\n\r\n$/);
});

t.test("a client that leaves while its query waits gives up its place", async (t) => {
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
  const isGone = ({ status }: Record<string, unknown>) => status === 499;
  await gateway.service.logged(isGone);
  held.shift()?.end("{}");
  await first.until(/^HTTP\/1\.1 200/);
  await eventually("the third is next", () => held.length === 1);
  held.shift()?.end("{}");
  await third.until(/^HTTP\/1\.1 200/);
  t.equal(upstream.take().length, 2, "the second was never forwarded");
});

t.test("a client that stops reading loses its connection to the upstream", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  const url = await forwarder(t, upstream, { connections: 1 }, 200);

  upstream.answer = (_, response) => {
    for (let count = 0; count < 50; count++) response.write(chunk);
    response.end();
  };
  const stalled = await open(url);
  upstream.answer = (_, response) => response.end("{}");
  const next = await open(url);
  t.equal(next.statusCode, 200, "the next query gets the connection");
  next.resume();
  stalled.resume();
  await t.rejects(once(stalled, "end"), { code: "ECONNRESET" }, "the response is cut, not ended");
});

t.test("a response that is cut as its head arrives is not passed on", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  const proxy = createReverseProxy(parseTarget(upstream.url), 1000, 1000);
  for (const status of [200, 205]) {
    upstream.answer = (_, answer) => answer.writeHead(status).end();
    const forwarded = Promise.withResolvers<void>();
    const server = createServer((request, response) => {
      const cut = () => response.destroy();
      subscribe("http.client.response.finish", cut);
      const done = proxy.forward({ request, response, headers: {}, addedHeaders: [] });
      forwarded.resolve(done.finally(() => unsubscribe("http.client.response.finish", cut)));
    });
    await t.rejects(ask(`http://127.0.0.1:${await listening(t, server)}`));
    await forwarded.promise;
  }
});

t.test("a body is forwarded while it arrives", async (t) => {
  let seen = "";
  const upstream = await new RawUpstream(() => {}).listen(t);
  upstream.server.on("connection", (socket) => {
    socket.on("data", (text) => {
      seen += text;
      if (seen.endsWith("0\r\n\r\n")) socket.write(wireAnswer('{"done":true}'));
    });
  });
  const config = '[[routes]]\npath = "/files"\nmethods = ["POST"]\naccess = "public"\n';
  const gateway = await startGateway(t, { upstream: upstream.url, config });
  const wire = await Wire.open(gateway.url, t);
  const chunked = { "Transfer-Encoding": "chunked", Expect: "100-continue" };
  wire.send(wireRequest("POST /files", chunked));
  t.equal(await wire.until(/\r\n\r\n/), "HTTP/1.1 100 Continue\r\n\r\n");
  wire.send("5\r\nfirst\r\n");
  await eventually("the first part is there", () => seen.includes("5\r\nfirst\r\n"));
  t.notMatch(seen, /^expect:/im);
  wire.send("6\r\nsecond\r\n0\r\n\r\n");
  await wire.until(/\{"done":true\}/);
});

async function bodyScene(t: Test, server: string) {
  const opened = await scene(t, `[server]\n${server}\n`);
  const connect = async () => {
    const wire = await Wire.open(opened.gateway.url, t);
    return wire;
  };
  return { ...opened, connect };
}

function head(headers: Record<string, string>, length: number, more = {}): string {
  return wireRequest("POST /query", { ...headers, "Content-Length": String(length), ...more });
}

const json = { "Content-Type": "application/json" };

t.test("100 Continue is sent only to a caller whose body is accepted", async (t) => {
  const { upstream, headers, connect } = await bodyScene(t, "max_body_bytes = 1000");
  const expect = { Expect: "100-continue" };

  const stranger = await connect();
  stranger.send(head(json, select.length, expect));
  t.match(await stranger.untilClosed(), /^HTTP\/1\.1 401 /, "the connection is closed");

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

t.test("an unknown expectation is refused, and none counts in HTTP/1.0", async (t) => {
  const { upstream, headers, connect } = await bodyScene(t, "");
  for (const Expect of ["200-ok", "100-continue, 200-ok", ""]) {
    const wire = await connect();
    wire.send(head(headers, select.length, { Expect }) + select);
    const text = await wire.untilClosed();
    t.match(text, /^HTTP\/1\.1 417 .*Connection: close.*"code":"expectation_unknown"/s, Expect);
  }
  const old = await connect();
  const request = head(headers, select.length, { Expect: "200-ok" }) + select;
  old.send(request.replace("HTTP/1.1", "HTTP/1.0"));
  t.match(await old.untilClosed(), /^HTTP\/1\.1 200 OK/);
  t.equal(upstream.take().length, 1);
});

t.test("a body that arrives too slowly gets 408, also in the audit", async (t) => {
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

/** A response of this length that differs from every other one at each place. */
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

/** A server that forwards each path as the body of a query. */
async function forwarder(
  t: Test,
  upstream: RecordingUpstream,
  options: Partial<BackendOptions> = { connections: 2 },
  clientTimeoutMs?: number,
): Promise<string> {
  const group = new BackendGroup([parseTarget(upstream.url)], backendOptions(options));
  const answers: { response: ServerResponse }[] = [];
  const timer = limitAnswers(
    () => answers,
    () => {},
    clientTimeoutMs,
  );
  t.teardown(() => clearInterval(timer));
  const server = createServer((request, response) => {
    answers.push({ response });
    const body = Buffer.from(request.url ?? "");
    group.run(...queryFor(response, { body }));
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

t.test("long responses to clients of different speed never mix", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  upstream.answer = ({ body }, response) => {
    const [seed = 0, length = 0, isChunked = 0] = body.toString().slice(1).split("-").map(Number);
    if (isChunked === 0) response.setHeader("Content-Length", length);
    const whole = content(seed, length);
    for (let at = 0; at < length; at += 50_000) response.write(whole.subarray(at, at + 50_000));
    response.end();
  };
  const url = await forwarder(t, upstream);
  const checks = Array.from({ length: 60 }, async (_, seed) => {
    const length = sizes[seed % sizes.length] ?? 0;
    const answer = await open(`${url}/${seed}-${length}-${seed % 2}`);
    const found = await readSlowly(answer, (seed % 7) + 1);
    return found.length === length && digest(found) === digest(content(seed, length));
  });
  const results = await Promise.all(checks);
  t.strictSame(
    results,
    checks.map(() => true),
  );
});

t.test("data that a client has not read yet is not overwritten by later data", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  const whole = content(1, 24_000_000);
  let written = 0;
  upstream.answer = async (_, response) => {
    response.setHeader("Content-Length", whole.length);
    // Short pieces, so that the response buffers several before it is full.
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
