import t, { type Test } from "tap";
import { eventually } from "../../kit/eventually.ts";
import { residentBytes } from "../../kit/process-info.ts";
import { query, selectAll } from "../kit.ts";
import { endOf, openRows, rowsAs } from "../streaming.ts";
import { sharedServer } from "./kit.ts";
import { startService } from "./service.ts";

const ndjson = "application/x-ndjson";
const rowCount = 100_000;
const megabyte = 1024 * 1024;

/** An engine over `main` with a table of 100,000 rows, 100 megabytes as an answer, and a view of it that fails. */
async function scene(t: Test, flags: readonly string[] = []) {
  const server = await sharedServer();
  const database = await server.createDatabase();
  await server.sql(
    `create schema main;
    create table main.items (id bigint primary key, text text not null);
    insert into main.items select id, repeat('x', 1000) from generate_series(1, ${rowCount}) as id;
    create view main.failing as select id, text, 1 / (90000 - id) as ratio from main.items`,
    database,
  );
  const { service, address } = await startService(t, server.url(database), {}, flags);
  await query(address, selectAll("items", { limit: 1 }));
  /** How many of the engine's queries the database is at work on. */
  const active = async (and = "true"): Promise<number> => {
    const rows = await server.sql(
      `select 1 from pg_stat_activity where datname = '${database}' and state = 'active'
        and pid <> pg_backend_pid() and backend_type = 'client backend' and ${and}`,
      database,
    );
    return rows.length;
  };
  const isWaiting = (more = "true") => active(`wait_event = 'ClientWrite' and ${more}`);
  return { server, database, address, active, isWaiting, pid: service.child.pid ?? 0 };
}

t.test("the server waits for clients that read slowly, and memory stays bounded", async (t) => {
  const { address, active, isWaiting, pid } = await scene(t);
  await (await openRows(address, selectAll("items", { limit: 5000 }), ndjson)).forEach(() => {});
  const before = residentBytes(pid);
  const responses = await Promise.all(
    [ndjson, "text/csv", ndjson, "text/csv"].map((accept) =>
      openRows(address, selectAll("items"), accept),
    ),
  );
  await eventually("all four wait", async () => (await isWaiting()) === 4);
  t.ok(residentBytes(pid) - before < 60 * megabyte, "of 400 MB that are asked for");
  const [first, second, ...others] = await Promise.all(responses.map(endOf));
  t.same(
    [first, second],
    [
      { isCut: false, lines: rowCount },
      { isCut: false, lines: rowCount + 1 },
    ],
  );
  t.same(others, [first, second]);
  t.ok(residentBytes(pid) - before < 200 * megabyte, "with what the collector has not taken yet");
  t.equal(await active(), 0);
});

t.test("a client may read for longer than a query may take in the database", async (t) => {
  const { address, isWaiting } = await scene(t, ["--statement-timeout", "1"]);
  const response = await openRows(address, selectAll("items"), ndjson);
  const long = "now() - query_start > interval '2.5 seconds'";
  await eventually("it has waited for long", async () => (await isWaiting(long)) === 1);
  t.same(await endOf(response), { isCut: false, lines: rowCount });
});

t.test("a failure after the head cuts the connection", async (t) => {
  const { server, database, address } = await scene(t);
  const failing = await openRows(address, selectAll("failing"), ndjson);
  t.equal(failing.statusCode, 200);
  const end = await endOf(failing);
  t.ok(end.isCut && end.lines < rowCount);
  const cut = await openRows(address, selectAll("items"), "text/csv");
  // It may have waited for a moment only.
  await eventually("it is ended while it waits", async () => {
    const ended = await server.sql(
      `select pg_terminate_backend(pid) from pg_stat_activity
        where datname = '${database}' and wait_event = 'ClientWrite'`,
      database,
    );
    return ended.length > 0;
  });
  t.equal((await endOf(cut)).isCut, true);
  const early = { where: { column: "id", cmp: "=", value: 90_000 } };
  t.match(await rowsAs(address, selectAll("failing", early), ndjson), {
    ...{ status: 400, type: "application/json" },
    text: /"code":"invalid_value"/,
  });
  t.equal((await rowsAs(address, selectAll("items", { limit: 2 }), ndjson)).status, 200);
});

t.test("a client that leaves takes its query along, and leaves room for others", async (t) => {
  const { address, active, isWaiting } = await scene(t);
  const responses = await Promise.all(
    Array.from({ length: 8 }, () => openRows(address, selectAll("items"), ndjson)),
  );
  await eventually("all wait", async () => (await isWaiting()) === 8);
  // They are half of all that may run at a time: more of them wait, and other queries pass by.
  const ninth = openRows(address, selectAll("items"), ndjson);
  t.match(await query(address, selectAll("items", { limit: 1 })), { status: 200 });
  t.equal(await active(), 8);
  for (const response of responses) response.destroy();
  t.same(await endOf(await ninth), { isCut: false, lines: rowCount });
  await eventually("the database is at rest", async () => (await active()) === 0);
});

t.test("a value may be longer than all that is read at a time", async (t) => {
  const { server, database, address } = await scene(t);
  await server.sql(
    `create table main.long (id bigint primary key, text text, more json);
    insert into main.long values (1, repeat('"é', 1000000), null), (2, '', '[1, 2]'), (3, null, 'null')`,
    database,
  );
  const order = { order_by: { column: "id" } };
  const long = '"é'.repeat(1_000_000);
  const { text } = await rowsAs(address, selectAll("long", order), ndjson);
  const rows = [
    { id: 1, text: long, more: null },
    { id: 2, text: "", more: [1, 2] },
  ];
  t.equal(
    text,
    `${[...rows, { id: 3, text: null, more: null }].map((row) => JSON.stringify(row)).join("\n")}\n`,
  );
  const csv = (await rowsAs(address, selectAll("long", order), "text/csv")).text;
  t.equal(csv, `id,text,more\r\n1,"${long.replaceAll('"', '""')}",\r\n2,"","[1,2]"\r\n3,,null\r\n`);
});
