import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import type { Test } from "tap";
import t from "tap";
import { PATIENCE_MS } from "../kit/eventually.ts";
import { createTable, databaseFiles, freshEngine, insert, query, selectAll, send } from "./kit.ts";
import { overEach } from "./over-each.ts";
import { endOf, openRows, rowsAs } from "./streaming.ts";

const ndjson = "application/x-ndjson";
const csv = "text/csv";
const place = { database: "main", table: "things" };
const columns = [
  { name: "id", type: "bigint", primary_key: true },
  { name: "name", type: "text" },
  { name: "price", type: "double" },
  { name: "amount", type: "decimal(20,2)" },
  { name: "here", type: "bool" },
  { name: "at", type: "timestamp" },
  { name: "day", type: "date" },
  { name: "more", type: "json" },
  { name: "raw", type: "blob" },
];
const values = [
  {
    ...{ id: "9007199254740993", name: 'a "b", c', price: 0.1, amount: 12.5, here: true },
    ...{ at: "2026-01-02T03:04:05Z", day: "2026-01-02", more: { k: [1, "x,y"] }, raw: "AAEC" },
  },
  { id: 2, name: "", price: -1e21, here: false, more: "text", raw: "" },
  { id: 3, name: "line\r\nbreak\ttab \\ \u0001 é 漢 😀", price: -0.5, more: null },
  { id: 4, name: " plain ", price: 1e-7, more: 7 },
];
const selected = {
  Select: {
    ...{
      database: "main",
      from: "things",
      columns: ["id", "name", "price", "here", "more", "raw"],
    },
    order_by: { column: "id", direction: "DESC" },
  },
};

overEach("rows come as lines of JSON and as CSV, exact and alike", async (t, fresh) => {
  const { ask, engine } = await fresh(t);
  t.match(await ask({ CreateTable: { ...place, columns } }), { status: 200 });
  t.match(await ask({ Insert: { ...place, values } }), { status: 200 });
  const json = (await ask(selected)).text;
  t.same(await rowsAs(engine.address, selected, ndjson), {
    ...{ status: 200, type: ndjson },
    text: `${json.slice('{"status":"success","data":['.length, -"]}".length).replaceAll('},{"id"', '}\n{"id"')}\n`,
  });
  t.same(await rowsAs(engine.address, selected, csv), {
    ...{ status: 200, type: "text/csv; charset=utf-8; header=present" },
    text: [
      "id,name,price,here,more,raw",
      '9007199254740993,"a ""b"", c",0.1,true,"{""k"":[1,""x,y""]}",AAEC',
      "4, plain ,1e-7,,7,",
      '3,"line\r\nbreak\ttab \\ \u0001 é 漢 😀",-0.5,,,',
      '2,"",-1e+21,false,text,""',
      "",
    ].join("\r\n"),
  });
  const moments = { ...selectAll("things").Select, columns: ["at", "day", "amount"], limit: 1 };
  const first = { Select: { ...moments, where: { column: "here", cmp: "=", value: true } } };
  const found = (await ask(first)).text.slice('{"status":"success","data":['.length, -"]}".length);
  t.equal((await rowsAs(engine.address, first, ndjson)).text, `${found}\n`);
  const [, at, day, amount] = /"at":"(.+)","day":"(.+)","amount":(.+)}/.exec(found) ?? [];
  const line = (await rowsAs(engine.address, first, csv)).text;
  t.equal(line, `at,day,amount\r\n${at},${day},${amount}\r\n`);

  const none = { Select: { ...selected.Select, where: { column: "id", cmp: "<", value: 0 } } };
  t.match(await rowsAs(engine.address, none, ndjson), { status: 200, type: ndjson, text: /^$/ });
  t.equal((await rowsAs(engine.address, none, csv)).text, "id,name,price,here,more,raw\r\n");
  const both = {
    ...{ database: "main", from: "things", columns: ["things.id", "others.id"] },
    join: { table: "others", on: "things.id = others.id", join_type: "LEFT" },
    where: { column: "things.id", cmp: "=", value: 2 },
  };
  t.match(await ask(createTable("others", { id: "bigint" })), { status: 200 });
  t.equal(
    (await rowsAs(engine.address, { Select: both }, csv)).text,
    "things.id,others.id\r\n2,\r\n",
  );
  const aggregate = [
    { fn: "count", as: "n" },
    { fn: "sum", column: "id", as: "sum" },
  ];
  const sums = { Select: { database: "main", from: "things", aggregate } };
  t.equal((await rowsAs(engine.address, sums, ndjson)).text, '{"n":4,"sum":9007199254741002}\n');
});

