import fc from "fast-check";
import t, { type Test } from "tap";
import { refusals } from "../../src/core/base/refusal.ts";
import { queryRefusals } from "../../src/core/query/refusal.ts";
import { typeWords as mysqlTypeWords } from "../../src/engine/mysql/kinds.ts";
import { typeWords as postgresTypeWords } from "../../src/engine/postgres/dialect.ts";
import { refusalStatuses } from "../../src/engine/refusal.ts";
import { typeWords } from "../../src/engine/sqlite/kinds.ts";
import { eventually } from "../kit/eventually.ts";
import { caseCount } from "../kit/nightly.ts";
import { readPage, sectionOf } from "../kit/page.ts";
import {
  createDatabase,
  createTable,
  equal,
  insert,
  refusal,
  selectAll,
  send,
  update,
} from "./kit.ts";
import { freshMysql } from "./mysql/kit.ts";
import { isMariaDb } from "./mysql/server.ts";
import { freshSqlite, overEach, type Scene } from "./over-each.ts";
import { freshPostgres } from "./postgres/kit.ts";

type Ask = Scene["ask"];

/** Years 1 to 9999 (ISO 8601). */
function instants(): fc.Arbitrary<string> {
  const range = { min: new Date("0001-01-01"), max: new Date("9999-12-31"), noInvalidDate: true };
  return fc.date(range).map((date) => date.toISOString());
}

/** JSON texts by type that columns of every server return unchanged. */
const commonTexts: Record<string, fc.Arbitrary<string>> = {
  bigint: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map(String),
  boolean: fc.boolean().map(String),
  blob: fc.uint8Array().map((bytes) => JSON.stringify(Buffer.from(bytes).toString("base64"))),
  uuid: fc.uuid().map((uuid) => JSON.stringify(uuid)),
  date: instants().map((time) => JSON.stringify(time.slice(0, 10))),
  timestamp: instants().map((time) => JSON.stringify(time.replace(/\.?0*Z$/, "Z"))),
};

/** Stores JSON texts in a column, reads them, and finds rows by some of them. */
async function roundTrip(t: Test, ask: Ask, type: string, drawn: readonly string[]): Promise<void> {
  await ask(createTable(type, { id: "int", cell: type }));
  const rows = drawn.map((cell, id) => `{"id":${id},"cell":${cell}}`).join(",");
  const body = `{"Insert":{"database":"main","table":"${type}","values":[${rows}]}}`;
  t.match(await ask(body), { status: 200 }, type);
  const { text } = await ask(selectAll(type, { order_by: { column: "id" } }));
  t.equal(text, `{"status":"success","data":[${rows}]}`, type);
  for (const [id, cell] of drawn.slice(0, 10).entries()) {
    if (cell === "null") continue;
    const where = `{"and":[{"column":"cell","cmp":"=","value":${cell}},{"column":"id","cmp":"=","value":${id}}]}`;
    const found = await ask(
      `{"Select":{"database":"main","from":"${type}","columns":["id"],"where":${where}}}`,
    );
    t.equal(found.text, `{"status":"success","data":[{"id":${id}}]}`, `${type} ${cell}`);
  }
}

/** True for JSON that `jsonb` keeps unchanged: no object with two keys, plain numbers. */
function isOrdered(text: string): boolean {
  let isPlain = !text.includes("\\u0000");
  JSON.parse(text, (_key, value) => {
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      isPlain &&= Object.keys(value).length < 2;
    }
    isPlain &&= typeof value !== "number" || (Number.isInteger(value) && Math.abs(value) < 1e15);
    return value;
  });
  return isPlain;
}

/** Decimals with so many digits before the point, and these after it. */
function decimals(digits: bigint, places: RegExp): fc.Arbitrary<string> {
  const most = 10n ** digits - 1n;
  return fc
    .tuple(fc.bigInt({ min: -most, max: most }), fc.stringMatching(places))
    .map(([whole, fraction]) => (fraction === "" ? `${whole}` : `${whole}.${fraction}`));
}

