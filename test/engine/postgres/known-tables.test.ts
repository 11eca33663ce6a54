import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import t from "tap";
import { createTable, insert, query, selectAll } from "../kit.ts";
import { freshPostgres, sharedServer, startOn } from "./kit.ts";

/** What the server says at the end of each round trip (PostgreSQL, "Message Formats", ReadyForQuery). */
const READY = Buffer.from([0x5a, 0, 0, 0, 5]);

/** A way to the shared server that counts its round trips. */
async function countedWay(test: {
  teardown(work: () => unknown): void;
}): Promise<{ port: number; count: () => number }> {
  const { port } = await sharedServer();
  let count = 0;
  const way = createServer((client) => {
    const server = connect(port, "127.0.0.1");
    client.on("error", () => server.destroy()).pipe(server);
    server.on("error", () => client.destroy()).pipe(client);
    server.on("data", (bytes: Buffer) => {
      for (let at = bytes.indexOf(READY); at >= 0; at = bytes.indexOf(READY, at + 1)) count += 1;
    });
  });
  way.listen(0, "127.0.0.1");
  await once(way, "listening");
  test.teardown(() => way.close());
  const { port: own } = way.address() as AddressInfo;
  return { port: own, count: () => count };
}

t.test("a Select and an Insert take one round trip each once the table is known", async (t) => {
  const { ask, database } = await freshPostgres(t);
  await ask(createTable("users", { id: "int", name: "text" }));
  const { port, count } = await countedWay(t);
  const engine = await startOn(t, `postgres://gatehouse@127.0.0.1:${port}/${database}`);
  const tripsOf = async (body: object) => {
    const before = count();
    t.match(await query(engine.address, body), { status: 200 });
    return count() - before;
  };
  // The first opens the connection and reads the catalog.
  await tripsOf(selectAll("users"));
  // A second goes by where the machine is busy, and the catalog is read again.
  const least = async (body: (attempt: number) => object) => {
    let fewest = Number.POSITIVE_INFINITY;
    for (let attempt = 1; attempt <= 5; attempt += 1) {
      fewest = Math.min(fewest, await tripsOf(body(attempt)));
    }
    return fewest;
  };
  t.equal(await least(() => selectAll("users")), 1);
  t.equal(await least((id) => insert("users", [{ id, name: "Alice" }])), 1);
});

t.test("a table that has changed a moment ago is not taken for what it was", async (t) => {
  const { ask, database } = await freshPostgres(t);
  const server = await sharedServer();
  await ask(createTable("items", { id: "int", code: "int" }));
  await ask(insert("items", [{ id: 1, code: 7 }]));
  const codes = selectAll("items", { columns: ["code"] });
  t.same((await ask(codes)).body.data, [{ code: 7 }]);

  await server.sql(
    `alter table main.items alter column code type text using code || ' "x", }'`,
    database,
  );
  t.equal((await ask(codes)).text, String.raw`{"status":"success","data":[{"code":"7 \"x\", }"}]}`);
  const filtered = { columns: ["id"], where: { column: "code", cmp: "LIKE", value: "7%" } };
  t.same((await ask(selectAll("items", filtered))).body.data, [{ id: 1 }]);

  await server.sql("alter table main.items add column note text default 'new'", database);
  const notes = selectAll("items", { columns: ["note"] });
  t.same((await ask(notes)).body.data, [{ note: "new" }]);
  const added = { Insert: { database: "main", table: "items", values: [{ id: 2, note: "two" }] } };
  await server.sql("alter table main.items rename column note to remark", database);
  t.match(await ask(added), { status: 400, body: { code: "unknown_column" } });
  t.match(await ask(notes), { status: 400, body: { code: "unknown_column" } });

  await server.sql("drop table main.items", database);
  t.match(await ask(codes), { status: 404, body: { code: "table_not_found" } });
});

t.test("what the engine itself makes and drops is known at once", async (t) => {
  const { ask } = await freshPostgres(t);
  for (const type of ["int", "text", "bool"]) {
    await ask(createTable("items", { id: "int", value: type }));
    t.same((await ask(selectAll("items"))).body.data, []);
    const value = { int: 1, text: "one", bool: true }[type];
    t.match(await ask(insert("items", [{ id: 1, value }])), { status: 200 });
    t.same((await ask(selectAll("items"))).body.data, [{ id: 1, value }]);
    t.match(await ask({ DropTable: { database: "main", table: "items" } }), { status: 200 });
  }
});

t.test("changes at once to tables that are made anew all the time lose nothing", async (t) => {
  const { ask, database } = await freshPostgres(t);
  const server = await sharedServer();
  await ask(createTable("items", { id: "int", value: "int" }));
  let isOver = false;
  const altering = (async () => {
    for (let turn = 0; turn < 10; turn += 1) {
      const type = turn % 2 === 0 ? "text" : "int using value::int";
      await server.sql(`alter table main.items alter column value type ${type}`, database);
    }
    isOver = true;
  })();
  let inserted = 0;
  while (!isOver) {
    // Either form of the value may be wrong by now; nothing else may be said.
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

t.test("statements are prepared on a connection, and the oldest of many are left", async (t) => {
  const { ask, database } = await freshPostgres(t);
  await ask(createTable("items", { id: "int" }));
  const server = await sharedServer();
  await server.sql(
    "create view main.prepared as select count(*) from pg_catalog.pg_prepared_statements",
    database,
  );
  for (let length = 1; length <= 120; length += 1) {
    const or = Array.from({ length }, (_, value) => ({ column: "id", cmp: "=", value }));
    t.match(await ask(selectAll("items", { where: { or } })), { status: 200 });
  }
  const { text } = await ask(selectAll("prepared"));
  const count = Number(/"count":(\d+)/.exec(text)?.[1]);
  t.ok(count > 50 && count <= 110, `${count} are prepared`);
});
