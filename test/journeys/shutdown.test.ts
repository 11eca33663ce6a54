import { existsSync, readFileSync, renameSync } from "node:fs";
import type { ServerResponse } from "node:http";
import path from "node:path";
import t, { type Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { queryHeaders, select } from "../kit/queries.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";

/** A gateway before an upstream that holds its answers until a test gives them. */
async function scene(t: Test, config = "") {
  const upstream = await new RecordingUpstream().listen();
  const held: ServerResponse[] = [];
  upstream.answer = (_, response) => held.push(response);
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { upstream: upstream.url, config });
  const headers = queryHeaders(await gateway.login());
  const { service } = gateway;

  /** Sends a query and resolves when it is with the upstream. */
  async function sendQuery(): Promise<Wire> {
    const wire = await Wire.open(gateway.url);
    t.teardown(() => wire.cut());
    const before = held.length;
    wire.send(wireRequest("POST /query", headers, select));
    await eventually("the query is in flight", () => held.length > before);
    return wire;
  }

  /** Asks the gateway to end; resolves to the exit code when it has. */
  async function stop(signal: NodeJS.Signals = "SIGTERM") {
    const code = service.stop(signal);
    await service.logged(({ msg }) => String(msg).startsWith("draining"));
    return { code };
  }
  return { gateway, held, headers, sendQuery, stop };
}

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  t.test(`on ${signal} the request in flight is answered, and no other is taken`, async (t) => {
    const { gateway, held, sendQuery, stop } = await scene(t);
    const wire = await sendQuery();
    const { code } = await stop(signal);
    await eventually("new connections are refused", () => Wire.isRefused(gateway.url));
    held[0]?.end('{"late":true}');
    const answer = await wire.untilClosed();
    t.match(answer, /^HTTP\/1\.1 200 .*\{"late":true\}/s);
    t.match(answer, /^Connection: close/m);
    t.equal(await code, 0);
  });
}

t.test("connections that are idle or silent do not hold the gateway up", async (t) => {
  const { gateway, held, headers, sendQuery, stop } = await scene(
    t,
    "[server]\nshutdown_grace = 600\n",
  );
  const idle = await Wire.open(gateway.url);
  idle.send(wireRequest("GET /healthz", {}));
  await idle.until(/"status":"success"/);
  const silent = await Wire.open(gateway.url);
  const begun = await sendQuery();
  held[0]?.write("half");
  await begun.until(/^Connection: keep-alive.*half/ms);
  const asking = await sendQuery();

  const { code } = await stop();
  await idle.untilClosed();
  await silent.untilClosed();
  // A request that comes on a connection which still has one in flight.
  asking.send(wireRequest("POST /query", headers, select));
  await asking.taken();
  held[0]?.end("whole");
  t.match(await begun.untilClosed(), /whole\r\n0\r\n\r\n$/, "an answer half out is finished");
  held[1]?.end('"first"');
  await eventually("the next is in flight", () => held.length === 3);
  held[2]?.end('"second"');
  const answers = await asking.untilClosed();
  t.match(answers, /Connection: keep-alive.*"first".*Connection: close.*"second"$/s);
  t.equal(await code, 0);
});

t.test("what is left after the grace is cut, and the exit is still clean", async (t) => {
  const { held, sendQuery, stop } = await scene(t, "[server]\nshutdown_grace = 1\n");
  const wire = await sendQuery();
  held[0]?.write("half");
  await wire.until(/half/);
  const { code } = await stop();
  t.notMatch(await wire.untilClosed(), /\r\n0\r\n\r\n$/);
  t.equal(await code, 0);
});

t.test("SIGHUP goes on in a new audit file after the old one was moved away", async (t) => {
  const { gateway } = await scene(t, '[audit]\nfile = "audit.log"\n');
  const file = path.join(gateway.home, "audit.log");
  const moved = path.join(gateway.home, "audit.log.1");
  const holds = (name: string, text: string) =>
    existsSync(name) && readFileSync(name, "utf8").includes(text);

  await gateway.request("/api/me");
  await eventually("the first line", () => holds(file, "/api/me"));
  renameSync(file, moved);
  gateway.service.child.kill("SIGHUP");
  await eventually("a new file", () => existsSync(file));
  await gateway.request("/api/users");
  await eventually("the second line", () => holds(file, "/api/users"));
  t.notOk(holds(moved, "/api/users"));
  t.notOk(holds(file, "/api/me"));
  for (const line of readFileSync(file, "utf8").trim().split("\n")) JSON.parse(line);
  t.equal((await gateway.request("/healthz")).status, 200, "the signal ended nothing");
});

for (const workers of [1, 2]) {
  t.test(`before its end it is not ready, and goes on, with ${workers} processes`, async (t) => {
    const delays = `[server]\nworkers = ${workers}\nshutdown_delay = 3600\n`;
    const gateway = await startGateway(t, { config: delays });
    t.equal((await gateway.request("/readyz")).status, 200);
    gateway.service.child.kill("SIGTERM");
    await eventually("it is not ready", async () => {
      const { status, body } = await gateway.request("/readyz");
      return status === 503 && body.code === "shutting_down";
    });
    t.equal((await gateway.request("/healthz")).status, 200);
    t.match(await gateway.login(), /^ey/, "what is asked all the same is answered");
  });
}

t.test("it ends when the delay is over", async (t) => {
  const gateway = await startGateway(t, { config: "[server]\nshutdown_delay = 1\n" });
  const start = performance.now();
  t.equal(await gateway.service.stop("SIGTERM"), 0);
  t.ok(performance.now() - start > 1000);
});

t.test("a Ctrl-C waits for nobody to notice", async (t) => {
  const gateway = await startGateway(t, { config: "[server]\nshutdown_delay = 3600\n" });
  t.equal(await gateway.service.stop("SIGINT"), 0);
});
