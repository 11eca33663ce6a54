import { existsSync, readFileSync, renameSync } from "node:fs";
import type { ServerResponse } from "node:http";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { ask } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway, TestGateway } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { Service } from "../kit/process.ts";
import { insert, queryHeaders, select } from "../kit/queries.ts";
import { type Answer, RecordingUpstream } from "../kit/upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { askUntilRefused, servedBy } from "./supervised.ts";

const LINGER_MS = 1000;

const atOnce: Answer = (_, response) => response.end("{}");

const shared = await new RecordingUpstream().listen(t);

async function scene(t: Test, answer?: Answer, config = "") {
  const upstream = await new RecordingUpstream().listen(t);
  const held: ServerResponse[] = [];
  upstream.answer = answer ?? ((_, response) => held.push(response));
  const gateway = await startGateway(t, { upstream: upstream.url, config });
  const token = await gateway.login();
  const request = (body: string) => wireRequest("POST /query", queryHeaders(token), body);

  async function sendQuery(body = select): Promise<Wire> {
    const wire = await Wire.open(gateway.url, t);
    const before = held.length;
    wire.send(request(body));
    await eventually("the query is in flight", () => held.length > before);
    return wire;
  }

  async function drain() {
    const code = gateway.service.stop();
    await eventually("new connections are refused", () => Wire.isRefused(gateway.url));
    return { code };
  }
  return { upstream, gateway, token, held, request, sendQuery, drain };
}

