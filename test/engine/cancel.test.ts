/** Canceled queries, and conflicting batches. */
import t, { type Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import {
  type Answer,
  createTable,
  equal,
  insert,
  query,
  refusal,
  selectAll,
  sendOnly,
  update,
} from "./kit.ts";
import { freshMysql, sharedServer as sharedMysql } from "./mysql/kit.ts";
import { freshPostgres, sharedServer as sharedPostgres, startOn } from "./postgres/kit.ts";

/** `stuck` takes a minute for each row that is read, `slow` for each that is written. */
const scenes = {
  PostgreSQL: async (t: Test) => {
    const server = await sharedPostgres();
    const fresh = await freshPostgres(t);
    const { database } = fresh;
    await server.sql(
      `create view main.stuck as select 1 as id, pg_sleep(60)::text as pause;
      create function main.wait() returns trigger language plpgsql as
        $$ begin perform pg_sleep(60); return new; end $$;
      create table main.slow (id bigint primary key);
      create trigger wait before insert on main.slow for each row execute function main.wait()`,
      database,
    );
    const active = `select 1 from pg_stat_activity where datname = '${database}'
      and state = 'active' and pid <> pg_backend_pid() and backend_type = 'client backend'`;
    return {
      ...fresh,
      urls: [server.url(database), server.tlsUrl(database), server.socketUrl(database)] as const,
      active: async () => (await server.sql(active, database)).length,
    };
  },
  MySQL: async (t: Test) => {
    const server = await sharedMysql();
    const fresh = await freshMysql(t);
    await server.sql(
      "create view main.stuck as select 1 as id, sleep(60) as pause",
      "create table main.slow (id bigint primary key)",
      `create trigger main.wait before insert on main.slow for each row
        begin declare nothing int; select sleep(60) into nothing; end`,
    );
    const active = "select 1 from information_schema.processlist where state = 'User sleep'";
    return {
      ...fresh,
      urls: [server.url, server.tlsUrl, server.socketUrl] as const,
      active: async () => (await server.sql(active)).length,
    };
  },
};

for (const [name, scene] of Object.entries(scenes)) {
  t.test(`the query of a client that leaves ends, by each connection to ${name}`, async (t) => {
    const { ask, urls, active } = await scene(t);
    for (const url of urls) {
      const { address } = await startOn(t, url);
      const reading = await sendOnly(address, selectAll("stuck"));
      const writing = await sendOnly(address, insert("slow", [{ id: 1 }]));
      await eventually("both are under way", async () => (await active()) === 2);
      reading.destroy();
      writing.destroy();
      await eventually("both are ended", async () => (await active()) === 0);
      t.match(await query(address, selectAll("slow")), { status: 200 });
    }
    t.same((await ask(selectAll("slow"))).body.data, []);
  });

  t.test(`a query past the time limit is a 503 and leaves nothing (${name})`, async (t) => {
    const { ask, urls, active } = await scene(t);
    await ask(createTable("rows", { id: "int" }));
    const { address } = await startOn(t, urls[0], { queryTimeLimit: 500 });
    // The server has the same limit, and may be first to end the query.
    const timedOut = refusal(503, "query_timeout", /longer than 0.5 seconds|took too long/);
    t.match(await query(address, selectAll("stuck")), timedOut);
    const Batch = [insert("rows", [{ id: 1 }]), insert("slow", [{ id: 1 }])];
    t.match(await query(address, { Batch }), refusal(503, "query_timeout"));
    await eventually("neither is running", async () => (await active()) === 0);
    t.same((await ask(selectAll("rows"))).body.data, []);
  });
}

t.test("a waiting query runs in turn, unless its client leaves", async (t) => {
  const { engine, ask, active } = await scenes.PostgreSQL(t);
  await ask(createTable("rows", { id: "int" }));
  const stuck = await Promise.all(
    Array.from({ length: 16 }, () => sendOnly(engine.address, selectAll("stuck"))),
  );
  await eventually("all connections are taken", async () => (await active()) === 16);
  const left = await sendOnly(engine.address, insert("rows", [{ id: 1 }]));
  const waiting = ask(insert("rows", [{ id: 2 }]));
  left.destroy();
  stuck.pop()?.destroy();
  t.match(await waiting, { status: 200 });
  t.same((await ask(selectAll("rows"))).body.data, [{ id: 2 }]);
  for (const request of stuck) request.destroy();
});

const setCount = (id: number, count: number) => update("counts", { count }, equal("id", id));

async function fillCounts(ask: (body: object) => Promise<Answer>, ids: readonly number[]) {
  await ask(createTable("counts", { id: "int", count: "int" }));
  const rows = ids.map((id) => ({ id, count: 0 }));
  await ask(insert("counts", rows));
}

for (const [name, fresh] of Object.entries({ PostgreSQL: freshPostgres, MySQL: freshMysql })) {
  t.test(`conflicting batches are retried (${name})`, async (t) => {
    const { ask } = await fresh(t);
    const ids = [1, 2, 3, 4];
    await fillCounts(ask, ids);
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, round) => {
        const order = round % 2 === 0 ? ids : ids.toReversed();
        return ask({ Batch: [...order.map((id) => setCount(id, round)), selectAll("counts")] });
      }),
    );
    const done = answers.filter(({ status }) => status === 200);
    t.ok(done.length > answers.length / 2);
    for (const { status, body } of answers) {
      if (status !== 200) t.match([status, body.code], [503, "busy"]);
    }
    for (const { body } of done) {
      const rows = JSON.stringify(body.data?.at(-1));
      t.equal(new Set(rows.match(/"count":\d+/g)).size, 1, "each saw its own writes only");
    }
  });
}

t.test("after a deadlock, both batches run", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  await fillCounts(ask, [1, 2]);
  await sql(
    `create function main.slowly() returns trigger language plpgsql as
      $$ begin perform pg_sleep(0.2); return new; end $$;
    create trigger slowly after update on main.counts for each row execute function main.slowly()`,
  );
  const [first, second] = await Promise.all([
    ask({ Batch: [setCount(1, 10), setCount(2, 10)] }),
    ask({ Batch: [setCount(2, 20), setCount(1, 20)] }),
  ]);
  t.match([first.status, second.status], [200, 200]);
});
