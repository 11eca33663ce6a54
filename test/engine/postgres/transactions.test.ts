import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import type { Test } from "tap";
import t from "tap";
import { eventually } from "../../kit/eventually.ts";
import { freePort } from "../../kit/free-port.ts";
import { SystemProgram } from "../../store/faults/program.ts";
import type { Teardown } from "../guarded.ts";
import {
  createTable,
  dropTable,
  equal,
  insert,
  query,
  refusal,
  remove,
  rowsAs,
  selectAll,
  update,
} from "../kit.ts";
import { giveToOwner } from "./binaries.ts";
import { countingProxy, freshPostgres, proxyTo, sharedServer, startOn } from "./kit.ts";

/** A table whose defaults show the settings that a change runs with. */
const table = `
  create table main.found (id int primary key,
    isolation text default current_setting('transaction_isolation'),
    zone text default current_setting('timezone'),
    time_limit text default current_setting('statement_timeout'))`;

for (const own of ["read committed", "serializable"]) {
  t.test(`a single change has the same settings on a server that is ${own}`, async (t) => {
    const { ask, database, url, sql } = await freshPostgres(t);
    await sql(table);
    await sql(`alter database ${database} set default_transaction_isolation = '${own}'`);
    await sql(`alter database ${database} set timezone = 'Asia/Tokyo'`);
    const { address } = await startOn(t, url, { queryTimeLimit: 7000 });
    const ids = [1, 2];
    for (const id of ids) {
      t.match(await query(address, insert("found", [{ id }])), { status: 200 });
    }
    const found = { isolation: "read committed", zone: "UTC", time_limit: "7s" };
    const rows = ids.map((id) => ({ id, ...found }));
    t.same((await ask(selectAll("found", { order_by: { column: "id" } }))).body.data, rows);
  });
}

t.test("a single change that fails leaves nothing, also at its commit", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  const words = "id int primary key, code int unique deferrable initially deferred";
  await sql(`create table main.items (${words})`);
  t.match(await ask(insert("items", [{ id: 1, code: 1 }])), { status: 200 });
  for (const id of [1, 2]) {
    t.match(await ask(insert("items", [{ id, code: 3 - id }])), { status: 409 });
    t.same((await ask(selectAll("items"))).body.data, [{ id: 1, code: 1 }]);
  }
  const change = update("items", { code: 3 }, equal("id", 1));
  t.match(await ask(change), { status: 200, body: { affected: 1 } });
  t.same((await ask(selectAll("items"))).body.data, [{ id: 1, code: 3 }]);
});

/** Starts PgBouncer with two server connections that transactions share. Undefined if it is absent. */
async function startPooler(t: Test): Promise<number | undefined> {
  const server = await sharedServer();
  const port = await freePort();
  const directory = mkdtempSync(path.join(tmpdir(), "gatehouse-pooler-"));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  const users = path.join(directory, "users.txt");
  writeFileSync(users, '"gatehouse" ""\n');
  const settings = path.join(directory, "pgbouncer.ini");
  writeFileSync(
    settings,
    `[databases]
* = host=127.0.0.1 port=${server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = trust
auth_file = ${users}
pool_mode = transaction
default_pool_size = 2
`,
  );
  giveToOwner(directory);
  giveToOwner(users);
  giveToOwner(settings);
  const program = SystemProgram.find(t, "pgbouncer", [settings]);
  program?.start();
  return program === undefined ? undefined : port;
}

