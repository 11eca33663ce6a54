/** Large answers of servers: slow clients, clients that leave, and memory. */
import t, { type Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { residentBytes } from "../kit/process-info.ts";
import { endOf, openRows, query, rowsAs, selectAll } from "./kit.ts";
import { freshMysql, sharedServer as sharedMysql } from "./mysql/kit.ts";
import { sharedServer as sharedPostgres } from "./postgres/kit.ts";
import { startService } from "./postgres/service.ts";

const [ndjson, csv] = ["application/x-ndjson", "text/csv"];
const megabyte = 1024 * 1024;
/** Of 1,000 bytes, far more than the buffers of the connections hold. */
const POSTGRES_ROWS = 40_000;
const MYSQL_ROWS = 25_000;
const items = selectAll("items");

/** Creates `main` with a table of 1,000 bytes per row, and a view that fails. */
async function fillPostgres(): Promise<string> {
  const server = await sharedPostgres();
  const database = await server.createDatabase();
  await server.sql(
    `create schema main;
    create table main.items (id bigint primary key, text text not null);
    insert into main.items select id, repeat('x', 1000) from generate_series(1, ${POSTGRES_ROWS}) as id;
    create view main.failing as select id, text, 1 / (${POSTGRES_ROWS - 1000} - id) as ratio from main.items`,
    database,
  );
  return database;
}

type Keys = Readonly<Record<string, number>>;

async function onPostgres(test: Test, keys: Keys = {}) {
  const server = await sharedPostgres();
  const database = await filled;
  const sql = (words: string) => server.sql(words, database);
  const { service, address } = await startService(test, server.url(database), {}, keys);
  await query(address, selectAll("items", { limit: 1 }));
  const active = async (and = "true"): Promise<number> => {
    const rows = await sql(
      `select 1 from pg_stat_activity where datname = '${database}' and state = 'active'
        and pid <> pg_backend_pid() and backend_type = 'client backend' and ${and}`,
    );
    return rows.length;
  };
  const waiting = (more = "true") => active(`wait_event = 'ClientWrite' and ${more}`);
  const hasWaited = async () => (await waiting("now() - query_start > interval '2.5 s'")) === 1;
  const cut = async () => {
    const ended = await sql(
      `select pg_terminate_backend(pid) from pg_stat_activity
        where datname = '${database}' and wait_event = 'ClientWrite'`,
    );
    return ended.length > 0;
  };
  const pid = service.child.pid ?? 0;
  return { address, pid, rowCount: POSTGRES_ROWS, database, sql, active, waiting, hasWaited, cut };
}

async function onMysql(test: Test, keys: Keys = {}) {
  const server = await sharedMysql();
  await freshMysql(test);
  await server.sql(
    "create table main.items (id bigint primary key, text text not null)",
    `insert into main.items
      with recursive numbers as (select 1 as id union all select id + 1 from numbers where id < 1000)
      select 1000 * (a.id - 1) + b.id, repeat('x', 1000) from numbers as a, numbers as b where a.id <= ${MYSQL_ROWS / 1000}`,
  );
  const { service, address } = await startService(test, server.url, {}, keys);
  await query(address, selectAll("items", { limit: 1 }));
  const sending = () =>
    server.sql(
      "select id, time from information_schema.processlist where info like '%`items`%' and info not like '%processlist%'",
    );
  const active = async () => (await sending()).length;
  const hasWaited = async () => Number((await sending())[0]?.time) > 2;
  const cut = async () => {
    const [row] = await sending();
    if (row !== undefined) await server.sql(`kill ${row.id}`);
    return row !== undefined;
  };
  const pid = service.child.pid ?? 0;
  return { address, pid, rowCount: MYSQL_ROWS, active, waiting: active, hasWaited, cut };
}

const filled = fillPostgres();
/** For all tests without a time limit. */
const postgres = await onPostgres(t);
const scenes = [
  { name: "PostgreSQL", scene: onPostgres, unlimited: async () => postgres },
  { name: "MySQL", scene: onMysql, unlimited: onMysql },
];
for (const { name, scene, unlimited } of scenes) {
  t.test(`a client may read for longer than the time limit (${name})`, async (t) => {
    const { address, pid, rowCount, active, hasWaited } = await scene(t, { statement_timeout: 1 });
    await (await openRows(address, selectAll("items", { limit: 5000 }), ndjson)).forEach(() => {});
    const before = residentBytes(pid);
    const slow = await openRows(address, items, ndjson);
    await eventually("it has waited for longer", hasWaited);
    t.ok(residentBytes(pid) - before < 40 * megabyte);
    t.same(await endOf(slow), { isCut: false, lines: rowCount });
    t.same(await endOf(await openRows(address, items, csv)), { isCut: false, lines: rowCount + 1 });
    t.equal(await active(), 0);
  });

  t.test(`the server breaks an answer off, or a client leaves (${name})`, async (t) => {
    const { address, rowCount, waiting, active, cut } = await unlimited(t);
    const broken = await openRows(address, items, csv);
    await eventually("it is ended while it waits", cut);
    const end = await endOf(broken);
    t.ok(end.isCut && end.lines < rowCount, "a failure after the headers cuts the connection");
    t.equal((await rowsAs(address, selectAll("items", { limit: 2 }), ndjson)).status, 200);
    const left = await openRows(address, items, ndjson);
    await eventually("it waits", async () => (await waiting()) === 1);
    left.destroy();
    await eventually("its query has ended", async () => (await active()) === 0);
    t.same(await endOf(await openRows(address, items, ndjson)), { isCut: false, lines: rowCount });
  });
}

t.test("a query that fails halfway cuts the connection, one before its rows is 400", async (t) => {
  const { address, rowCount } = postgres;
  const failing = await openRows(address, selectAll("failing"), ndjson);
  t.equal(failing.statusCode, 200);
  const end = await endOf(failing);
  t.ok(end.isCut && end.lines < rowCount);
  const early = { where: { column: "id", cmp: "=", value: rowCount - 1000 } };
  t.match(await rowsAs(address, selectAll("failing", early), ndjson), {
    status: 400,
    type: "application/json",
    text: /"code":"invalid_value"/,
  });
});

t.test("streams take half of the slots and leave room for others", async (t) => {
  const { address, active, waiting, rowCount } = postgres;
  const responses = await Promise.all(
    Array.from({ length: 8 }, () => openRows(address, items, ndjson)),
  );
  await eventually("all wait", async () => (await waiting()) === 8);
  const ninth = openRows(address, items, ndjson);
  t.match(await query(address, selectAll("items", { limit: 1 })), { status: 200 });
  t.equal(await active(), 8);
  for (const response of responses) response.destroy();
  t.same(await endOf(await ninth), { isCut: false, lines: rowCount });
  await eventually("the database is at rest", async () => (await active()) === 0);
});

t.test("unread JSON of many rows holds little memory and no connection", async (t) => {
  const { address, pid, rowCount, database, sql } = postgres;
  const before = residentBytes(pid);
  let most = before;
  const timer = setInterval(() => {
    most = Math.max(most, residentBytes(pid));
  }, 5);
  t.teardown(() => clearInterval(timer));
  const responses = await Promise.all(
    Array.from({ length: 6 }, () => openRows(address, items, "application/json")),
  );
  // No client has read a byte, and the database is idle.
  const busy = `select 1 from pg_stat_activity where datname = '${database}' and state <> 'idle' and pid <> pg_backend_pid()`;
  t.same(await sql(busy), []);
  for (const [at, response] of responses.entries()) {
    let length = 0;
    let ids = 0;
    for await (const chunk of response) {
      length += chunk.length;
      if (at === 0) ids += String(chunk).split(`"id"`).length - 1;
    }
    t.equal(length, Number(response.headers["content-length"]));
    if (at === 0) t.ok(ids > rowCount * 0.99, "a key may lie across two chunks");
  }
  clearInterval(timer);
  t.ok(most - before < 150 * megabyte, `it took ${Math.round((most - before) / megabyte)} MB`);
});

t.test("a value may be longer than a chunk", async (t) => {
  const { sql, address } = postgres;
  await sql(
    `create table main.long (id bigint primary key, text text, more json);
    insert into main.long values (1, repeat('"é', 1000000), null), (2, '', '[1, 2]'), (3, null, 'null')`,
  );
  const order = { order_by: { column: "id" } };
  const long = '"é'.repeat(1_000_000);
  const rows = [
    { id: 1, text: long, more: null },
    { id: 2, text: "", more: [1, 2] },
    { id: 3, text: null, more: null },
  ];
  const lines = (await rowsAs(address, selectAll("long", order), ndjson)).text;
  t.equal(lines, rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
  const table = (await rowsAs(address, selectAll("long", order), csv)).text;
  t.equal(table, `id,text,more\r\n1,"${long.replaceAll('"', '""')}",\r\n2,"","[1,2]"\r\n3,,\r\n`);
});