const anyText = fc.string({ unit: "binary" }).map((text) => text.toWellFormed());
const anyJson = fc.jsonValue({ noUnicodeString: false }).map((value) => JSON.stringify(value));

/** How to start each server, and JSON texts by type that its columns return unchanged. */
const servers = {
  PostgreSQL: {
    fresh: freshPostgres,
    texts: {
      ...commonTexts,
      numeric: decimals(40n, /^[0-9]{0,30}$/),
      text: anyText.map((text) => JSON.stringify(text.replaceAll("\0", ""))),
      jsonb: anyJson.filter(isOrdered),
    },
  },
  MySQL: {
    fresh: freshMysql,
    texts: {
      ...commonTexts,
      numeric: decimals(35n, /^([0-9]{0,29}[1-9])?$/),
      text: anyText.map((text) => JSON.stringify(text)),
      json: anyJson,
    },
  },
};

for (const [name, { fresh, texts }] of Object.entries(servers)) {
  t.test(`values are returned exactly, and rows found by them (${name})`, async (t) => {
    const { ask } = await fresh(t);
    for (const [type, values] of Object.entries<fc.Arbitrary<string>>(texts)) {
      await roundTrip(t, ask, type, fc.sample(values, caseCount(50, 200)));
    }
  });

  t.test(`patterns match backslashes and the digits of numbers (${name})`, async (t) => {
    const { ask } = await fresh(t);
    await ask(createTable("paths", { id: "int", path: "text" }));
    const values = ["a\\b%", "ab%"].map((path, at) => ({ id: at + 1, path }));
    await ask(insert("paths", values));
    const like = async (column: string, value: string) =>
      (await ask(selectAll("paths", { where: { column, cmp: "LIKE", value } }))).body.data;
    t.match(await like("path", "a\\%"), [{ id: 1 }]);
    t.match(await like("id", "2%"), [{ id: 2 }]);
  });

  t.test(`a serial column numbers rows without a number (${name})`, async (t) => {
    const { ask } = await fresh(t);
    await ask(createTable("notes", { id: "serial", title: "text" }));
    const rows = `[{"id":1},{},{"id":9007199254740993},{"id":null},{"id":0}]`;
    t.match(await ask(`{"Insert":{"database":"main","table":"notes","values":${rows}}}`), {
      body: { message: "Inserted 5 rows" },
    });
    const { text } = await ask(selectAll("notes", { columns: ["id"], order_by: { column: "id" } }));
    t.match(text, `[{"id":0},{"id":1},{"id":2},{"id":9007199254740993},{"id":9007199254740994}]`);
  });
}

/** Inserts each row, which a server would truncate, round or reinterpret. */
async function refuseAll(t: Test, ask: Ask, table: string, rows: readonly object[]): Promise<void> {
  for (const row of rows) {
    const answer = await ask(insert(table, [{ id: 1, ...row }]));
    const body = { code: /^(invalid_value|number_out_of_range)$/ };
    t.match(answer, { status: 400, body }, JSON.stringify(row));
    t.match(await ask(update(table, row)), { status: 400 }, JSON.stringify(row));
  }
}

/** No server accepts `unfit` in columns of these types. */
const strict = {
  id: "int",
  price: "numeric(6,2)",
  label: "varchar(3)",
  at: "timestamp",
  day: "date",
  code: "uuid",
};
const unfit = [
  ...[1.005, 100000, "1.005"].map((price) => ({ price })),
  { label: "four" },
  ...["yesterday", "01/02/2026", "2026-01-02T03:04:05.1234567Z", "2026-13-02T03:04:05Z"].map(
    (at) => ({ at }),
  ),
  { day: "2026-02-30" },
  { code: "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}" },
  { id: 1.5 },
];