t.test("with a transaction pooler, each transaction has its own settings", async (t) => {
  const port = await startPooler(t);
  if (port === undefined) {
    t.pass("this machine has no pgbouncer");
    return;
  }
  const { ask, database, sql } = await freshPostgres(t);
  await sql(table);
  await sql(`alter database ${database} set timezone = 'Asia/Tokyo'`);
  const url = `postgres://gatehouse@127.0.0.1:${port}/${database}`;
  const { address } = await startOn(t, url, { queryTimeLimit: 7000 });
  await eventually("it answers", async () => {
    return (await query(address, selectAll("found"))).status === 200;
  });
  const ids = Array.from({ length: 40 }, (_, at) => at);
  const answers = await Promise.all(
    ids.map((id) => {
      const change = insert("found", [{ id }]);
      return query(address, id % 2 === 0 ? change : { Batch: [change, selectAll("found")] });
    }),
  );
  t.same(new Set(answers.map(({ status }) => status)), new Set([200]));
  t.match(await query(address, insert("found", [{ id: 1 }])), { status: 409 });
  const found = { isolation: "read committed", zone: "UTC", time_limit: "7s" };
  const order = { order_by: { column: "id" } };
  t.match(
    (await ask(selectAll("found", order))).body.data,
    ids.map((id) => ({
      id,
      ...found,
      isolation: id % 2 === 0 ? "read committed" : "serializable",
    })),
  );
  const { text } = await rowsAs(address, selectAll("found", order), "application/x-ndjson");
  t.equal(text.split("\n").length, ids.length + 1);
  await sql(
    `create view main.seen as select current_setting('timezone') as zone,
      current_setting('default_transaction_read_only') as read_only`,
  );
  const seen = await query(address, selectAll("seen"));
  t.same(seen.body.data, [{ zone: "UTC", read_only: "off" }]);
  const timeouts = `select datname from pg_stat_activity where datname = '${database}'
    and state like 'idle in transaction%'`;
  t.same(await sql(timeouts), []);
});

t.test("a change does not run if its transaction could not begin", async (t) => {
  const { ask, database, sql } = await freshPostgres(t);
  await sql(table);
  const port = await proxyTo(t, (client, server) => {
    server.pipe(client);
    client.on("data", (bytes: Buffer) => {
      const at = bytes.indexOf("begin isolation");
      if (at >= 0) bytes.write("never", at);
      server.write(bytes);
    });
  });
  const engine = await startOn(t, `postgres://gatehouse@127.0.0.1:${port}/${database}`);
  for (const body of [insert("found", [{ id: 1 }]), { Batch: [insert("found", [{ id: 1 }])] }]) {
    t.not((await query(engine.address, body)).status, 200);
  }
  t.same((await ask(selectAll("found"))).body.data, []);
});

t.test("reads cannot write, nor changes if the database is read-only", async (t) => {
  const { ask, database, url, sql } = await freshPostgres(t);
  await sql(
    `${table};
  create function main.sly() returns int language sql as
    $$ insert into main.found (id) values (1) returning id $$;
  create view main.writing as select main.sly() as id`,
  );
  t.match(await ask(selectAll("writing")), { body: { code: "statement_failed" } });
  t.match(await ask(insert("found", [{ id: 2 }])), { status: 200 });
  await sql(`alter database ${database} set default_transaction_read_only = on`);
  const { address } = await startOn(t, url);
  t.match(await query(address, insert("found", [{ id: 3 }])), {
    body: { code: "storage_failed" },
  });
  t.match((await query(address, selectAll("found", { columns: ["id"] }))).body.data, [{ id: 2 }]);
});

t.test("a Select and an Insert take one round trip each once the table is known", async (t) => {
  const { ask, database, sql } = await freshPostgres(t);
  await ask(createTable("users", { id: "int", name: "text" }));
  const numbered =
    "create table main.numbered (id int generated by default as identity, name text)";
  await sql(numbered);
  const { port, count } = await countingProxy(t);
  const engine = await startOn(t, `postgres://gatehouse@127.0.0.1:${port}/${database}`);
  const tripsOf = async (body: object) => {
    const before = count();
    t.match(await query(engine.address, body), { status: 200 });
    return count() - before;
  };
  // The first opens the connection and reads the catalog.
  await tripsOf(selectAll("users"));
  // After a second, the catalog is read again.
  const least = async (body: (attempt: number) => object) => {
    let fewest = Number.POSITIVE_INFINITY;
    for (let attempt = 1; attempt <= 5; attempt += 1) {
      fewest = Math.min(fewest, await tripsOf(body(attempt)));
    }
    return fewest;
  };
  t.equal(await least(() => selectAll("users")), 1);
  t.equal(await least((id) => insert("users", [{ id, name: "Alice" }])), 1);
  t.equal(await least(() => insert("numbered", [{ name: "Alice" }])), 1);
});

