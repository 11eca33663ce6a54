/** Killed servers, and changes that are interrupted in their commit. */
import { mkdirSync, rmSync } from "node:fs";
import { createConnection } from "mysql2/promise";
import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { nightly } from "../kit/nightly.ts";
import {
  type Answer,
  createDatabase,
  createTable,
  equal,
  insert,
  query,
  refusal,
  selectAll,
  sendOnly,
  update,
} from "./kit.ts";
import { isMariaDb, startMysql } from "./mysql/server.ts";
import { freshPostgres, proxyTo, startOn } from "./postgres/kit.ts";
import { startPostgres } from "./postgres/server.ts";
import { startService } from "./postgres/service.ts";

type Test = Parameters<typeof startMysql>[0];

/** A server of the test's own. `hold` creates a table `held` whose commits hang. */
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
  const options = name === "MySQL" ? nightly : {};
  t.test(
    `the engine survives that ${name} starts late, is killed and restarts`,
    options,
    async (t) => {
      const { server, url, hold, waiting } = await start(t);
      await server.stop();
      const { address } = await startOn(t, url);
      t.match(await query(address, selectAll("rows")), refusal(503, "database_unavailable"));
      await server.start();
      t.match(await query(address, selectAll("rows")), { status: 404 });

      await query(address, createDatabase("main"));
      await query(address, createTable("rows", { id: "serial", tag: "int" }));
      let tag = 0;
      let hasEnded = false;
      const answers = new Map<number, Answer>();
      const write = async (): Promise<void> => {
        while (!hasEnded) {
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
      hasEnded = true;
      await Promise.all(writers);
      const { body } = await query(address, selectAll("rows", { columns: ["tag"] }));
      const stored = (body.data ?? []).map((row) => Number(Object.values(row ?? {})[0]));
      const kept = new Set(stored);
      t.equal(kept.size, stored.length, "no row is stored twice");
      for (const [at, { status, body }] of answers) {
        if (status === 200) t.ok(kept.has(at), `${at} was acknowledged`);
        else if (body.code !== "outcome_unknown") {
          t.equal(body.code, "database_unavailable");
          t.notOk(kept.has(at), `${at} is not stored`);
        }
      }

      await hold();
      await t.test("a change interrupted in its commit has an unknown outcome", async (t) => {
        const changes = [
          insert("held", [{ id: 1 }]),
          { Batch: [insert("held", [{ id: 2 }]), insert("held", [{ id: 3 }])] },
        ];
        const wait = (count: number) =>
          eventually(`${count} commits wait`, async () => {
            return (await server.sql(waiting)).length === count;
          });
        const { service, address } = await startService(t, url);
        const requests = await Promise.all(changes.map((body) => sendOnly(address, body)));
        await wait(2);
        for (const request of requests) request.destroy();
        await wait(0);
        t.match(await query(address, selectAll("held")), { status: 200, body: { data: [] } });
        t.notMatch(
          service.output,
          /cannot be used/,
          "a client that leaves does not mean a lost server",
        );
        const limited = await startOn(t, url, { queryTimeLimit: 1000 });
        const unknown = (message: RegExp) => refusal(503, "outcome_unknown", message);
        for (const body of changes) {
          const answer = await query(limited.address, body);
          t.match(answer, unknown(/^The time limit of 1 seconds was reached/));
        }
        await wait(0);
        const answers = Promise.all(changes.map((body) => query(address, body)));
        await wait(2);
        await server.crash();
        for (const answer of await answers) {
          t.match(answer, unknown(/^The connection to the database was lost/));
        }
        await service.logged(({ msg }) => /cannot be used/.test(String(msg)));
      });
    },
  );
}

t.test("a read is a 503 when MySQL is killed", async (t) => {
  const server = await startMysql(t);
  const { address } = await startOn(t, server.url);
  await server.sql(
    "create database main",
    "create view main.stuck as select 1 as id, sleep(0) as pause union all select 2, sleep(60)",
  );
  const reading = query(address, selectAll("stuck"));
  const sleeping = "select 1 from information_schema.processlist where state = 'User sleep'";
  await eventually("it is running", async () => (await server.sql(sleeping)).length === 1);
  await server.crash();
  t.match(await reading, refusal(503, "database_unavailable"));
});

t.test("a server that cannot write its temporary tables is not a lost server", async (t) => {
  const server = await startMysql(t);
  await server.sql("create database main", "create table main.rows (id bigint primary key)");
  const { service, address } = await startService(t, server.url);
  rmSync(server.temporary, { recursive: true });
  const Batch = [insert("rows", [{ id: 1 }])];
  // MySQL needs no file for this.
  const failed = isMariaDb ? refusal(507, "storage_failed") : { status: 200 };
  t.match(await query(address, { Batch }), failed);
  t.notMatch(service.output, /cannot be used/);
  mkdirSync(server.temporary);
  t.match(await query(address, { Batch: [insert("rows", [{ id: 2 }])] }), { status: 200 });
});

t.test("a server slower than the time limit does not fail the start", async (t) => {
  let isSilent = true;
  const port = await proxyTo(t, (client, server) => {
    if (!isSilent) client.pipe(server).pipe(client);
  });
  const url = `postgres://gatehouse@127.0.0.1:${port}/postgres`;
  const { address } = await startOn(t, url, { queryTimeLimit: 1000 });
  isSilent = false;
  await eventually("it is used once it answers", async () => {
    return (await query(address, selectAll("rows"))).status === 404;
  });
});

t.test("a query whose connection breaks is not repeated on another", async (t) => {
  const { ask, database } = await freshPostgres(t);
  await ask(createTable("items", { id: "int", code: "text" }));
  // The proxy breaks at a certain value, like a server that crashes because of it.
  let broken = 0;
  const port = await proxyTo(t, (client, server) => {
    server.pipe(client);
    client.on("data", (bytes: Buffer) => {
      if (!bytes.includes("poison")) return server.write(bytes);
      broken += 1;
      server.destroy();
      return client.destroy();
    });
  });
  const engine = await startOn(t, `postgres://gatehouse@127.0.0.1:${port}/${database}`);
  const where = equal("code", "poison");
  for (const body of [
    selectAll("items", { where }),
    insert("items", [{ id: 1, code: "poison" }]),
    update("items", { code: "poison" }, where),
    { Batch: [insert("items", [{ id: 1, code: "poison" }])] },
  ]) {
    broken = 0;
    t.match(await query(engine.address, selectAll("items")), { status: 200 });
    // A change and its commit are sent together, so the server may have read both.
    const code = "Select" in body ? "database_unavailable" : "outcome_unknown";
    t.match(await query(engine.address, body), refusal(503, code));
    t.equal(broken, 1, JSON.stringify(body));
  }
});
