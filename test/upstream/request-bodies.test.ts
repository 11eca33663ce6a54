import type { ServerResponse } from "node:http";
import t, { type Test } from "tap";
import { startGateway } from "../kit/gateway.ts";
import { insert, queryHeaders, select } from "../kit/queries.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";

async function scene(t: Test, server: string) {
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
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

/** The head of a query that says its length and nothing of its body. */
function head(headers: Record<string, string>, length: number, more = {}): string {
  return wireRequest("POST /query", { ...headers, "Content-Length": String(length), ...more });
}

/** The end of an answer, with a length or chunked. */
const wholeAnswer = /\}(?:\r\n0\r\n\r\n)?$/;

const json = { "Content-Type": "application/json" };

/** A Select of exactly this many bytes. */
function padded(length: number): string {
  return `${select.slice(0, -1)}${" ".repeat(length - select.length)}}`;
}

t.test("a body over the limit is 413, which names the limit", async (t) => {
  const { upstream, gateway, headers, connect } = await scene(t, "max_body_bytes = 1000");
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

t.test("a body without a token is not read, however long it says it is", async (t) => {
  const { connect } = await scene(t, "max_body_bytes = 1000");
  const wire = await connect();
  wire.send(head(json, 1_000_000_000));
  t.match(await wire.until(/"code":"unauthenticated"/), /^HTTP\/1\.1 401 /);
});

t.test("bodies held past the bound are 503, and give their room back", async (t) => {
  const limits = "max_body_bytes = 1000\nmax_buffered_bytes = 1500";
  const { headers, connect } = await scene(t, limits);
  const body = padded(1000);
  const first = await connect();
  first.send(`${head(headers, 1000)}${body.slice(0, 900)}`);
  const second = await connect();
  // Whether the first one's bytes are held already shows only by asking.
  for (let status = ""; status !== "503"; ) {
    second.text = "";
    second.send(`${head(headers, 1000)}${body}`);
    status = /^HTTP\/1\.1 (\d+)/.exec(await second.until(wholeAnswer))?.[1] ?? "";
  }
  t.match(second.text, /Retry-After: 1.*"code":"busy"/s);
  first.send(body.slice(900));
  t.match(await first.until(wholeAnswer), /^HTTP\/1\.1 200 /, "who came first is served");
  second.text = "";
  second.send(`${head(headers, 1000)}${body}`);
  t.match(await second.until(wholeAnswer), /^HTTP\/1\.1 200 /, "and now there is room");
});

t.test("a body is asked for only from whoever may send it", async (t) => {
  const { upstream, headers, connect } = await scene(t, "max_body_bytes = 1000");
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
  const { upstream, gateway, headers, connect } = await scene(t, "request_timeout = 1");
  const wire = await connect();
  wire.send(`${head(headers, insert.length)}${insert.slice(0, 10)}`);
  const text = await wire.untilClosed();
  t.match(text, /^HTTP\/1\.1 408 .*Connection: close.*"code":"request_timeout"/s);
  t.equal(text.match(/HTTP\/1\.1/g)?.length, 1);
  const audited = await gateway.service.logged(({ reason }) => reason === "request_timeout");
  t.match(audited, { status: 408, decision: "deny", user: "admin" });
  t.equal(upstream.take().length, 0);
});

t.test("a head that comes too slowly ends with 408", async (t) => {
  const { connect } = await scene(t, "request_timeout = 1");
  const wire = await connect();
  wire.send("POST /query HTTP/1.1\r\nHost: x\r\n");
  t.match(await wire.untilClosed(), /^HTTP\/1\.1 408 .*"code":"request_timeout"/s);
});

t.test("what is no HTTP is answered in JSON", async (t) => {
  const { upstream, headers, connect } = await scene(t, "");
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

t.test("what is no HTTP never gets an answer that belongs to another request", async (t) => {
  const { upstream, headers, connect } = await scene(t, "");
  const { promise, resolve } = Promise.withResolvers<ServerResponse>();
  upstream.answer = (_, response) => {
    response.write("half");
    resolve(response);
  };
  const wire = await connect();
  wire.send(wireRequest("POST /query", headers, select));
  await wire.until(/half/);
  wire.send("garbage\r\n\r\n");
  (await promise).end("whole");
  t.match(await wire.untilClosed(), /half.*whole\r\n0\r\n\r\nHTTP\/1\.1 400 .*bad_request/s);
});