t.test("a value that PostgreSQL would truncate, round or reinterpret is refused", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  await ask(createTable("strict", strict));
  await sql(
    "create domain main.amount as numeric(5,2)",
    "create domain main.cost as main.amount",
    `alter table main.strict add local timestamp, add tags text[], add called name, add sign "char",
      add object oid, add sums numeric(5,2)[], add cost main.cost, add costs main.cost[]`,
  );
  await ask(insert("strict", [{ id: 0 }]));
  await refuseAll(t, ask, "strict", [
    ...unfit,
    { label: "a\0b" },
    { day: "now" },
    { local: "2026-01-02T03:04:05+02:00" },
    { tags: ["a", ["b"]] },
    { tags: "a" },
    { called: "é".repeat(32) },
    { sign: "ab" },
    { sign: "é" },
    { object: -1 },
    { sums: [[1.5], [1.234]] },
    { cost: 1.234 },
    { costs: [1.234] },
  ]);
  const kept = { called: "é".repeat(31), sign: "\\303", object: 4294967295, costs: [1.25, null] };
  t.match(await ask(insert("strict", [{ id: 2, sums: [1.5], cost: 1.25, ...kept }])), {
    status: 200,
  });
  for (const [column, value] of Object.entries(kept)) {
    const found = (where: object) => ask(selectAll("strict", { columns: ["id"], where }));
    t.match((await found(equal(column, value))).body.data, [{ id: 2 }], column);
  }
  const longer = selectAll("strict", { where: equal("called", `${kept.called}éé`) });
  t.match(await ask(longer), refusal(400, "invalid_value", /"called" \(name\).*at most 63 bytes/));
  const fit = { id: 1, price: 9999.9, label: "abc", at: "2026-01-02 03:04+02", day: "2026-02-28" };
  t.match(await ask(insert("strict", [fit])), { status: 200 });
  const where = equal("id", 1);
  t.match((await ask(selectAll("strict", { where }))).body.data, [
    { price: 9999.9, label: "abc", at: "2026-01-02T01:04:00Z", day: "2026-02-28", code: null },
  ]);
});

t.test("a value that MySQL would truncate, round or reinterpret is refused", async (t) => {
  const { ask, sql } = await freshMysql(t);
  await ask(createTable("strict", { ...strict, clock: "time" }));
  await sql(
    `alter table main.strict add mood enum('glad', 'sad'), add flags set('a', 'b'), add born year,
      add fixed char(5), add raw binary(4), add coarse datetime, add tiny tinyint unsigned,
      add short tinytext`,
  );
  await ask(insert("strict", [{ id: 0 }]));
  await refuseAll(t, ask, "strict", [
    ...unfit,
    { label: "abc " },
    ...["2026-02-29T03:04:05Z", "2026-00-00T00:00:00+01:00", "9999-12-31T23:59:59-01:00"].map(
      (at) => ({ at }),
    ),
    ...["2026-1-2", "20260102", "2026-13-00", "2026-00-32"].map((day) => ({ day })),
    ...["noon", "12:60:00", "839:00:00"].map((clock) => ({ clock })),
    { id: "12abc" },
    ...["2", "Glad", ""].map((mood) => ({ mood })),
    ...["3", "b,a"].map((flags) => ({ flags })),
    ...[70, 2156].map((born) => ({ born })),
    { fixed: "a " },
    { raw: "aGk=" },
    ...["2026-01-02T03:04:05.5", "2026-01-02T03:04:05+02:00"].map((coarse) => ({ coarse })),
    ...[256, -1].map((tiny) => ({ tiny })),
    { short: "x".repeat(256) },
  ]);
  const fit = {
    id: 1,
    price: 9999.9,
    label: "a  ",
    at: "2026-01-02 03:04+02",
    day: "2026-02-28",
    clock: "03:04:05.5",
    mood: "sad",
    flags: "a,b",
    born: 1970,
    raw: "AAECAw==",
    coarse: "2026-01-02T03:04:05",
    tiny: 255,
  };
  t.match(await ask(insert("strict", [fit])), { status: 200 });
  const where = equal("id", 1);
  const { body, text } = await ask(selectAll("strict", { where }));
  t.match(body.data, [{ ...fit, at: "2026-01-02T01:04:00Z", code: null }]);
  t.match(text, `"price":9999.90,`);
});

