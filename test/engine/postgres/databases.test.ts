import { Client } from "pg";
import t, { type Test } from "tap";
import { eventually } from "../../kit/eventually.ts";
import { type Answer, createTable, insert, query, selectAll, send } from "../kit.ts";
import { sharedServer, startOn } from "./kit.ts";
import { startService } from "./service.ts";

/** An engine whose databases are the server's. `home` is the database of its URL. */
async function scene(
  t: Test,
  { user = "gatehouse", queryTimeLimit }: { user?: string; queryTimeLimit?: number } = {},
) {
  const server = await sharedServer();
  const home = await server.createDatabase();
  const url = server.url(home).replace("gatehouse@", `${user}@`);
  const { address } = await startOn(t, url, { queryTimeLimit, databases: "databases" });
  const ask = (body: object): Promise<Answer> => query(address, body);
  const make = async (...names: string[]): Promise<void> => {
    for (const database of names) {
      t.match(await ask({ CreateDatabase: { database } }), { status: 200 }, database);
      t.match(await ask(createTable("rows", { id: "int" }, database)), { status: 200 });
    }
  };
  /** Counts connections of engines. */
  const connections = async (condition: string): Promise<number> => {
    const rows = await server.sql(
      `select 1 from pg_stat_activity where application_name = 'gatehouse' and ${condition}`,
    );
    return rows.length;
  };
  return { server, home, address, ask, make, connections };
}

function refused(t: Test, answer: Answer, status: number, code: string, message?: RegExp): void {
  t.match(answer, { status, body: { status: "error", code } });
  if (message !== undefined) t.match(answer.body.message, message);
}

const drop = (database: string) => ({ DropDatabase: { database } });
const create = (database: string) => ({ CreateDatabase: { database } });

t.test("a restarted server has all of its databases", async (t) => {
  const { server, ask, make } = await scene(t);
  await make("left", "right");
  await ask(insert("rows", [{ id: 1 }], "left"));
  const guest = new Client({ connectionString: server.url("template1") });
  guest.on("error", () => {});
  await guest.connect();
  const making = ask(create("late"));
  await eventually("PostgreSQL waits for the guest", async () => {
    const rows = await server.sql(`select 1 from pg_stat_activity
      where query like 'create database "late"' and state = 'active'`);
    return rows.length === 1;
  });
  await server.crash();
  refused(t, await making, 503, "outcome_unknown", /may or may not/);
  refused(t, await ask(selectAll("rows", {}, "left")), 503, "database_unavailable", /reached/);
  await server.start();
  t.same((await ask(selectAll("rows", {}, "left"))).body.data, [{ id: 1 }]);
  t.same((await ask(selectAll("rows", {}, "right"))).body.data, []);
});

// PostgreSQL waits five seconds for others to leave a database; other tests run in the meantime.
t.jobs = 6;

t.test("a database in use by others is not dropped", async (t) => {
  const { server, ask, make } = await scene(t);
  await make("busy");
  const other = new Client({ connectionString: server.url("busy") });
  await other.connect();
  refused(t, await ask(drop("busy")), 409, "database_in_use", /busy is in use/);
  t.match(await ask(selectAll("rows", {}, "busy")), { status: 200 });
  await other.end();
  t.match(await ask(drop("busy")), { status: 200 });
});

