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

overEach("numbers that no column can hold are refused", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(createTable("numbers", { id: "int", score: "float" }));
  const put = (cells: string) =>
    ask(`{"Insert":{"database":"main","table":"numbers","values":[{${cells}}]}}`);
  const isSqlite = t.fullname.includes("SQLite");
  const far = ["9223372036854775808", "-9223372036854775809", "1".repeat(30)];
  const refused = { status: 400, body: { code: "number_out_of_range" } };
  for (const number of far) t.match(await put(`"id":${number}`), refused, number);
  for (const number of ["1e400", "-1e999", ...(isSqlite ? far : [])]) {
    const answer = await put(`"id":1,"score":${number}`);
    t.match(answer, refused, number);
    if (isSqlite) t.match(answer.body.message, /out of range under "score":/);
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

const columns = [
  { name: "id", type: "bigint", primary_key: true },
  { name: "code", type: "text" },
  { name: "note", type: "json" },
];
const [one, other] = ["9007199254740993", "-9223372036854775808"];

overEach("a string of an integer's digits is that integer in its column", async (t, fresh) => {
  const { ask } = await fresh(t);
  await ask({ CreateTable: { database: "main", table: "big", columns } });
  const values = [
    { id: one, code: one, note: { n: one } },
    { id: other, code: other, note: other },
    { id: 9007199254740992, code: "near" },
  ];
  t.match(await ask({ Insert: { database: "main", table: "big", values } }), { status: 200 });
  const found = async (where: object): Promise<string> => {
    const order_by = { column: "code", direction: "DESC" };
    const select = { database: "main", from: "big", columns: ["id", "code"], where, order_by };
    return (await ask({ Select: select })).text;
  };
  const [first, second] = [`{"id":${one},"code":"${one}"}`, `{"id":${other},"code":"${other}"}`];
  const dataOf = (...rows: string[]) => `{"status":"success","data":[${rows.join(",")}]}`;
  t.equal(await found({ column: "id", cmp: "=", value: one }), dataOf(first));
  t.equal(await found({ column: "id", cmp: "IN", value: [one, other] }), dataOf(first, second));
  const between = { column: "id", cmp: "BETWEEN", value: [one, "9223372036854775807"] };
  t.equal(await found(between), dataOf(first));
  t.equal(await found({ column: "code", cmp: "=", value: one }), dataOf(first), "text is text");

  const note = { database: "main", from: "big", columns: ["note"] };
  const ofOne = { ...note, where: { column: "id", cmp: "=", value: one } };
  t.equal((await ask({ Select: ofOne })).text, dataOf(`{"note":{"n":"${one}"}}`), "json is json");

  const moved = "9007199254740995";
  const update = { database: "main", table: "big", set: { id: moved }, where: ofOne.where };
  t.match(await ask({ Update: update }), { status: 200 });
  const gone = { column: "id", cmp: "=", value: moved };
  t.match(await ask({ Delete: { database: "main", table: "big", where: gone } }), { status: 200 });
  t.equal(await found({ column: "id", cmp: ">=", value: one }), dataOf(), "one row and no other");
  t.match(await found({ column: "code", cmp: "=", value: "near" }), "9007199254740992");
});

overEach("no other string is taken for an integer", async (t, fresh) => {
  const { ask } = await fresh(t);
  await ask({ CreateTable: { database: "main", table: "big", columns } });
  for (const id of ["5", "9007199254740991", `0${one}`, `${one}.0`, `${one}0000`, ` ${one}`, "x"]) {
    const refused = { status: 400, body: { code: "invalid_value" } };
    const insert = { database: "main", table: "big", values: [{ id }] };
    t.match(await ask({ Insert: insert }), refused, id);
  }
});

const main = { database: "main" };
const id = { name: "id", type: "int", primary_key: true };

function create(table: string, columns: object[]): object {
  return { CreateTable: { ...main, table, columns } };
}

/** A default of each type, and the JSON text that a row comes back with. */
const defaults: readonly [type: string, value: string, answered?: string][] = [
  ["int", "7"],
  ["bigint", "9007199254740993"],
  ["bigint", "-9223372036854775808"],
  ["int", "1e3", "1000"],
  ["double", "0.1"],
  ["double", "-2.5"],
  ["decimal(10,2)", "1.25"],
  ["numeric", "12345678.5"],
  ["text", '"it\'s \\"\\\\ ? $1"'],
  ["text", '"größe 名前 \u{1f600}"'],
  ["varchar(3)", '"abc"'],
  ["text", '""'],
  ["uuid", '"5f3d3a1c-7a43-4f57-9a3c-0b9c3bd18f3f"'],
  ["date", '"2026-01-31"'],
  ["time", '"13:45:00"'],
  ["timestamp", '"2026-01-31T13:45:00Z"'],
  ["bool", "true"],
  ["bool", "0", "false"],
  ["json", '"text"'],
  ["json", "9007199254740993"],
  ["blob", '"aGVs//8="'],
  ["int", "null"],
];

overEach("a column that is left out takes its default", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  for (const [index, [type, value, answered = value]] of defaults.entries()) {
    const table = `t${index}`;
    const name = `${type} ${value}`;
    const definition = `{"CreateTable":{"database":"main","table":"${table}","columns":[{"name":"id","type":"int","primary_key":true},{"name":"cell","type":"${type}","default":${value}},{"name":"more","type":"int"}]}}`;
    t.match(await ask(definition), { status: 200 }, name);
    await ask(insert(table, [{ id: 1 }, { id: 2, cell: null }, { id: 3, more: 1 }]));
    t.equal(
      (await ask(selectAll(table, { columns: ["id", "cell"], order_by: { column: "id" } }))).text,
      `{"status":"success","data":[{"id":1,"cell":${answered}},{"id":2,"cell":null},{"id":3,"cell":${answered}}]}`,
      name,
    );
  }
});

overEach("a row of nothing but defaults is stored and answered", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(
    create("lines", [
      { ...id, default: 5 },
      { name: "word", type: "text", nullable: false, default: "w" },
    ]),
  );
  const body = { Insert: { ...main, table: "lines", values: [{}], returning: ["*"] } };
  t.match(await ask(body), { body: { data: [{ id: 5, word: "w" }] } });
});