t.test("MySQL compares and orders text by bytes, including trailing spaces", async (t) => {
  const { ask } = await freshMysql(t);
  await ask(createTable("words", { word: "text" }));
  const words = ["a", "a ", "A", "ä", "a\u0001", "Z", "ab", "\u{1f600}", "\uff5e"];
  const rowsOf = (texts: string[]) => texts.map((word) => ({ word }));
  t.match(await ask(insert("words", rowsOf(words))), { body: { affected: 9 } });
  const { body } = await ask(selectAll("words", { order_by: { column: "word" } }));
  const byBytes = words.toSorted((one, other) =>
    Buffer.compare(Buffer.from(one), Buffer.from(other)),
  );
  t.same(body.data, rowsOf(byBytes));
  for (const value of ["a", "a ", "A", "0"]) {
    const expected = rowsOf(words.includes(value) ? [value] : []);
    for (const cmp of ["=", "LIKE"]) {
      const where = { column: "word", cmp, value };
      t.same((await ask(selectAll("words", { where }))).body.data, expected, `${cmp} ${value}`);
    }
  }
});

for (const [server, fresh, collations] of [
  [
    "MySQL",
    freshMysql,
    {
      bytewise: "character set utf8mb4 collate utf8mb4_bin",
      general: "character set utf8mb4 collate utf8mb4_general_ci",
      unicode: "character set utf8mb4 collate utf8mb4_unicode_ci",
      western: "character set latin1",
      central: "character set latin2",
      wide: "character set utf16",
    },
  ],
  [
    "PostgreSQL",
    freshPostgres,
    { plain: "", german: 'collate "de-x-icu"', root: 'collate "und-x-icu"' },
  ],
] as const) {
  t.test(`texts of any two collations meet (${server})`, async (t) => {
    const { ask, sql } = await fresh(t);
    const names = Object.keys(collations);
    const columns = Object.entries(collations).map(([name, type]) => `${name} varchar(9) ${type}`);
    const values = ["'a'", "'b'", "'c'"].map((text, at) => [at + 1, ...names.map(() => text)]);
    for (const table of ["one", "two"]) {
      await ask(createTable(`${table}_own`, { id: "int", own: "text" }));
      await sql(
        `create table main.${table} (id int primary key, ${columns})`,
        `insert into main.${table} values ${values.map((row) => `(${row})`)}`,
        `insert into main.${table}_own select id, ${names[0]} from main.${table}`,
      );
    }
    await sql("delete from main.two where id = 3", "delete from main.two_own where id = 3");
    const all = [...names.map((name) => ["one", "two", name]), ["one_own", "two_own", "own"]];
    const pairs = all.flatMap(([table = "", , column = ""]) =>
      all.map(([, other = "", its = ""]) => [table, column, other, its] as const),
    );
    for (const [from, column, table, its] of pairs) {
      const on = `${from}.${column} = ${table}.${its}`;
      const select = { from: table, columns: [its] };
      const aggregate = [{ fn: "max", column, as: "most" }];
      const greatest = { from, group_by: ["id"], aggregate };
      const outer = { columns: ["id"], order_by: { column: "id" } };
      for (const [name, query] of Object.entries({
        joined: { columns: [`${from}.id`], join: { table, on, join_type: "INNER" } },
        in: { ...outer, where: { column, cmp: "IN", select } },
        notIn: { ...outer, where: { not: { not: { column, cmp: "IN", select } } } },
        exists: { ...outer, where: { exists: { table, on } } },
        greatest: {
          from: { select: greatest, as: "d" },
          columns: ["d.id"],
          join: { table, on: `d.most = ${table}.${its}`, join_type: "INNER" },
        },
      })) {
        const { body } = await ask({ Select: { database: "main", from, ...query } });
        const found = body.data?.map((row) => Object(row).id).sort() ?? body.message;
        t.same(found, [1, 2], `${on} ${name}`);
      }
      const include = [{ as: "its", table, on, columns: ["id"], one: true }];
      const { body } = await ask({ Select: { database: "main", from, ...outer, include } });
      const found = [1, 2, 3].map((id) => ({ id, its: id === 3 ? null : { id } }));
      t.same(body.data, found, `${on} included`);
    }
  });
}

