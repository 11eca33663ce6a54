import { once } from "node:events";
import type { ServerResponse } from "node:http";
import t, { type Test } from "tap";
import { open } from "../kit/client.ts";
import { eventually, untilStill } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { residentBytes } from "../kit/process-info.ts";
import { queryHeaders, select } from "../kit/queries.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";

const MEGABYTE = 1024 * 1024;
const ANSWER_MEGABYTES = 400;
const chunk = Buffer.alloc(MEGABYTE, "x");

async function scene(t: Test, config = "") {
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { upstream: upstream.url, config });
  const headers = queryHeaders(await gateway.login());
  return { upstream, gateway, headers, url: `${gateway.url}/query` };
}

/** Writes as fast as the other side takes it, and says how far it has come. */
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

t.test("an answer that breaks in the middle never looks whole", async (t) => {
  const { upstream, gateway, headers } = await scene(t);
  const breaks = {
    "with a length": (response: ServerResponse) => {
      response.writeHead(200, { "Content-Length": 1000 });
    },
    chunked: (response: ServerResponse) => {
      response.writeHead(200);
    },
  };
  for (const [name, begin] of Object.entries(breaks)) {
    upstream.answer = (_, response) => {
      begin(response);
      response.write("half", () => response.socket?.destroy());
    };
    const wire = await Wire.open(gateway.url);
    wire.send(wireRequest("POST /query", headers, select));
    const text = await wire.untilClosed();
    t.match(text, /^HTTP\/1\.1 200 OK/, name);
    t.match(text, /half/);
    t.notMatch(text, /\r\n0\r\n\r\n$/, "there is no mark of the end");
  }
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

t.test("a client that goes away cancels its query", async (t) => {
  const { upstream, gateway, headers } = await scene(t, "connections = 1\n");
  let closed = 0;
  const moments = {
    "before the answer": (_response: ServerResponse) => {},
    "in the middle of it": (response: ServerResponse) => response.write("half"),
  };
  for (const [name, begin] of Object.entries(moments)) {
    closed = 0;
    upstream.answer = (_, response) => {
      response.once("close", () => closed++);
      begin(response);
    };
    const wire = await Wire.open(gateway.url);
    wire.send(wireRequest("POST /query", headers, select));
    await eventually("the query went up", () => upstream.received.length === 1);
    upstream.take();
    wire.cut();
    await eventually("the upstream saw the connection close", () => closed === 1);
    t.pass(name);
  }
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
