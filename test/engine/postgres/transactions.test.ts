import { writeFileSync } from "node:fs";
import path from "node:path";
import { Client } from "pg";
import t, { type Test } from "tap";
import { eventually } from "../../kit/eventually.ts";
import { startGateway, temporaryHome } from "../../kit/gateway.ts";
import { longestTurn, measuredEnvironment } from "../../kit/loop-time.ts";
import { sampled } from "../../kit/nightly.ts";
import type { Teardown } from "../guarded.ts";
import {
  type Answer,
  createTable,
  dropTable,
  equal,
  insert,
  query,
  refusal,
  remove,
  rowsAs,
  selectAll,
  send,
  update,
} from "../kit.ts";
import { isNewest } from "./binaries.ts";
import { countingProxy, freshPostgres, proxyTo, sharedServer, startOn } from "./kit.ts";
import { startPooler } from "./pooler.ts";
import { startPostgres } from "./server.ts";
import { startService } from "./service.ts";

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

t.test("with a transaction pooler, each transaction has its own settings", async (t) => {
  const { port } = await sharedServer();
  const pooler = await startPooler(t, port, "default_pool_size = 2");
  if (pooler === undefined) {
    t.pass("this machine has no pgbouncer");
    return;
  }
  const { ask, database, sql } = await freshPostgres(t);
  await sql(table);
  await sql(`alter database ${database} set timezone = 'Asia/Tokyo'`);
  const url = `postgres://gatehouse@127.0.0.1:${pooler.port}/${database}`;
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
  // The answer to a Select does not wait for the end of its transaction.
  await eventually("no transaction stays open", async () => (await sql(timeouts)).length === 0);
  const other = await startPooler(t, port, "pool_mode = statement");
  await eventually("a pooler of statements is refused at the start", async () => {
    const start = startOn(t, `postgres://gatehouse@127.0.0.1:${other?.port}/${database}`);
    return start.then(
      () => false,
      (error) => /statement pooling mode/.test(String(error)),
    );
  });
});

t.test("a standby is a read-only database, and a time limit of the server is one", async (t) => {
  const server = await startPostgres(t);
  await server.sql(
    "create table items (id int primary key); create view late as select 1 as id, pg_sleep(9)::text",
  );
  if (isNewest) await server.sql("alter system set transaction_timeout = '100ms'");
  const [{ data_directory: directory } = {}] = await server.sql("show data_directory");
  await server.stop();
  writeFileSync(path.join(String(directory), "standby.signal"), "");
  await server.start();
  const { address } = await startOn(t, server.url());
  const items = { database: "public", table: "items" };
  const change = { Insert: { ...items, values: [{ id: 1 }] } };
  for (const body of [change, { Preview: change }, { Batch: [change] }, { DropTable: items }]) {
    t.match(await query(address, body), refusal(507, "storage_failed", /read-only/));
  }
  const read = { Select: { database: "public", from: "items", columns: ["id"] } };
  t.match(await query(address, { Batch: [read, read] }), { body: { data: [[], []] } });
  const late = { Select: { database: "public", from: "late", columns: ["*"] } };
  if (isNewest) t.match(await query(address, late), refusal(503, "query_timeout"));
});