t.test("databases of the server are created, listed, filled and dropped", async (t) => {
  const { server, home, address, ask, make } = await scene(t);
  await make("shop", "Blog-1");
  t.match(await ask(insert("rows", [{ id: 1 }], "shop")), { status: 200 });
  t.match(await ask(insert("rows", [{ id: 2 }], home)), { status: 404 });
  t.same((await ask(selectAll("rows", {}, "shop"))).body.data, [{ id: 1 }]);
  t.same((await ask(selectAll("rows", {}, "Blog-1"))).body.data, []);
  t.same(await server.sql("select id from public.rows", "shop"), [{ id: "1" }]);

  const { text } = await send(address, { path: "/schema" });
  for (const name of ["shop", "Blog-1", home]) t.match(text, `"${name}"`);
  t.notMatch(text, /template|"postgres"/);
  const tables = await send(address, { path: "/schema/shop" });
  t.same(tables.body.data, { tables: ["rows"] });

  refused(t, await ask(create("SHOP")), 409, "database_exists", /shop/);
  refused(t, await ask(createTable("rows", { id: "int" }, "shop")), 409, "table_exists", /in shop/);
  refused(t, await ask(selectAll("none", {}, "shop")), 404, "table_not_found", /in shop/);
  t.match(await ask(drop("shop")), { status: 200, body: { message: "Database shop dropped" } });
  t.match(await ask(drop("Blog-1")), { status: 200 });
  for (const body of [drop("shop"), selectAll("rows", {}, "shop")]) {
    refused(t, await ask(body), 404, "database_not_found", /shop/);
  }
  refused(t, await send(address, { path: "/schema/shop" }), 404, "database_not_found");
});

t.test("all databases share one limit of connections", async (t) => {
  const server = await sharedServer();
  await server.sql("create role sharer superuser login");
  const { ask, make, connections } = await scene(t, { user: "sharer" });
  const names = ["a", "b", "c", "d", "e"];
  await make(...names);
  const read = (name = "") => ask(selectAll("rows", {}, name));

  let rounds = 0;
  let hasEnded = false;
  let most = 0;
  const watch = async (): Promise<void> => {
    while (!hasEnded) most = Math.max(most, await connections("usename = 'sharer'"));
  };
  const watching = watch();
  // On a busy machine, more rounds may be needed until so many are used at a time.
  for (; rounds === 0 || (rounds < 50 && most <= 8); rounds++) {
    await Promise.all(Array.from({ length: 40 }, () => read("a")));
    const first = rounds * 100;
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, at) =>
        ask(insert("rows", [{ id: first + at }], names[at % 5])),
      ),
    );
    t.ok(answers.every(({ status }) => status === 200));
  }
  hasEnded = true;
  await watching;
  // One is for the health check.
  t.ok(most > 8 && most <= 17, `at most ${most} connections`);
  for (const name of names) t.equal((await read(name)).body.data?.length, 20 * rounds, name);
});

t.test("a drop waits for the engine's own queries", async (t) => {
  const { server, ask, make, connections } = await scene(t);
  await make("ours");
  await server.sql("alter table rows add pause text default pg_sleep(0.5)::text", "ours");
  const writing = ask(insert("rows", [{ id: 1 }], "ours"));
  await eventually("it is running", async () => {
    const rows = await server.sql(
      "select 1 from pg_stat_activity where wait_event = 'PgSleep' and datname = 'ours'",
    );
    return rows.length === 1;
  });
  t.match(await ask(drop("ours")), { status: 200 });
  t.match(await writing, { status: 200 });
  t.equal(await connections("datname = 'ours'"), 0);
});

t.test("a database with objects that queries cannot create is not dropped", async (t) => {
  const { server, ask, make } = await scene(t);
  await make("rich");
  for (const [made, removed] of [
    ["create schema private", "drop schema private"],
    ["create view seen as select 1 as id", "drop view seen"],
    ["create function one() returns int language sql return 1", "drop function one()"],
  ] as const) {
    await server.sql(made, "rich");
    refused(t, await ask(drop("rich")), 409, "constraint_violation");
    await server.sql(removed, "rich");
  }
  t.match(await ask(selectAll("rows", {}, "rich")), { status: 200 });
  t.match(await ask(drop("rich")), { status: 200 });
});

t.test("a database that another program drops is not found", async (t) => {
  const { server, ask, make } = await scene(t);
  await make("gone");
  await server.sql("drop database gone with (force)");
  refused(t, await ask(insert("rows", [{ id: 1 }], "gone")), 404, "database_not_found");
  await make("gone");
  t.same((await ask(selectAll("rows", {}, "gone"))).body.data, []);
});