overEach(
  "what is no Select, and what fails before a row, is answered in JSON",
  async (t, fresh) => {
    const { ask, engine } = await fresh(t);
    t.match(await ask(createTable("things", { id: "bigint" })), { status: 200 });
    const answer = async (body: object) => {
      const { status, type, text } = await rowsAs(engine.address, body, csv);
      t.equal(type, "application/json");
      return { status, body: JSON.parse(text) };
    };
    t.match(await answer(insert("things", [{ id: 1 }, { id: 4 }])), {
      ...{ status: 200, body: { status: "success", affected: 2 } },
    });
    t.match(await answer({ Batch: [selectAll("things")] }), { status: 200, body: { data: [{}] } });
    t.match(await answer({ Preview: insert("things", [{ id: 3 }]) }), { body: { affected: 1 } });
    t.match(await answer(selectAll("nothing")), {
      ...{ status: 404, body: { status: "error", code: "table_not_found" } },
    });
    const where = { column: "none", cmp: "=", value: 1 };
    t.match(await answer(selectAll("things", { where })), {
      ...{ status: 400, body: { code: "unknown_column" } },
    });
    const greatest = "9223372036854775807";
    t.match(await ask(insert("things", [{ id: greatest }])), { status: 200 });
    const sum = {
      ...{ database: "main", from: "things" },
      aggregate: [{ fn: "sum", column: "id", as: "s" }],
    };
    t.match(await answer({ Select: sum }), { status: 400, body: { code: "number_out_of_range" } });
    t.equal((await rowsAs(engine.address, selectAll("things", { limit: 1 }), csv)).status, 200);
  },
);

const filler = "x".repeat(1000);
const rowCount = 20_000;

async function filled(t: Test, fresh: typeof freshEngine) {
  const scene = await fresh(t);
  t.match(await scene.ask(createTable("items", { id: "int", text: "text" })), { status: 200 });
  for (let from = 0; from < rowCount; from += 5000) {
    const rows = Array.from({ length: 5000 }, (_, at) => ({ id: from + at, text: filler }));
    t.match(await scene.ask(insert("items", rows)), { status: 200 });
  }
  return scene;
}

t.test("over SQLite a client that reads slowly holds up no writer", async (t) => {
  const { ask, engine } = await filled(t, freshEngine);
  const slow = await openRows(engine.address, selectAll("items"), ndjson);
  t.match(await ask({ Delete: { database: "main", table: "items", where: null } }), {
    body: { affected: rowCount },
  });
  t.same(await endOf(slow), { isCut: false, lines: rowCount });
});

t.test("over SQLite rows go out while others are still to come", async (t) => {
  const { ask, engine } = await freshEngine(t, { queryTimeLimit: 3000 });
  const rows = Array.from({ length: 3000 }, (_, id) => ({ id, k: 1 }));
  for (const table of ["a", "b"]) {
    await ask(createTable(table, { id: "int", k: "int" }));
    await ask(insert(table, rows));
  }
  const endless = {
    ...{ database: "main", from: "a", columns: ["a.id"] },
    join: [{ table: "b", on: "a.k = b.k", join_type: "INNER" }],
  };
  const response = await openRows(engine.address, { Select: endless }, ndjson);
  t.equal(response.statusCode, 200, "else it would be a 503 of a query past its time");
  const end = await endOf(response);
  t.equal(end.isCut, true);
  t.ok(end.lines > 0);
  t.match(await ask(selectAll("a", { limit: 1 })), { status: 200 });
});

