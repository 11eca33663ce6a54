/** Decimals and whole numbers keep every digit on PostgreSQL and MySQL, to the byte. */
import t, { type Test } from "tap";
import { rowsAs } from "./kit.ts";
import { freshMysql } from "./mysql/kit.ts";
import { overEach, type Scene } from "./over-each.ts";
import { freshPostgres } from "./postgres/kit.ts";

const most = "9876543210987654321098765432.0123456789";
const least = "-1234567890123456789012345678.9876543211";
const tiny = "0.0000000001";
const top = "9223372036854775807";

const columns = [
  { name: "id", type: "bigint", primary_key: true },
  { name: "a", type: "numeric(38,10)" },
  { name: "b", type: "numeric(38,10)" },
  { name: "i", type: "bigint" },
];
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
  const columns = [
    { name: "id", type: "int", primary_key: true },
    { name: "price", type: "decimal(20,4)" },
    { name: "label", type: "text", nullable: true },
  ];
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
    const columns = [
      { name: "id", type: "int", primary_key: true },
      { name: "price", type: "decimal(30,10)" },
    ];
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
