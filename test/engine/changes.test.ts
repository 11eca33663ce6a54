import { readFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { createConnection } from "mysql2/promise";
import t from "tap";
import { PATIENCE_MS } from "../kit/eventually.ts";
import { childrenOf } from "../kit/process-info.ts";
import {
  type Answer,
  createDatabase,
  createTable,
  dropDatabase,
  equal,
  insert,
  refusal,
  remove,
  selectAll,
  send,
  update,
} from "./kit.ts";
import { freshMysql } from "./mysql/kit.ts";
import { isMariaDb } from "./mysql/server.ts";
import { overEach, overEachTransactional, overSqlite, type Scene } from "./over-each.ts";
import { isNewest } from "./postgres/binaries.ts";
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

overEach("many rows of several shapes are inserted in order, or none", async (t, { ask }) => {
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
});

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
  await ask(createTable("bare", { a: { type: "int", primary_key: false } }));
  const inserted = await ask({ Insert: { ...bare, values: [{ a: 1 }] } });
  if (isMariaDb || !t.fullname.includes("MySQL")) t.match(inserted.body.data, [{ a: 1 }]);
  else {
    t.match(inserted, refusal(400, "not_supported", /^Table bare has no primary key/));
    await ask(insert("bare", [{ a: 1 }]));
  }
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

overEach("a Preview leaves numbers for the rows that follow", async (t, { ask }) => {
  await ask(createTable("seats", { id: "serial", n: "int" }));
  await ask(insert("seats", [{ n: 1 }]));
  const last = "9223372036854775807";
  for (const change of [
    `"Insert":{"values":[{"id":${last}}]`,
    `"Insert":{"values":[{"id":"${last}"}]`,
    `"Upsert":{"values":[{"id":${last},"n":2}],"on_conflict":["id"],"update":["n"]`,
    `"Update":{"set":{"id":${last}},"where":null`,
    `"Update":{"add":{"id":9000000000000000000},"where":null`,
  ]) {
    const { text } = await ask(`{"Preview":{${change},"database":"main","table":"seats"}}}`);
    t.match(text, /"affected":1|"not_supported"/);
    t.match(await ask(insert("seats", [{ n: 1 }])), { status: 200 }, change);
    await ask(remove("seats", { column: "id", cmp: ">", value: 1 }));
  }
  const far = { Insert: { database: "main", table: "seats", values: [{ id: 900_000, n: 1 }] } };
  t.match(await ask({ Preview: far }), { body: { after: [{ id: 900_000 }] } });
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
  const refused = refusal(
    400,
    "not_supported",
    /trigger removes a row of keyed or changes its primary key/,
  );
  t.match(await ask({ Upsert: { ...upsert, returning: ["n"] } }), refused);
  t.match(await ask({ Upsert: upsert }), { body: { affected: 1 } });
  t.match(await ask({ Update: { ...add, returning: ["n"] } }), refused);
  t.match(await ask({ Update: add }), { body: { affected: 1 } });
  t.match((await ask(selectAll("keyed"))).body.data, [{ id: 102, n: 2 }]);
});

t.test("an Upsert cannot use a key without overlaps (PostgreSQL)", async (t) => {
  if (!isNewest) return;
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
  if (!isNewest) return;
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

const orders = { database: "main", table: "orders" };
const lines = { database: "main", table: "lines" };
const ofOrder = { order_id: { element: 0, column: "id" } };

async function makeTables(ask: Ask): Promise<void> {
  const types = { code: "text", total: "decimal(20,2)", mark: "bigint", at: "timestamp" };
  await ask(createTable("orders", { id: "serial", ...types, data: "json", raw: "blob" }));
  const copies = { total: "decimal(20,2)", mark: "bigint", at: "timestamp", data: "json" };
  const columns = { order_id: "bigint", sku: "text", ...copies, raw: "blob" };
  await ask(createTable("lines", { id: "serial", ...columns }));
}

async function countsIn(ask: Ask): Promise<unknown> {
  const answers = [await ask(selectAll("orders")), await ask(selectAll("lines"))];
  return answers.map(({ body }) => body.data?.length);
}

const insertOrder = (fields: object = {}) => ({
  Insert: { ...orders, values: [{ code: "a" }], ...fields },
});
const insertLines = (fields: object = {}) => ({
  Insert: { ...lines, values: [{ sku: "x" }, { sku: "y" }], bind: ofOrder, ...fields },
});

function failed(element: number, expected: number, affected: number) {
  return (answer: Answer) => {
    const { status, body } = answer;
    const { message = "", request_id: _, ...rest } = body;
    return JSON.stringify([status, rest, message.startsWith(`Batch[${element}]: `)]) ===
      JSON.stringify([
        409,
        { status: "error", code: "expectation_failed", element, expected, affected },
        true,
      ])
      ? "as expected"
      : answer.text;
  };
}

overEach("an order gets its lines in one Batch", async (t, { ask }) => {
  await makeTables(ask);
  const answer = await ask({ Batch: [insertOrder(), insertLines({ returning: ["order_id"] })] });
  t.equal(
    answer.text,
    '{"status":"success","data":["Inserted 1 row",{"affected":2,"data":[{"order_id":1},{"order_id":1}]}]}',
  );
  const returned = await ask({
    Batch: [
      insertOrder({ returning: ["code", "orders.code"], expect: 1 }),
      insertLines({ values: [{}], returning: ["*"] }),
      insertOrder({ returning: ["*"] }),
      insertLines({ bind: { order_id: { element: 2, column: "id" } } }),
    ],
  });
  const order = '"total":null,"mark":null,"at":null,"data":null,"raw":null';
  t.equal(
    returned.text,
    `{"status":"success","data":[{"affected":1,"data":[{"code":"a"}]},{"affected":1,"data":[{"id":3,"order_id":2,"sku":null,${order}}]},{"affected":1,"data":[{"id":3,"code":"a",${order}}]},"Inserted 2 rows"]}`,
  );
});

overEach("a bound value keeps every digit and byte", async (t, { ask }) => {
  await makeTables(ask);
  const cells =
    '"mark":9223372036854775807,"at":"2026-01-02T03:04:05Z","data":{"b":[1,null],"a":"ü"},"raw":"aGk="';
  const total = t.fullname.includes("SQLite") ? "0.5" : "123456789012345678.25";
  const names = ["total", "mark", "at", "data", "raw", "order_id"];
  const bind = Object.fromEntries(
    names.map((name) => [name, { element: 0, column: name === "order_id" ? "id" : name }]),
  );
  const second = { Insert: { ...lines, values: [{}], bind, returning: names } };
  const { text } = await ask(
    `{"Batch":[{"Insert":{"database":"main","table":"orders","values":[{"total":${total},${cells}}]}},${JSON.stringify(second)}]}`,
  );
  t.equal(
    text,
    `{"status":"success","data":["Inserted 1 row",{"affected":1,"data":[{"total":${total},${cells},"order_id":1}]}]}`,
  );
});

overSqlite("values come from every kind of change, into set too", async (t, { ask }) => {
  await makeTables(ask);
  await ask(insert("orders", [{ code: "a", mark: 7 }, { code: "b" }]));
  await ask(insert("lines", [{ sku: "x" }, { sku: "y" }]));
  const { text } = await ask({
    Batch: [
      { Update: { ...orders, add: { mark: 1 }, where: equal("code", "a") } },
      { Delete: { ...orders, where: equal("code", "b"), expect: 1 } },
      {
        Upsert: {
          ...orders,
          values: [{ id: 9, code: "c" }],
          on_conflict: ["id"],
          update: ["code"],
        },
      },
      {
        Update: {
          ...lines,
          bind: { mark: { element: 0, column: "mark" }, order_id: { element: 1, column: "id" } },
          where: equal("sku", "x"),
        },
      },
      {
        Update: {
          ...lines,
          set: { sku: "z" },
          add: { id: 10 },
          bind: { order_id: { element: 2, column: "id" }, mark: { element: 3, column: "mark" } },
          where: equal("sku", "y"),
          returning: ["id", "order_id", "mark"],
        },
      },
    ],
  });
  t.equal(
    text,
    '{"status":"success","data":["Updated 1 row","Deleted 1 row","Upserted 1 row","Updated 1 row",{"affected":1,"data":[{"id":12,"order_id":9,"mark":8}]}]}',
  );
  const rows = await ask(
    selectAll("lines", { columns: ["order_id", "mark"], order_by: { column: "id" } }),
  );
  t.strictSame(rows.body.data, [
    { order_id: 2, mark: 8 },
    { order_id: 9, mark: 8 },
  ]);
});

overEach("another number of rows undoes the Batch", async (t, { ask }) => {
  await makeTables(ask);
  await ask(insert("orders", [{ code: "a" }, { code: "a" }]));
  const all = { ...orders, where: null };
  const update = { Update: { ...all, set: { code: "b" } } };
  const skipped = { Upsert: { ...orders, values: [{ id: 1 }], on_conflict: ["id"], update: [] } };
  for (const [Batch, element, expected, affected] of [
    [[insertOrder({ expect: 2 })], 0, 2, 1],
    [[insertOrder(), { Update: { ...update.Update, expect: 2 } }], 1, 2, 3],
    [[insertOrder(), { Delete: { ...orders, where: equal("code", "c"), expect: 1 } }], 1, 1, 0],
    [[{ Upsert: { ...skipped.Upsert, expect: 1 } }, insertOrder()], 0, 1, 0],
    [[{ Delete: { ...all, expect: 0, returning: ["id"] } }, insertOrder()], 0, 0, 2],
    [[update, insertLines()], 0, 1, 2],
    [[skipped, insertLines()], 0, 1, 0],
    [[{ Delete: { ...orders, where: equal("code", "c") } }, insertLines()], 0, 1, 0],
    [[insertOrder({ values: [{}, {}], returning: ["id"] }), insertLines()], 0, 1, 2],
  ] as const) {
    const answer = await ask({ Batch });
    t.equal(failed(element, expected, affected)(answer), "as expected");
  }
  t.strictSame(await countsIn(ask), [2, 0]);
  t.match(
    await ask({ Batch: [insertOrder(), insertLines({ values: [{ order_id: 1 }] })] }),
    refusal(
      400,
      "duplicate_column",
      /Batch\[1\]: Column "order_id" is in both bind and values\[0\]/,
    ),
  );
  const added = { ...lines, add: { order_id: 1 }, bind: ofOrder, where: null };
  t.match(
    await ask({ Batch: [insertOrder(), { Update: added }] }),
    refusal(400, "duplicate_column", /in both bind and add/),
  );
  t.match(
    await ask({
      Batch: [insertOrder(), insertLines({ values: [{}], bind: { sku: ofOrder.order_id } })],
    }),
    refusal(400, "invalid_value", /Batch\[1\]: .*"sku"/),
  );
  t.strictSame(await countsIn(ask), [2, 0], "nothing was kept");
});

async function fillNamed(ask: Ask): Promise<string> {
  await ask(createTable("stock", { id: "serial", name: "text", left: "bigint" }));
  await ask(
    insert("stock", [
      { name: "a", left: 1 },
      { name: "b", left: 2 },
      { name: "c", left: 3 },
    ]),
  );
  return (await ask(selectAll("stock", { order_by: { column: "id" } }))).text;
}

overSqlite("a Preview shows each change of a Batch after those before it", async (t, { ask }) => {
  const before = await fillNamed(ask);
  const names = ["name", "left"];
  const Batch = [
    { Update: { ...stock, add: { left: 10 }, where: equal("name", "a"), returning: names } },
    { Delete: { ...stock, where: equal("left", 2), expect: 1, returning: ["name"] } },
    {
      Upsert: {
        ...stock,
        values: [
          { id: 1, name: "z" },
          { id: 99, name: "n" },
        ],
        on_conflict: ["id"],
        update: ["name"],
        returning: ["id", "name", "left"],
      },
    },
    {
      Update: {
        ...stock,
        bind: { left: { element: 0, column: "left" }, name: { element: 1, column: "name" } },
        where: equal("id", 3),
      },
    },
    { Insert: { ...stock, values: [{ name: "y" }, { name: "x" }], returning: names } },
  ];
  const { text } = await ask({ Preview: { Batch } });
  t.equal(
    text,
    `{"status":"success","data":[${[
      '{"affected":1,"before":[{"name":"a","left":1}],"after":[{"name":"a","left":11}]}',
      '{"affected":1,"before":[{"name":"b"}],"after":[]}',
      '{"affected":2,"before":[{"id":1,"name":"a","left":11}],"after":[{"id":1,"name":"z","left":11},{"id":99,"name":"n","left":null}]}',
      '{"affected":1,"before":[{"id":3,"name":"c","left":3}],"after":[{"id":3,"name":"b","left":11}]}',
      '{"affected":2,"before":[],"after":[{"name":"y","left":null},{"name":"x","left":null}]}',
    ].join()}]}`,
  );
  const none = await ask({ Preview: { Batch: Batch.slice(0, 4), limit: 0 } });
  t.match(none.body.data, [
    { affected: 1, before: [], after: [] },
    {},
    {},
    { affected: 1, before: [] },
  ]);
  const all = { Delete: { ...stock, where: null, returning: ["id"] } };
  const limited = await ask({ Preview: { ...all, limit: 2 } });
  t.equal(
    limited.text,
    '{"status":"success","affected":3,"before":[{"id":1},{"id":2}],"after":[]}',
  );
  const raised = { Update: { ...stock, add: { left: 1 }, where: null, returning: ["left"] } };
  t.equal(
    (await ask({ Preview: { limit: 1, ...raised } })).text,
    '{"status":"success","affected":3,"before":[{"left":1}],"after":[{"left":2}]}',
  );
  const refused = { Preview: { Batch: [all, { Delete: { ...all.Delete, expect: 1 } }] } };
  t.equal(failed(1, 1, 0)(await ask(refused)), "as expected");
  const bound = { ...stock, values: [{}], bind: { left: { element: 0, column: "left" } } };
  const unbound = { Preview: { Batch: [all, { Insert: bound }] } };
  t.equal(failed(0, 1, 3)(await ask(unbound)), "as expected");
  t.match(
    await ask({ Preview: { Batch: [all, { Insert: { ...stock, values: [{ nope: 1 }] } }] } }),
    refusal(400, "unknown_column", /^Batch\[1\]: /),
  );
  const after = await ask(selectAll("stock", { order_by: { column: "id" } }));
  t.equal(after.text, before, "nothing was kept");
});

const users = createTable("users", { id: "int", name: "text", age: "int" });
const people = [
  { id: 1, name: "Alice", age: 30 },
  { id: 2, name: "bob", age: 20 },
  { id: 3, name: "Carol" },
];

overEach("a dropped database takes its tables with it", async (t, { ask }) => {
  const [create, drop] = [createDatabase("analytics"), dropDatabase("analytics")];
  const select = selectAll("hits", {}, "analytics");
  t.match(await ask(drop), refusal(404, "database_not_found"));
  t.match(await ask(create), { status: 200, body: { message: "Database analytics created" } });
  t.match(await ask(create), refusal(409, "database_exists"));
  t.equal((await ask(createTable("hits", { id: "int" }, "analytics"))).status, 200);
  t.match(await ask(drop), { status: 200, body: { message: "Database analytics dropped" } });
  t.match(await ask(select), refusal(404, "database_not_found"));
  t.equal((await ask(create)).status, 200);
  t.match(await ask(select), refusal(404, "table_not_found"));
});

overEach("a database name that differs only by case is refused", async (t, { ask }) => {
  t.match(await ask(createDatabase("MAIN")), refusal(409, "database_exists"));
  t.match(await ask(selectAll("users", {}, "Main")), refusal(404, "database_not_found"));
});

overSqlite("the database main cannot be dropped", async (t, { ask }) => {
  t.match(await ask(dropDatabase("main")), refusal(409, "database_protected"));
});

overEach("a condition may have thousands of alternatives", async (t, { ask }) => {
  await ask(users);
  await ask(insert("users", people));
  const or = Array.from({ length: 5000 }, (_, id) => ({ column: "id", cmp: "=", value: id + 3 }));
  t.match((await ask(selectAll("users", { where: { or } }))).body.data, [{ id: 3 }]);
});

overSqlite("a column of several joined tables is refused with those tables", async (t, { ask }) => {
  await ask(users);
  await ask(createTable("orders", { id: "int", user_id: "int", name: "text" }));
  await ask(createTable("items", { id: "int", order_id: "int" }));
  const orders = { table: "orders", on: "users.id = orders.user_id", join_type: "INNER" };
  const items = { table: "items", on: "orders.id = items.order_id", join_type: "INNER" };
  const cases: [join: object, column: string, message: string][] = [
    [orders, "id", 'Both tables have a column "id"; write table.column: users.id or orders.id'],
    [
      [orders, items],
      "id",
      'The tables users, orders, items have a column "id"; write table.column: users.id or orders.id or items.id',
    ],
    [
      [orders, items],
      "name",
      'The tables users, orders have a column "name"; write table.column: users.name or orders.name',
    ],
  ];
  for (const [join, column, message] of cases) {
    const answer = await ask(selectAll("users", { join, columns: [column] }));
    t.match(answer, refusal(400, "ambiguous_column", message));
  }
});

overEach("several primary key columns make one key", async (t, { ask }) => {
  await ask(createTable("pairs", { a: "int", b: { type: "int", primary_key: true } }));
  const rows = [1, 2].map((b) => ({ a: 1, b }));
  t.equal((await ask(insert("pairs", rows))).status, 200);
  t.match(await ask(insert("pairs", rows)), refusal(409, "constraint_violation"));
});

overEachTransactional("a Batch that fails leaves nothing", async (t, { ask }) => {
  await ask(createTable("users", { id: "int" }));
  const row = insert("users", [{ id: 1 }]);
  const Batch = [row, createTable("orders", { id: "int" }), row];
  t.match(await ask({ Batch }), refusal(409, "constraint_violation", /^Batch\[2\]: /));
  t.same((await ask(selectAll("users"))).body.data, []);
  t.match(await ask(selectAll("orders")), { status: 404 });
});

overEach("a Batch over two databases is one transaction", async (t, { ask }) => {
  await ask(createTable("users", { id: "int" }));
  await ask(createDatabase("analytics"));
  await ask(createTable("hits", { id: "int", seen: "bool" }, "analytics"));
  const hits = selectAll("hits", {}, "analytics");
  const row = { id: 1, seen: true };
  const both = [insert("users", [{ id: 1 }]), insert("hits", [row], "analytics"), hits];
  t.same((await ask({ Batch: both })).body.data?.[2], [row]);
  const half = [insert("users", [{ id: 2 }]), insert("hits", [{ id: 1 }], "analytics")];
  t.match(await ask({ Batch: half }), refusal(409, "constraint_violation", /^Batch\[1\]: /));
  t.same((await ask(selectAll("users"))).body.data, [{ id: 1 }]);
  t.same((await ask(hits)).body.data, [row]);
  const elsewhere = [hits, selectAll("hits")];
  t.match(await ask({ Batch: elsewhere }), refusal(404, "table_not_found"));
});

overSqlite("a missing database is reported with the element of the Batch", async (t, { ask }) => {
  await ask(createTable("users", { id: "int" }));
  const Batch = [insert("users", [{ id: 1 }]), selectAll("hits", {}, "analytics")];
  t.match(await ask({ Batch }), refusal(404, "database_not_found", /^Batch\[1\]: /));
  t.same((await ask(selectAll("users"))).body.data, []);
});

overSqlite("a Batch over too many databases to commit together is refused", async (t, { ask }) => {
  const names = Array.from({ length: 12 }, (_, index) => `shard${index}`);
  for (const database of names) {
    await ask(createDatabase(database));
    await ask(createTable("rows", { id: "int" }, database));
  }
  const Batch = names.map((database) => insert("rows", [{ id: 1 }], database));
  t.match(await ask({ Batch }), refusal(400, "too_many_databases"));
  t.match(await ask({ Batch: Batch.slice(1) }), { status: 200 });
});

/** Sends a query with limits as the gateway does. */
async function askWithin({ address }: Scene["engine"], limits: unknown, body: object) {
  const text = typeof limits === "string" ? limits : JSON.stringify(limits);
  const headers = {
    "content-type": "application/json",
    ...(text === undefined ? {} : { "x-test-limits": text }),
  };
  const options = { method: "POST", path: "/query", headers };
  const answer = await send(address, options, JSON.stringify(body));
  return { ...JSON.parse(answer.text), status: answer.status, text: answer.text };
}

/** Creates `stock` with five rows, with or without a primary key. */
async function stocked({ engine, ask }: Scene, hasKey = true) {
  const id = { type: "int", primary_key: hasKey };
  await ask(createTable("stock", { id, n: { type: "int", nullable: true } }));
  const values = [4, 2, 5, 1, 3].map((id) => ({ id, n: 0 }));
  await ask(insert("stock", values));
  const rows = async () => (await ask(selectAll("stock"))).body.data ?? [];
  return {
    ask: (limits: unknown, body: object) => askWithin(engine, limits, body),
    changed: async () =>
      (await rows()).filter((row) => JSON.stringify(row).includes('"n":1')).length,
    count: async () => (await rows()).length,
    /** Sends a change that is bound to a digest. */
    approved: (body: object, touched: string) => askWithin(engine, [{ touched }], body),
    digestOf: async (change: object) => {
      const { digest } = await askWithin(engine, [{ touched: "tell" }], { Preview: change });
      return String(digest);
    },
  };
}

const upTo = (id: number) => ({ column: "id", cmp: "<=", value: id });
const setOne = (id: number, more = {}) => ({
  Update: { ...stock, set: { n: 1 }, where: upTo(id), ...more },
});
const tooMany = (what: string) => ({ status: 409, code: `too_many_${what}` });

overEach("a change that affects too many rows is rolled back", async (t, scene) => {
  const { ask, changed } = await stocked(scene);
  t.match(await ask([{ changes: 2 }], setOne(3)), {
    ...tooMany("changes"),
    message: "More than 2 rows would be changed, which exceeds the caller's limit",
  });
  t.match(await ask([{ changes: 1 }], setOne(2)), { message: /^More than 1 row would be changed/ });
  t.equal(await changed(), 0);
  t.match(await ask([{ changes: 3 }], setOne(3)), { status: 200 });
  t.equal(await changed(), 3);
  t.match(await ask([{ changes: 1 }], { Preview: remove("stock") }), tooMany("changes"));
});

overSqlite("a change that returns too many rows is rolled back", async (t, scene) => {
  const { ask, changed } = await stocked(scene);
  t.match(await ask([{ rows: 1 }], setOne(2, { returning: ["id"] })), tooMany("rows"));
  t.equal(await changed(), 0);
  t.match(await ask([{ rows: 1 }], setOne(2)), { status: 200 }, "no row is returned");
  t.match(await ask([{ rows: 4 }], { Preview: remove("stock") }), tooMany("rows"));
  t.match(await ask([{ rows: 5 }], { Preview: remove("stock") }), { status: 200 });
});

overSqlite("the elements of a Batch count together", async (t, scene) => {
  const { ask, changed } = await stocked(scene);
  const batch = { Batch: [setOne(1), setOne(2), setOne(3)] };
  const message = /^Batch\[2\]: /;
  t.match(await ask([{ changes: 5 }], batch), { ...tooMany("changes"), message });
  t.equal(await changed(), 0);
  t.match(await ask([{ elements: [0, 1], changes: 3 }], batch), { status: 200 });
});

overSqlite("a Preview shows only the allowed columns", async (t, { engine, ask }) => {
  await ask(createTable("stock", { id: "int", name: "text", salary: "int" }));
  const values = [1, 2].map((id) => ({ id, name: "x", salary: 100 + id }));
  await ask(insert("stock", values));
  const limits = [{ elements: [0], columns: ["name", "gone"] }];
  const preview = async (body: object) => (await askWithin(engine, limits, { Preview: body })).text;
  const row = '{"name":"x"}';
  const both = `"before":[${row},${row}]`;
  t.match(await preview(remove("stock")), both);
  t.match(await preview(update("stock", { name: "y" })), `${both},"after":[{"name":"y"}`);
  t.match(await preview(insert("stock", [{ id: 3, name: "x" }])), `"after":[${row}]`);
  const rows = [1, 2].map((id) => ({ id, name: "z" }));
  const upsert = { ...stock, values: rows, on_conflict: ["id"], update: ["name"] };
  t.match(await preview({ Upsert: upsert }), both);
});

overSqlite("an approver's Preview shows the columns that bind reads", async (t, scene) => {
  const { ask } = await stocked(scene);
  const bind = { n: { element: 0, column: "n" } };
  const added = { Insert: { ...stock, values: [{ id: 9 }], bind } };
  const Batch = [setOne(1, { returning: ["id"] }), added];
  const { text } = await ask([{ touched: "tell" }], { Preview: { Batch } });
  t.match(text, '"before":[{"id":1,"n":0}],"after":[{"id":1,"n":1}]}');
});

/** An approved change is bound to the digest of the rows that it would affect. */

const removeThree = remove("stock", upTo(3));
const addOne = { Update: { ...stock, add: { n: 1 }, where: upTo(3) } };
const upsert = {
  Upsert: { ...stock, values: [{ id: 2, n: 5 }], on_conflict: ["id"], update: ["n"] },
};
const stale = { status: 409, code: "approval_stale" };

overEach("a change runs only on the rows that were approved", async (t, scene) => {
  const { approved, digestOf, count } = await stocked(scene);
  const { ask } = scene;
  const digest = await digestOf(removeThree);
  t.match(digest, /^[0-9a-f]{64}$/);
  t.equal(await digestOf(removeThree), digest, "a Preview changes nothing");
  t.match(await approved(removeThree, "0".repeat(64)), stale);
  await ask(update("stock", { n: 7 }, equal("id", 2)));
  t.match(await approved(removeThree, digest), stale, "one of them was changed");
  t.equal(await count(), 5);
  await ask(update("stock", { n: 0 }, equal("id", 2)));
  await ask(update("stock", { n: 8 }, equal("id", 5)));
  t.match(await approved(removeThree, digest), { status: 200, affected: 3 }, "others may change");
  t.equal(await count(), 2);
  t.match(await approved(removeThree, digest), stale, "they are gone");
});

overEach("a row that was added after the approval is not changed", async (t, scene) => {
  const { approved, digestOf, count } = await stocked(scene);
  const digest = await digestOf(addOne);
  await scene.ask(insert("stock", [{ id: -1, n: 0 }]));
  t.match(await approved(addOne, digest), stale);
  await scene.ask(remove("stock", equal("id", -1)));
  t.match(await approved(addOne, digest), { status: 200, affected: 3 });
  t.match(await approved(addOne, digest), stale, "it ran once");
  t.equal(await count(), 5);
});

overEach("an Insert affects no row, and an Upsert those with its keys", async (t, scene) => {
  const { approved, digestOf } = await stocked(scene);
  const add = insert("stock", [{ id: 9, n: 0 }]);
  const [added, digest] = [await digestOf(add), await digestOf(upsert)];
  t.not(added, digest);
  t.match(await approved(add, digest), stale);
  t.match(await approved(add, added), { status: 200 });
  t.match(await approved(upsert, digest), { status: 200 });
  t.match(await approved(upsert, digest), stale);
});

overEach("rows without a key are compared in any order, with repeats", async (t, scene) => {
  const { approved, digestOf } = await stocked(scene, false);
  const digest = await digestOf(removeThree);
  await scene.ask(remove("stock", equal("id", 1)));
  await scene.ask(insert("stock", [{ id: 1, n: 0 }]));
  t.equal(await digestOf(removeThree), digest);
  await scene.ask(insert("stock", [{ id: 1, n: 0 }]));
  t.match(await approved(removeThree, digest), stale);
});
