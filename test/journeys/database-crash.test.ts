import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { startPostgres } from "../engine/postgres/server.ts";
import { startService } from "../engine/postgres/service.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { openSockets, residentBytes } from "../kit/process-info.ts";

const CLIENTS = 16;
const MEGABYTE = 1024 * 1024;

const create = {
  CreateTable: { database: "main", table: "rows", columns: [{ name: "tag", type: "int" }] },
};
const insertOf = (tag: number) => ({
  Insert: { database: "main", table: "rows", values: [{ tag }] },
});
const all = { Select: { database: "main", from: "rows", columns: ["tag"] } };

t.test("PostgreSQL is killed under load, and all is as before when it is back", async (t) => {
  const server = await startPostgres(t);
  const { service: engine, address } = await startService(t, server.url());
  const gateway = await startGateway(t, { upstream: address });
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
      outcomes.push({
        ...{ tag: mine, status, message: String(body.message) },
        at: performance.now(),
      });
      // Refusals come at once: without a pause they would be all that the machine does.
      if (status !== 200) await delay(5);
    }
  }
  const successes = () => outcomes.filter(({ status }) => status === 200).length;
  const writers = Array.from({ length: CLIENTS }, write);
  await eventually("writes succeed", () => successes() > 200);
  const pids = [gateway.service, engine].map(({ child }) => child.pid ?? 0);
  const sum = (of: (pid: number) => number) => pids.reduce((total, pid) => total + of(pid), 0);
  const held = () => ({ sockets: sum(openSockets), megabytes: sum(residentBytes) / MEGABYTE });
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
  // Pools may have grown by a few; hundreds of queries have failed meanwhile.
  t.ok(after.sockets <= before.sockets + 32, `${before.sockets} and then ${after.sockets} sockets`);
  // Two heaps that have just warmed up go on growing for a while.
  t.ok(
    after.megabytes < before.megabytes + 150,
    `${before.megabytes} and then ${after.megabytes} MB`,
  );
});