t.test("over SQLite a client that leaves takes its query along", async (t) => {
  const { ask, engine } = await filled(t, freshEngine);
  const cross = {
    ...{ database: "main", from: "items", columns: ["items.text"] },
    join: [{ table: "pairs", on: "items.text = pairs.text", join_type: "INNER" }],
  };
  await ask(createTable("pairs", { id: "int", text: "text" }));
  const pairs = Array.from({ length: 5000 }, (_, id) => ({ id, text: filler }));
  t.match(await ask(insert("pairs", pairs)), { status: 200 });
  const response = await openRows(engine.address, { Select: cross }, ndjson);
  response.destroy();
  const gone = ask({ DropTable: { database: "main", table: "pairs" } });
  const answer = await Promise.race([gone, delay(PATIENCE_MS / 2, undefined, { ref: false })]);
  t.match(answer, { status: 200 }, "a writer waits for every reader");
});

const items = createTable("items", { id: "int", text: "text" });

function itemRows(count: number): object[] {
  return Array.from({ length: count }, (_, id) => ({ id, text: filler }));
}

overEach("one Insert takes ten thousand rows, and they come back", async (t, fresh) => {
  const { ask } = await fresh(t);
  await ask(items);
  t.match(await ask(insert("items", itemRows(10_000))), {
    body: { message: "Inserted 10000 rows" },
  });
  const { body, headers } = await ask(selectAll("items", { order_by: { column: "id" } }));
  t.same(body.data, itemRows(10_000));
  t.ok(Number(headers["content-length"]) > 10_000_000);
});

async function tenThousand(t: Test) {
  const fresh = await freshEngine(t);
  await fresh.ask(items);
  await fresh.ask(insert("items", itemRows(10_000)));
  return fresh;
}

t.test("a reader that takes its time holds up no writer and sees no change", async (t) => {
  const { ask, engine, directory } = await tenThousand(t);
  const response = await openRows(engine.address, selectAll("items"), "application/json");
  t.match(await ask({ Delete: { database: "main", table: "items", where: null } }), {
    status: 200,
  });
  t.match(await ask({ DropTable: { database: "main", table: "items" } }), { status: 200 });
  t.same(databaseFiles(directory), ["main.sqlite", "main.sqlite-journal"]);
  t.same(JSON.parse(await text(response)).data.length, 10_000);
});

t.test("a client that goes away in the middle leaves the engine at work", async (t) => {
  const { ask, engine } = await tenThousand(t);
  for (let round = 0; round < 20; round += 1)
    (await openRows(engine.address, selectAll("items"), "application/json")).destroy();
  t.equal((await ask(selectAll("items", { limit: 1 }))).status, 200);
  t.match(await ask({ DropTable: { database: "main", table: "items" } }), { status: 200 });
});

t.test("many clients at a time are all answered", async (t) => {
  const { ask } = await freshEngine(t);
  await ask(items);
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, id) =>
      id % 2 === 0 ? ask(insert("items", [{ id }])) : ask(selectAll("items")),
    ),
  );
  t.same(
    answers.map((answer) => answer.status),
    answers.map(() => 200),
  );
  t.equal((await ask(selectAll("items"))).body.data?.length, 25);
});

t.test("close lets the answer under way be read to its end", async (t) => {
  const { engine } = await tenThousand(t);
  const response = await openRows(engine.address, selectAll("items"), "application/json");
  const closed = engine.close();
  t.match(await query(engine.address, selectAll("items")), {
    status: 503,
    body: { code: "closing" },
  });
  t.equal(JSON.parse(await text(response)).data.length, 10_000);
  await closed;
  await t.rejects(send(engine.address, { path: "/healthz" }));
});