t.test("a drain finishes accepted requests and does not wait for idle connections", async (t) => {
  const { gateway, held, request, sendQuery, drain } = await scene(
    t,
    undefined,
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
  const { code } = await drain();
  await idle.untilClosed();
  await silent.untilClosed();
  // Another request on a connection with one in flight.
  asking.send(request(select));
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

t.test("requests that exceed the grace period are cut and audited", async (t) => {
  const route = '[[routes]]\npath = "/live"\naccess = "public"\n';
  const half: Answer = (_, response) => response.write("half");
  const { gateway } = await scene(t, half, `[server]\nshutdown_grace = 1\n${route}`);
  const wires = await Promise.all(Array.from({ length: 10 }, () => Wire.open(gateway.url)));
  for (const wire of wires) wire.send(wireRequest("GET /live", {}));
  for (const wire of wires) await wire.until(/half/);
  t.equal(await gateway.service.stop(), 0);
  for (const wire of wires) t.notMatch(await wire.untilClosed(), /\r\n0\r\n\r\n$/);
  const lines = gateway.service.log.filter(({ audit, path }) => audit && path === "/live");
  t.equal(lines.length, wires.length);
});

t.test("during the shutdown delay every worker serves", async (t) => {
  const config = "[server]\nworkers = 2\nshutdown_delay = 3600\n";
  const gateway = await startGateway(t, { upstream: shared.url, config });
  t.equal((await gateway.request("/readyz")).status, 200);
  gateway.service.child.kill("SIGTERM");
  await eventually("it is not ready", async () => {
    const { status, body } = await gateway.request("/readyz");
    return status === 503 && body.code === "shutting_down";
  });
  t.equal((await gateway.request("/healthz")).status, 200);
  t.match(await gateway.login(), /^ey/, "what is asked all the same is answered");
});

t.test("the gateway ends after the shutdown delay", async (t) => {
  const gateway = await startGateway(t, {
    upstream: shared.url,
    config: "[server]\nshutdown_delay = 1\n",
  });
  const start = performance.now();
  t.equal(await gateway.service.stop("SIGTERM"), 0);
  t.ok(performance.now() - start > 1000);
});

t.test("Ctrl-C skips the shutdown delay", async (t) => {
  const gateway = await startGateway(t, {
    upstream: shared.url,
    config: "[server]\nshutdown_delay = 3600\n",
  });
  t.equal(await gateway.service.stop("SIGINT"), 0);
});

const slowly: Answer = async (_, response) => {
  await delay(Math.random() * 60);
  response.end("{}");
};
const thinking = () => delay(250 + Math.random() * 100);
const loads = [
  ["clients that ask without a pause", 32, 200, slowly, undefined],
  ["clients that think between requests", 60, 120, atOnce, thinking],
] as const;
for (const [what, count, enough, answer, think] of loads) {
  t.test(`a drain answers every accepted request of ${what}`, async (t) => {
    const { upstream, gateway, token } = await scene(t, answer);
    const clients = Array.from({ length: count }, () => askUntilRefused(gateway, token, think));
    await eventually("they are at it", () => upstream.received.length > enough);
    t.equal(await gateway.service.stop(), 0);
    t.strictSame((await Promise.all(clients)).flat(), []);
  });
}

t.test("a drain waits for the rest of a request body and executes it", async (t) => {
  const { upstream, gateway, request, drain } = await scene(t, atOnce);
  const wire = await Wire.open(gateway.url);
  wire.send(request(insert).slice(0, -20));
  await gateway.request("/healthz");
  const { code } = await drain();
  await delay(2 * LINGER_MS);
  wire.send(request(insert).slice(-20));
  t.match(await wire.untilClosed(), /^HTTP\/1\.1 200 .*Connection: close/s);
  t.equal(upstream.received.length, 1);
  t.equal(await code, 0);
});

t.test("a request after an answer with Connection: close is not executed", async (t) => {
  const { upstream, held, request, sendQuery, drain } = await scene(t);
  const wire = await sendQuery(insert);
  const { code } = await drain();
  held[0]?.write('"half');
  await wire.until(/Connection: close.*half/s);
  wire.send(request(insert));
  await wire.taken();
  held[0]?.end('whole"');
  t.match(await wire.untilClosed(), /whole"\r\n0\r\n\r\n$/);
  t.equal(upstream.received.length, 1, "its result would have been lost");
  t.equal(await code, 0);
});

t.test("clients that connected before the signal are served", async (t) => {
  const { gateway, request } = await scene(t, atOnce);
  const { child } = gateway.service;
  child.kill("SIGSTOP");
  const wires = await Promise.all(Array.from({ length: 20 }, () => Wire.open(gateway.url)));
  for (const wire of wires) wire.send(request(select));
  const code = gateway.service.stop();
  child.kill("SIGCONT");
  for (const wire of wires) t.match(await wire.untilClosed(), /^HTTP\/1\.1 200 /);
  t.equal(await code, 0);
});

t.test("SIGHUP opens a new audit file after the old one was renamed", async (t) => {
  const config = '[audit]\nfile = "audit.log"\n';
  const gateway = await startGateway(t, { upstream: shared.url, config });
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

async function restartScene(
  t: Test,
  count: number,
  env: (home: string) => NodeJS.ProcessEnv = () => ({}),
) {
  const more = servedBy(count, { config: '[audit]\nfile = "audit.log"' });
  const first = await startGateway(t, { upstream: shared.url, ...more });
  const token = await first.login();
  await first.service.stop();
  const port = String(await freePort());
  const service = new Service(first.home, ["serve", "--port", port], env(first.home));
  t.teardown(() => service.stop("SIGKILL"));
  const gateway = new TestGateway(first.home, service, `http://127.0.0.1:${port}`);
  return { gateway, token };
}

async function untilHealthy({ url }: TestGateway): Promise<void> {
  for (;;) {
    const answer = await ask(`${url}/healthz`, {}).catch(() => undefined);
    if (answer?.status === 200) return;
  }
}

for (const count of [1, 4]) {
  const options = count === 1 ? {} : nightly;
  t.test(`SIGHUP during a start reopens the audit (${count} processes)`, options, async (t) => {
    const { gateway } = await restartScene(t, count);
    const audit = path.join(gateway.home, "audit.log");
    await untilHealthy(gateway);
    renameSync(audit, `${audit}.1`);
    gateway.service.child.kill("SIGHUP");
    await gateway.service.logged(({ msg }) => String(msg).startsWith("listening on"));
    await eventually("the audit goes on in a new file", () => existsSync(audit));
    t.equal((await gateway.request("/healthz")).status, 200);
    t.equal(await gateway.service.stop(), 0);
  });

  t.test(`SIGTERM during a start drains afterwards (${count} processes)`, options, async (t) => {
    const { gateway, token } = await restartScene(t, count);
    await untilHealthy(gateway);
    const clients = Array.from({ length: 8 }, () => askUntilRefused(gateway, token));
    const before = shared.received.length;
    await eventually("they are at it", () => shared.received.length > before);
    t.equal(await gateway.service.stop(), 0);
    t.strictSame((await Promise.all(clients)).flat(), [], "every query was answered");
  });
}

t.test("SIGHUP while the command is loading does not end it", async (t) => {
  const { gateway } = await restartScene(t, 1);
  await gateway.service.stop("SIGKILL");
  const signalling = `import { registerHooks } from "node:module";
    registerHooks({ load(url, context, next) {
      if (url.endsWith("/src/cli/cli.ts")) process.kill(process.pid, "SIGHUP");
      return next(url, context);
    } });`;
  const service = new Service(gateway.home, ["serve", "--port", String(await freePort())], {
    NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(signalling)}`,
  });
  t.teardown(() => service.stop("SIGKILL"));
  await service.logged(({ msg }) => String(msg).startsWith("listening on"));
  t.equal(await service.stop(), 0);
});

t.test("SIGHUP to the process group during the start ends no process", nightly, async (t) => {
  // The signal reaches the first three workers before their modules are loaded.
  const signalling = (home: string) => `import { mkdirSync } from "node:fs";
    for (let at = 1; at <= 3 && process.argv[1].includes("workers/program"); at++) {
      try { mkdirSync(${JSON.stringify(home)} + "/hit-" + at); } catch { continue; }
      process.kill(process.pid, "SIGHUP");
      break;
    }`;
  const { gateway } = await restartScene(t, 2, (home) => ({
    NODE_OPTIONS: `--import data:text/javascript;base64,${btoa(signalling(home))}`,
  }));
  await gateway.service.logged(({ msg }) => String(msg).startsWith("listening on"));
  for (const at of [1, 2, 3]) t.ok(existsSync(path.join(gateway.home, `hit-${at}`)));
  t.equal((await gateway.request("/healthz")).status, 200);
  t.equal(await gateway.service.stop(), 0);
});
