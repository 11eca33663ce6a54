import { insert, selectAll } from "./kit.ts";
import { overEach } from "./over-each.ts";

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
    body: { code: "invalid_value", message: /"id" is serial, which numbers itself/ },
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
      /^Column "ref" refers to users\.name, which is no primary or unique key of users; it has \(id\), \(code\)$/,
    ],
    ["pairs.id", "int", "no_unique_key", /it has \(id, other\)$/],
    [
      "users.id",
      "text",
      "invalid_type",
      /^Column "ref" refers to users\.id, which holds other values: text is not /,
    ],
    ["orders.ref", "int", "no_unique_key", /of orders; it has \(id\)$/],
  ];
  for (const [references, type, code, message] of refusals) {
    const answer = await ask(create("orders", [id, { name: "ref", type, references }]));
    t.match(answer, { body: { code, message } }, references);
  }
  t.match(await ask(selectAll("orders")), { status: 404 });
});