t.test("MySQL compares neither strings with numbers nor rounded numbers", async (t) => {
  const { ask } = await freshMysql(t);
  await ask(
    createTable("codes", { id: "bigint", code: "text", price: "numeric", at: "timestamp" }),
  );
  const row = `{"id":9007199254740993,"code":"12abc","price":0.30,"at":"2026-01-02T00:00:00Z"}`;
  await ask(`{"Insert":{"database":"main","table":"codes","values":[${row}]}}`);
  const found = (column: string, value: string, cmp = "=") =>
    ask(
      `{"Select":{"database":"main","from":"codes","columns":["code"],"where":{"column":"${column}","cmp":"${cmp}","value":${value}}}}`,
    );
  const cases: [string, string, number, string?][] = [
    ["id", "9007199254740993", 1],
    ["id", "9007199254740992", 0],
    ["id", "9007199254740993.0", 1],
    ["id", "9007199254740992.5", 1, ">"],
    ["id", "9007199254740993.5", 1, "<"],
    ["id", "1e300", 1, "<"],
    ["id", "-1e300", 1, ">"],
    ["price", "0.3", 1],
    ["price", "3e-1", 1],
    ["price", `"0.3"`, 1],
    ["price", "0.30000000000000004", 0],
    ["at", `"2026-01-02T02:00:00+02:00"`, 1],
    ["code", `"12"`, 0],
  ];
  for (const [column, value, count, cmp] of cases) {
    const { body } = await found(column, value, cmp);
    t.equal(body.data?.length, count, `${column} ${cmp ?? "="} ${value}`);
  }
  for (const [column, value] of [
    ["code", "12"],
    ["id", `"9007199254740993.0"`],
    ["at", `"2026-02-30"`],
  ] as const) {
    t.match(await found(column, value), refusal(400, "invalid_value"));
  }
});

t.test("an invisible column of MySQL is in no query, and a place in no sum", async (t) => {
  const { ask, sql } = await freshMysql(t);
  await sql("create table main.places (id int primary key, hidden int invisible, place point)");
  t.match(await ask(selectAll("places", { columns: ["hidden"] })), { status: 400 });
  const aggregate = [{ fn: "sum", column: "place", as: "total" }];
  const summed = await ask({ Select: { database: "main", from: "places", aggregate } });
  t.match(summed, refusal(400, "invalid_value", /"place" \(point\): sum requires numbers/));
  const values = [{ id: 1, place: { x: 1, y: 2 } }];
  t.match(await ask(insert("places", values)), { status: 400 });
  await sql("insert into main.places (id, place) values (1, point(1, 2))");
  const same = { table: "places", on: "there.place = places.place", columns: ["id"] };
  const from = { table: "places", as: "there" };
  const near = selectAll("places", { from, include: [{ as: "near", ...same }] });
  t.match(await ask(near), refusal(400, "invalid_value", /"place" \(point\) cannot be compared/));
  const like = selectAll("places", { where: { column: "place", cmp: "LIKE", value: "%1%" } });
  // MySQL compares the bytes.
  t.match(await ask(like), isMariaDb ? refusal(400, "invalid_value") : { body: { data: [] } });
});

