import t from "tap";
import {
  createTable,
  dropTable,
  equal,
  insert,
  query,
  refusal,
  remove,
  selectAll,
  startOver,
  temporaryDirectory,
  update,
} from "./kit.ts";
import { overEach, overSqlite } from "./over-each.ts";

overEach("numbers that no column can hold are refused", async (t, { ask }) => {
  await ask(createTable("numbers", { id: "int", score: "float" }));
  const put = (cells: string) =>
    ask(`{"Insert":{"database":"main","table":"numbers","values":[{${cells}}]}}`);
  const isSqlite = t.fullname.includes("SQLite");
  const far = ["9223372036854775808", "-9223372036854775809", "1".repeat(30)];
  const outOfRange = refusal(400, "number_out_of_range");
  for (const number of far) t.match(await put(`"id":${number}`), outOfRange, number);
  for (const number of ["1e400", "-1e999", ...(isSqlite ? far : [])]) {
    const answer = await put(`"id":1,"score":${number}`);
    t.match(answer, outOfRange, number);
    if (isSqlite) t.match(answer.body.message, /out of range under "score":/);
  }
  for (const cells of [`"id":1.5`, `"id":9007199254740993.0`, `"id":1,"score":9007199254740993`]) {
    t.match(await put(cells), refusal(400, "invalid_value"), cells);
  }
  t.match(await put(`"id":1e3,"score":-0`), { status: 200 });
  t.match((await ask(selectAll("numbers"))).text, `"data":[{"id":1000,"score":0}]`);
});

