import fc from "fast-check";
import t, { type Test } from "tap";
import { type Answer, createTable, insert, selectAll } from "./kit.ts";
import { freshMysql, sharedServer as sharedMysql } from "./mysql/kit.ts";
import { freshPostgres, sharedServer as sharedPostgres } from "./postgres/kit.ts";

type Ask = (body: object | string) => Promise<Answer>;

/** Any moment of the years 1 to 9999, in the words of ISO 8601. */
function instants(): fc.Arbitrary<string> {
  const range = { min: new Date("0001-01-01"), max: new Date("9999-12-31"), noInvalidDate: true };
  return fc.date(range).map((date) => date.toISOString());
}

/** JSON texts that columns of every server give back as they are, by their types. */
const commonTexts: Record<string, fc.Arbitrary<string>> = {
  bigint: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map(String),
  boolean: fc.boolean().map(String),
  blob: fc.uint8Array().map((bytes) => JSON.stringify(Buffer.from(bytes).toString("base64"))),
  uuid: fc.uuid().map((uuid) => JSON.stringify(uuid)),
  date: instants().map((time) => JSON.stringify(time.slice(0, 10))),
  timestamp: instants().map((time) => JSON.stringify(time.replace(/\.?0*Z$/, "Z"))),
};

/** Fills a new column of the type with JSON texts, and asks for them and by some of them. */
async function comeBack(t: Test, ask: Ask, type: string, drawn: readonly string[]): Promise<void> {
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

async function doublesComeBack(t: Test, ask: Ask): Promise<void> {
  await ask(createTable("doubles", { id: "int", cell: "double" }));
  const drawn = fc.sample(fc.double({ noNaN: true, noDefaultInfinity: true }), 500);
  const sure = [...drawn, Number.MAX_VALUE, Number.MIN_VALUE, 5e-324, 0.1, 1e21, 2 ** 53];
  const rows = sure.map((cell, id) => ({ id, cell: Object.is(cell, -0) ? 0 : cell }));
  t.match(await ask(insert("doubles", rows)), { status: 200 });
  t.strictSame((await ask(selectAll("doubles", { order_by: { column: "id" } }))).body.data, rows);
  const tooMuch = `{"Insert":{"database":"main","table":"doubles","values":[{"id":-1,"cell":1e400}]}}`;
  t.match(await ask(tooMuch), { status: 400, body: { code: "number_out_of_range" } });
  const rounded = tooMuch.replace("1e400", "9007199254740993");
  t.match(await ask(rounded), { status: 400, body: { code: "invalid_value" } });
}

/** True for JSON that its binary form keeps letter for letter: no object of two keys, plain numbers. */
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

/** JSON texts of values that a column of the type gives back as they are, and how to start. */
const servers = {
  PostgreSQL: {
    fresh: freshPostgres,
    texts: {
      ...commonTexts,
      numeric: fc
        .tuple(
          fc.bigInt({ min: -(10n ** 40n), max: 10n ** 40n }),
          fc.stringMatching(/^[0-9]{0,30}$/),
        )
        .map(([whole, places]) => (places === "" ? `${whole}` : `${whole}.${places}`)),
      text: fc
        .string({ unit: "binary" })
        .map((text) => JSON.stringify(text.replaceAll("\0", "").toWellFormed())),
      jsonb: fc
        .jsonValue({ noUnicodeString: false })
        .map((value) => JSON.stringify(value))
        .filter(isOrdered),
    },
  },
  MySQL: {
    fresh: freshMysql,
    texts: {
      ...commonTexts,
      numeric: fc
        .tuple(
          fc.bigInt({ min: -(10n ** 35n) + 1n, max: 10n ** 35n - 1n }),
          fc.stringMatching(/^([0-9]{0,29}[1-9])?$/),
        )
        .map(([whole, places]) => (places === "" ? `${whole}` : `${whole}.${places}`)),
      text: fc.string({ unit: "binary" }).map((text) => JSON.stringify(text.toWellFormed())),
      json: fc.jsonValue({ noUnicodeString: false }).map((value) => JSON.stringify(value)),
    },
  },
};

for (const [name, { fresh, texts }] of Object.entries(servers)) {
  t.test(
    `what a column takes comes back digit for digit, and is found by it (${name})`,
    async (t) => {
      const { ask } = await fresh(t);
      for (const [type, values] of Object.entries<fc.Arbitrary<string>>(texts)) {
        await comeBack(t, ask, type, fc.sample(values, 100));
      }
      await doublesComeBack(t, ask);
    },
  );

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

  t.test(`a serial column numbers what gives no number (${name})`, async (t) => {
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

/** Inserts each row, all of which a server would cut, round or read otherwise. */
async function refuseAll(t: Test, ask: Ask, table: string, rows: readonly object[]): Promise<void> {
  for (const row of rows) {
    const answer = await ask(insert(table, [{ id: 1, ...row }]));
    const body = { code: /^(invalid_value|number_out_of_range)$/ };
    t.match(answer, { status: 400, body }, JSON.stringify(row));
    const set = { Update: { database: "main", table, set: row, where: null } };
    t.match(await ask(set), { status: 400 }, JSON.stringify(row));
  }
}

/** What no server takes into columns of these types. */
const strict = {
  ...{ id: "int", price: "numeric(6,2)", label: "varchar(3)", at: "timestamp" },
  ...{ day: "date", code: "uuid" },
};
const unfit = [
  ...[1.005, 100000, "1.5"].map((price) => ({ price })),
  { label: "four" },
  ...["yesterday", "01/02/2026", "2026-01-02T03:04:05.1234567Z", "2026-13-02T03:04:05Z"].map(
    (at) => ({ at }),
  ),
  { day: "2026-02-30" },
  { code: "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}" },
  { id: 1.5 },
];

t.test("a value that PostgreSQL would cut, round or read otherwise is refused", async (t) => {
  const { ask } = await freshPostgres(t);
  await ask(createTable("strict", strict));
  await ask(insert("strict", [{ id: 0 }]));
  await refuseAll(t, ask, "strict", [...unfit, { label: "a\0b" }, { day: "now" }]);
  const fit = { id: 1, price: 9999.9, label: "abc", at: "2026-01-02 03:04+02", day: "2026-02-28" };
  t.match(await ask(insert("strict", [fit])), { status: 200 });
  const where = { column: "id", cmp: "=", value: 1 };
  t.match((await ask(selectAll("strict", { where }))).body.data, [
    { price: 9999.9, label: "abc", at: "2026-01-02T01:04:00Z", day: "2026-02-28", code: null },
  ]);
});

t.test("a value that MySQL would cut, round or read otherwise is refused", async (t) => {
  const { ask } = await freshMysql(t);
  const server = await sharedMysql();
  await ask(createTable("strict", { ...strict, clock: "time" }));
  await server.sql(
    `alter table main.strict add mood enum('glad', 'sad'), add flags set('a', 'b'), add born year,
      add fixed char(5), add raw binary(4), add coarse datetime, add tiny tinyint unsigned,
      add short tinytext`,
  );
  await ask(insert("strict", [{ id: 0 }]));
  await refuseAll(t, ask, "strict", [
    ...unfit,
    { label: "abc " },
    ...["2026-02-29T03:04:05Z", "0000-00-00T00:00:00Z", "9999-12-31T23:59:59-01:00"].map((at) => ({
      at,
    })),
    ...["2026-1-2", "20260102", "0000-00-00"].map((day) => ({ day })),
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
    ...{ id: 1, price: 9999.9, label: "a  ", at: "2026-01-02 03:04+02", day: "2026-02-28" },
    ...{ clock: "03:04:05.5", mood: "sad", flags: "a,b", born: 1970, raw: "AAECAw==" },
    ...{ coarse: "2026-01-02T03:04:05", tiny: 255 },
  };
  t.match(await ask(insert("strict", [fit])), { status: 200 });
  const where = { column: "id", cmp: "=", value: 1 };
  const { body, text } = await ask(selectAll("strict", { where }));
  t.match(body.data, [{ ...fit, at: "2026-01-02T01:04:00Z", code: null }]);
  t.match(text, `"price":9999.90,`);
});

t.test("a table that was made in PostgreSQL by other means is readable and writable", async (t) => {
  const { ask, database } = await freshPostgres(t);
  const server = await sharedPostgres();
  await server.sql(
    `create type main.mood as enum ('glad', 'sad');
    create domain main.percent as int check (value between 0 and 100);
    create table main.legacy (
      id smallint primary key, mood main.mood, share main.percent, tags text[], grid bigint[][],
      local timestamp, pause interval, fixed char(5), ratio real, much numeric, doubled int
        generated always as (id * 2) stored, blobs bytea[], "select" inet
    );
    insert into main.legacy values (1, 'sad', 50, array['a,b', null, '"x\\y"', ''], '{{1,2},{3,9007199254740993}}',
      '2026-01-02 03:04:05.5', '1 day 2 hours', 'ab', 0.1, 'NaN', default, array['\\x6869'::bytea], '10.0.0.1')`,
    database,
  );
  const row = {
    id: 1,
    mood: "sad",
    share: 50,
    tags: ["a,b", null, '"x\\y"', ""],
    local: "2026-01-02T03:04:05.5",
    fixed: "ab   ",
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
  const same = (column: keyof typeof row) => ({ column, cmp: "=", value: row[column] });
  const columns = ["mood", "share", "tags", "local", "ratio", "much", "blobs", "select"] as const;
  for (const column of columns) {
    const where = { and: [same(column), { column: "id", cmp: "=", value: 2 }] };
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
    t.match(answer, { status, body: { code } }, JSON.stringify(set));
    t.notMatch(answer.text, /hunter2|insert into/i);
  }
});

t.test("text is compared and ordered by its bytes, spaces at the end included", async (t) => {
  const { ask } = await freshMysql(t);
  const columns = [{ name: "word", type: "text", primary_key: true }];
  await ask({ CreateTable: { database: "main", table: "words", columns } });
  const words = ["a", "a ", "A", "ä", "a\u0001", "Z", "ab", "\u{1f600}", "\uff5e"];
  const rows = words.map((word) => ({ word }));
  t.match(await ask(insert("words", rows)), { body: { message: "Inserted 9 rows" } });
  const { body } = await ask(selectAll("words", { order_by: { column: "word" } }));
  const byBytes = words.toSorted((one, other) =>
    Buffer.compare(Buffer.from(one), Buffer.from(other)),
  );
  t.same(
    body.data,
    byBytes.map((word) => ({ word })),
  );
  for (const value of ["a", "a ", "A", "0"]) {
    const where = { column: "word", cmp: "=", value };
    const expected = words.includes(value) ? [{ word: value }] : [];
    t.same((await ask(selectAll("words", { where }))).body.data, expected);
    t.same(
      (await ask(selectAll("words", { where: { ...where, cmp: "LIKE" } }))).body.data,
      expected,
    );
  }
});

t.test("a comparison never takes a string for a number, nor one number for another", async (t) => {
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
    ["price", `"0.3"`],
  ] as const) {
    t.match(await found(column, value), { status: 400, body: { code: "invalid_value" } });
  }
});

t.test("a table that was made in MySQL by other means is readable and writable", async (t) => {
  const { ask } = await freshMysql(t);
  const server = await sharedMysql();
  await server.sql(
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
  const [row] = body.data ?? [];
  const { id: _, big: __, flag: ___, place: ____, doubled: _____, ...rest } = Object(row);
  t.match(await ask(insert("legacy", [{ ...rest, flag: true }])), { status: 200 });
  for (const [column, value] of Object.entries({ ...rest, ratio: 0.1 })) {
    const where = {
      and: [
        { column, cmp: "=", value },
        { column: "id", cmp: "=", value: 2 },
      ],
    };
    const columns = ["id", "flag"];
    const found = await ask(selectAll("legacy", { where, columns }));
    t.same(found.body.data, [{ id: 2, flag: true }], column);
  }
  for (const set of [{ doubled: 3 }, { id: 70000 }, { old: "名前" }, { place: { x: 1, y: 2 } }]) {
    t.match(await ask(insert("legacy", [set])), { status: 400 }, JSON.stringify(set));
    const answered = { database: "main", table: "legacy", values: [set], returning: ["id"] };
    t.match(await ask({ Insert: answered }), { status: 400 }, "also where its rows are answered");
  }
  t.match(await ask(selectAll("legacy", { columns: ["hidden"] })), { status: 400 });
});
