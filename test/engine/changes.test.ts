import { readFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { createConnection } from "mysql2/promise";
import t from "tap";
import { PATIENCE_MS } from "../kit/eventually.ts";
import { childrenOf } from "../kit/process-info.ts";
import { type Answer, createTable, equal, insert, refusal, remove, selectAll } from "./kit.ts";
import { freshMysql } from "./mysql/kit.ts";
import { overEach, overSqlite, type Scene } from "./over-each.ts";
import { freshPostgres } from "./postgres/kit.ts";

type Ask = Scene["ask"];

const stock = { database: "main", table: "stock" };

/** Creates `stock` with the rows 1 to 3. */
async function fillStock(ask: Ask): Promise<void> {
  const types = { name: "text", count: "bigint", price: "decimal(10,2)" };
  await ask(createTable("stock", { id: "serial", ...types }));
  const values = [
    { name: "nail", count: 10, price: 0.1 },
    { name: "bolt", count: 20, price: 0.25 },
    { name: "nut", count: null, price: null },
  ];
  await ask(insert("stock", values));
}

async function rowsIn(ask: Ask): Promise<unknown> {
  return (await ask(selectAll("stock", { order_by: { column: "id" } }))).body.data;
}

const updateStock = (fields: object) => ({ Update: { ...stock, ...fields } });
const deleteStock = (fields: object) => ({ Delete: { ...stock, ...fields } });
const byName = (value: string) => equal("name", value);

/** The text of a successful answer with these members. */
const success = (members: string) => `{"status":"success",${members}}`;

overEach(
  "many rows of several shapes are inserted in order, or none of them",
  async (t, { ask }) => {
    await ask(createTable("many", { id: "int", n: "int", word: "text" }));
    const rows = Array.from({ length: 300 }, (_, id) => {
      if (id > 290 || id % 100 === 70) return { id, n: null, word: null };
      return { id, n: id % 7, word: `word ${id}` };
    });
    const given = rows.map(({ id, n, word }) => {
      if (n === null) return { id };
      return id < 150 ? { id, n, word } : { word, id, n };
    });
    t.match((await ask(insert("many", given))).body, { affected: 300 });
    const all = selectAll("many", { order_by: { column: "id" } });
    t.strictSame((await ask(all)).body.data, rows);
    const others = rows.map(({ id }) => ({ id: id === 230 ? 7 : 1000 + id }));
    t.match(await ask(insert("many", others)), {
      status: 409,
      body: { code: "constraint_violation" },
    });
    t.strictSame((await ask(all)).body.data, rows);
  },
);

overEach("changed rows are returned in the order of their key", async (t, { ask }) => {
  await ask(createTable("words", { word: "text", n: "int" }));
  const words = ["b", "é", "a", "Z", "\u{1f600}", "\uffee", "aa"].map((word, n) => ({ word, n }));
  await ask(insert("words", words));
  const sorted = ["Z", "a", "aa", "b", "é", "\uffee", "\u{1f600}"].map((word) => ({ word }));
  const all = { database: "main", table: "words", where: null, returning: ["word"] };
  t.strictSame((await ask({ Update: { ...all, set: { n: 1 } } })).body.data, sorted);
  t.strictSame((await ask({ Delete: all })).body.data, sorted);
});

overEach("a changed key is returned as it is now", async (t, { ask }) => {
  await fillStock(ask);
  const shift = updateStock({ add: { id: 100 }, where: null, returning: ["id"] });
  t.strictSame((await ask(shift)).body.data, [{ id: 101 }, { id: 102 }, { id: 103 }]);
  const set = updateStock({ set: { id: 7 }, where: byName("nut"), returning: ["id", "name"] });
  t.strictSame((await ask(set)).body.data, [{ id: 7, name: "nut" }]);
});

overEach("add is exact and leaves null", async (t, { ask }) => {
  await fillStock(ask);
  const add = (cells: string, where = "null") =>
    ask(
      `{"Update":{"database":"main","table":"stock","add":{${cells}},"where":${where},"returning":["*"]}}`,
    );
  t.match((await add('"count":-1,"price":0.2')).body.data, [
    { count: 9, price: 0.3 },
    { count: 19, price: 0.45 },
    { count: null, price: null },
  ]);
  const first = JSON.stringify(equal("id", 1));
  t.match((await add('"count":9223372036854775798', first)).text, '"count":9223372036854775807,');
  const isSqlite = t.fullname.includes("SQLite");
  for (const [cells, code] of [
    ['"count":1', "number_out_of_range"],
    ...(isSqlite ? [] : [['"price":99999999.99', "number_out_of_range"] as const]),
    ['"count":0.5', "invalid_value"],
    ['"name":1', "invalid_value"],
    ['"nope":1', "unknown_column"],
  ] as const) {
    t.match(await add(cells, first), refusal(400, code), cells);
  }
  t.match((await add('"count":-9223372036854775807', first)).text, '"count":0,');
  t.match((await add('"count":-9223372036854775808', first)).text, '"count":-9223372036854775808,');
  t.match(await add('"count":-1', first), refusal(400, "number_out_of_range"));
  const both = updateStock({ set: { count: 1 }, add: { count: 1 }, where: null });
  const message = 'Column "count" is in both set and add; allowed: one of them';
  t.match(await ask(both), refusal(400, "duplicate_column", message));
  const apart = updateStock({ set: { name: "x" }, add: { count: 5 }, where: byName("bolt") });
  t.match(await ask(apart), { body: { affected: 1 } });
  t.match(await rowsIn(ask), [{}, { name: "x", count: 24 }, {}]);
});

overEach("without a primary key, rows are returned where the database can", async (t, { ask }) => {
  const bare = { database: "main", table: "bare", returning: ["a"] };
  await ask(createTable("bare", [{ name: "a", type: "int" }]));
  t.match((await ask({ Insert: { ...bare, values: [{ a: 1 }] } })).body.data, [{ a: 1 }]);
  const update = { Update: { ...bare, set: { a: 2 }, where: null } };
  const answer = await ask(update);
  if (t.fullname.includes("MySQL")) {
    t.match(answer, refusal(400, "not_supported", /^Table bare has no primary key/));
    t.match(await ask({ Preview: update }), refusal(400, "not_supported"));
    await ask({ Update: { ...update.Update, returning: undefined } });
  } else {
    t.match(answer, { body: { data: [{ a: 2 }] } });
    t.match(await ask({ Preview: update }), { body: { before: [{ a: 2 }], after: [{ a: 2 }] } });
  }
  t.match((await ask({ Delete: { ...bare, where: null } })).body.data, [{ a: 2 }]);
});

overEach("concurrent changes are each carried out once", async (t, { ask }) => {
  await fillStock(ask);
  const add = updateStock({ add: { count: 1 }, where: equal("id", 1), returning: ["count"] });
  const upsert = (name: string) => ({
    Upsert: { ...stock, values: [{ id: 50, name }], on_conflict: ["id"], update: ["name"] },
  });
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, index) => ask(index % 2 === 0 ? add : upsert(`${index}`))),
  );
  for (const answer of answers) t.match(answer, { status: 200, body: { affected: 1 } });
  const counts = answers.flatMap(({ body }) => body.data ?? []).map((row) => JSON.stringify(row));
  t.equal(new Set(counts).size, 10, "each saw a different state");
  t.match(await rowsIn(ask), [{ count: 20 }, {}, {}, { id: 50 }]);
});

