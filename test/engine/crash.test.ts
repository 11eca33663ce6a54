/** Servers that are killed, and changes that end at their commit. */
import { mkdirSync, rmSync } from "node:fs";
import { createConnection } from "mysql2/promise";
import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { type Answer, createTable, insert, query, selectAll } from "./kit.ts";
import { startMysql } from "./mysql/server.ts";
import { freshPostgres, startOn, wayTo } from "./postgres/kit.ts";
import { startPostgres } from "./postgres/server.ts";
import { startService } from "./postgres/service.ts";
import { send } from "./stalled.ts";

type Test = Parameters<typeof startMysql>[0];

/** A server of the test's own, with a table `held`, whose commits hang; `waiting` counts them. */
const starts = {
  PostgreSQL: async (t: Test) => {
    const server = await startPostgres(t);
    const hold = () =>
      server.sql(`create schema if not exists main; create table main.held (id bigint primary key);
        create function main.wait() returns trigger language plpgsql as
          $$ begin perform pg_sleep(60); return new; end $$;
        create constraint trigger wait after insert on main.held deferrable initially deferred
          for each row execute function main.wait()`);
    const waiting = "select 1 from pg_stat_activity where wait_event = 'PgSleep'";
    return { server, url: server.url(), hold, waiting };
  },
  MySQL: async (t: Test) => {
    const server = await startMysql(t);
    const hold = async () => {
      await server.sql("create table main.held (id bigint primary key)");
      const holder = await createConnection({ host: "127.0.0.1", port: server.port, user: "root" });
      holder.on("error", () => {});
      t.teardown(() => holder.destroy());
      for (const stage of ["start", "flush", "block_ddl", "block_commit"]) {
        await holder.query(`backup stage ${stage}`);
      }
    };
    const waiting = "select 1 from information_schema.processlist where info = 'commit'";
    return { server, url: server.url, hold, waiting };
  },
};

for (const [name, start] of Object.entries(starts)) {
  t.test(`${name} that comes later, is killed and comes back`, async (t) => {
    const { server, url, hold, waiting } = await start(t);
    await server.stop();
    const { address } = await startOn(t, url);
    t.match(
      await query(address, selectAll("rows")),
      { status: 503, body: { code: "database_unavailable" } },
      "an engine that is started before the server waits for it",
    );
    await server.start();
    t.match(await query(address, selectAll("rows")), { status: 404 });

    await query(address, { CreateDatabase: { database: "main" } });
    await query(address, createTable("rows", { id: "serial", tag: "int" }));
    let tag = 0;
    let isOver = false;
    const answers = new Map<number, Answer>();
    const write = async (): Promise<void> => {
      while (!isOver) {
        tag += 1;
        const mine = tag;
        answers.set(mine, await query(address, { Batch: [insert("rows", [{ tag: mine }])] }));
      }
    };
    const writers = Array.from({ length: 8 }, write);
    const answeredWith = (status: number, since: number): Promise<void> =>
      eventually(`it answers with ${status}`, () =>
        [...answers].some(([at, answer]) => at > since && answer.status === status),
      );
    await answeredWith(200, 50);
    await server.crash();
    await answeredWith(503, tag);
    await server.start();
    await answeredWith(200, tag);
    isOver = true;
    await Promise.all(writers);
    const { body } = await query(address, selectAll("rows", { columns: ["tag"] }));
    const stored = (body.data ?? []).map((row) => Number(Object.values(row ?? {})[0]));
    const kept = new Set(stored);
    t.equal(kept.size, stored.length, "nothing is there twice");
    for (const [at, { status, body }] of answers) {
      if (status === 200) t.ok(kept.has(at), `${at} was acknowledged`);
      else if (body.code !== "outcome_unknown") {
        t.equal(body.code, "database_unavailable");
        t.notOk(kept.has(at), `${at} was not carried out`);
      }
    }

    await hold();
    await t.test("a change that ends at its commit has an unknown outcome", async (t) => {
      const changes = [
        insert("held", [{ id: 1 }]),
        { Batch: [insert("held", [{ id: 2 }]), insert("held", [{ id: 3 }])] },
      ];
      const wait = (count: number) =>
        eventually(`${count} commits wait`, async () => {
          return (await server.sql(waiting)).length === count;
        });
      const { service, address } = await startService(t, url);
      const requests = await Promise.all(changes.map((body) => send(address, body)));
      await wait(2);
      for (const request of requests) request.destroy();
      await wait(0);
      t.match(await query(address, selectAll("held")), { status: 200, body: { data: [] } });
      t.notMatch(service.output, /cannot be used/, "a client that leaves is no lost server");
      const limited = await startOn(t, url, { queryTimeLimit: 1000 });
      for (const body of changes) {
        t.match(await query(limited.address, body), {
          status: 503,
          body: { code: "outcome_unknown", message: /^The time limit of 1 seconds was reached/ },
        });
      }
      await wait(0);
      const answers = Promise.all(changes.map((body) => query(address, body)));
      await wait(2);
      await server.crash();
      for (const answer of await answers) {
        t.match(answer, {
          status: 503,
          body: { code: "outcome_unknown", message: /^The connection to the database was lost/ },
        });
      }
      await service.logged(({ msg }) => /cannot be used/.test(String(msg)));
    });
  });
}

t.test("a read that is under way when MySQL is killed is a 503", async (t) => {
  const server = await startMysql(t);
  const { address } = await startOn(t, server.url);
  await server.sql(
    "create database main",
    "create view main.stuck as select 1 as id, sleep(0) as pause union all select 2, sleep(60)",
  );
  const reading = query(address, selectAll("stuck"));
  const sleeping = "select 1 from information_schema.processlist where state = 'User sleep'";
  await eventually("it is under way", async () => (await server.sql(sleeping)).length === 1);
  await server.crash();
  t.match(await reading, { status: 503, body: { code: "database_unavailable" } });
});

t.test("a server that cannot write its temporary tables is not a lost server", async (t) => {
  const server = await startMysql(t);
  await server.sql("create database main", "create table main.rows (id bigint primary key)");
  const { service, address } = await startService(t, server.url);
  rmSync(server.temporary, { recursive: true });
  const Batch = [insert("rows", [{ id: 1 }])];
  t.match(await query(address, { Batch }), { status: 507, body: { code: "storage_failed" } });
  t.notMatch(service.output, /cannot be used/);
  mkdirSync(server.temporary);
  t.match(await query(address, { Batch }), { status: 200 });
});

t.test("a server that takes longer than a query may ends no start", async (t) => {
  let isSilent = true;
  const port = await wayTo(t, (client, server) => {
    if (!isSilent) client.pipe(server).pipe(client);
  });
  const url = `postgres://gatehouse@127.0.0.1:${port}/postgres`;
  const { address } = await startOn(t, url, { queryTimeLimit: 1000 });
  isSilent = false;
  await eventually("it is used once it answers", async () => {
    return (await query(address, selectAll("rows"))).status === 404;
  });
});

t.test("a query that its connection breaks under is not carried out on another one", async (t) => {
  const { ask, database } = await freshPostgres(t);
  await ask(createTable("items", { id: "int", code: "text" }));
  // The way breaks where it is told a certain value, as a server does that crashes by it.
  let broken = 0;
  const port = await wayTo(t, (client, server) => {
    server.pipe(client);
    client.on("data", (bytes: Buffer) => {
      if (!bytes.includes("poison")) return server.write(bytes);
      broken += 1;
      server.destroy();
      return client.destroy();
    });
  });
  const engine = await startOn(t, `postgres://gatehouse@127.0.0.1:${port}/${database}`);
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