t.test("a text that names nothing on PostgreSQL is refused as a value", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  const types = [
    "regclass",
    "regtype",
    "regproc",
    "regrole",
    "regnamespace",
    "jsonpath",
    "tsquery",
  ];
  await sql(
    "create domain main.named as regclass",
    `create table main.names (id int primary key, ${types.map((type) => `${type}_ ${type}`).join(", ")},
      named_ main.named, list_ regclass[])`,
    "insert into main.names (id, regclass_) values (1, 'main.names')",
  );
  const refused = (column: string) =>
    refusal(400, "invalid_value", new RegExp(`Column "${column}" .* does not accept this value`));
  for (const column of [...types, "named"].map((type) => `${type}_`)) {
    const value = "( no such";
    t.match(await ask(insert("names", [{ id: 2, [column]: value }])), refused(column));
    t.match(await ask({ Batch: [update("names", { [column]: value })] }), refused(column));
    for (const where of [equal(column, value), { column, cmp: "IN", value: [value] }]) {
      t.match(await ask(selectAll("names", { where })), refusal(400, "invalid_value"), column);
    }
  }
  t.match(await ask(update("names", { list_: ["names", "nothing"] })), refused("list_"));
  t.match(await ask(selectAll("names", { where: equal("regclass_", "main.names") })), {
    body: { data: [{ id: 1 }] },
  });
});

const { content } = readPage("query.md");

/** The cells of table rows under a second-level heading. */
function rows(heading: string): string[][] {
  return sectionOf(content, heading)
    .split("\n")
    .filter((line) => line.startsWith("| "))
    .map((line) => line.slice(2, -2).split(" | "));
}

t.test("a code has the same status in the gateway and the engine", async (t) => {
  const ofGateway = new Map<string, number>();
  for (const code of Object.keys(queryRefusals)) ofGateway.set(code, 400);
  for (const [code, [status]] of Object.entries(refusals)) ofGateway.set(code, status);
  for (const [code, status] of Object.entries(refusalStatuses)) {
    // 403 if the gateway counts the rows, 409 if the engine does.
    if (code === "too_many_changes") continue;
    t.equal(ofGateway.get(code) ?? status, status, code);
  }
});

t.test("query.md lists every type of CreateTable, and no others", async (t) => {
  const documented = rows("Types").flatMap(([words = ""]) =>
    Array.from(words.matchAll(/`(\w+)`/g), ([, word = ""]) => word),
  );
  t.strictSame(documented.sort(), [...typeWords].sort());
  t.strictSame([...postgresTypeWords].sort(), [...typeWords].sort());
  t.strictSame([...mysqlTypeWords].sort(), [...typeWords].sort());
});

// The databases, tables and columns that `/schema` describes.

const schemaOf = ({ engine }: Pick<Scene, "engine">) => {
  return (path: string) => send(engine.address, { path: `/schema${path}` });
};

/** A column without anything but its name, its type and whether it is the primary key. */
const column = (name: string, type: unknown, primary_key = false, nullable = !primary_key) => {
  return { name, type, primary_key, nullable };
};

t.test("SQLite's tables are described with the types of CreateTable", async (t) => {
  const scene = await freshSqlite();
  const [{ ask }, get] = [scene, schemaOf(scene)];
  await ask(createDatabase("Other"));
  await ask(createTable("users", { id: "int", name: "varchar(20)", ok: "bool" }));
  await ask(
    createTable("t", { a: { type: "text", nullable: false, primary_key: false } }, "Other"),
  );
  const databases = { databases: ["Other", "main"] };
  t.same((await get("")).body, { status: "success", data: databases });
  t.same((await get("/main")).body.data, { tables: ["users"] });
  t.same((await get("/main/users")).body.data, {
    columns: [column("id", "int", true), column("name", "varchar(20)"), column("ok", "bool")],
    keys: [["id"]],
    rows: 0,
  });
  const columns = [column("a", "text", false, false)];
  t.same((await get("/Other/t")).body.data, { columns, keys: [], rows: 0 });
  t.match(await get("/main/_gatehouse_columns"), refusal(400, "invalid_name"));
});

