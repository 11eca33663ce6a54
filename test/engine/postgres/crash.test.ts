import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import t from "tap";
import { eventually } from "../../kit/eventually.ts";
import { crashUnderLoad, endAtCommit, waitForServer } from "../crash.ts";
import { createTable, insert, query, selectAll } from "../kit.ts";
import { freshPostgres, sharedServer, startOn } from "./kit.ts";
import { startPostgres } from "./server.ts";

t.test("while PostgreSQL is killed and comes back, no query is carried out twice", async (t) => {
  const server = await startPostgres(t);
  const { address } = await startOn(t, server.url());
  await crashUnderLoad(t, server, address);
});

t.test("an engine that is started before PostgreSQL waits for it", async (t) => {
  const server = await startPostgres(t);
  await server.stop();
  const { address } = await startOn(t, server.url());
  await waitForServer(t, server, address);
});

t.test("a server that takes longer than a query may ends no start", async (t) => {
  const { port } = await sharedServer();
  let isSilent = true;
  const way = createServer((client) => {
    client.on("error", () => {});
    if (!isSilent) client.pipe(connect(port, "127.0.0.1").on("error", () => {})).pipe(client);
  });
  way.listen(0, "127.0.0.1");
  await once(way, "listening");
  t.teardown(() => way.close());
  const { port: own } = way.address() as AddressInfo;
  const url = `postgres://gatehouse@127.0.0.1:${own}/postgres`;
  const { address } = await startOn(t, url, { queryTimeLimit: 1000 });
  isSilent = false;
  await eventually("it is used once it answers", async () => {
    return (await query(address, selectAll("rows"))).status === 404;
  });
});

t.test("a query that its connection breaks under is not carried out on another one", async (t) => {
  const { ask, database } = await freshPostgres(t);
  await ask(createTable("items", { id: "int", code: "text" }));
  const { port } = await sharedServer();
  // The way breaks where it is told a certain value, as a server does that crashes by it.
  let broken = 0;
  const way = createServer((client) => {
    const server = connect(port, "127.0.0.1");
    client.on("error", () => server.destroy());
    server.on("error", () => client.destroy()).pipe(client);
    client.on("data", (bytes: Buffer) => {
      if (!bytes.includes("poison")) return server.write(bytes);
      broken += 1;
      server.destroy();
      return client.destroy();
    });
  });
  way.listen(0, "127.0.0.1");
  await once(way, "listening");
  t.teardown(() => way.close());
  const { port: own } = way.address() as AddressInfo;
  const engine = await startOn(t, `postgres://gatehouse@127.0.0.1:${own}/${database}`);
  const where = { column: "code", cmp: "=", value: "poison" };
  for (const body of [
    selectAll("items", { where }),
    insert("items", [{ id: 1, code: "poison" }]),
    { Update: { database: "main", table: "items", set: { code: "poison" }, where } },
    { Batch: [insert("items", [{ id: 1, code: "poison" }])] },
  ]) {
    broken = 0;
    t.match(await query(engine.address, selectAll("items")), { status: 200 });
    // A change and its commit go out together, so nobody can say whether the server has read them.
    const code = "Select" in body ? "database_unavailable" : "outcome_unknown";
    t.match(await query(engine.address, body), { status: 503, body: { code } });
    t.equal(broken, 1, JSON.stringify(body));
  }
});

t.test("a change that ends at its commit has an unknown outcome, and says why", async (t) => {
  const server = await startPostgres(t);
  await server.sql(`create schema main; create table main.held (id bigint primary key);
    create function main.wait() returns trigger language plpgsql as
      $$ begin perform pg_sleep(60); return new; end $$;
    create constraint trigger wait after insert on main.held deferrable initially deferred
      for each row execute function main.wait()`);
  const target = { url: server.url(), crash: () => server.crash(), start: () => server.start() };
  await endAtCommit(t, target, async () => {
    const words = "select 1 from pg_stat_activity where wait_event = 'PgSleep'";
    return (await server.sql(words)).length;
  });
});
