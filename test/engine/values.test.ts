import { DatabaseSync } from "node:sqlite";
import t from "tap";
import {
  createTable,
  freshEngine,
  insert,
  query,
  selectAll,
  startOver,
  temporaryDirectory,
} from "./kit.ts";
import { overEach } from "./over-each.ts";

overEach("64-bit integers come back as they were written", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(createTable("big", { id: "bigint" }));
  const spelled = ["-9223372036854775808", "-9007199254740993", "9007199254740993"];
  const values = [...spelled, "9223372036854775807"];
  const rows = values.map((id) => `{"id":${id}}`).join(",");
  const body = `{"Insert":{"database":"main","table":"big","values":[${rows}]}}`;
  t.match(await ask(body), { body: { message: "Inserted 4 rows" } });
  t.equal((await ask(selectAll("big"))).text, `{"status":"success","data":[${rows}]}`);
  const where = `{"column":"id","cmp":"=","value":9007199254740993}`;
  const select = `{"Select":{"database":"main","from":"big","columns":["*"],"where":${where}}}`;
  t.equal((await ask(select)).text, `{"status":"success","data":[{"id":9007199254740993}]}`);
});

t.test("numbers that no column can hold are refused", async (t) => {
  const { ask } = await freshEngine(t);
  await ask(createTable("numbers", { id: "int", score: "float" }));
  const put = (cells: string) =>
    ask(`{"Insert":{"database":"main","table":"numbers","values":[{${cells}}]}}`);
  for (const number of ["9223372036854775808", "-9223372036854775809", "1e400", "-1e999"]) {
    t.match(await put(`"id":1,"score":${number}`), {
      status: 400,
      body: { code: "number_out_of_range", message: /out of range under "score":/ },
    });
  }
  t.match(await put(`"id":1.5`), { status: 400, body: { code: "invalid_value" } });
  t.match(await put(`"id":9007199254740993.0`), { status: 400, body: { code: "invalid_value" } });
  t.match(await put(`"id":1,"score":9007199254740993`), { body: { code: "invalid_value" } });
  t.match(await put(`"id":1e3,"score":-0`), { status: 200 });
  t.equal(
    (await ask(selectAll("numbers"))).text,
    `{"status":"success","data":[{"id":1000,"score":0}]}`,
  );
});

t.test("every type takes its values and gives them back, also after a restart", async (t) => {
  const directory = temporaryDirectory(t);
  const first = await startOver(t, directory);
  const types = {
    id: "INT",
    price: "decimal(10,2)",
    label: "string",
    code: "VARCHAR(8)",
    active: "boolean",
    profile: "jsonb",
    picture: "blob",
    at: "timestamp",
  };
  const row = {
    id: 1,
    price: 19.99,
    label: "007",
    code: "a\u0000b\u{1f600}",
    active: true,
    profile: { b: [1, null, { c: "d" }], a: 1.5 },
    picture: "aGVsbG8=",
    at: "2026-01-02T03:04:05Z",
  };
  await query(first.address, createTable("everything", types));
  t.match(await query(first.address, insert("everything", [row])), { status: 200 });
  t.same((await query(first.address, selectAll("everything"))).body.data, [row]);
  await first.close();
  const second = await startOver(t, directory);
  t.same((await query(second.address, selectAll("everything"))).body.data, [row]);
});

overEach("a value of another type is refused, not converted", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(createTable("strict", { id: "int", label: "text", active: "bool", raw: "bytes" }));
  const unfit = [
    { id: "1" },
    { id: true },
    { id: 1, label: 7 },
    { id: 1, label: { a: 1 } },
    { id: 1, label: ["a"] },
    { id: 1, active: "true" },
    { id: 1, active: 2 },
    { id: 1, raw: "not base64!" },
  ];
  for (const row of unfit) {
    t.match(
      await ask(insert("strict", [row])),
      { status: 400, body: { code: "invalid_value" } },
      JSON.stringify(row),
    );
  }
  t.same((await ask(selectAll("strict"))).body.data, []);
});

overEach("a message about a value does not repeat the value", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(createTable("secrets", { id: "int" }));
  const { body } = await ask(insert("secrets", [{ id: "hunter2" }]));
  t.notMatch(body.message, /hunter2/);
});

overEach("booleans compare with truth values and with 0 and 1", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(createTable("flags", { id: "int", on: "bool" }));
  await ask(
    insert("flags", [
      { id: 1, on: true },
      { id: 2, on: false },
      { id: 3, on: 1 },
    ]),
  );
  for (const value of [true, 1]) {
    const where = { column: "on", cmp: "=", value };
    const { body } = await ask(selectAll("flags", { where }));
    t.same(body.data, [
      { id: 1, on: true },
      { id: 3, on: true },
    ]);
  }
});

overEach("integers inside a json cell stay exact", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(createTable("documents", { id: "int", body: "json" }));
  const cell = `{"__proto__":[9007199254740993],"s":"\\u2028"}`;
  const rows = `[{"id":1,"body":${cell}},{"id":2,"body":"text"},{"id":3,"body":null}]`;
  await ask(`{"Insert":{"database":"main","table":"documents","values":${rows}}}`);
  const { text, body } = await ask(selectAll("documents"));
  t.match(text, `"body":{"__proto__":[9007199254740993],`);
  t.match(body.data?.slice(1), [{ body: "text" }, { body: null }]);
  const where = { column: "body", cmp: "=", value: "text" };
  t.match((await ask(selectAll("documents", { where }))).body.data, [{ id: 2 }]);
});

t.test("a table that was made by other means is readable", async (t) => {
  const { ask, directory } = await freshEngine(t);
  const other = new DatabaseSync(`${directory}/data/main.sqlite`);
  other.exec("create table legacy (id integer primary key, label varchar(9), size)");
  other.exec("insert into legacy values (1, 'one', 1.5), (2, null, x'6869')");
  other.close();
  t.same((await ask(selectAll("legacy"))).body.data, [
    { id: 1, label: "one", size: 1.5 },
    { id: 2, label: null, size: "aGk=" },
  ]);
  t.match(await ask(insert("legacy", [{ id: 3, label: "three" }])), { status: 200 });
});