overEach("an Upsert changes or skips existing rows", async (t, { ask }) => {
  await fillStock(ask);
  const upsert = (values: object[], update: string[], more: object = {}) =>
    ask({ Upsert: { ...stock, values, on_conflict: ["id"], update, ...more } });
  const values = [
    { id: 1, name: "tack", count: 1 },
    { id: 8, name: "hook", count: 2 },
  ];
  t.equal(
    (await upsert(values, ["name"], { returning: ["id", "name", "count"] })).text,
    success(
      '"message":"Upserted 2 rows","affected":2,"data":[{"id":1,"name":"tack","count":10},{"id":8,"name":"hook","count":2}]',
    ),
    "columns that update does not name stay",
  );
  t.match(await upsert(values, ["name"]), { body: { affected: 2 } }, "unchanged rows count");
  const more = [
    { id: 8, name: "skipped" },
    { id: 9, name: "ring" },
  ];
  t.equal(
    (await upsert(more, [], { returning: ["id"] })).text,
    success('"message":"Upserted 1 row","affected":1,"data":[{"id":9}]'),
    "skipped rows do not count",
  );
  t.match(await upsert(more, []), { body: { affected: 0 } });
  const twice = ["one", "two"].map((name) => ({ id: 20, name }));
  t.match(await upsert(twice, ["name"]), { body: { affected: 2 } });
  const numbered = await upsert([{ id: null, name: "new" }], ["name"], { returning: ["id"] });
  t.match(numbered, { body: { affected: 1, data: [{ id: 21 }] } });
  t.match(await rowsIn(ask), [
    { id: 1, name: "tack", count: 10 },
    { id: 2 },
    { id: 3 },
    { id: 8, name: "hook" },
    { id: 9, name: "ring" },
    { id: 20, name: "two" },
    { id: 21, name: "new" },
  ]);
});

