import fc from "fast-check";
import t from "tap";
import { createTable, insert, selectAll } from "../kit.ts";
import { matchPatterns } from "../patterns.ts";
import { comeBack, commonTexts, doublesComeBack } from "../round-trip.ts";
import { freshPostgres, sharedServer } from "./kit.ts";

/** JSON texts of values that a column of the type gives back as they are. */
const texts: Record<string, fc.Arbitrary<string>> = {
  ...commonTexts,
  numeric: fc
    .tuple(fc.bigInt({ min: -(10n ** 40n), max: 10n ** 40n }), fc.stringMatching(/^[0-9]{0,30}$/))
    .map(([whole, places]) => (places === "" ? `${whole}` : `${whole}.${places}`)),
  text: fc
    .string({ unit: "binary" })
    .map((text) => JSON.stringify(text.replaceAll("\0", "").toWellFormed())),
  jsonb: fc.jsonValue({ noUnicodeString: false }).map((value) => JSON.stringify(value)),
};

t.test("what a column takes comes back digit for digit, and is found by it", async (t) => {
  const { ask } = await freshPostgres(t);
  for (const [type, values] of Object.entries(texts)) {
    const drawn = fc.sample(type === "jsonb" ? values.filter(isOrdered) : values, 100);
    await comeBack(t, ask, type, drawn);
  }
});

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

t.test("every double comes back as the same double", async (t) => {
  const { ask } = await freshPostgres(t);
  await doublesComeBack(t, ask);
});

t.test("a value that PostgreSQL would cut, round or read otherwise is refused", async (t) => {
  const { ask } = await freshPostgres(t);
  const types = {
    id: "int",
    price: "numeric(6,2)",
    label: "varchar(3)",
    at: "timestamp",
    day: "date",
    code: "uuid",
  };
  await ask(createTable("strict", types));
  const unfit = [
    { price: 1.005 },
    { price: 100000 },
    { label: "four" },
    { label: "a\0b" },
    { at: "yesterday" },
    { at: "01/02/2026" },
    { at: "2026-01-02T03:04:05.1234567Z" },
    { at: "2026-13-02T03:04:05Z" },
    { day: "2026-02-30" },
    { day: "now" },
    { code: "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}" },
    { id: 1.5 },
    { price: "1.5" },
  ];
  for (const row of unfit) {
    const answer = await ask(insert("strict", [{ id: 1, ...row }]));
    t.match(
      answer,
      { status: 400, body: { code: /^(invalid_value|number_out_of_range)$/ } },
      JSON.stringify(row),
    );
  }
  const fit = { id: 1, price: 9999.9, label: "abc", at: "2026-01-02 03:04+02", day: "2026-02-28" };
  t.match(await ask(insert("strict", [fit])), { status: 200 });
  t.match((await ask(selectAll("strict"))).body.data, [
    { price: 9999.9, label: "abc", at: "2026-01-02T01:04:00Z", day: "2026-02-28", code: null },
  ]);
});

t.test("a table that was made by other means is readable and writable", async (t) => {
  const { ask, database } = await freshPostgres(t);
  const server = await sharedServer();
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
  for (const column of [
    "mood",
    "share",
    "tags",
    "local",
    "ratio",
    "much",
    "blobs",
    "select",
  ] as const) {
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

t.test(
  "a pattern's backslash is a backslash, and numbers are matched by their digits",
  async (t) => {
    const { ask } = await freshPostgres(t);
    await matchPatterns(t, ask);
  },
);

t.test("numbers of a serial column follow those that rows gave", async (t) => {
  const { ask } = await freshPostgres(t);
  await ask(createTable("notes", { id: "serial", title: "text" }));
  const rows = [{ id: 1 }, {}, { id: 9007199254740993n.toString() }, { id: null }];
  const spelled = JSON.stringify(rows).replace(/"(\d+)"/, "$1");
  const body = `{"Insert":{"database":"main","table":"notes","values":${spelled}}}`;
  t.match(await ask(body), { body: { message: "Inserted 4 rows" } });
  const { text } = await ask(selectAll("notes", { columns: ["id"], order_by: { column: "id" } }));
  t.match(text, `[{"id":1},{"id":2},{"id":9007199254740993},{"id":9007199254740994}]`);
});
