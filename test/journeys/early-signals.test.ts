import { existsSync, renameSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { ask } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway, TestGateway } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { Service } from "../kit/process.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { askUntilRefused } from "./load.ts";
import { servedBy } from "./supervised.ts";

const upstream = await new RecordingUpstream().listen();
t.teardown(() => upstream.close());

/** A home with a token for it, whose gateway has ended, and the gateway's next start. */
async function scene(
  t: Test,
  count: number,
  env: (home: string) => NodeJS.ProcessEnv = () => ({}),
) {
  const more = servedBy(count, { config: '[audit]\nfile = "audit.log"' });
  const first = await startGateway(t, { upstream: upstream.url, ...more });
  const token = await first.login();
  await first.service.stop();
  const port = String(await freePort());
  const service = new Service(first.home, ["serve", "--port", port], env(first.home));
  t.teardown(() => service.stop("SIGKILL"));
  const gateway = new TestGateway(first.home, service, `http://127.0.0.1:${port}`);
  return { gateway, token };
}

/** Resolves with the first good answer, long before the start is over. */
async function untilHealthy({ url }: TestGateway): Promise<void> {
  for (;;) {
    const answer = await ask(`${url}/healthz`, {}).catch(() => undefined);
    if (answer?.status === 200) return;
  }
}

for (const count of [1, 4]) {
  const options = count === 1 ? {} : nightly;
  t.test(
    `SIGHUP during a start ends nothing and is obeyed, with ${count} to serve`,
    options,
    async (t) => {
      const { gateway } = await scene(t, count);
      const audit = path.join(gateway.home, "audit.log");
      await untilHealthy(gateway);
      renameSync(audit, `${audit}.1`);
      gateway.service.child.kill("SIGHUP");
      await gateway.service.logged(({ msg }) => String(msg).startsWith("listening on"));
      await eventually("the audit goes on in a new file", () => existsSync(audit));
      t.equal((await gateway.request("/healthz")).status, 200);
      t.equal(await gateway.service.stop(), 0);
    },
  );

  t.test(
    `SIGTERM during a start drains once that is done, with ${count} to serve`,
    options,
    async (t) => {
      const { gateway, token } = await scene(t, count);
      await untilHealthy(gateway);
      const clients = Array.from({ length: 8 }, () => askUntilRefused(gateway, token));
      const before = upstream.received.length;
      await eventually("they are at it", () => upstream.received.length > before);
      t.equal(await gateway.service.stop(), 0);
      t.strictSame((await Promise.all(clients)).flat(), [], "every query was answered");
    },
  );
}

t.test("SIGHUP while the command is still being loaded ends nothing", async (t) => {
  const { gateway } = await scene(t, 1);
  await gateway.service.stop("SIGKILL");
  const signalling = `import { registerHooks } from "node:module";
    registerHooks({ load(url, context, next) {
      if (url.endsWith("/src/cli.ts")) process.kill(process.pid, "SIGHUP");
      return next(url, context);
    } });`;
  const service = new Service(gateway.home, ["serve", "--port", String(await freePort())], {
    NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(signalling)}`,
  });
  t.teardown(() => service.stop("SIGKILL"));
  await service.logged(({ msg }) => String(msg).startsWith("listening on"));
  t.equal(await service.stop(), 0);
});

t.test("a signal to the whole group during a start ends nothing", nightly, async (t) => {
  // The first three workers are hit before anything of theirs is loaded: two, and one in the place of one.
  const signalling = (home: string) => `import { mkdirSync } from "node:fs";
    for (let at = 1; at <= 3 && process.argv[1].includes("workers/program"); at++) {
      try { mkdirSync(${JSON.stringify(home)} + "/hit-" + at); } catch { continue; }
      process.kill(process.pid, "SIGHUP");
      break;
    }`;
  const { gateway } = await scene(t, 2, (home) => ({
    NODE_OPTIONS: `--import data:text/javascript;base64,${btoa(signalling(home))}`,
  }));
  await gateway.service.logged(({ msg }) => String(msg).startsWith("listening on"));
  for (const at of [1, 2, 3]) t.ok(existsSync(path.join(gateway.home, `hit-${at}`)));
  t.equal((await gateway.request("/healthz")).status, 200);
  t.equal(await gateway.service.stop(), 0);
});