t.test("a table that a Batch creates again is not confused with the old one", async (t) => {
  const { ask } = await freshPostgres(t);
  await ask(createTable("items", { id: "int", code: "text" }));
  await ask(insert("items", [{ id: 1, code: "a" }]));
  const again = createTable("items", { id: "serial", code: "text" });
  const Batch = [dropTable("items"), again, insert("items", [{ id: 1, code: "b" }])];
  t.match(await ask({ Batch }), { status: 200 });
  t.match(await ask(insert("items", [{ code: "c" }])), { status: 200 }, "gets the next number");
  t.same((await ask(selectAll("items"))).body.data, [
    { id: 1, code: "b" },
    { id: 2, code: "c" },
  ]);
});

t.test("a table that has just changed is read as it is now", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  await ask(createTable("items", { id: "int", code: "int" }));
  await ask(insert("items", [{ id: 1, code: 7 }]));
  const codes = selectAll("items", { columns: ["code"] });
  t.same((await ask(codes)).body.data, [{ code: 7 }]);

  await sql(`alter table main.items alter column code type text using code || ' "x", }'`);
  t.equal((await ask(codes)).text, String.raw`{"status":"success","data":[{"code":"7 \"x\", }"}]}`);
  const filtered = { columns: ["id"], where: { column: "code", cmp: "LIKE", value: "7%" } };
  t.same((await ask(selectAll("items", filtered))).body.data, [{ id: 1 }]);

  await sql("alter table main.items add column note text default 'new'");
  const notes = selectAll("items", { columns: ["note"] });
  t.same((await ask(notes)).body.data, [{ note: "new" }]);
  const added = insert("items", [{ id: 2, note: "two" }]);
  await sql("alter table main.items rename column note to remark");
  t.match(await ask(added), refusal(400, "unknown_column"));
  t.match(await ask(notes), refusal(400, "unknown_column"));

  await sql("drop table main.items");
  t.match(await ask(codes), refusal(404, "table_not_found"));
});

t.test("tables that the engine itself creates and drops are known at once", async (t) => {
  const { ask } = await freshPostgres(t);
  for (const type of ["int", "text", "bool"]) {
    await ask(createTable("items", { id: "int", value: type }));
    t.same((await ask(selectAll("items"))).body.data, []);
    const value = { int: 1, text: "one", bool: true }[type];
    t.match(await ask(insert("items", [{ id: 1, value }])), { status: 200 });
    t.same((await ask(selectAll("items"))).body.data, [{ id: 1, value }]);
    t.match(await ask(dropTable("items")), { status: 200 });
  }
});

t.test("changes to tables that are altered at the same time lose nothing", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  await ask(createTable("items", { id: "int", value: "int" }));
  let hasEnded = false;
  const altering = (async () => {
    for (let turn = 0; turn < 10; turn += 1) {
      const type = turn % 2 === 0 ? "text" : "int using value::int";
      await sql(`alter table main.items alter column value type ${type}`);
    }
    hasEnded = true;
  })();
  let inserted = 0;
  while (!hasEnded) {
    // Either form of the value may be wrong by now, but no other error is allowed.
    for (const value of [inserted, String(inserted)]) {
      const answer = await ask(insert("items", [{ id: inserted + 1, value }]));
      t.match(answer.status, /^(200|400|409|503)$/, answer.text);
      if (answer.status === 200) inserted += 1;
    }
    const read = await ask(selectAll("items", { order_by: { column: "id" } }));
    t.match(read.status, /^(200|503)$/, read.text);
    if (read.status === 200) t.equal(read.body.data?.length, inserted);
  }
  await altering;
});

t.test("a connection with many prepared statements is replaced", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  await ask(createTable("items", { id: "int" }));
  await sql("create view main.prepared as select count(*) from pg_catalog.pg_prepared_statements");
  const counts: number[] = [];
  for (let length = 1; length <= 110; length += 1) {
    const or = Array.from({ length }, (_, value) => ({ column: "id", cmp: "=", value }));
    t.match(await ask(selectAll("items", { where: { or } })), { status: 200 });
    const { text } = await ask(selectAll("prepared"));
    counts.push(Number(/"count":(\d+)/.exec(text)?.[1]));
  }
  const most = Math.max(...counts);
  t.ok(most > 50 && most <= 100, `${most} are prepared`);
  t.ok((counts.at(-1) ?? 0) < 50);
});