overEach("a default that the column does not take is refused", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  const refusals: [column: object, code: string, message?: RegExp][] = [
    [
      { type: "int", default: "x" },
      "invalid_value",
      /^Column "cell" \(int\) .*; allowed: a whole number of 64 bits$/,
    ],
    [{ type: "int", default: 1.5 }, "invalid_value"],
    [{ type: "text", default: 7 }, "invalid_value", /allowed: text$/],
    [{ type: "bool", default: 2 }, "invalid_value"],
    [{ type: "blob", default: "?" }, "invalid_value"],
  ];
  for (const [column, code, message = /^Column "cell"/] of refusals) {
    const answer = await ask(create("bad", [id, { name: "cell", ...column }]));
    t.match(answer, { status: 400, body: { code, message } }, JSON.stringify(column));
  }
  const serial = { name: "id", type: "serial", primary_key: true, default: 1 };
  t.match(await ask(create("bad", [serial])), {
    status: 400,
    body: { code: "invalid_value", message: /"id" is serial, which generates its numbers/ },
  });
  if (!t.fullname.includes("SQLite")) {
    const long = await ask(
      create("bad", [id, { name: "cell", type: "varchar(2)", default: "abc" }]),
    );
    t.match(long, { status: 400, body: { code: "invalid_value" } });
    const large = await ask(
      create("bad", [id, { name: "cell", type: "decimal(3,1)", default: 12345 }]),
    );
    t.match(large, { status: 400 });
    const fine = await ask(
      create("bad", [id, { name: "cell", type: "decimal(3,1)", default: 1.25 }]),
    );
    t.match(fine, { status: 400, body: { code: "invalid_value" } });
  }
  t.match(await ask(selectAll("bad")), { status: 404 });
});

overEach("a column holds what it refers to, and nothing else", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(create("users", [id, { name: "code", type: "text", unique: true }]));
  const columns = [
    id,
    { name: "user_id", type: "int", references: "users.id" },
    { name: "code", type: "text", references: "users.code" },
    { name: "parent", type: "int", references: "orders.id" },
  ];
  t.match(await ask(create("orders", columns)), { status: 200 });
  await ask(insert("users", [{ id: 1, code: "a" }, { id: 2 }]));
  t.match(
    await ask(
      insert("orders", [
        { id: 1, user_id: 1, code: "a" },
        { id: 2, parent: 1 },
      ]),
    ),
    { status: 200 },
  );
  const broken = { status: 409, body: { code: "constraint_violation" } };
  t.match(await ask(insert("orders", [{ id: 3, user_id: 9 }])), broken);
  t.match(await ask(insert("orders", [{ id: 3, code: "b" }])), broken);
  t.match(await ask(insert("orders", [{ id: 3, parent: 9 }])), broken);
  const first = { column: "id", cmp: "=", value: 1 };
  t.match(await ask({ Delete: { ...main, table: "users", where: first } }), broken);
  t.match(await ask({ Update: { ...main, table: "users", set: { id: 5 }, where: first } }), broken);
  t.match(await ask({ Preview: { Delete: { ...main, table: "users", where: first } } }), broken);
  t.match(await ask({ DropTable: { ...main, table: "users" } }), broken);
  await ask({ Delete: { ...main, table: "orders", where: { column: "id", cmp: "=", value: 2 } } });
  await ask({ Delete: { ...main, table: "orders", where: null } });
  t.match(
    await ask({ DropTable: { ...main, table: "users" } }),
    broken,
    "though there are no rows",
  );
  t.match(await ask({ DropTable: { ...main, table: "orders" } }), { status: 200 });
  t.match(await ask({ DropTable: { ...main, table: "users" } }), { status: 200 });
});

overEach("a reference to what cannot be referred to says what can", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(
    create("users", [
      id,
      { name: "name", type: "text" },
      { name: "code", type: "text", unique: true },
    ]),
  );
  await ask(create("pairs", [id, { ...id, name: "other" }]));
  const refusals: [references: string, type: string, code: string, message: RegExp][] = [
    ["usres.id", "int", "table_not_found", /did you mean users\?/],
    [
      "users.idd",
      "int",
      "unknown_column",
      /^Column "ref" refers to users\.idd, and users has no such column \(did you mean users\.id\?\)$/,
    ],
    [
      "users.name",
      "text",
      "no_unique_key",
      /^Column "ref" refers to users\.name, which is not a primary or unique key of users; it has \(id\), \(code\)$/,
    ],
    ["pairs.id", "int", "no_unique_key", /it has \(id, other\)$/],
    [
      "users.id",
      "text",
      "invalid_type",
      /^Column "ref" refers to users\.id, which has another type: text is not /,
    ],
    ["orders.ref", "int", "no_unique_key", /of orders; it has \(id\)$/],
  ];
  for (const [references, type, code, message] of refusals) {
    const answer = await ask(create("orders", [id, { name: "ref", type, references }]));
    t.match(answer, { body: { code, message } }, references);
  }
  t.match(await ask(selectAll("orders")), { status: 404 });
});