t.test("a time limit of the server ends one query, and none that follows", async (t) => {
  if (!isNewest) return;
  const { database, sql, url } = await freshPostgres(t);
  await sql(
    "create table main.items (id int primary key)",
    `create function main.wait() returns trigger language plpgsql as
      'begin perform pg_sleep(9); return new; end'`,
    "create table main.slow (id int)",
    "create trigger slow before insert on main.slow for each row execute function main.wait()",
    `alter database ${database} set transaction_timeout = '200ms'`,
  );
  const { address } = await startOn(t, url);
  for (const id of [1, 2, 3]) {
    const late = await query(address, insert("slow", [{ id }]));
    t.match(late, refusal(503, "query_timeout"));
    t.match(await query(address, insert("items", [{ id }])), { status: 200 });
  }
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

// No query blocks the event loop of the gateway, in whose process the engine runs.

const BODY_BYTES = 5_000_000;
const LONGEST_TURN_MS = 100;
/** Caches and garbage collection may slow down a turn, so the best of several counts. */
const TRIES = 10;

function fill(element: string, bytes = BODY_BYTES): string {
  return `${element},`.repeat(bytes / (element.length + 1)) + element;
}

const place = '"database":"main","table":"t"';
const long = fill("1");
const listed = (cmp: string, values: string) => `{"column":"n","cmp":"${cmp}","value":[${values}]}`;
const deleting = (where: string) => `{"Delete":{${place},"where":${where}}}`;
const inserting = (values: string) => `{"Insert":{${place},"values":[${values}]}}`;
const third = fill("1.5", BODY_BYTES / 3);

const tooComplex = refusal(400, "query_too_complex");
const done = { status: 200 };
const bodies: readonly (readonly [name: string, body: string, answer: object])[] = [
  ["a list of a million values", deleting(listed("IN", long)), tooComplex],
  ["a list in a Batch", `{"Batch":[${deleting(listed("NOT IN", long))}]}`, tooComplex],
  ["a list in a Preview", `{"Preview":${deleting(listed("IN", long))}}`, tooComplex],
  [
    "several lists of fractions",
    deleting(`{"or":[${Array(3).fill(`{"not":${listed("IN", third)}}`)}]}`),
    tooComplex,
  ],
  [
    "a pattern of escapes",
    deleting(`{"column":"word","cmp":"LIKE","value":"${"!".repeat(BODY_BYTES)}","escape":"!"}`),
    tooComplex,
  ],
  [
    "rows of two shapes",
    inserting(fill('{"n":1},{"word":"x"}')),
    refusal(409, "constraint_violation"),
  ],
  ["a cell of numbers", inserting(`{"id":1,"document":[${long}]}`), done],
  ["a cell of lists", inserting(`{"id":2,"document":{"a":{"b":[${fill("[1.50]")}]}}}`), done],
  ["a cell of numbered keys", inserting(`{"id":4,"document":{${fill('"1": [ ]')}}}`), done],
  ["a set of numbers", `{"Update":{${place},"set":{"document":[${long}]},"where":null}}`, done],
];

t.test("no body blocks the event loop", async (t) => {
  const home = temporaryHome(t);
  const server = await sharedServer();
  const upstream = server.url(await server.createDatabase());
  const gateway = await startGateway(t, { home, upstream, env: measuredEnvironment(home) });
  const token = await gateway.login();
  await gateway.query({ CreateDatabase: { database: "main" } }, token);
  const columns = { id: "int", n: "decimal", word: "text", document: "json" };
  await gateway.query(createTable("t", columns), token);
  for (const [name, body, answer] of sampled(bodies)) {
    let turn = Number.POSITIVE_INFINITY;
    for (let tries = 0; turn >= LONGEST_TURN_MS && tries < TRIES; tries++) {
      await gateway.query(deleting('{"column":"id","cmp":">","value":0}'), token);
      await longestTurn(home);
      const found = await gateway.query(body, token);
      turn = Math.min(turn, await longestTurn(home));
      t.match(found, answer, `${name}: ${found.text.slice(0, 100)}`);
    }
    t.ok(turn < LONGEST_TURN_MS, `${name}: ${turn.toFixed()} ms`);
  }
  const written = { Select: { database: "main", from: "t", columns: ["document"] } };
  const document = { a: { b: [[1.5], "x", { c: null }, { "\u2028": [] }] } };
  const text = JSON.stringify({ ...document, long: Array(5000).fill([1, "a,b", {}]) });
  await gateway.query(inserting(`{"id":3,"document":${text}}`), token);
  const { text: answer } = await gateway.query(written, token);
  t.ok(answer.includes(text), "a long cell is stored as it was sent");
});

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