t.test("a query on any database is canceled after its time limit", async (t) => {
  const { server, home, ask } = await scene(t, { queryTimeLimit: 1000 });
  await server.sql("create view stuck as select pg_sleep(60)::text as pause", home);
  refused(t, await ask(selectAll("stuck", {}, home)), 503, "query_timeout");
  refused(t, await ask(selectAll("rows", {}, home)), 404, "table_not_found");
});

t.test("a missing privilege of the engine's database user is a 403", async (t) => {
  const { server, home, ask, make } = await scene(t);
  await make("closed");
  await server.sql("create role guest login; revoke connect on database closed from public");
  const url = server.url(home).replace("gatehouse@", "guest@");
  const { address } = await startOn(t, url, { databases: "databases" });
  const { data } = (await send(address, { path: "/schema" })).body;
  t.notMatch(JSON.stringify(data), /closed/);
  for (const body of [selectAll("rows", {}, "closed"), create("mine"), drop("closed")]) {
    refused(t, await query(address, body), 403, "permission_denied");
  }
  t.match(await ask(selectAll("rows", {}, "closed")), { status: 200 });
});

t.test("postgres_databases selects schemas or databases", async (t) => {
  const server = await sharedServer();
  const url = server.url(await server.createDatabase());
  for (const [kind, isOfServer] of Object.entries({ schemas: false, databases: true })) {
    const { address } = await startService(t, url, {}, { postgres_databases: kind });
    t.match(await query(address, create("flagged")), { status: 200 });
    const found = await server.sql("select 1 from pg_database where datname = 'flagged'");
    t.equal(found.length === 1, isOfServer, kind);
  }
});

t.test("the server's own databases are out of reach", async (t) => {
  const { server, home, ask } = await scene(t);
  await server.sql("create database locked allow_connections false");
  await server.sql("create database pattern is_template true");
  t.teardown(() => server.sql("alter database pattern is_template false"));
  for (const database of ["postgres", "template0", "template1", "Template1"]) {
    refused(t, await ask(selectAll("rows", {}, database)), 404, "database_not_found");
    refused(t, await ask(drop(database)), 404, "database_not_found");
    refused(t, await ask(create(database)), 400, "invalid_name");
  }
  refused(t, await ask(selectAll("rows", {}, "locked")), 404, "database_not_found");
  refused(t, await ask(drop("locked")), 404, "database_not_found");
  refused(t, await ask(drop("pattern")), 409, "database_protected");
  refused(t, await ask(drop(home)), 409, "database_protected");
  refused(t, await ask(create("x".repeat(64))), 400, "invalid_name");
});

t.test("a Batch over two databases is refused", async (t) => {
  const { ask, make } = await scene(t);
  await make("one", "two");
  const twice = [insert("rows", [{ id: 1 }], "one"), insert("rows", [{ id: 1 }], "one")];
  refused(t, await ask({ Batch: twice }), 409, "constraint_violation", /Batch\[1\]/);
  const over = [insert("rows", [{ id: 1 }], "one"), insert("rows", [{ id: 1 }], "two")];
  refused(t, await ask({ Batch: over }), 400, "batch_not_atomic", /Batch\[1\].* one and two/);
  const reads = [selectAll("rows", {}, "one"), selectAll("rows", {}, "two")];
  refused(t, await ask({ Batch: reads }), 400, "batch_not_atomic");
  for (const name of ["one", "two"]) {
    t.same((await ask(selectAll("rows", {}, name))).body.data, [], "nothing was changed");
  }
  const Batch = [insert("rows", [{ id: 1 }], "two"), selectAll("rows", {}, "two")];
  t.match(await ask({ Batch }), { status: 200, body: { data: [String, [{ id: 1 }]] } });
});
