import { renameSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { startMysql } from "../engine/mysql/server.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { openSockets, residentBytes } from "../kit/process-info.ts";
import { fetchMetrics } from "../observe/exposition.ts";

const select = { Select: { database: "main", from: "t", columns: ["*"] } };

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

t.test("a start without the database logs one warning", async (t) => {
  const [silent, good] = await Promise.all([
    startGateway(t, { upstream: "http://127.0.0.1:1" }),
    startGateway(t),
  ]);
  const isWarning = ({ msg }: Record<string, unknown>) =>
    String(msg).startsWith("the upstream does not respond");
  t.match(await silent.service.logged(isWarning), { level: "warn", targets: ["127.0.0.1:1"] });
  t.equal((await good.request("/readyz")).status, 200);
  t.equal(silent.service.log.filter(isWarning).length, 1);
  t.notOk(good.service.log.some(isWarning));
});

t.test("readiness and metrics follow PostgreSQL behind the engine", async (t) => {
  const server = await sharedServer();
  const { gateway, token, metric, sees } = await scene(t, server.url());
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

t.test("readiness and metrics follow MySQL behind the engine", nightly, async (t) => {
  const server = await startMysql(t);
  const { sees } = await scene(t, server.url);
  await sees("it is there", 200);
  await server.crash();
  await sees("it is gone", 503);
  await server.start();
  await sees("it is back", 200);
});

t.test("readiness and metrics follow the files of the embedded engine", async (t) => {
  const { gateway, sees } = await scene(t);
  await sees("they are there", 200);
  const data = path.join(gateway.home, "data");
  renameSync(data, `${data}.away`);
  await sees("they are gone", 503);
  renameSync(`${data}.away`, data);
  await sees("they are back", 200);
});

const CLIENTS = 16;
const MEGABYTE = 1024 * 1024;

const create = {
  CreateTable: { database: "main", table: "rows", columns: [{ name: "tag", type: "int" }] },
};
const insertOf = (tag: number) => ({
  Insert: { database: "main", table: "rows", values: [{ tag }] },
});
const all = { Select: { database: "main", from: "rows", columns: ["tag"] } };

t.test("after PostgreSQL was killed under load, no acknowledged write is lost", async (t) => {
  const server = await sharedServer();
  const gateway = await startGateway(t, { upstream: server.url() });
  const token = await gateway.login();
  await gateway.query({ CreateDatabase: { database: "main" } }, token);
  t.match(await gateway.query(create, token), { status: 200 });

  let tag = 0;
  let isOver = false;
  const outcomes: { tag: number; status: number; message: string; at: number }[] = [];
  async function write(): Promise<void> {
    while (!isOver) {
      tag++;
      const mine = tag;
      const { status, body } = await gateway.query(insertOf(mine), token);
      outcomes.push({ tag: mine, status, message: String(body.message), at: performance.now() });
      // Refusals come at once and would use all processor time.
      if (status !== 200) await delay(5);
    }
  }
  const successes = () => outcomes.filter(({ status }) => status === 200).length;
  const writers = Array.from({ length: CLIENTS }, write);
  await eventually("writes succeed", () => successes() > 200);
  const pid = gateway.service.child.pid ?? 0;
  const held = () => ({ sockets: openSockets(pid), megabytes: residentBytes(pid) / MEGABYTE });
  const before = held();

  await server.crash();
  const gone = outcomes.length;
  await eventually("writes are answered", () => outcomes.length > gone + 200);
  await server.start();
  const back = performance.now();
  const later = () => outcomes.some(({ status, at }) => status === 200 && at > back);
  await eventually("a write succeeds", later);
  const known = successes();
  await eventually("writes succeed again", () => successes() > known + 200);
  isOver = true;
  await Promise.all(writers);

  const statuses = new Set(outcomes.map(({ status }) => status));
  t.ok(statuses.has(200) && statuses.has(503), "there were both");
  for (const status of statuses) t.ok([200, 502, 503].includes(status), `${status}`);

  const { body } = await gateway.query(all, token);
  const rows = Array.isArray(body.data) ? body.data : [];
  const stored: number[] = rows.map((row) => row.tag);
  t.equal(new Set(stored).size, stored.length, "nothing was carried out twice");
  const kept = new Set(stored);
  const lost = outcomes.filter((outcome) => outcome.status === 200 && !kept.has(outcome.tag));
  t.strictSame(lost, [], "nothing that was acknowledged is lost");
  const after = held();
  // Pools may have grown by a few connections.
  t.ok(after.sockets <= before.sockets + 32, `${before.sockets} and then ${after.sockets} sockets`);
  // Heaps keep growing for a while after the start.
  t.ok(
    after.megabytes < before.megabytes + 150,
    `${before.megabytes} and then ${after.megabytes} MB`,
  );
});