const catalogs = {
  PostgreSQL: {
    fresh: freshPostgres,
    databases: ["main", "public"],
    types: ["bigint", "character varying(20)", "numeric(10,2)"],
  },
  MySQL: {
    fresh: freshMysql,
    databases: ["main"],
    types: [/^bigint/, "varchar(20)", "decimal(10,2)"],
  },
};

for (const [name, { fresh, databases, types }] of Object.entries(catalogs)) {
  t.test(`tables and views are described with ${name}'s own types`, async (t) => {
    const scene = await fresh(t);
    const get = schemaOf(scene);
    const others = { name: "varchar(20)", price: "numeric(10,2)" };
    await scene.ask(createTable("users", { id: "int", ...others }));
    await scene.sql("create view main.names as select name from main.users");
    t.same((await get("")).body.data, { databases });
    t.same((await get("/main")).body.data, { tables: ["names", "users"] });
    t.match((await get("/main/users")).body.data, {
      columns: ["id", "name", "price"].map((name, at) => column(name, types[at], at === 0)),
      keys: [["id"]],
    });
  });
}

overEach("a name that does not exist in this spelling is a 404", async (t, scene) => {
  await scene.ask(createTable("users", { id: "int" }));
  const missing = {
    "/schema/MAIN": "database_not_found",
    "/schema/pg_catalog": "database_not_found",
    "/schema/mysql": "database_not_found",
    "/schema/main/Users": "table_not_found",
    "/schema/..": "schema_not_found",
    "/schema/main/..": "schema_not_found",
  };
  for (const [path, code] of Object.entries(missing)) {
    t.match(await send(scene.engine.address, { path }), refusal(404, code), path);
  }
});

function rowsOf(description: object | undefined): number {
  const isKnown = description !== undefined && "rows" in description;
  return isKnown ? Number(description.rows) : Number.NaN;
}

overEach("a table is described with its keys, defaults and references", async (t, scene) => {
  const { ask } = scene;
  const describe = async (table: string) => (await schemaOf(scene)(`/main/${table}`)).body.data;
  const orders = {
    id: "serial",
    customer: { type: "int", references: "customers.id" },
    number: { type: "varchar(20)", unique: true },
    status: { type: "varchar(10)", nullable: false, default: "open" },
  };
  const order = { type: "bigint", primary_key: true, references: "orders.id" };
  for (const query of [
    createTable("customers", { id: "int", name: "text" }),
    createTable("orders", orders),
    createTable("lines", { place: "int", in_order: order }),
  ]) {
    t.match(await ask(query), { status: 200 });
  }
  t.match(await describe("orders"), {
    columns: [
      { name: "id", primary_key: true, nullable: false, serial: true, default: undefined },
      { name: "customer", references: "customers.id", default: undefined, unique: undefined },
      { name: "number", nullable: true, unique: true, serial: undefined },
      { name: "status", nullable: false, default: /open/, references: undefined },
    ],
    keys: [["id"], ["number"]],
  });
  t.match(await describe("lines"), {
    columns: [
      { name: "place", primary_key: true, unique: undefined },
      { name: "in_order", primary_key: true, unique: undefined, references: "orders.id" },
    ],
    keys: [["place", "in_order"]],
  });
  const rows = [1, 2, 3].map((id) => ({ id, name: "n" }));
  await ask(insert("customers", rows));
  await eventually("the rows are estimated", async () => {
    return rowsOf(await describe("customers")) === 3;
  });
});

t.test("SQLite counts the rows of small tables and estimates large ones", async (t) => {
  const scene = await freshSqlite();
  await scene.ask(createTable("many", { id: "int", rowid: "text" }));
  await scene.ask(createTable("sparse", { id: "int" }));
  const idsOf = { many: (at: number) => at, sparse: (at: number) => 1000 + at * 7 };
  for (const [table, idOf] of Object.entries(idsOf)) {
    const rows = Array.from({ length: 30_000 }, (_, at) => ({ id: idOf(at) }));
    await scene.ask(insert(table, rows));
    const estimate = rowsOf((await schemaOf(scene)(`/main/${table}`)).body.data);
    t.ok(Math.abs(estimate - 30_000) < 30, `${table}: ${estimate}`);
  }
});

