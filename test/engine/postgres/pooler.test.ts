import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import t, { type Test } from "tap";
import { eventually } from "../../kit/eventually.ts";
import { freePort } from "../../kit/free-port.ts";
import { SystemProgram } from "../../store/faults/program.ts";
import { insert, query, selectAll } from "../kit.ts";
import { rowsAs } from "../streaming.ts";
import { giveToOwner } from "./binaries.ts";
import { freshPostgres, sharedServer, startOn } from "./kit.ts";

/** A table whose defaults show the settings that a change runs with. */
const table = `
  create table main.found (id int primary key,
    isolation text default current_setting('transaction_isolation'),
    zone text default current_setting('timezone'),
    time_limit text default current_setting('statement_timeout'))`;

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

t.test("behind a pooler of transactions, each has its settings and leaves none", async (t) => {
  const port = await startPooler(t);
  if (port === undefined) {
    t.pass("this machine has no pgbouncer");
    return;
  }
  const { ask, database } = await freshPostgres(t);
  const server = await sharedServer();
  await server.sql(table, database);
  await server.sql(`alter database ${database} set timezone = 'Asia/Tokyo'`);
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
  await server.sql(
    `create view main.seen as select current_setting('timezone') as zone,
      current_setting('default_transaction_read_only') as read_only`,
    database,
  );
  const seen = await query(address, selectAll("seen"));
  t.same(seen.body.data, [{ zone: "UTC", read_only: "off" }]);
  const timeouts = `select datname from pg_stat_activity where datname = '${database}'
    and state like 'idle in transaction%'`;
  t.same(await server.sql(timeouts, database), []);
});

t.test("a change is not carried out if its transaction could not begin", async (t) => {
  const { ask, database } = await freshPostgres(t);
  await (await sharedServer()).sql(table, database);
  const { port } = await sharedServer();
  const way = createServer((client) => {
    const server = connect(port, "127.0.0.1");
    client.on("error", () => server.destroy());
    server.on("error", () => client.destroy()).pipe(client);
    client.on("data", (bytes: Buffer) => {
      const at = bytes.indexOf("begin isolation");
      if (at >= 0) bytes.write("never", at);
      server.write(bytes);
    });
  });
  way.listen(0, "127.0.0.1");
  await once(way, "listening");
  t.teardown(() => way.close());
  const { port: own } = way.address() as AddressInfo;
  const engine = await startOn(t, `postgres://gatehouse@127.0.0.1:${own}/${database}`);
  for (const body of [insert("found", [{ id: 1 }]), { Batch: [insert("found", [{ id: 1 }])] }]) {
    t.not((await query(engine.address, body)).status, 200);
  }
  t.same((await ask(selectAll("found"))).body.data, []);
});

t.test(
  "reads cannot write, and nothing can where the database is read-only by default",
  async (t) => {
    const { ask, database } = await freshPostgres(t);
    const server = await sharedServer();
    await server.sql(
      `${table};
    create function main.sly() returns int language sql as
      $$ insert into main.found (id) values (1) returning id $$;
    create view main.writing as select main.sly() as id`,
      database,
    );
    t.match(await ask(selectAll("writing")), { body: { code: "storage_failed" } });
    t.match(await ask(insert("found", [{ id: 2 }])), { status: 200 });
    await server.sql(`alter database ${database} set default_transaction_read_only = on`);
    const { address } = await startOn(t, server.url(database));
    t.match(await query(address, insert("found", [{ id: 3 }])), {
      body: { code: "storage_failed" },
    });
    t.match((await query(address, selectAll("found", { columns: ["id"] }))).body.data, [{ id: 2 }]);
  },
);
