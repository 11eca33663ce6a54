import fc from "fast-check";
import t, { type Test } from "tap";
import { createTable, equal, insert, refusal, selectAll, update } from "./kit.ts";
import { freshMysql } from "./mysql/kit.ts";
import type { Scene } from "./over-each.ts";
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

async function roundTripDoubles(t: Test, ask: Ask): Promise<void> {
  await ask(createTable("doubles", { id: "int", cell: "double" }));
  const drawn = fc.sample(fc.double({ noNaN: true, noDefaultInfinity: true }), 500);
  const cells = [...drawn, Number.MAX_VALUE, Number.MIN_VALUE, 5e-324, 0.1, 1e21, 2 ** 53];
  const rows = cells.map((cell, id) => ({ id, cell: Object.is(cell, -0) ? 0 : cell }));
  t.match(await ask(insert("doubles", rows)), { status: 200 });
  t.strictSame((await ask(selectAll("doubles", { order_by: { column: "id" } }))).body.data, rows);
  const put = (cell: string) =>
    ask(`{"Insert":{"database":"main","table":"doubles","values":[{"id":-1,"cell":${cell}}]}}`);
  t.match(await put("1e400"), refusal(400, "number_out_of_range"));
  t.match(await put("9007199254740993"), refusal(400, "invalid_value"));
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
      await roundTrip(t, ask, type, fc.sample(values, 100));
    }
    await roundTripDoubles(t, ask);
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
  const { ask } = await freshPostgres(t);
  await ask(createTable("strict", strict));
  await ask(insert("strict", [{ id: 0 }]));
  await refuseAll(t, ask, "strict", [...unfit, { label: "a\0b" }, { day: "now" }]);
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

t.test("a table that another program created in PostgreSQL is readable and writable", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  await sql(
    `create type main.mood as enum ('glad', 'sad');
    create domain main.percent as int check (value between 0 and 100);
    create table main.legacy (
      id smallint primary key, mood main.mood, share main.percent, tags text[], grid bigint[][],
      local timestamp, pause interval, fixed char(5), ratio real, much numeric, doubled int
        generated always as (id * 2) stored, blobs bytea[], "select" inet
    );
    insert into main.legacy values (1, 'sad', 50, array['a,b', null, '"x\\y"', ''], '{{1,2},{3,9007199254740993}}',
      '2026-01-02 03:04:05.5', '1 day 2 hours', 'ab', 0.1, 'NaN', default, array['\\x6869'::bytea], '10.0.0.1')`,
  );
  const row = {
    id: 1,
    mood: "sad",
    share: 50,
    tags: ["a,b", null, '"x\\y"', ""],
    fixed: "ab   ",
    local: "2026-01-02T03:04:05.5",
    ratio: 0.1,
    much: "NaN",
    doubled: 2,
    blobs: ["aGk="],
    select: "10.0.0.1",
  };
  const { body, text } = await ask(selectAll("legacy"));
  t.match(body.data, [row]);
  t.match(text, `"grid":[[1,2],[3,9007199254740993]]`);
  const { doubled: _, ...rest } = row;
  t.match(await ask(insert("legacy", [{ ...rest, id: 2 }])), { status: 200 });
  const columns = ["mood", "share", "tags", "local", "ratio", "much", "blobs", "select"] as const;
  for (const column of columns) {
    const where = { and: [equal(column, row[column]), equal("id", 2)] };
    t.match((await ask(selectAll("legacy", { where }))).body.data, [{ id: 2 }], column);
  }
  const broken: [object, number, string][] = [
    [{ mood: "angry" }, 400, "invalid_value"],
    [{ share: 101 }, 409, "constraint_violation"],
    [{ id: 99999 }, 400, "number_out_of_range"],
    [{ doubled: 3 }, 400, "invalid_value"],
    [{ local: "2026-01-02T03:04:05+02:00" }, 400, "invalid_value"],
    [{ tags: ["a", ["b"]] }, 400, "invalid_value"],
    [{ tags: "a" }, 400, "invalid_value"],
    [{ select: "hunter2" }, 400, "invalid_value"],
  ];
  for (const [set, status, code] of broken) {
    const answer = await ask(insert("legacy", [{ id: 3, ...set }]));
    t.match(answer, refusal(status, code), JSON.stringify(set));
    t.notMatch(answer.text, /hunter2|insert into/i);
  }
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

t.test("a table that another program created in MySQL is readable and writable", async (t) => {
  const { ask, sql } = await freshMysql(t);
  await sql(
    `create table main.legacy (
      id smallint unsigned primary key auto_increment, big bigint unsigned, flag tinyint(1),
      bits bit(9), ratio float, doc json, own uuid, local datetime(3), instant timestamp(6) null,
      span time, born year, place point, doubled int generated always as (born * 2) stored,
      hidden int invisible, old varchar(9) character set latin1 collate latin1_swedish_ci)`,
    `insert into main.legacy (big, flag, bits, ratio, doc, own, local, instant, span, born, place, old)
      values (18446744073709551615, 5, b'100000001', 0.1, '{"b": [1, 2.50], "a": null}',
      'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', '2026-01-02 03:04:05.5', '2026-01-02 03:04:05',
      '-12:30:00', 1999, point(1, 2), 'Müller')`,
  );
  const { text, body } = await ask(selectAll("legacy"));
  t.equal(
    text,
    `{"status":"success","data":[{"id":1,"big":18446744073709551615,"flag":5,"bits":257,"ratio":0.1,` +
      `"doc":{"b":[1,2.50],"a":null},"own":"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",` +
      `"local":"2026-01-02T03:04:05.5","instant":"2026-01-02T03:04:05Z","span":"-12:30:00",` +
      `"born":1999,"place":{"x":1,"y":2},"doubled":3998,"old":"Müller"}]}`,
  );
  const sum = [{ fn: "sum", column: "place", as: "total" }];
  const message = /"place" \(point\): sum requires numbers/;
  t.match(
    await ask({ Select: { database: "main", from: "legacy", aggregate: sum } }),
    refusal(400, "invalid_value", message),
  );
  const [row] = body.data ?? [];
  const { id: _, big: __, flag: ___, place: ____, doubled: _____, ...rest } = Object(row);
  t.match(await ask(insert("legacy", [{ ...rest, flag: true }])), { status: 200 });
  for (const [column, value] of Object.entries({ ...rest, ratio: 0.1 })) {
    const where = { and: [equal(column, value), equal("id", 2)] };
    const found = await ask(selectAll("legacy", { where, columns: ["id", "flag"] }));
    t.same(found.body.data, [{ id: 2, flag: true }], column);
  }
  for (const set of [{ doubled: 3 }, { id: 70000 }, { old: "名前" }, { place: { x: 1, y: 2 } }]) {
    t.match(await ask(insert("legacy", [set])), { status: 400 }, JSON.stringify(set));
    const returned = { database: "main", table: "legacy", values: [set], returning: ["id"] };
    t.match(await ask({ Insert: returned }), { status: 400 }, "also with returned rows");
  }
  t.match(await ask(selectAll("legacy", { columns: ["hidden"] })), { status: 400 });
});
