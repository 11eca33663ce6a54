/** What monitors are told follows the database, and not the engine that stands before it. */
import { renameSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { startMysql } from "../engine/mysql/server.ts";
import { startPostgres } from "../engine/postgres/server.ts";
import { startService } from "../engine/postgres/service.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { fetchMetrics } from "../observe/exposition.ts";

const select = { Select: { database: "main", from: "t", columns: ["*"] } };

/** A gateway with metrics, and what monitors see of it. */
async function scene(t: Test, upstream?: string) {
  const metrics = `127.0.0.1:${await freePort()}`;
  const config = `[metrics]\nlisten = "${metrics}"\n`;
  const gateway = await startGateway(t, upstream === undefined ? { config } : { upstream, config });
  const token = await gateway.login();

  async function metric(sample: string): Promise<number> {
    const text = await fetchMetrics(metrics);
    const line = text.split("\n").find((line) => line.startsWith(`${sample} `));
    return Number(line?.slice(sample.length));
  }
  async function sees(what: string, status: number): Promise<void> {
    const up = status === 200 ? 1 : 0;
    await eventually(`${what}: ready ${status}`, async () => {
      const ready = await gateway.request("/readyz");
      return ready.status === status && (await metric("gatehouse_upstream_up")) === up;
    });
    t.pass(what);
  }
  return { gateway, token, metric, sees };
}

t.test("a start tells the log once if the database does not answer", async (t) => {
  const [silent, good] = await Promise.all([
    startGateway(t, { upstream: "http://127.0.0.1:1" }),
    startGateway(t),
  ]);
  const isWarning = ({ msg }: Record<string, unknown>) =>
    String(msg).startsWith("the upstream does not answer");
  t.match(await silent.service.logged(isWarning), { level: "warn", targets: ["127.0.0.1:1"] });
  t.equal((await good.request("/readyz")).status, 200);
  t.equal(silent.service.log.filter(isWarning).length, 1);
  t.notOk(good.service.log.some(isWarning));
});

t.test("readiness and metrics follow PostgreSQL behind the engine", async (t) => {
  const server = await startPostgres(t);
  const { address } = await startService(t, server.url());
  const { gateway, token, metric, sees } = await scene(t, address);
  await sees("it is there", 200);

  await server.crash();
  await sees("it is gone", 503);
  t.match((await gateway.request("/readyz")).body, { upstream: "down" });
  const errors = 'gatehouse_upstream_failures_total{kind="error"}';
  t.equal(await metric(errors), 0);
  t.equal((await gateway.query(select, token)).status, 503);
  t.equal(await metric(errors), 1, "what the second alert counts rises");

  await server.start();
  await sees("it is back", 200);
  server.signal("SIGSTOP");
  await sees("it has stopped answering", 503);
  server.signal("SIGCONT");
  await sees("it goes on", 200);
});

t.test("and MySQL", nightly, async (t) => {
  const server = await startMysql(t);
  const { address } = await startService(t, server.url);
  const { sees } = await scene(t, address);
  await sees("it is there", 200);
  await server.crash();
  await sees("it is gone", 503);
  await server.start();
  await sees("it is back", 200);
});

t.test("and the files of the embedded engine", async (t) => {
  const { gateway, sees } = await scene(t);
  await sees("they are there", 200);
  const data = path.join(gateway.home, "data");
  renameSync(data, `${data}.away`);
  await sees("they are gone", 503);
  renameSync(`${data}.away`, data);
  await sees("they are back", 200);
});
