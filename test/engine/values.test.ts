import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import t, { type Test } from "tap";
import { guardReading } from "../../src/engine/remote/reading.ts";
import { caseCount, nightly, sampled } from "../kit/nightly.ts";
import { columnsOf } from "../kit/queries.ts";
import {
  createTable,
  dropTable,
  equal,
  insert,
  refusal,
  remove,
  rowsAs,
  selectAll,
  update,
} from "./kit.ts";
import { freshMysql } from "./mysql/kit.ts";
import { freshSqlite, overEach, overSqlite, type Scene } from "./over-each.ts";
import { freshPostgres, startOn } from "./postgres/kit.ts";

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

overEach("a number or time with many zeros is read at once", async (t, { ask }) => {
  await ask(createTable("n", { id: "int", price: "decimal(10,2)", at: "timestamp" }));
  const zeros = "0".repeat(100_000);
  for (const cell of [
    `"price":0.${zeros}1`,
    `"price":1${zeros}1.5`,
    `"price":1${zeros}1`,
    `"at":"2026-01-01T00:00:00.${zeros}1"`,
    `"id":${"1".repeat(6_000_000)}`,
  ]) {
    const startedAt = performance.now();
    await ask(`{"Insert":{"database":"main","table":"n","values":[{${cell}}]}}`);
    const [, column, value] = /"(\w+)":(.*)/.exec(cell) ?? [];
    const where = `{"column":"${column}","cmp":"=","value":${value}}`;
    const select = `{"database":"main","from":"n","columns":["id"],"where":${where}}`;
    await ask(`{"Select":${select}}`);
    t.ok(performance.now() - startedAt < 4000, `${performance.now() - startedAt} ms`);
  }
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

// Decimals and whole numbers keep every digit on PostgreSQL and MySQL, to the byte.

const most = "9876543210987654321098765432.0123456789";
const least = "-1234567890123456789012345678.9876543211";
const tiny = "0.0000000001";
const top = "9223372036854775807";

const columns = columnsOf({ id: "bigint", a: "numeric(38,10)", b: "numeric(38,10)", i: "bigint" });
const rows = [
  `{"id":1,"a":${most},"b":${least},"i":${top}}`,
  `{"id":2,"a":${tiny},"b":2.0000000000,"i":-${top}}`,
  `{"id":${top},"a":${most},"b":${most},"i":${top}}`,
];
const all = `[${rows}]`;
const start = `"database":"main","table":"t"`;
const ofFirst = `"where":{"column":"id","cmp":"=","value":1}`;

/** The rest of a Select from the table, and its rows. */
const selects: readonly [rest: string, data: string][] = [
  [`"columns":["*"],"order_by":{"column":"id"}`, all],
  [`"columns":["id"],"where":{"column":"a","cmp":"=","value":${tiny}}`, `[{"id":2}]`],
  [
    `"columns":["id"],"where":{"column":"a","cmp":"IN","value":[${most},1]},"order_by":{"column":"id"}`,
    `[{"id":1},{"id":${top}}]`,
  ],
  [
    `"columns":["id"],"where":{"column":"a","cmp":">","value":${most.slice(0, -1)}8},"limit":1,"order_by":{"column":"id"}`,
    `[{"id":1}]`,
  ],
  [`"columns":["id"],"where":{"column":"i","cmp":"=","value":-${top}}`, `[{"id":2}]`],
  [
    `"columns":["id"],"order_by":[{"column":"a"},{"column":"id"}],"after":[${most},1]`,
    `[{"id":${top}}]`,
  ],
  [
    `"columns":["id"],"where":{"column":"a","cmp":"IN","select":{"from":"t","columns":["b"]}},"order_by":{"column":"id"}`,
    `[{"id":1},{"id":${top}}]`,
  ],
  [
    `"aggregate":[{"fn":"sum","column":"a","as":"s"},{"fn":"min","column":"b","as":"least"},
      {"fn":"max","column":"a","as":"most"},{"fn":"sum","column":"i","as":"whole"},
      {"fn":"max","column":"i","as":"top"},{"fn":"avg","column":"i","as":"mean"},
      {"fn":"avg","column":"a","as":"average"}]`,
    `[{"s":19753086421975308642197530864.0246913579,"least":${least},"most":${most},` +
      `"whole":${top},"top":${top},"mean":3074457345618258400,"average":6.584362140658436e+27}]`,
  ],
  [
    `"columns":["a"],"group_by":["a"],"aggregate":[{"fn":"count","as":"n"}],
      "having":{"column":"a","cmp":"=","value":${most}}`,
    `[{"a":${most},"n":2}]`,
  ],
];

/** A function with its items, and the values for the first row and the second. */
const computed: readonly [fn: string, of: string, first: string, second: string][] = [
  ["add", `["a","b"]`, "8641975320864197532086419753.0246913578", "2.0000000001"],
  ["sub", `["a","b"]`, "11111111101111111110111111111", "-1.9999999999"],
  ["mul", `["a",{"value":3}]`, "29629629632962962963296296296.0370370367", "0.0000000003"],
  ["div", `["a",{"value":3}]`, "3292181070329218107032921810.670781892967", "0.000000000033"],
  ["div", `["i",{"value":2}]`, "4611686018427387903.5", "-4611686018427387903.5"],
  [
    "add",
    `["i","a"]`,
    "9876543220211026357953541239.0123456789",
    "-9223372036854775806.9999999999",
  ],
  ["sub", `["i",{"value":1}]`, "9223372036854775806", "-9223372036854775808"],
  ["abs", `["b"]`, "1234567890123456789012345678.9876543211", "2"],
  ["round", `["a"],"digits":9`, "9876543210987654321098765432.012345679", "0"],
  ["coalesce", `["a","b"]`, most, tiny],
  ["nullif", `["a",{"value":${tiny}}]`, most, "null"],
];

async function check(t: Test, { ask, engine }: Scene): Promise<void> {
  await ask({ CreateTable: { database: "main", table: "t", columns } });
  const data = async (body: string) => /"data":(.*)\}$/s.exec((await ask(body)).text)?.[1];
  const returned = `"returning":["*"]`;
  t.equal(await data(`{"Insert":{${start},"values":${all},${returned}}}`), all);
  for (const [rest, expected] of selects) {
    t.equal(await data(`{"Select":{"database":"main","from":"t",${rest}}}`), expected, rest);
  }
  for (const [fn, of, first, second] of computed) {
    const rest = `"columns":["c"],"compute":[{"as":"c","fn":"${fn}","of":${of}}],
      "where":{"column":"id","cmp":"<","value":3},"order_by":{"column":"id"}`;
    const text = await data(`{"Select":{"database":"main","from":"t",${rest}}}`);
    t.equal(text, `[{"c":${first}},{"c":${second}}]`, `${fn} of ${of}`);
    if (second === "null") continue;
    const where = `{"and":[{"column":"c","cmp":"=","value":${second}},{"column":"id","cmp":"=","value":2}]}`;
    const found = `"columns":["id"],"compute":[{"as":"c","fn":"${fn}","of":${of}}],"where":${where}`;
    t.equal(await data(`{"Select":{"database":"main","from":"t",${found}}}`), `[{"id":2}]`, rest);
  }
  const everything = {
    Select: { database: "main", from: "t", columns: ["*"], order_by: { column: "id" } },
  };
  const lines = await rowsAs(engine.address, everything, "application/x-ndjson");
  t.equal(lines.text, rows.map((row) => `${row}\n`).join(""));
  const csv = await rowsAs(engine.address, everything, "text/csv");
  const cells = rows.map((row) => `${row.replace(/"\w+":|[{}]/g, "")}\r\n`);
  t.equal(csv.text, `id,a,b,i\r\n${cells.join("")}`);

  const [first = ""] = rows;
  const changed = first.replace(most, "9876543210987654321098765431.0123456790");
  const add = `"add":{"a":-0.9999999999}`;
  const preview = await ask(`{"Preview":{"Update":{${start},${add},${ofFirst}}}}`);
  t.match(preview.text, `"before":[${first}],"after":[${changed}]`);
  t.equal(await data(`{"Update":{${start},${add},${ofFirst},${returned}}}`), `[${changed}]`);
  const upsert = `"values":[${first}],"on_conflict":["id"],"update":["a"],${returned}`;
  t.equal(await data(`{"Upsert":{${start},${upsert}}}`), `[${first}]`);
  const bind = `"bind":{"a":{"element":0,"column":"a"},"i":{"element":0,"column":"i"}}`;
  const batch = [
    `{"Update":{${start},"set":{"b":${least}},${ofFirst}}}`,
    `{"Insert":{${start},"values":[{"id":4}],${bind},"returning":["a","i"]}}`,
  ];
  t.match((await ask(`{"Batch":[${batch}]}`)).text, `"data":[{"a":${most},"i":${top}}]`);
  t.equal(await data(`{"Delete":{${start},${ofFirst},${returned}}}`), `[${first}]`);
}

t.test("every answer of PostgreSQL is exact", async (t) => check(t, await freshPostgres(t)));
t.test("every answer of MySQL is exact", async (t) => check(t, await freshMysql(t)));

const place = { database: "main", table: "prices" };

overEach("a decimal may be sent as a string, exactly", async (t, { ask }) => {
  const columns = columnsOf({
    id: "int",
    price: "decimal(20,4)",
    label: { type: "text", nullable: true },
  });
  t.equal((await ask({ CreateTable: { ...place, columns } })).status, 200);
  const values = [
    { id: 1, price: "12.50" },
    { id: 2, price: "-0.1", label: "12.50" },
    { id: 3, price: 12.5 },
    { id: 4, price: "7" },
  ];
  t.match(await ask({ Insert: { ...place, values } }), { status: 200, body: { affected: 4 } });
  const ids = async (more: object) => {
    const { status, body, text } = await ask({
      Select: {
        database: "main",
        from: "prices",
        columns: ["id"],
        order_by: [{ column: "price" }, { column: "id" }],
        ...more,
      },
    });
    t.equal(status, 200, text);
    return JSON.stringify(body.data);
  };
  const rows = (...all: number[]) => JSON.stringify(all.map((id) => ({ id })));
  const where = (column: string, cmp: string, value: unknown) => ({
    where: { column, cmp, value },
  });
  t.equal(await ids(where("price", "=", "12.5000")), rows(1, 3));
  t.equal(await ids(where("price", "IN", ["7.0", "-0.10"])), rows(2, 4));
  t.equal(await ids(where("price", "BETWEEN", ["0", "7.0001"])), rows(4));
  t.equal(await ids(where("label", "=", "12.50")), rows(2), "a text stays a text");
  t.equal(await ids({ after: ["7.00", 4], limit: 5 }), rows(1, 3));
  const change = (id: number, more: object) =>
    ask({ Update: { ...place, ...more, where: { column: "id", cmp: "=", value: id } } });
  t.equal((await change(4, { set: { price: "3.25" } })).status, 200);
  t.equal((await change(1, { set: { price: "13.0" } })).status, 200);
  t.equal((await change(1, { add: { price: "-0.50" } })).status, 200);
  t.equal(await ids(where("price", "=", "12.5")), rows(1, 3));
  t.equal((await change(1, { add: { price: "0.50" } })).status, 200);
  t.match(await change(1, { add: { label: "0.50" } }), {
    status: 400,
    body: { code: "invalid_value" },
  });
  t.match(await change(1, { add: { id: "0.50" } }), {
    status: 400,
    body: { code: "invalid_value" },
  });
  const upsert = { values: [{ id: 3, price: "99.75" }], on_conflict: ["id"], update: ["price"] };
  t.equal((await ask({ Upsert: { ...place, ...upsert } })).status, 200);
  t.equal(await ids(where("price", "IN", ["3.25", "13", "99.75"])), rows(4, 1, 3));
  for (const price of ["", "1e2", " 1", "1,5", "0x1", "01", "abc"]) {
    t.match(
      await change(1, { set: { price } }),
      { status: 400, body: { code: "invalid_value" } },
      price,
    );
  }
});

const remote = { PostgreSQL: freshPostgres, MySQL: freshMysql };

// SQLite keeps decimals as doubles.
for (const [name, fresh] of Object.entries(remote)) {
  t.test(`long decimals keep their digits, sent as strings (${name})`, async (t) => {
    const { ask } = await fresh(t);
    const columns = columnsOf({ id: "int", price: "decimal(30,10)" });
    await ask({ CreateTable: { ...place, columns } });
    const price = "12345678901234567890.0123456789";
    const insert = (id: number, price: string) =>
      ask({ Insert: { ...place, values: [{ id, price }] } });
    t.equal((await insert(1, price)).status, 200);
    const where = { column: "price", cmp: "=", value: price };
    const select = { database: "main", from: "prices", columns: ["price"], where };
    t.match((await ask({ Select: select })).text, price);
    const add = { Update: { ...place, add: { price: "0.0000000001" }, where: null } };
    t.equal((await ask(add)).status, 200);
    t.match((await ask({ Select: { ...select, where: null } })).text, "1234567890.0123456790}");
    t.equal((await insert(2, "0.00000000001")).status, 400, "nothing is rounded");
    t.match(await insert(2, `9${price}`), { status: 400, body: { code: "number_out_of_range" } });
  });
}

// Computed texts have at most 1 MiB in a row, however they are nested.

const database = "main";
const MOST = 1024 * 1024;
const tooLong = refusal(400, "query_too_complex", /computed text is longer than 1 MiB/);

const texts: readonly (readonly [id: number, word: string | null])[] = [
  [1, "a".repeat(100)],
  [2, "b".repeat(MOST / 8)],
  [3, "c".repeat(MOST / 8 + 1)],
  [4, "é".repeat(MOST / 16)],
  [5, "é".repeat(MOST / 16 + 1)],
  [6, "d".repeat(MOST)],
  [7, "e".repeat(MOST + 1)],
  [8, null],
];

async function fill({ ask }: Scene): Promise<void> {
  await ask(createTable("plain", { id: "int", word: "text", short: "varchar(20)", n: "bigint" }));
  for (const [id, word] of texts) {
    await ask(insert("plain", [{ id, word, short: `short ${id}`, n: id }]));
  }
}

const term = (column: string, cmp: string, value: unknown) => ({ column, cmp, value });
const lit = (value: unknown) => ({ value });
const eight = (one: unknown) => Array.from({ length: 8 }, () => one);
const concat = (as: string, of: readonly unknown[]) => ({ as, fn: "concat", of });
/** 512 times a name, under the name `t`. */
const times = (name: string) => [
  concat("x8", eight(name)),
  concat("x64", eight("x8")),
  concat("t", eight("x64")),
];

overEach("a computed text has at most 1 MiB in a row", async (t, scene) => {
  await fill(scene);
  const lengths = [{ as: "n", fn: "length", of: ["t"] }];
  const answer = (id: number, compute: readonly object[], more: object = {}) =>
    scene.ask({
      Select: {
        database,
        from: "plain",
        columns: ["n"],
        ...more,
        where: term("id", "=", id),
        compute: [...compute, ...lengths.map((one) => ({ ...one, as: "size" }))],
      },
    });
  const sized = (id: number, compute: readonly object[]) =>
    answer(id, compute, { columns: ["size"] });
  const passes = async (id: number, compute: readonly object[], size: number | null) =>
    t.match(await sized(id, compute), { status: 200, body: { data: [{ size }] } });
  const fails = async (id: number, compute: readonly object[]) =>
    t.match(await sized(id, compute), tooLong, JSON.stringify([id, compute]).slice(0, 300));

  await passes(1, times("word"), 51_200);
  await passes(2, [concat("t", eight("word"))], MOST);
  await fails(3, [concat("t", eight("word"))]);
  await passes(4, [concat("t", eight("word"))], MOST / 2);
  await fails(5, [concat("t", eight("word"))]);
  await fails(2, [concat("t", [...eight("word").slice(2), lit("x".repeat(MOST / 4)), "n"])]);
  await passes(6, [concat("t", ["word", lit("")])], MOST);
  await fails(6, [concat("t", ["word", "n"])]);
  await fails(7, [concat("t", ["word", lit(null)])]);
  await passes(8, [concat("t", eight("word"))], 0);
  for (const fn of ["lower", "upper", "trim"]) {
    await passes(6, [{ as: "t", fn, of: ["word"] }], MOST);
    await fails(7, [{ as: "t", fn, of: ["word"] }]);
    await passes(8, [{ as: "t", fn, of: ["word"] }], null);
  }
  await fails(7, [{ as: "t", fn: "coalesce", of: ["word", "short"] }]);
  await passes(7, [{ as: "t", fn: "coalesce", of: ["short", "word"] }], 7);
  await passes(8, [{ as: "t", fn: "coalesce", of: ["word", "short"] }], 7);
  await fails(7, [{ as: "t", fn: "nullif", of: ["word", "short"] }]);
  await passes(7, [{ as: "t", fn: "nullif", of: ["short", "word"] }], 7);
  const either = (value: number) => ({
    as: "t",
    fn: "if",
    when: term("id", "=", value),
    else: "short",
    // biome-ignore lint/suspicious/noThenProperty: a field of the grammar
    then: "word",
  });
  await fails(7, [either(7)]);
  await passes(7, [either(1)], 7);
  // An intermediate text counts, also if the result is short.
  await fails(3, [
    concat("whole", eight("word")),
    { as: "t", fn: "nullif", of: ["whole", "whole"] },
  ]);

  // The length of a stored text is not that of a computed one.
  const whole = { database, from: "plain", columns: ["size"], where: term("id", "=", 7) };
  const length = [{ as: "size", fn: "length", of: ["word"] }];
  t.match(await scene.ask({ Select: { ...whole, compute: length } }), {
    status: 200,
    body: { data: [{ size: MOST + 1 }] },
  });

  // Long literals are computed if the text is known to stay below.
  const long = lit("x".repeat(300_000));
  await passes(1, [concat("t", [long, long, long, "short", "n"])], 900_008);
  await fails(1, [concat("t", [long, long, long, long])]);
  await fails(1, [concat("t", [long, long, long, "word", lit("x".repeat(200_000))])]);
});

overSqlite("a computed text counts over all levels and wherever it stands", async (t, scene) => {
  await fill(scene);
  const first = term("id", "=", 1);
  const level = (from: unknown) => ({ from, columns: ["n", "t"], compute: times("word") });
  const one = { ...level("plain"), where: first };
  const more = (select: object, as: string) => ({
    from: { select, as },
    columns: ["n", "t2"],
    compute: [concat("y8", eight("t")), concat("y64", eight("y8")), concat("t2", eight("y64"))],
  });
  const two = more(one, "a");
  const three = {
    from: { select: two, as: "b" },
    columns: ["n"],
    compute: [concat("z8", eight("t2")), concat("z", eight("z8"))],
  };
  const first8 = [concat("t", eight("word"))];
  const where = term("id", "=", 3);
  const link = { table: "plain", on: "plain.id = one.id" };
  const selects: readonly object[] = [
    two,
    { ...three, columns: ["z"] },
    { ...two, aggregate: [{ fn: "max", column: "t2", as: "m" }], columns: undefined },
    { ...two, group_by: ["t2"], columns: ["t2"], aggregate: [{ fn: "count", as: "c" }] },
    { ...two, order_by: { column: "t2" } },
    { ...two, distinct: true },
    { ...two, where: term("t2", "=", "x") },
    {
      from: "plain",
      columns: ["n"],
      compute: first8,
      where: { and: [where, term("t", "!=", "x")] },
    },
    { from: "plain", columns: ["n"], compute: first8, order_by: { column: "t" } },
    {
      from: "plain",
      columns: ["n"],
      where: { column: "word", cmp: "IN", select: { ...two, columns: ["t2"] } },
    },
    {
      from: { table: "plain", as: "one" },
      columns: ["id"],
      where: { ...where, column: "one.id" },
      include: [{ as: "m", ...link, columns: ["t"], compute: first8 }],
    },
  ];
  for (const select of selects) {
    const answer = await scene.ask({ Select: { database, ...select } });
    t.match(answer, tooLong, JSON.stringify(select).slice(0, 300));
  }
  const { status } = await scene.ask({ Select: { database, ...one } });
  t.equal(status, 200, "the inner text alone is short");
  const filter = term("id", "<", 3);
  const narrowed = { from: "plain", columns: ["n"], compute: first8 };
  const found = { ...narrowed, where: { and: [filter, term("t", "!=", "x")] } };
  t.match(
    await scene.ask({ Select: { database, ...found } }),
    { status: 200, body: { data: [{ n: 1 }, { n: 2 }] } },
    "texts of other rows do not count",
  );
});

// A value that is too long to be read fails its query alone, whatever the driver would do.

const MIB = 1024 * 1024;
const READABLE = 20 * MIB;
const unreadable = refusal(400, "query_too_complex");

/** A text of so many bytes. */
const longText: Record<string, (bytes: number) => string> = {
  SQLite: (bytes) => `replace(hex(zeroblob(${bytes / 2})), '0', 'x')`,
  PostgreSQL: (bytes) => `repeat('x', ${bytes})`,
  MySQL: (bytes) => `repeat('x', ${bytes})`,
};

async function prove(t: Test, name: string, { engine, ask, sql }: Scene): Promise<void> {
  if (name === "MySQL") await sql(`set global max_allowed_packet = ${512 * MIB}`);
  const lengthen = (bytes: number) =>
    sql(`update main.texts set word = ${longText[name]?.(bytes)} where id = 1`, "select 1");
  await ask(createTable("texts", { id: "int", word: "text", n: "int" }));
  await ask(
    insert(
      "texts",
      [1, 2].map((id) => ({ id, word: `word ${id}`, n: 0 })),
    ),
  );
  const select = (columns: readonly string[], more: object = {}) => ({
    Select: { database, from: "texts", columns, order_by: { column: "id" }, ...more },
  });
  const word = select(["word"]);
  await lengthen(READABLE);
  const readable = await ask(word);
  t.equal(readable.status, 200);
  t.ok(readable.text.length > READABLE);

  await lengthen(70 * MIB);
  const where = { column: "id", cmp: "=", value: 1 };
  const include = [{ as: "same", table: "texts", on: "texts.id = t.id", columns: ["word"] }];
  const from = { table: "texts", as: "t" };
  const changed = { database, table: "texts", set: { n: 1 }, where, returning: ["word"] };
  const bodies = [
    word,
    { Batch: [{ Update: { database, table: "texts", set: { n: 1 }, where } }, word] },
    { Update: changed },
    { Preview: { Update: { ...changed, returning: ["word"] } } },
    { Select: { database, from, columns: ["t.id"], order_by: { column: "t.id" }, include } },
    select(["word"], { distinct: true, limit: 1, order_by: { column: "word", direction: "DESC" } }),
  ];
  for (const body of sampled(bodies, 2)) {
    const others = select(["id", "n"]);
    const [answer, other] = await Promise.all([ask(body), ask(others)]);
    t.match(answer, unreadable, JSON.stringify(body));
    const rows = [1, 2].map((id) => ({ id, n: 0 }));
    t.match(other, { status: 200, body: { data: rows } }, "other queries are answered");
  }
  const stream = await rowsAs(engine.address, word, "application/x-ndjson");
  t.equal(stream.status, 400);
  t.match(stream.text, /query_too_complex/);
  const second = select(["word"], { where: { ...where, value: 2 } });
  t.match(await ask(second), { status: 200, body: { data: [{ word: "word 2" }] } });
  await lengthen(10);
  t.match(await ask(word), { status: 200 });
}

for (const [name, fresh] of Object.entries({ SQLite: freshSqlite, ...remote })) {
  const options = name === "MySQL" ? nightly : {};
  t.test(`a value that is too long fails its query alone (${name})`, options, async (t) =>
    prove(t, name, await fresh(t)),
  );
}

t.test("a value longer than a string may be fails its query alone (PostgreSQL)", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  await ask(createTable("texts", { id: "int", word: "text", raw: "blob" }));
  await ask(insert("texts", [{ id: 1 }]));
  // At night, longer than the longest string of the process.
  const length = caseCount(70_000_000, 600_000_000);
  await sql(`update main.texts set word = repeat('x', ${length})`);
  t.match(await ask(selectAll("texts")), unreadable);
  await sql(`update main.texts set word = '', raw = convert_to(repeat('x', 40000000), 'UTF8')`);
  t.match(
    await ask(selectAll("texts", { columns: ["raw"] })),
    unreadable,
    "as the server writes it",
  );
  t.match(await ask(selectAll("texts", { columns: ["id"] })), { status: 200 });
});