t.test("PostgreSQL's comments and defaults are shown as written", async (t) => {
  const scene = await freshPostgres(t);
  await scene.sql(
    `create table main.notes (id int primary key, at timestamptz default now(),
      twice int generated always as (id * 2) stored);
    comment on table main.notes is 'Notes of calls';
    comment on column main.notes.at is 'When'`,
  );
  t.match((await schemaOf(scene)("/main/notes")).body.data, {
    columns: [
      { name: "id", comment: undefined },
      { name: "at", default: "now()", comment: "When" },
      { name: "twice", default: undefined },
    ],
    comment: "Notes of calls",
  });
});

const enums = {
  PostgreSQL: {
    fresh: freshPostgres,
    setup: `create type main.mood as enum ('so, so', 'it''s fine');
      create domain main.price as numeric(10,2);
      create domain main.total as main.price;
      create domain main.feeling as main.mood;
      create table main.days (id int primary key, mood main.mood not null, cost main.price,
        felt main.feeling, moods main.mood[], totals main.total[]);
      create materialized view main.moods as select mood from main.days`,
    columns: [
      { type: "integer" },
      { type: "main.mood" },
      { type: "main.price", value_type: "numeric(10,2)", labels: undefined },
      { type: "main.feeling", value_type: "main.mood", labels: ["so, so", "it's fine"] },
      { type: "main.mood[]", value_type: undefined, labels: ["so, so", "it's fine"] },
      { type: "main.total[]", value_type: "numeric(10,2)[]", labels: undefined },
    ],
  },
  MySQL: {
    fresh: freshMysql,
    setup: `create table main.days (id int primary key,
        mood enum('so, so', 'it''s fine') not null, tags set('a', 'b'), ok boolean, flags bit(3));
      create view main.moods as select mood from main.days`,
    columns: [
      { type: /^int/ },
      { type: "enum('so, so','it''s fine')" },
      { type: "set('a','b')", labels: undefined, value_type: undefined },
      { type: "tinyint(1)", value_type: "boolean" },
      { type: "bit(3)", value_type: "bigint" },
    ],
  },
};

for (const [name, { fresh, setup, columns }] of Object.entries(enums)) {
  t.test(`${name}'s enums have labels, views are marked, and types say their values`, async (t) => {
    const scene = await fresh(t);
    for (const statement of setup.split(";")) await scene.sql(statement);
    await scene.ask(createTable("papers", { id: "int", data: "json" }));
    const describe = async (table: string) => (await schemaOf(scene)(`/main/${table}`)).body.data;
    const labels = ["so, so", "it's fine"];
    const [id, mood, ...others] = columns;
    t.match(await describe("days"), {
      view: undefined,
      columns: [id, { ...mood, labels, nullable: false, value_type: undefined }, ...others],
    });
    t.match(await describe("moods"), { view: true, columns: [{ name: "mood", labels }] });
    const isMarked = name === "MySQL";
    t.match(await describe("papers"), {
      columns: [{}, { name: "data", value_type: isMarked ? "json" : undefined }],
    });
  });
}

t.test("MySQL's comments are shown, except the engine's own", async (t) => {
  const scene = await freshMysql(t);
  await scene.sql(
    `create table main.notes (id int primary key comment 'Its number', word text)
      comment 'Notes of calls'`,
  );
  await scene.ask(createTable("marked", { id: "int", data: "json" }));
  const describe = async (table: string) => (await schemaOf(scene)(`/main/${table}`)).body.data;
  t.match(await describe("notes"), {
    columns: [
      { name: "id", comment: "Its number" },
      { name: "word", comment: undefined, default: undefined },
    ],
    comment: "Notes of calls",
  });
  const columns = [{ name: "id" }, { name: "data", comment: undefined }];
  t.match(await describe("marked"), { columns, comment: undefined });
});
