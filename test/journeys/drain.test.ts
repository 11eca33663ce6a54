import type { ServerResponse } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { insert, queryHeaders, select } from "../kit/queries.ts";
import { type Answer, RecordingUpstream } from "../kit/upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { askUntilRefused } from "./load.ts";

/** Longer than this a silent connection is not kept by a drain. */
const LINGER_MS = 1000;

async function scene(t: Test, answer: Answer) {
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
  upstream.answer = answer;
  const gateway = await startGateway(t, { upstream: upstream.url });
  return { upstream, gateway, token: await gateway.login() };
}

/** Asks the gateway to end; resolves to the exit code to be when it takes no more connections. */
async function drain({ service, url }: TestGateway) {
  const code = service.stop();
  await eventually("new connections are refused", () => Wire.isRefused(url));
  return { code };
}

t.test("a drain under load answers every request that was taken", async (t) => {
  const { upstream, gateway, token } = await scene(t, async (_, response) => {
    await delay(Math.random() * 60);
    response.end("{}");
  });
  const clients = Array.from({ length: 32 }, () => askUntilRefused(gateway, token));
  await eventually("they are at it", () => upstream.received.length > 200);
  t.equal(await gateway.service.stop(), 0);
  t.strictSame((await Promise.all(clients)).flat(), []);
});

t.test("clients that think between requests meet no closed connection", async (t) => {
  const { upstream, gateway, token } = await scene(t, (_, response) => response.end("{}"));
  const think = () => delay(250 + Math.random() * 100);
  const clients = Array.from({ length: 60 }, () => askUntilRefused(gateway, token, think));
  await eventually("they are at it", () => upstream.received.length > 120);
  t.equal(await gateway.service.stop(), 0);
  t.strictSame((await Promise.all(clients)).flat(), []);
});

t.test("a body of which half has come is waited for, and carried out", async (t) => {
  const { upstream, gateway, token } = await scene(t, (_, response) => response.end("{}"));
  const wire = await Wire.open(gateway.url);
  const request = wireRequest("POST /query", queryHeaders(token), insert);
  wire.send(request.slice(0, -20));
  await gateway.request("/healthz");
  const { code } = await drain(gateway);
  await delay(2 * LINGER_MS);
  wire.send(request.slice(-20));
  t.match(await wire.untilClosed(), /^HTTP\/1\.1 200 .*Connection: close/s);
  t.equal(upstream.received.length, 1);
  t.equal(await code, 0);
});

t.test("requests sent one behind the other on a connection are all answered", async (t) => {
  const held: ServerResponse[] = [];
  const { gateway, token } = await scene(t, (_, response) => held.push(response));
  const wire = await Wire.open(gateway.url);
  const request = wireRequest("POST /query", queryHeaders(token), select);
  wire.send(request.repeat(3));
  await eventually("the first is in flight", () => held.length === 1);
  const { code } = await drain(gateway);
  for (let at = 0; at < 3; at++) {
    await eventually("the next is in flight", () => held.length > at);
    held[at]?.end('"answer"');
  }
  const text = await wire.untilClosed();
  t.equal(text.match(/"answer"/g)?.length, 3);
  t.equal(text.match(/^Connection: close/gm)?.length, 1, "the last one says goodbye");
  t.equal(await code, 0);
});

t.test("what comes behind an answer that ends its connection is not carried out", async (t) => {
  const held: ServerResponse[] = [];
  const { upstream, gateway, token } = await scene(t, (_, response) => held.push(response));
  const wire = await Wire.open(gateway.url);
  const request = wireRequest("POST /query", queryHeaders(token), insert);
  wire.send(request);
  await eventually("it is in flight", () => held.length === 1);
  const { code } = await drain(gateway);
  held[0]?.write('"half');
  await wire.until(/Connection: close.*half/s);
  wire.send(request);
  await wire.taken();
  held[0]?.end('whole"');
  t.match(await wire.untilClosed(), /whole"\r\n0\r\n\r\n$/);
  t.equal(upstream.received.length, 1, "nobody would have learnt that it was");
  t.equal(await code, 0);
});

t.test("whoever had connected before the signal is let in and answered", async (t) => {
  const { gateway, token } = await scene(t, (_, response) => response.end("{}"));
  const { child } = gateway.service;
  const request = wireRequest("POST /query", queryHeaders(token), select);
  child.kill("SIGSTOP");
  const wires = await Promise.all(Array.from({ length: 20 }, () => Wire.open(gateway.url)));
  for (const wire of wires) wire.send(request);
  const code = gateway.service.stop();
  child.kill("SIGCONT");
  for (const wire of wires) t.match(await wire.untilClosed(), /^HTTP\/1\.1 200 /);
  t.equal(await code, 0);
});

t.test("answers that are cut at the end of the grace are in the audit", async (t) => {
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
  upstream.answer = (_, response) => response.write("half");
  const route = '[[routes]]\npath = "/live"\naccess = "public"\n';
  const config = `[server]\nshutdown_grace = 1\n${route}`;
  const { service, url } = await startGateway(t, { upstream: upstream.url, config });
  const wires = await Promise.all(Array.from({ length: 10 }, () => Wire.open(url)));
  for (const wire of wires) wire.send(wireRequest("GET /live", {}));
  for (const wire of wires) await wire.until(/half/);
  t.equal(await service.stop(), 0);
  const lines = service.log.filter(({ audit, path }) => audit && path === "/live");
  t.equal(lines.length, wires.length);
});