overSqlite("an ambiguous Upsert is refused", async (t, { ask }) => {
  await fillStock(ask);
  const key = { on_conflict: ["id"], update: ["name"] };
  const upsert = { ...stock, values: [{ id: 1, name: "x" }], ...key };
  const values = (...rows: object[]) => ({ values: rows });
  for (const [fields, code, message] of [
    [{ on_conflict: ["name"] }, "no_unique_key", /or unique key of stock; it has \(id\)$/],
    [{ on_conflict: ["id", "name"] }, "no_unique_key", /it has \(id\)$/],
    [{ on_conflict: ["nope"] }, "unknown_column", /"nope"/],
    [{ update: ["name", "name"] }, "duplicate_column", /"name" is given twice/],
    [
      values({ id: 1, name: "x" }, { id: 2 }),
      "invalid_value",
      /^values\[1\]: Column "name" is missing/,
    ],
    [values({ id: 1, name: 7 }), "invalid_value", /^values\[0\]: Column "name" /],
  ] as const) {
    t.match(await ask({ Upsert: { ...upsert, ...fields } }), refusal(400, code, message));
  }
  const Batch = [{ Upsert: { ...upsert, on_conflict: ["name"] } }];
  const message = /^Batch\[0\]: on_conflict requires /;
  t.match(await ask({ Batch }), refusal(400, "no_unique_key", message));
});

overEach("an Upsert never matches another unique key than its own", async (t, { ask }) => {
  const email = { type: "text", unique: true };
  await ask(createTable("people", { id: "serial", email, name: "text" }));
  await ask(insert("people", [{ email: "a", name: "A" }]));
  const values = [
    { email: "a", name: "B" },
    { email: "c", name: "C" },
  ];
  const key = { on_conflict: ["email"], update: ["name"], returning: ["email", "name"] };
  const answer = await ask({ Upsert: { database: "main", table: "people", values, ...key } });
  if (t.fullname.includes("MySQL")) {
    const message = /tables with a single unique key; it has \(id\), \(email\)$/;
    t.match(answer, refusal(400, "not_supported", message));
  } else {
    t.match(answer, { body: { affected: 2, data: values } });
  }
});

overEach("a Preview shows the rows before and after, and changes nothing", async (t, { ask }) => {
  await fillStock(ask);
  const rows = await rowsIn(ask);
  const nails = { add: { count: 1 }, where: byName("nail") };
  const nail = (count: number) =>
    `{"id":1,"name":"nail","count":${count},"price":${t.fullname.includes("SQLite") ? 0.1 : "0.10"}}`;
  for (const [body, affected, before, after] of [
    [updateStock(nails), 1, nail(10), nail(11)],
    [deleteStock({ where: byName("nut"), returning: ["id"] }), 1, '{"id":3}', ""],
    [
      updateStock({ ...nails, returning: ["count", "id"] }),
      1,
      '{"count":10,"id":1}',
      '{"count":11,"id":1}',
    ],
    [
      insert("stock", [{ id: 9, name: "pin" }]),
      1,
      "",
      '{"id":9,"name":"pin","count":null,"price":null}',
    ],
  ] as const) {
    const expected = `"affected":${affected},"before":[${before}],"after":[${after}]`;
    t.equal((await ask({ Preview: body })).text, success(expected));
  }
  const values = [
    { id: 7, name: "new", price: 1.5 },
    { id: 3, name: "nut", price: 2.25 },
  ];
  const upsert = (update: string[]) =>
    ask({ Preview: { Upsert: { ...stock, values, on_conflict: ["id"], update } } });
  const changed = { affected: 2, before: [{ id: 3, price: null }], after: values };
  t.match((await upsert(["price"])).body, changed);
  t.match((await upsert([])).body, { affected: 1, before: [], after: [{ id: 7 }] });
  const prize = updateStock({ ...nails, returning: ["prize"] });
  t.match(await ask({ Preview: prize }), refusal(400, "unknown_column"));
  const twice = insert("stock", [{ id: 1 }]);
  t.match(await ask({ Preview: twice }), refusal(409, "constraint_violation"));
  t.match(await ask({ Preview: remove("stok") }), refusal(404, "table_not_found"));
  t.strictSame(await rowsIn(ask), rows);
});

overSqlite("a Preview shows a hundred rows and counts all", async (t, { ask }) => {
  await ask(createTable("many", { id: "int", n: "int" }));
  const many = { database: "main", table: "many" };
  const values = Array.from({ length: 250 }, (_, id) => ({ id: 250 - id, n: 0 }));
  const sizes = ({ text }: Answer) => {
    const { affected, before, after } = JSON.parse(text);
    return [affected, before.length, after.length, before[0]?.id, after[0]?.id].join();
  };
  const preview = async (body: object) => sizes(await ask({ Preview: body }));
  t.equal(await preview({ Insert: { ...many, values } }), "250,0,100,,250");
  await ask(insert("many", values));
  t.equal(await preview({ Update: { ...many, add: { n: 1 }, where: null } }), "250,100,100,1,1");
  t.equal(await preview(remove("many")), "250,100,0,1,");
  const upsert = { ...many, values, on_conflict: ["id"], update: ["n"] };
  t.equal(await preview({ Upsert: upsert }), "250,100,100,250,250");
});

