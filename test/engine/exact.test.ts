/** Decimals and whole numbers keep every digit on PostgreSQL and MySQL, to the byte. */
import t, { type Test } from "tap";
import { rowsAs } from "./kit.ts";
import { freshMysql } from "./mysql/kit.ts";
import type { Scene } from "./over-each.ts";
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
