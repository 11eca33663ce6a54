import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { preferredFormat } from "../../src/engine/database.ts";
import { PATIENCE_MS } from "../kit/eventually.ts";
import {
  createTable,
  databaseFiles,
  dropTable,
  endOf,
  equal,
  freshEngine,
  insert,
  openRows,
  refusal,
  remove,
  rowsAs,
  selectAll,
} from "./kit.ts";
import { freshSqlite, overEach, overSqlite } from "./over-each.ts";

const ndjson = "application/x-ndjson";
const csv = "text/csv";
const things = createTable("things", {
  id: "bigint",
  name: "text",
  price: "double",
  amount: "decimal(20,2)",
  here: "bool",
  at: "timestamp",
  day: "date",
  more: "json",
  raw: "blob",
});
const values = [
  {
    id: "9007199254740993",
    name: 'a "b", c',
    price: 0.1,
    amount: 12.5,
    here: true,
    at: "2026-01-02T03:04:05Z",
    day: "2026-01-02",
    more: { k: [1, "x,y"] },
    raw: "AAEC",
  },
  { id: 2, name: "", price: -1e21, here: false, more: "text", raw: "" },
  { id: 3, name: "line\r\nbreak\ttab \\ \u0001 é 漢 😀", price: -0.5, more: null },
  { id: 4, name: " plain ", price: 1e-7, more: 7 },
];
const columns = ["id", "name", "price", "here", "more", "raw"];
const select = (more: object) => selectAll("things", { columns, ...more });
const withoutEnvelope = (text: string) => text.slice('{"status":"success","data":['.length, -2);

overEach("rows as lines of JSON and as CSV are exact and alike", async (t, { ask, engine }) => {
  t.match(await ask(things), { status: 200 });
  t.match(await ask(insert("things", values)), { status: 200 });
  const rows = (body: object, accept: string) => rowsAs(engine.address, body, accept);
  const all = select({ order_by: { column: "id", direction: "DESC" } });
  const json = withoutEnvelope((await ask(all)).text);
  t.same(await rows(all, ndjson), {
    status: 200,
    type: ndjson,
    text: `${json.replaceAll('},{"id"', '}\n{"id"')}\n`,
  });
  t.same(await rows(all, csv), {
    status: 200,
    type: "text/csv; charset=utf-8; header=present",
    text: [
      "id,name,price,here,more,raw",
      '9007199254740993,"a ""b"", c",0.1,true,"{""k"":[1,""x,y""]}",AAEC',
      "4, plain ,1e-7,,7,",
      '3,"line\r\nbreak\ttab \\ \u0001 é 漢 😀",-0.5,,,',
      '2,"",-1e+21,false,text,""',
      "",
    ].join("\r\n"),
  });
  const first = select({ columns: ["at", "day", "amount"], limit: 1, where: equal("here", true) });
  const row = withoutEnvelope((await ask(first)).text);
  t.equal((await rows(first, ndjson)).text, `${row}\n`);
  const [, at, day, amount] = /"at":"(.+)","day":"(.+)","amount":(.+)}/.exec(row) ?? [];
  t.equal((await rows(first, csv)).text, `at,day,amount\r\n${at},${day},${amount}\r\n`);

  const none = select({ where: { column: "id", cmp: "<", value: 0 } });
  t.match(await rows(none, ndjson), { status: 200, type: ndjson, text: /^$/ });
  t.equal((await rows(none, csv)).text, "id,name,price,here,more,raw\r\n");
  t.match(await ask(createTable("others", { id: "bigint" })), { status: 200 });
  const join = { table: "others", on: "things.id = others.id", join_type: "LEFT" };
  const ids = { columns: ["things.id", "others.id"], where: equal("things.id", 2) };
  const joined = (await rows(select({ join, ...ids }), csv)).text;
  t.equal(joined, "things.id,others.id\r\n2,\r\n");
  const aggregate = [
    { fn: "count", as: "n" },
    { fn: "sum", column: "id", as: "sum" },
  ];
  const sums = { Select: { database: "main", from: "things", aggregate } };
  t.equal((await rows(sums, ndjson)).text, '{"n":4,"sum":9007199254741002}\n');
});

overSqlite("changes, and failures before the first row, are JSON", async (t, { ask, engine }) => {
  t.match(await ask(createTable("things", { id: "bigint" })), { status: 200 });
  const two = [{ id: 1 }, { id: 4 }];
  const aggregate = [{ fn: "sum", column: "id", as: "s" }];
  const sum = { Select: { database: "main", from: "things", aggregate } };
  for (const [body, expected] of [
    [insert("things", two), { status: 200, body: { status: "success", affected: 2 } }],
    [{ Batch: [selectAll("things")] }, { status: 200, body: { data: [{}] } }],
    [{ Preview: insert("things", [{ id: 3 }]) }, { status: 200, body: { affected: 1 } }],
    [selectAll("nothing"), refusal(404, "table_not_found")],
    [selectAll("things", { where: equal("none", 1) }), refusal(400, "unknown_column")],
    [insert("things", [{ id: "9223372036854775807" }]), { status: 200 }],
    [sum, refusal(400, "number_out_of_range")],
  ] as const) {
    const { status, type, text } = await rowsAs(engine.address, body, csv);
    t.equal(type, "application/json");
    t.match({ status, body: JSON.parse(text) }, expected);
  }
  t.equal((await rowsAs(engine.address, selectAll("things", { limit: 1 }), csv)).status, 200);
});