const removeUser = (id: number) => remove("users", equal("id", id));
const inserts = (ids: readonly number[]) => ids.map((id) => insert("users", [{ id }]));
const range = (first: number, count: number) =>
  Array.from({ length: count }, (_, at) => first + at);

/** An engine over a table, through a proxy that counts the round trips of a Batch. */
async function countedEngine(test: Teardown) {
  const { ask, database, sql } = await freshPostgres(test);
  await ask(createTable("users", { id: "int" }));
  const { port, count } = await countingProxy(test);
  const engine = await startOn(test, `postgres://gatehouse@127.0.0.1:${port}/${database}`);
  const trips = async (Batch: readonly object[]) => {
    // The first opens a connection, and may read the catalog.
    await query(engine.address, selectAll("users"));
    const before = count();
    const { status, body } = await query(engine.address, { Batch });
    return { status, body, trips: count() - before };
  };
  return { ask, sql, trips };
}

t.test("the changes of a Batch are sent together, with its commit", async (t) => {
  const { trips } = await countedEngine(t);
  const cases = [
    { fewest: 1, data: 10, batchOf: (id: number) => inserts(range(id, 10)) },
    {
      fewest: 1,
      data: 3,
      batchOf: (id: number) => [removeUser(id), ...inserts([id]), removeUser(id)],
    },
    { fewest: 3, data: 250, batchOf: (id: number) => inserts(range(id, 250)) },
    // Rows may need disk space, which is reserved before the commit.
    {
      fewest: 4,
      data: 4,
      batchOf: (id: number) => [...inserts([id, id + 1]), selectAll("users"), removeUser(id)],
    },
  ];
  for (const [index, { fewest, data, batchOf }] of cases.entries()) {
    const all: number[] = [];
    // After a second, the catalog is read again. On a busy machine, changes are sent in several turns.
    for (let attempt = 1; attempt <= 5 || (attempt <= 40 && !all.includes(fewest)); attempt++) {
      const answer = await trips(batchOf(100_000 * index + 1000 * attempt));
      t.match(answer, { status: 200, body: { data: { length: data } } });
      all.push(answer.trips);
    }
    t.equal(Math.min(...all), fewest);
  }
});

t.test("a Batch names its first failing element and leaves nothing", async (t) => {
  const { ask, trips } = await countedEngine(t);
  await ask(insert("users", [{ id: 5 }]));
  const unknown = insert("users", [{ nobody: 1 }]);
  const cases = [
    { Batch: inserts(range(1, 10)), element: 4, code: "constraint_violation" },
    { Batch: [...inserts([1, 5]), unknown], element: 1, code: "constraint_violation" },
    { Batch: [...inserts([1, 2]), unknown, ...inserts([5])], element: 2, code: "unknown_column" },
    { Batch: [...inserts([5]), selectAll("nothing")], element: 0, code: "constraint_violation" },
  ];
  for (const { Batch, element, code } of cases) {
    const message = new RegExp(`^Batch\\[${element}\\]: `);
    t.match((await trips(Batch)).body, { status: "error", code, message });
    t.same((await ask(selectAll("users"))).body.data, [{ id: 5 }]);
  }
});

t.test("a Batch that fails at its commit leaves nothing and names no element", async (t) => {
  const { ask, sql, trips } = await countedEngine(t);
  const deferred = "add constraint one unique (id) deferrable initially deferred";
  await sql(`alter table main.users drop constraint users_pkey, ${deferred}`);
  const message = /^Table users already has a row with this value/;
  t.match(await trips(inserts([1, 2, 1])), refusal(409, "constraint_violation", message));
  t.same((await ask(selectAll("users"))).body.data, []);
});

t.test("a table that a Batch creates or drops is known to its other elements", async (t) => {
  const { ask, trips } = await countedEngine(t);
  const items = createTable("items", { id: "int" });
  const rows = [1, 2].map((id) => insert("items", [{ id }]));
  t.match((await trips([items, ...rows])).status, 200);
  t.match((await trips([dropTable("items"), ...rows])).status, 404);
  t.match((await trips(rows)).status, 409);
  t.same((await ask(selectAll("items"))).body.data, [{ id: 1 }, { id: 2 }]);
});