t.test("every type returns its values, also after a restart", async (t) => {
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

overEach("a value of another type is refused, and not quoted", async (t, { ask }) => {
  await ask(createTable("strict", { id: "int", label: "text", active: "bool", raw: "bytes" }));
  for (const row of [
    ...["hunter2", "1", true].map((id) => ({ id })),
    ...[7, { a: 1 }, ["a"]].map((label) => ({ id: 1, label })),
    ...["true", 2].map((active) => ({ id: 1, active })),
    { id: 1, raw: "not base64!" },
  ]) {
    const answer = await ask(insert("strict", [row]));
    t.match(answer, refusal(400, "invalid_value"), JSON.stringify(row));
    t.notMatch(answer.text, /hunter2/);
  }
  t.same((await ask(selectAll("strict"))).body.data, []);
});

overEach("booleans compare with true, false, 0 and 1", async (t, { ask }) => {
  await ask(createTable("flags", { id: "int", on: "bool" }));
  await ask(
    insert(
      "flags",
      [true, false, 1].map((on, id) => ({ id, on })),
    ),
  );
  const rows = [0, 2].map((id) => ({ id, on: true }));
  for (const value of [true, 1]) {
    t.same((await ask(selectAll("flags", { where: equal("on", value) }))).body.data, rows);
  }
});

overEach("a json cell keeps equal keys and the order of keys", async (t, { ask }) => {
  await ask(createTable("documents", { id: "int", body: "json" }));
  const exact = `{"__proto__":[9007199254740993]}`;
  const cells = [`{"a":{"b":1,"b":2},"c":3,"a":[{"2":1,"1":[]}]}`, `[{"10":0,"9":{}}]`, exact];
  const put = (id: number, cell: string) =>
    ask(
      `{"Insert":{"database":"main","table":"documents","values":[{"id":${id},"body":${cell}}]}}`,
    );
  for (const [id, cell] of cells.entries()) {
    t.match(await put(id, cell.replaceAll(":", " :\n ")), { status: 200 });
    const where = equal("id", id);
    const { text } = await ask(selectAll("documents", { columns: ["body"], where }));
    t.equal(text, `{"status":"success","data":[{"body":${cell}}]}`);
    const set = `{"Update":{"database":"main","table":"documents","set":{"body":${cell}},"where":null}}`;
    t.match(await ask(set), { status: 200 });
    const found = await ask(
      `{"Select":{"database":"main","from":"documents","columns":["id"],"where":{"column":"body","cmp":"=","value":${cell}}}}`,
    );
    t.equal(found.body.data?.length, id + 1, cell);
  }
});

const big = createTable("big", { id: "bigint", code: "text", note: "json" });
const [one, other] = ["9007199254740993", "-9223372036854775808"];

overEach("a string of digits is an integer in an integer column", async (t, { ask }) => {
  await ask(big);
  const values = [
    { id: one, code: one, note: { n: one } },
    { id: other, code: other, note: other },
    { id: 9007199254740992, code: "near" },
  ];
  t.match(await ask(insert("big", values)), { status: 200 });
  const find = async (where: object, columns = ["id", "code"]) => {
    const order_by = { column: "code", direction: "DESC" };
    return (await ask(selectAll("big", { columns, where, order_by }))).text;
  };
  const [first, second] = [`{"id":${one},"code":"${one}"}`, `{"id":${other},"code":"${other}"}`];
  const dataOf = (...rows: string[]) => `{"status":"success","data":[${rows.join(",")}]}`;
  t.equal(await find(equal("id", one)), dataOf(first));
  t.equal(await find({ column: "id", cmp: "IN", value: [one, other] }), dataOf(first, second));
  const between = { column: "id", cmp: "BETWEEN", value: [one, "9223372036854775807"] };
  t.equal(await find(between), dataOf(first));
  t.equal(await find(equal("code", one)), dataOf(first), "text stays text");
  t.equal(await find(equal("id", one), ["note"]), dataOf(`{"note":{"n":"${one}"}}`));

  const moved = "9007199254740995";
  t.match(await ask(update("big", { id: moved }, equal("id", one))), { body: { affected: 1 } });
  t.match(await ask(remove("big", equal("id", moved))), { body: { affected: 1 } });
  t.equal(await find({ column: "id", cmp: ">=", value: one }), dataOf());
  t.match(await find(equal("code", "near")), "9007199254740992");
});

overSqlite("no other string is read as an integer", async (t, { ask }) => {
  await ask(big);
  for (const id of ["5", "9007199254740991", `0${one}`, `${one}.0`, `${one}0000`, ` ${one}`, "x"]) {
    t.match(await ask(insert("big", [{ id }])), refusal(400, "invalid_value"), id);
  }
});

/** A default of each type, and the JSON text in rows. */
const defaults: readonly [type: string, value: string, returned?: string][] = [
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

overEach("an omitted column gets its default", async (t, { ask }) => {
  for (const [index, [type, value, returned = value]] of defaults.entries()) {
    const table = `t${index}`;
    const name = `${type} ${value}`;
    const definition = createTable(table, { id: "int", cell: { type, default: 0 }, more: "int" });
    const text = JSON.stringify(definition).replace('"default":0', `"default":${value}`);
    t.match(await ask(text), { status: 200 }, name);
    await ask(insert(table, [{ id: 1 }, { id: 2, cell: null }, { id: 3, more: 1 }]));
    t.match(
      (await ask(selectAll(table, { columns: ["id", "cell"], order_by: { column: "id" } }))).text,
      `"data":[{"id":1,"cell":${returned}},{"id":2,"cell":null},{"id":3,"cell":${returned}}]`,
      name,
    );
  }
});

overEach("a row of nothing but defaults is stored and returned", async (t, { ask }) => {
  const word = { type: "text", nullable: false, default: "w" };
  await ask(createTable("lines", { id: { type: "int", default: 5 }, word }));
  const body = { Insert: { database: "main", table: "lines", values: [{}], returning: ["*"] } };
  t.match(await ask(body), { body: { data: [{ id: 5, word: "w" }] } });
});

overEach("a default that the column does not accept is refused", async (t, { ask }) => {
  const refused = async (cell: object, message = /^Column "cell"/) => {
    const answer = await ask(createTable("bad", { id: "int", cell }));
    t.match(answer, refusal(400, "invalid_value", message), JSON.stringify(cell));
  };
  const whole = /^Column "cell" \(int\) .*; allowed: a whole number of 64 bits$/;
  await refused({ type: "int", default: "x" }, whole);
  await refused({ type: "int", default: 1.5 });
  await refused({ type: "text", default: 7 }, /^Column "cell".*; allowed: text$/);
  await refused({ type: "bool", default: 2 });
  await refused({ type: "blob", default: "?" });
  const serial = await ask(createTable("bad", { id: { type: "serial", default: 1 } }));
  t.match(serial, refusal(400, "invalid_value", /"id" is serial, which generates its numbers/));
  if (!t.fullname.includes("SQLite")) {
    await refused({ type: "varchar(2)", default: "abc" });
    await refused({ type: "decimal(3,1)", default: 1.25 });
    const large = { type: "decimal(3,1)", default: 12345 };
    t.match(await ask(createTable("bad", { id: "int", cell: large })), { status: 400 });
  }
  t.match(await ask(selectAll("bad")), { status: 404 });
});

overEach("a reference allows only values that exist", async (t, { ask }) => {
  await ask(createTable("users", { id: "int", code: { type: "text", unique: true } }));
  const orders = {
    id: "int",
    user_id: { type: "int", references: "users.id" },
    code: { type: "text", references: "users.code" },
    parent: { type: "int", references: "orders.id" },
  };
  t.match(await ask(createTable("orders", orders)), { status: 200 });
  await ask(insert("users", [{ id: 1, code: "a" }, { id: 2 }]));
  const rows = [
    { id: 1, user_id: 1, code: "a" },
    { id: 2, parent: 1 },
  ];
  t.match(await ask(insert("orders", rows)), { status: 200 });
  const first = equal("id", 1);
  const broken = refusal(409, "constraint_violation");
  for (const body of [
    insert("orders", [{ id: 3, user_id: 9 }]),
    insert("orders", [{ id: 3, code: "b" }]),
    insert("orders", [{ id: 3, parent: 9 }]),
    remove("users", first),
    update("users", { id: 5 }, first),
    { Preview: remove("users", first) },
    dropTable("users"),
  ]) {
    t.match(await ask(body), broken, JSON.stringify(body));
  }
  await ask(remove("orders", equal("id", 2)));
  await ask(remove("orders"));
  t.match(await ask(dropTable("users")), broken, "even without rows");
  t.match(await ask(dropTable("orders")), { status: 200 });
  t.match(await ask(dropTable("users")), { status: 200 });
});

overEach("a reference to a column that cannot be referred to is refused", async (t, { ask }) => {
  await ask(
    createTable("users", { id: "int", name: "text", code: { type: "text", unique: true } }),
  );
  await ask(createTable("pairs", { id: "int", other: { type: "int", primary_key: true } }));
  const refusals: [references: string, type: string, code: string, message: RegExp][] = [
    ["usres.id", "int", "table_not_found", /did you mean users\?/],
    [
      "users.idd",
      "int",
      "unknown_column",
      /users has no such column \(did you mean users\.id\?\)$/,
    ],
    ["users.name", "text", "no_unique_key", /unique key of users; it has \(id\), \(code\)$/],
    ["pairs.id", "int", "no_unique_key", /it has \(id, other\)$/],
    ["users.id", "text", "invalid_type", /which has another type: text is not /],
    ["orders.ref", "int", "no_unique_key", /of orders; it has \(id\)$/],
  ];
  for (const [references, type, code, message] of refusals) {
    const { body } = await ask(createTable("orders", { id: "int", ref: { type, references } }));
    t.match(body, { code, message }, references);
    if (code !== "table_not_found") t.match(body.message, `Column "ref" refers to ${references}, `);
  }
  t.match(await ask(selectAll("orders")), { status: 404 });
});

overEach("a JSON cell holds a string of megabytes", async (t, { ask }) => {
  await ask(createTable("a", { id: "int", document: "json" }));
  // Keys that are numbers lose their place, unless the cell is stored as it was written.
  const document = `{"b": "x \\" ${"x y".repeat(3_000_000)}", "1": [ ]}`;
  const body = `{"Insert":{"database":"main","table":"a","values":[{"id":1,"document":${document}}]}}`;
  t.match(await ask(body), { status: 200 });
  const { status, text } = await ask(selectAll("a"));
  t.equal(status, 200);
  t.same(JSON.parse(text).data[0].document, JSON.parse(document));
});