overSqlite("rows in thousands of orders of columns take little memory", async (t, { ask }) => {
  const names = ["a", "b", "c", "d", "e", "f", "g"];
  const types = Object.fromEntries(names.map((name) => [name, "int"]));
  await ask(createTable("many", { id: "int", ...types }));
  const rows = Array.from({ length: 4000 }, (_, id) => {
    const cells: [string, number][] = [["id", id]];
    for (const [at, name] of names.entries()) cells.splice((id >> at) % (at + 2), 0, [name, at]);
    return Object.fromEntries(cells);
  });
  t.match(await ask(insert("many", rows)), { body: { affected: 4000 } });
  const peaks = childrenOf(process.pid)
    .map((pid) => readFileSync(`/proc/${pid}/status`, "utf8"))
    .filter((status) => /^Name:\s+(node|MainThread)/m.test(status))
    .map((status) => Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1]) / 1024);
  t.ok(peaks.length > 0 && Math.max(...peaks) < 240, `${peaks} MiB`);
});

t.test("a row whose key a trigger changes is not left out of returning (MySQL)", async (t) => {
  const { ask, sql } = await freshMysql(t);
  await sql(
    "create table main.keyed (id int primary key, n int)",
    "create trigger main.shift before insert on main.keyed for each row set new.id = new.id + 100",
    "create trigger main.swap before update on main.keyed for each row set new.id = old.id + 1",
  );
  const keyed = { database: "main", table: "keyed" };
  const upsert = { ...keyed, values: [{ id: 1, n: 1 }], on_conflict: ["id"], update: ["n"] };
  const add = { ...keyed, add: { n: 1 }, where: null };
  const refused = refusal(400, "not_supported", /trigger changes the primary key of keyed/);
  t.match(await ask({ Upsert: { ...upsert, returning: ["n"] } }), refused);
  t.match(await ask({ Upsert: upsert }), { body: { affected: 1 } });
  t.match(await ask({ Update: { ...add, returning: ["n"] } }), refused);
  t.match(await ask({ Update: add }), { body: { affected: 1 } });
  t.match((await ask(selectAll("keyed"))).body.data, [{ id: 102, n: 2 }]);
});

t.test("an Upsert cannot use a key without overlaps (PostgreSQL)", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  await sql(
    "create table main.stays (rooms int4range, at daterange, n int, unique (rooms, at without overlaps))",
    "create table main.rooms (rooms int4range, at daterange, n int, unique (rooms, at))",
  );
  const values = [{ rooms: "[1,3)", at: "[2026-01-01,2026-02-01)", n: 1 }];
  const key = { on_conflict: ["rooms", "at"], update: ["n"] };
  const upsert = (table: string) => ask({ Upsert: { database: "main", table, values, ...key } });
  t.match(await upsert("stays"), refusal(400, "no_unique_key"));
  t.match(await upsert("rooms"), { body: { affected: 1 } });
});

t.test("a Preview shows the row of a null that is unique (PostgreSQL)", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  for (const [table, nulls] of Object.entries({ same: "not distinct", other: "distinct" })) {
    await sql(
      `create table main.${table} (id int primary key, code int, n int, unique nulls ${nulls} (code))`,
      `insert into main.${table} values (1, null, 1)`,
    );
    const values = [{ id: 2, code: null, n: 2 }];
    const key = { on_conflict: ["code"], update: ["n"] };
    const upsert = { Upsert: { database: "main", table, values, ...key } };
    const before = table === "same" ? [{ id: 1, code: null, n: 1 }] : [];
    const after = [{ id: table === "same" ? 1 : 2, code: null, n: 2 }];
    t.same((await ask({ Preview: upsert })).body, {
      status: "success",
      affected: 1,
      before,
      after,
    });
  }
});

t.test("a read waits for no lock on a connection that has made a change (MySQL)", async (t) => {
  const { ask, url } = await freshMysql(t);
  await ask(createTable("stock", { id: "int", count: "int" }));
  await ask(insert("stock", [{ id: 1, count: 1 }]));
  const returning = ["count"];
  t.match(await ask(updateStock({ set: { count: 2 }, where: null, returning })), { status: 200 });

  const other = await createConnection(url);
  t.teardown(() => other.end());
  await other.query("start transaction");
  await other.query("update main.stock set count = 3");
  const read = ask(selectAll("stock"));
  const first = await Promise.race([
    read,
    setTimeout(PATIENCE_MS / 2, "it waits for the other change"),
  ]);
  await other.query("rollback");
  t.match(first, { status: 200, body: { data: [{ id: 1, count: 2 }] } });
  await read;
});
