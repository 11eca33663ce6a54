import t, { type Test } from "tap";
import { eventually } from "../../kit/eventually.ts";
import { createTable, insert, query, selectAll } from "../kit.ts";
import { send } from "../stalled.ts";
import { freshPostgres, sharedServer, startOn } from "./kit.ts";

/** An engine with a table `stuck`, of which each row takes a minute to be read. */
async function scene(t: Test) {
  const server = await sharedServer();
  const fresh = await freshPostgres(t);
  await server.sql(
    `create view main.stuck as select 1 as id, pg_sleep(60)::text as pause;
    create function main.wait() returns trigger language plpgsql as
      $$ begin perform pg_sleep(60); return new; end $$;
    create table main.slow (id bigint primary key);
    create trigger wait before insert on main.slow for each row execute function main.wait()`,
    fresh.database,
  );
  /** How many queries of the engine are being carried out. */
  const active = async (): Promise<number> => {
    const rows = await server.sql(
      `select 1 from pg_stat_activity where datname = '${fresh.database}'
        and state = 'active' and pid <> pg_backend_pid() and backend_type = 'client backend'`,
      fresh.database,
    );
    return rows.length;
  };
  return { ...fresh, active };
}

t.test("a client that leaves takes its query along", async (t) => {
  const { engine, ask, active } = await scene(t);
  const reading = await send(engine.address, selectAll("stuck"));
  const writing = await send(engine.address, insert("slow", [{ id: 1 }]));
  await eventually("both are under way", async () => (await active()) === 2);
  reading.destroy();
  writing.destroy();
  await eventually("both are cancelled", async () => (await active()) === 0);
  t.same((await ask(selectAll("slow"))).body.data, []);
});

t.test("a query is cancelled over TLS and over a Unix socket too", async (t) => {
  const { ask, database, active } = await scene(t);
  const server = await sharedServer();
  await ask(selectAll("slow"));
  for (const url of [server.tlsUrl(database), server.socketUrl(database)]) {
    const { address } = await startOn(t, url);
    const reading = await send(address, selectAll("stuck"));
    await eventually("it is under way", async () => (await active()) === 1);
    reading.destroy();
    await eventually("it is cancelled", async () => (await active()) === 0);
    t.match(await query(address, selectAll("slow")), { status: 200 });
  }
});

t.test("a query past the time limit is a 503, and nothing of it stays", async (t) => {
  const { ask, active, database } = await scene(t);
  await ask(createTable("rows", { id: "int" }));
  const url = (await sharedServer()).url(database);
  const { address } = await startOn(t, url, { queryTimeLimit: 1000 });
  t.match(await query(address, selectAll("stuck")), {
    status: 503,
    body: { code: "query_timeout", message: /longer than 1 seconds/ },
  });
  const Batch = [insert("rows", [{ id: 1 }]), insert("slow", [{ id: 1 }])];
  t.match(await query(address, { Batch }), { status: 503, body: { code: "query_timeout" } });
  await eventually("nothing is left of them", async () => (await active()) === 0);
  t.same((await ask(selectAll("rows"))).body.data, []);
});

t.test("who waits for a connection is served in turn, and forgotten when it leaves", async (t) => {
  const { engine, ask, active } = await scene(t);
  await ask(createTable("rows", { id: "int" }));
  const stuck = await Promise.all(
    Array.from({ length: 16 }, () => send(engine.address, selectAll("stuck"))),
  );
  await eventually("all connections are taken", async () => (await active()) === 16);
  const left = await send(engine.address, insert("rows", [{ id: 1 }]));
  const waiting = ask(insert("rows", [{ id: 2 }]));
  left.destroy();
  stuck.pop()?.destroy();
  t.match(await waiting, { status: 200 });
  t.same((await ask(selectAll("rows"))).body.data, [{ id: 2 }]);
  for (const request of stuck) request.destroy();
});