const filler = "x".repeat(1000);
const rowCount = 20_000;
const items = createTable("items", { id: "int", text: "text" });

function itemRows(count: number, from = 0): object[] {
  return Array.from({ length: count }, (_, at) => ({ id: from + at, text: filler }));
}

/** An engine over SQLite with rows in `items`. */
async function filled(t: Test, count: number) {
  const scene = await freshSqlite();
  await scene.ask(items);
  for (let from = 0; from < count; from += 5000) {
    t.match(await scene.ask(insert("items", itemRows(5000, from))), { status: 200 });
  }
  return scene;
}

t.test("with SQLite, a client that reads slowly blocks no writer", async (t) => {
  const { ask, engine } = await filled(t, rowCount);
  const slow = await openRows(engine.address, selectAll("items"), ndjson);
  t.match(await ask(remove("items")), { body: { affected: rowCount } });
  t.same(await endOf(slow), { isCut: false, lines: rowCount });
});

t.test("with SQLite, rows are sent while others are still being read", async (t) => {
  const { ask, engine } = await freshEngine(t, { queryTimeLimit: 3000 });
  const rows = Array.from({ length: 3000 }, (_, id) => ({ id, k: 1 }));
  for (const table of ["a", "b"]) {
    await ask(createTable(table, { id: "int", k: "int" }));
    await ask(insert(table, rows));
  }
  const join = [{ table: "b", on: "a.k = b.k", join_type: "INNER" }];
  const endless = selectAll("a", { columns: ["a.id"], join });
  const response = await openRows(engine.address, endless, ndjson);
  t.equal(response.statusCode, 200, "otherwise the time limit makes it a 503");
  const end = await endOf(response);
  t.equal(end.isCut, true);
  t.ok(end.lines > 0);
  t.match(await ask(selectAll("a", { limit: 1 })), { status: 200 });
});

t.test("with SQLite, the query of a client that leaves ends", async (t) => {
  const { ask, engine } = await filled(t, rowCount);
  await ask(createTable("pairs", { id: "int", text: "text" }));
  t.match(await ask(insert("pairs", itemRows(5000))), { status: 200 });
  const join = [{ table: "pairs", on: "items.text = pairs.text", join_type: "INNER" }];
  const cross = selectAll("items", { columns: ["items.text"], join });
  const response = await openRows(engine.address, cross, ndjson);
  response.destroy();
  const drop = ask(dropTable("pairs"));
  const answer = await Promise.race([drop, delay(PATIENCE_MS / 2, undefined, { ref: false })]);
  t.match(answer, { status: 200 }, "a writer waits for every reader");
});

overEach("one Insert stores ten thousand rows", async (t, { ask }) => {
  await ask(items);
  t.match(await ask(insert("items", itemRows(10_000))), {
    body: { message: "Inserted 10000 rows" },
  });
  const { body, headers } = await ask(selectAll("items", { order_by: { column: "id" } }));
  t.same(body.data, itemRows(10_000));
  t.ok(Number(headers["content-length"]) > 10_000_000);
});

t.test("a client that reads slowly blocks no writer and sees no change", async (t) => {
  const { ask, engine, directory } = await filled(t, 10_000);
  const response = await openRows(engine.address, selectAll("items"), "application/json");
  t.match(await ask(remove("items")), {
    status: 200,
  });
  t.match(await ask(dropTable("items")), { status: 200 });
  t.same(databaseFiles(directory), ["main.sqlite", "main.sqlite-journal"]);
  t.same(JSON.parse(await text(response)).data.length, 10_000);
});

t.test("the engine survives clients that leave in the middle", async (t) => {
  const { ask, engine } = await filled(t, 10_000);
  for (let round = 0; round < 20; round += 1)
    (await openRows(engine.address, selectAll("items"), "application/json")).destroy();
  t.equal((await ask(selectAll("items", { limit: 1 }))).status, 200);
  t.match(await ask(dropTable("items")), { status: 200 });
});

const accepted: readonly (readonly [accept: string | undefined, format: string])[] = [
  [undefined, "json"],
  ["", "json"],
  ["*/*", "json"],
  ["application/json", "json"],
  ["application/x-ndjson", "ndjson"],
  ["APPLICATION/X-NDJSON", "ndjson"],
  ["text/csv", "csv"],
  ['text/csv;charset="UTF-8";header=present', "csv"],
  ["text/csv, */*", "csv"],
  ["*/*, application/x-ndjson", "ndjson"],
  ["application/x-ndjson, application/json", "json"],
  ["application/x-ndjson, application/json;q=0.9", "ndjson"],
  ["application/x-ndjson;q=0.5, text/csv;q=0.500", "ndjson"],
  ["application/json;q=0, */*", "ndjson"],
  ["application/json;q=0, application/x-ndjson;q=0, */*", "csv"],
  ["text/html, application/xhtml+xml", "json"],
  ["application/json;q=0", "json"],
  ["text/csv;header=absent", "json"],
  ["text/csv;charset=iso-8859-1, application/x-ndjson;q=0.1", "ndjson"],
  ["text/csv;q=2, application/x-ndjson;q=0.1", "ndjson"],
  [",;,", "json"],
];

t.test("rows have the form that Accept prefers, or else JSON", async (t) => {
  t.same(
    accepted.map(([accept]) => [accept, preferredFormat(accept)]),
    accepted,
  );
});
