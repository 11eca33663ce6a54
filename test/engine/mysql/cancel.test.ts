import t, { type Test } from "tap";
import { eventually } from "../../kit/eventually.ts";
import { crossingBatches } from "../conflicts.ts";
import { createTable, insert, query, selectAll } from "../kit.ts";
import { startOn } from "../postgres/kit.ts";
import { send } from "../stalled.ts";
import { freshMysql, sharedServer } from "./kit.ts";

/** An engine with a table `stuck`, of which each row takes a minute to be read. */
async function scene(t: Test) {
  const server = await sharedServer();
  const fresh = await freshMysql(t);
  await server.sql(
    "create view main.stuck as select 1 as id, sleep(60) as pause",
    "create table main.slow (id bigint primary key)",
    `create trigger main.wait before insert on main.slow for each row
      begin declare nothing int; select sleep(60) into nothing; end`,
  );
  /** How many queries of the engine sleep in the server. */
  const active = async (): Promise<number> => {
    const rows = await server.sql(
      "select 1 from information_schema.processlist where state = 'User sleep'",
    );
    return rows.length;
  };
  return { ...fresh, server, active };
}

t.test("a client that leaves takes its query along, by every way to the server", async (t) => {
  const { ask, server, active } = await scene(t);
  for (const url of [server.url, server.tlsUrl, server.socketUrl]) {
    const { address } = await startOn(t, url);
    const reading = await send(address, selectAll("stuck"));
    const writing = await send(address, insert("slow", [{ id: 1 }]));
    await eventually("both are under way", async () => (await active()) === 2);
    reading.destroy();
    writing.destroy();
    await eventually("both are ended", async () => (await active()) === 0);
    t.match(await query(address, selectAll("slow")), { status: 200 });
  }
  t.same((await ask(selectAll("slow"))).body.data, []);
});

t.test("a query past the time limit is a 503, and nothing of it stays", async (t) => {
  const { ask, server, active } = await scene(t);
  await ask(createTable("rows", { id: "int" }));
  const { address } = await startOn(t, server.url, { queryTimeLimit: 500 });
  t.match(await query(address, selectAll("stuck")), {
    status: 503,
    body: { code: "query_timeout", message: /longer than 0.5 seconds/ },
  });
  const Batch = [insert("rows", [{ id: 1 }]), insert("slow", [{ id: 1 }])];
  t.match(await query(address, { Batch }), { status: 503, body: { code: "query_timeout" } });
  await eventually("nothing is left of them", async () => (await active()) === 0);
  t.same((await ask(selectAll("rows"))).body.data, []);
});

t.test("batches that lock each other out are tried again, one after another", async (t) => {
  const { ask } = await freshMysql(t);
  await crossingBatches(t, ask);
});

t.test("an answer of many rows is given whole, and rows that grow fit one packet", async (t) => {
  const { ask } = await freshMysql(t);
  await ask(createTable("items", { id: "int", text: "text" }));
  const rows = Array.from({ length: 8000 }, (_, id) => ({ id, text: "x".repeat(1000) }));
  t.match(await ask(insert("items", rows)), { body: { message: "Inserted 8000 rows" } });
  t.same((await ask(selectAll("items", { order_by: { column: "id" } }))).body.data, rows);
  const long = [{ id: -1, text: "y".repeat(17 * 2 ** 20) }];
  t.match(await ask(insert("items", long)), {
    status: 400,
    body: { code: "query_too_complex", message: /max_allowed_packet/ },
  });
});
