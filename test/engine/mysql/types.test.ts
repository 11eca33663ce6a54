import fc from "fast-check";
import t from "tap";
import { createTable, insert, selectAll } from "../kit.ts";
import { matchPatterns } from "../patterns.ts";
import { comeBack, commonTexts, doublesComeBack } from "../round-trip.ts";
import { freshMysql, sharedServer } from "./kit.ts";

const digits = fc.tuple(
  fc.bigInt({ min: -(10n ** 35n) + 1n, max: 10n ** 35n - 1n }),
  fc.stringMatching(/^([0-9]{0,29}[1-9])?$/),
);

/** JSON texts of values that a column of the type gives back as they are. */
const texts: Record<string, fc.Arbitrary<string>> = {
  ...commonTexts,
  numeric: digits.map(([whole, places]) => (places === "" ? `${whole}` : `${whole}.${places}`)),
  text: fc.string({ unit: "binary" }).map((text) => JSON.stringify(text.toWellFormed())),
  json: fc.jsonValue({ noUnicodeString: false }).map((value) => JSON.stringify(value)),
};

t.test("what a column takes comes back digit for digit, and is found by it", async (t) => {
  const { ask } = await freshMysql(t);
  for (const [type, values] of Object.entries(texts)) {
    await comeBack(t, ask, type, fc.sample(values, 100));
  }
});

t.test("every double comes back as the same double", async (t) => {
  const { ask } = await freshMysql(t);
  await doublesComeBack(t, ask);
});

t.test("a value that MySQL would cut, round or read otherwise is refused", async (t) => {
  const { ask } = await freshMysql(t);
  const server = await sharedServer();
  const types = {
    id: "int",
    price: "numeric(6,2)",
    label: "varchar(3)",
    at: "timestamp",
    day: "date",
    clock: "time",
    code: "uuid",
  };
  await ask(createTable("strict", types));
  await server.sql(
    `alter table main.strict add mood enum('glad', 'sad'), add flags set('a', 'b'), add born year,
      add fixed char(5), add raw binary(4), add coarse datetime, add tiny tinyint unsigned,
      add short tinytext`,
  );
  await ask(insert("strict", [{ id: 0 }]));
  const unfit = [
    { price: 1.005 },
    { price: 100000 },
    { price: "1.5" },
    { label: "four" },
    { label: "abc " },
    { at: "yesterday" },
    { at: "01/02/2026" },
    { at: "2026-01-02T03:04:05.1234567Z" },
    { at: "2026-13-02T03:04:05Z" },
    { at: "2026-02-29T03:04:05Z" },
    { at: "0000-00-00T00:00:00Z" },
    { at: "9999-12-31T23:59:59-01:00" },
    { day: "2026-02-30" },
    { day: "2026-1-2" },
    { day: "20260102" },
    { day: "0000-00-00" },
    { clock: "noon" },
    { clock: "12:60:00" },
    { clock: "839:00:00" },
    { code: "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}" },
    { id: 1.5 },
    { id: "12abc" },
    { mood: "2" },
    { mood: "Glad" },
    { mood: "" },
    { flags: "3" },
    { flags: "b,a" },
    { born: 70 },
    { born: 2156 },
    { fixed: "a " },
    { raw: "aGk=" },
    { coarse: "2026-01-02T03:04:05.5" },
    { coarse: "2026-01-02T03:04:05+02:00" },
    { tiny: 256 },
    { tiny: -1 },
    { short: "x".repeat(256) },
  ];
  for (const row of unfit) {
    const answer = await ask(insert("strict", [{ id: 1, ...row }]));
    t.match(
      answer,
      { status: 400, body: { code: /^(invalid_value|number_out_of_range)$/ } },
      JSON.stringify(row),
    );
    const set = { Update: { database: "main", table: "strict", set: row, where: null } };
    t.match(await ask(set), { status: 400 }, JSON.stringify(row));
  }
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
  const where = { column: "id", cmp: "=", value: 1 };
  const { body, text } = await ask(selectAll("strict", { where }));
  t.match(body.data, [{ ...fit, at: "2026-01-02T01:04:00Z", code: null }]);
  t.match(text, `"price":9999.90,`);
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

t.test("a table that was made by other means is readable and writable", async (t) => {
  const { ask } = await freshMysql(t);
  const server = await sharedServer();
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

t.test(
  "a pattern's backslash is a backslash, and numbers are matched by their digits",
  async (t) => {
    const { ask } = await freshMysql(t);
    await matchPatterns(t, ask);
  },
);

t.test("a serial column numbers what gives no number, and takes zero for zero", async (t) => {
  const { ask } = await freshMysql(t);
  await ask(createTable("notes", { id: "serial", title: "text" }));
  const rows = `[{"id":1},{},{"id":9007199254740993},{"id":null},{"id":0}]`;
  t.match(await ask(`{"Insert":{"database":"main","table":"notes","values":${rows}}}`), {
    body: { message: "Inserted 5 rows" },
  });
  const { text } = await ask(selectAll("notes", { columns: ["id"], order_by: { column: "id" } }));
  t.match(text, `[{"id":0},{"id":1},{"id":2},{"id":9007199254740993},{"id":9007199254740994}]`);
});