t.test("a server that the driver does not understand ends no process", async (t) => {
  // "AuthenticationGSS" makes the driver of PostgreSQL throw while it reads.
  const message = Buffer.from("R\0\0\0\x08\0\0\0\x07", "latin1");
  const server = createServer((client) => {
    client.on("error", () => {});
    client.once("data", () => client.write(message));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  const address = server.address() as AddressInfo;
  const engine = await startOn(
    t,
    `postgres://me:word@127.0.0.1:${address.port}/db?sslmode=disable`,
  );
  t.ok(engine.address);
});

t.test("messages are followed through chunks of any size", async (t) => {
  const framing = {
    headerBytes: 4,
    lengthAt: (bytes: Buffer, at: number) => bytes.readUIntLE(at, 3),
    goesOn: (length: number) => length === 0xffffff,
  };
  const packet = (length: number) => {
    const bytes = Buffer.alloc(4 + length);
    bytes.writeUIntLE(length, 0, 3);
    return bytes;
  };
  const short = Array.from({ length: 300 }, (_, at) => packet(at % 7));
  const long = Array.from({ length: 4 }, () => packet(0xffffff));
  for (const [packets, isRead] of [
    [[...short, ...long.slice(1), packet(9), ...short], true],
    [[...short, ...long, packet(100), ...short], false],
  ] as const) {
    const bytes = Buffer.concat(packets);
    const server = createServer((client) => {
      client.on("error", () => {});
      let at = 0;
      // Small pieces where the headers are, as a slow network would cut them.
      while (at < bytes.length) {
        const size = at < 2000 ? 1 + (at % 5) : MIB;
        client.write(bytes.subarray(at, at + size));
        at += size;
      }
      client.end();
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
    let read = 0;
    socket.on("data", (chunk) => {
      read += chunk.length;
    });
    guardReading(socket, framing);
    let failure: unknown;
    socket.on("error", (error) => {
      failure = error;
    });
    await new Promise((resolve) => socket.once("close", resolve));
    server.close();
    t.equal(failure === undefined, isRead);
    if (isRead) t.equal(read, bytes.length);
    else t.match(failure, { code: "query_too_complex" });
  }
});
