import t, { type Test } from "tap";
import { eventually } from "../../kit/eventually.ts";
import { residentBytes } from "../../kit/process-info.ts";
import { query, selectAll } from "../kit.ts";
import { startService } from "../postgres/service.ts";
import { endOf, openRows, rowsAs } from "../streaming.ts";
import { freshMysql, sharedServer } from "./kit.ts";

const ndjson = "application/x-ndjson";
const rowCount = 50_000;
const megabyte = 1024 * 1024;

/** An engine over `main` with a table of 50,000 rows, 50 megabytes as an answer. */
async function scene(t: Test, flags: readonly string[] = []) {
  const server = await sharedServer();
  await freshMysql(t);
  await server.sql(
    "create table main.items (id bigint primary key, text text not null)",
    `insert into main.items
      with recursive numbers as (select 1 as id union all select id + 1 from numbers where id < 1000)
      select 1000 * (a.id - 1) + b.id, repeat('x', 1000) from numbers as a, numbers as b where a.id <= 50`,
  );
  const { service, address } = await startService(t, server.url, {}, flags);
  await query(address, selectAll("items", { limit: 1 }));
  /** The connections on which rows are being sent. */
  const sending = () =>
    server.sql(
      "select id, time_ms from information_schema.processlist where info like '%`items`%' and info not like '%processlist%'",
    );
  return { server, address, sending, pid: service.child.pid ?? 0 };
}

t.test("the server waits for a client that reads slowly, and memory stays bounded", async (t) => {
  const { address, sending, pid } = await scene(t, ["--statement-timeout", "1"]);
  await (await openRows(address, selectAll("items", { limit: 5000 }), ndjson)).forEach(() => {});
  const before = residentBytes(pid);
  const slow = await openRows(address, selectAll("items"), ndjson);
  await eventually("it waits for longer than a query may take", async () => {
    const [row] = await sending();
    return Number(row?.time_ms) > 2500;
  });
  t.ok(residentBytes(pid) - before < 40 * megabyte);
  t.same(await endOf(slow), { isCut: false, lines: rowCount });
  const csv = await openRows(address, selectAll("items"), "text/csv");
  t.same(await endOf(csv), { isCut: false, lines: rowCount + 1 });
  t.same(await sending(), []);
});

t.test("a failure after the head cuts the connection", async (t) => {
  const { server, address, sending } = await scene(t);
  const cut = await openRows(address, selectAll("items"), ndjson);
  const [row] = await sending();
  await server.sql(`kill ${row?.id}`);
  const end = await endOf(cut);
  t.ok(end.isCut && end.lines < rowCount);
  t.equal((await rowsAs(address, selectAll("items", { limit: 2 }), ndjson)).status, 200);
});

t.test("a client that leaves takes its query along", async (t) => {
  const { address, sending } = await scene(t);
  const left = await openRows(address, selectAll("items"), ndjson);
  t.equal((await sending()).length, 1);
  left.destroy();
  await eventually("it is ended", async () => (await sending()).length === 0);
  t.same(await endOf(await openRows(address, selectAll("items"), ndjson)), {
    ...{ isCut: false, lines: rowCount },
  });
});
