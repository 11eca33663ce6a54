/** Rows within rows, and Selects of Selects. */
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { mock } from "node:test";
import t from "tap";
import { caseCount, nightly, sampled } from "../kit/nightly.ts";
import { choicesOf } from "../query/arbitrary.ts";
import { Chooser } from "../query/arbitrary-selects.ts";
import { exactJson, nestedSelect, rowsFor, tableNames, tableTypes } from "./arbitrary-selects.ts";
import { createTable, dropTable, endOf, equal, insert, openRows, refusal, rowsAs } from "./kit.ts";
import { answersOf, type ModelTables, rowText } from "./model.ts";
import { freshMysql } from "./mysql/kit.ts";
import { freshSqlite, overEach, overSqlite, type Scene } from "./over-each.ts";
import { freshPostgres } from "./postgres/kit.ts";

type Ask = Scene["ask"];

async function fill(ask: Ask): Promise<void> {
  await ask(createTable("staff", { id: "int", name: "text", boss: "int" }));
  await ask(createTable("rentals", { id: "int", staff_id: "int", film: "text", price: "int" }));
  await ask(createTable("films", { name: "text", year: "int" }));
  await ask(createTable("payments", { id: "int", rental_id: "int", paid: "int" }));
  await ask(
    insert("staff", [
      { id: 1, name: "Ann", boss: null },
      { id: 2, name: "Bob", boss: 1 },
      { id: 3, name: "Cid", boss: 1 },
    ]),
  );
  await ask(
    insert("rentals", [
      { id: 10, staff_id: 1, film: "A", price: 1 },
      { id: 11, staff_id: 1, film: "B", price: 2 },
      { id: 12, staff_id: 2, film: "A", price: 3 },
      { id: 13, staff_id: null, film: "C", price: null },
    ]),
  );
  await ask(
    insert("films", [
      { name: "A", year: 1990 },
      { name: "B", year: 2000 },
    ]),
  );
  const paid = [10, 10, 11, 12].map((rental_id, at) => ({ id: at + 1, rental_id, paid: at * 5 }));
  await ask(insert("payments", paid));
}

const byId = { order_by: { column: "id" } };
const ofStaff = { as: "rentals", table: "rentals", on: "rentals.staff_id = staff.id" };
const film = { as: "film", table: "films", on: "films.name = rentals.film", one: true };

/** The rows' text. */
async function rowsOf(ask: Ask, query: object): Promise<string> {
  const { text } = await ask({ Select: { database: "main", ...query } });
  return text.replace('{"status":"success","data":[', "").replace(/\]\}$/, "");
}

const staff = { from: "staff", columns: ["name"], ...byId };

overSqlite("names of members and forms of answers are checked", async (t, { ask, engine }) => {
  await fill(ask);
  const select = (query: object) => ask({ Select: { database: "main", ...query } });
  const one = { ...ofStaff, columns: ["id"], ...byId };
  const all = { ...staff, columns: ["*"] };
  for (const name of ["Boss", "name"]) {
    const taken = await select({ ...all, include: [{ ...one, as: name }] });
    t.match(taken, refusal(400, "duplicate_column", `"${name}"`));
  }
  const unknown = { ...one, on: "rentals.staff = staff.id" };
  t.match(await select({ ...staff, include: [unknown] }), refusal(400, "unknown_column"));
  const elsewhere = { ...one, on: "rentals.staff_id = films.id" };
  t.match(await select({ ...staff, include: [elsewhere] }), { status: 400 });
  const missing = { ...one, table: "rent", on: "rent.staff_id = staff.id" };
  t.match(await select({ ...staff, include: [missing] }), refusal(404, "table_not_found"));
  const compute = [{ as: "more", fn: "add", of: ["film", { value: 1 }] }];
  const wrong = { ...ofStaff, columns: ["id"], include: [{ ...film, columns: ["year"] }], compute };
  t.match(
    await select({ ...staff, include: [wrong] }),
    refusal(400, "invalid_value", 'include "rentals": compute "more": add does not take "film"'),
  );
  const body = { Select: { database: "main", ...staff, include: [one] } };
  const lines = await rowsAs(engine.address, body, "application/x-ndjson");
  t.equal(
    lines.text,
    '{"name":"Ann","rentals":[{"id":10},{"id":11}]}\n{"name":"Bob","rentals":[{"id":12}]}\n{"name":"Cid","rentals":[]}\n',
  );
  const csv = await rowsAs(engine.address, body, "text/csv");
  t.match(csv, { status: 400, text: /"invalid_value"/ });
  const nobody = { ...body.Select, where: equal("id", 9) };
  t.match((await ask({ Select: nobody })).text, '"data":[]}');
  t.match((await ask({ Batch: [body, body] })).body.data, [{ length: 3 }, { length: 3 }]);
});

overSqlite("5,000 rows include others, in pages too", async (t, { ask }) => {
  await ask(createTable("a", { id: "int", key: "text" }));
  await ask(createTable("b", { id: "int", a_id: "int", key: "text" }));
  const ids = Array.from({ length: 5000 }, (_, index) => index);
  const keyOf = (id: number) => (id % 50 === 0 ? null : `k${id % 100}`);
  await ask(
    insert(
      "a",
      ids.map((id) => ({ id, key: keyOf(id) })),
    ),
  );
  await ask(
    insert(
      "b",
      ids.map((id) => ({ id, a_id: (id * 7) % 4000, key: keyOf(id) })),
    ),
  );
  const own = { as: "own", table: "b", on: "b.a_id = a.id", columns: ["id"], ...byId };
  const alike = {
    as: "alike",
    table: "b",
    on: "a.key = b.key",
    columns: ["id"],
    ...byId,
    limit: 2,
  };
  const query = { from: "a", columns: ["id"], ...byId, include: [own, alike] };
  const { body } = await ask({ Select: { database: "main", ...query } });
  const owned = Map.groupBy(
    ids.map((id) => ({ id })),
    ({ id }) => (id * 7) % 4000,
  );
  const expected = ids.map((id) => {
    const first = id % 100;
    const isCut = keyOf(id) !== null;
    const same = isCut ? [{ id: first }, { id: first + 100 }] : [];
    return { id, own: owned.get(id) ?? [], alike: same, ...(isCut ? { alike_more: true } : {}) };
  });
  t.same(body.data, expected);
  const page = { ...query, after: [4990], limit: 3 };
  t.same(
    (await ask({ Select: { database: "main", ...page } })).body.data,
    expected.slice(4991, 4994),
  );
});

overEach("a list in an include is refused by its length only", async (t, { ask }) => {
  const ids = Array.from({ length: 1500 }, (_, id) => ({ id, n: id }));
  for (const table of ["a", "b"]) {
    await ask(createTable(table, { id: "int", n: "int" }));
    await ask(insert(table, ids));
  }
  const select = (limit: number, length: number) => {
    const value = Array.from({ length }, (_, id) => id + 1000);
    const where = { column: "id", cmp: "IN", value };
    const b = { as: "b", table: "b", on: "b.n = a.n", columns: ["id"], one: true };
    const inner = { ...b, as: "a", table: "a", on: "a.n = b.n", where };
    const include = [{ ...b, include: [inner] }];
    return ask({ Select: { database: "main", from: "a", columns: ["n"], ...byN, limit, include } });
  };
  const lengths = t.name.endsWith("(SQLite)") ? [31_741, 31_742] : [64_510, 64_511];
  for (const length of lengths) {
    const all = await select(1500, length);
    const one = await select(1, length);
    t.equal(all.status, one.status, `${length}: ${one.text} ${all.text.slice(0, 200)}`);
    if (all.status === 200) t.match(all.body.data?.[1000], { n: 1000, b: { a: { id: 1000 } } });
    else t.match(all, refusal(400, "query_too_complex", /more than (31741|64510|65535) values/));
    if (length === lengths[0]) t.equal(all.status, 200);
  }
});

const byN = { order_by: { column: "n" } };

overEach("keys are equal as in a join, also those of different types", async (t, { ask }) => {
  const types = {
    n: "int",
    small: "int",
    exact: "decimal(12,2)",
    ratio: "double",
    words: "text",
    short: "varchar(9)",
    day: "date",
    moment: "timestamp",
    is: "boolean",
    code: "uuid",
    data: "bytes",
  };
  const code = "0f3d3a1c-7a43-4f57-9a3c-0b9c3bd18f3f";
  const rows = [
    { small: 1, exact: 1, ratio: 1, words: "1", short: "1 ", day: "2026-01-01", is: true, code },
    { small: 2, exact: 2.5, ratio: 2.5, words: "b", short: "B", day: "2025-01-01", is: false },
    { small: 0, exact: 0.1, ratio: 0.1, words: code, short: "b", is: null, data: "AAH/" },
  ].map((row, n) => ({ n, ...row, moment: "2026-01-01T00:00:00Z" }));
  for (const table of ["a", "b"]) {
    await ask(createTable(table, types));
    await ask(insert(table, rows));
  }
  const names = Object.keys(types);
  const pairs = names.flatMap((one) => names.map((other) => [one, other]));
  for (const [at, [one, other]] of sampled([...pairs.entries()], 2)) {
    const on = at % 4 === 0 ? `a.${one} = b.${other}` : `b.${other} = a.${one}`;
    const join = { table: "b", on, join_type: "INNER" };
    const order_by = [{ column: "a.n" }, { column: "b.n" }];
    const columns = ["a.n", "b.n"];
    const joined = await ask({ Select: { database: "main", from: "a", columns, join, order_by } });
    const include = [{ as: "b", table: "b", on, columns: ["n"], ...byN }];
    const query = { database: "main", from: "a", columns: ["n"], ...byN, include };
    const included = await ask({ Select: query });
    t.equal(included.status, joined.status, `${on}: ${joined.text} ${included.text}`);
    const found = included.body.data?.flatMap((row) => {
      const { n, b } = Object(row);
      return b.map((inner: { n: number }) => ({ "a.n": n, "b.n": inner.n }));
    });
    t.same(found, joined.body.data, on);
    if (joined.status !== 200) {
      t.match(included, refusal(400, "invalid_value", / \(.*\) cannot be compared with /), on);
    }
    const existing = await ask({
      Select: { ...query, include: undefined, where: { exists: { table: "b", on } } },
    });
    const ids = new Set(joined.body.data?.map((row) => Object(row)["a.n"]));
    const expected = joined.status === 200 ? Array.from(ids, (n) => ({ n })) : undefined;
    t.same(existing.body.data, expected, `exists: ${on}`);
  }
  for (const [on, expected] of [
    [
      "a.day = b.moment",
      [
        [0, 0],
        [0, 1],
        [0, 2],
      ],
    ],
    ["a.small = b.exact", [[0, 0]]],
    ["a.words = b.code", [[2, 0]]],
    ["a.ratio = b.small", [[0, 0]]],
  ] as const) {
    const join = { table: "b", on, join_type: "INNER" };
    const order_by = [{ column: "a.n" }, { column: "b.n" }];
    const query = { database: "main", from: "a", columns: ["a.n", "b.n"], join, order_by };
    const rows = expected.map(([a, b]) => ({ "a.n": a, "b.n": b }));
    t.same((await ask({ Select: query })).body.data, rows, on);
  }
});

t.test("a collation without case finds keys in either case (MySQL)", async (t) => {
  const { ask, sql } = await freshMysql(t);
  const text = "varchar(20) collate utf8mb4_general_ci";
  await sql(
    `create table main.a (id int primary key, k ${text}, latin varchar(9) charset latin1)`,
    `create table main.b (id int primary key, k ${text}, latin varchar(9) charset latin1, exact varchar(20) collate utf8mb4_bin)`,
    "insert into main.a values (1, 'x', 'é'), (2, 'X ', null), (3, 'É', 'E')",
    "insert into main.b values (1, 'X', 'É', 'x'), (2, 'x', 'e', 'É'), (3, 'é', 'è', 'X')",
  );
  const by = (name: string, key = name) => {
    return { as: `by_${name}`, table: "b", on: `b.${name} = a.${key}`, columns: ["id"], ...byId };
  };
  const include = [by("k"), by("latin"), by("exact", "k")];
  const { body } = await ask({ Select: { database: "main", from: "a", columns: ["id"], include } });
  for (const { on, as } of include) {
    const join = { table: "b", on, join_type: "INNER" };
    const order_by = [{ column: "a.id" }, { column: "b.id" }];
    const columns = ["a.id", "b.id"];
    const joined = await ask({ Select: { database: "main", from: "a", columns, join, order_by } });
    const found = body.data?.flatMap((row) => {
      const { id, [as]: rows } = Object(row);
      return rows.map((inner: { id: number }) => ({ "a.id": id, "b.id": inner.id }));
    });
    t.same(found, joined.body.data, on);
  }
});

t.test("keys that no query can write find their rows (MySQL)", async (t) => {
  const { ask, sql } = await freshMysql(t);
  await sql(
    "set sql_mode = ''",
    "create table main.a (id int primary key, flag tinyint(1), day date)",
    "create table main.b (id int primary key, flag tinyint(1), day date)",
    "insert into main.a values (1, 5, '0000-00-00'), (2, 1, '2026-01-01')",
    "insert into main.b values (1, 5, '0000-00-00'), (2, 1, '2026-01-01')",
  );
  const include = ["flag", "day"].map((name) => {
    return { as: `by_${name}`, table: "b", on: `b.${name} = a.${name}`, columns: ["id"], ...byId };
  });
  const { body } = await ask({
    Select: { database: "main", from: "a", columns: ["id"], include, ...byId },
  });
  t.same(
    body.data,
    [1, 2].map((id) => ({ id, by_flag: [{ id }], by_day: [{ id }] })),
  );
});

overSqlite("exists finds the same rows with and without an index", async (t, { ask, sql }) => {
  await sql(`create table a (id integer primary key, code text);
    create table b (id integer primary key, code text collate nocase);
    insert into a values (1, 'x'), (2, 'Y'); insert into b values (1, 'X'), (2, 'Y')`);
  const ids = async (on: string) => {
    const where = { exists: { table: "b", on } };
    const { body } = await ask({
      Select: { database: "main", from: "a", columns: ["id"], where, ...byId },
    });
    return body.data;
  };
  const sides = ["b.code = a.code", "a.code = b.code"];
  const before = await Promise.all(sides.map(ids));
  await sql("create index by_code on b (code)");
  t.same(await Promise.all(sides.map(ids)), before);
});

overEach("included rows and outer rows are of one moment", async (t, { ask }) => {
  await ask(createTable("a", { id: "int", n: "int" }));
  await ask(createTable("b", { id: "int", n: "int" }));
  const ids = Array.from({ length: 2500 }, (_, id) => ({ id, n: 0 }));
  for (const table of ["a", "b"]) await ask(insert(table, ids));
  let isDone = false;
  const write = async () => {
    for (let n = 1; !isDone; n += 1) {
      const change = (table: string) => ({
        Update: { database: "main", table, set: { n }, where: null },
      });
      await ask({ Batch: [change("a"), change("b")] });
    }
  };
  const writing = write();
  const b = { as: "b", table: "b", on: "b.id = a.id", columns: ["n"], one: true };
  for (let round = 0; round < 5; round += 1) {
    const { text } = await ask({
      Select: { database: "main", from: "a", columns: ["n"], include: [b] },
    });
    const seen = new Set(text.match(/"n":\d+/g));
    t.equal(seen.size, 1, [...seen].join());
  }
  isDone = true;
  await writing;
});

overSqlite("a Select of Selects names what it gives", async (t, { ask }) => {
  await fill(ask);
  const select = (query: object) => ask({ Select: { database: "main", ...query } });
  const from = { select: { from: "rentals", columns: ["id", "film"] }, as: "r" };
  const columns = ["price"];
  t.match(
    await select({ from, columns }),
    refusal(400, "unknown_column", /"price" in r.*r has id, film/),
  );
  t.match(await select({ from, columns: ["rentals.id"] }), refusal(400, "invalid_column"));
  const both = {
    from: "rentals",
    columns: ["*"],
    join: { table: "staff", on: "rentals.staff_id = staff.id", join_type: "INNER" },
  };
  const twice = await select({ from: { select: both, as: "r" }, columns: ["*"] });
  t.match(twice, refusal(400, "duplicate_column", /two columns "id"/));
  const after = { from, columns: ["id"], ...byId, after: [1] };
  t.match(await select(after), refusal(400, "order_not_unique"));
  const join = { table: "staff", as: "r", on: "r.id = r.id", join_type: "INNER" };
  t.match(await select({ from, columns: ["*"], join }), { status: 400 });
});

overEach("columns of a Select keep their types", async (t, { ask }) => {
  const types = {
    n: "int",
    whole: "bigint",
    id: "uuid",
    words: "text",
    exact: "decimal(20,4)",
    day: "date",
    clock: "time",
    moment: "timestamp",
    is: "boolean",
    ratio: "double",
    data: "bytes",
    doc: "json",
  };
  await ask(createTable("a", types));
  const row =
    '{"n":1,"whole":9007199254740993,"id":"0f3d3a1c-7a43-4f57-9a3c-0b9c3bd18f3f","words":"é ","exact":12.5,"day":"2026-01-31","clock":"10:00:00","moment":"2026-01-31T10:00:00.5Z","is":true,"ratio":0.1,"data":"AAH/","doc":{"a":[1,"b"]}}';
  await ask(`{"Insert":{"database":"main","table":"a","values":[${row},{"n":2}]}}`);
  const compute = [
    { as: "added", fn: "add", of: ["whole", "n"] },
    { as: "scaled", fn: "mul", of: ["exact", { value: 1.5 }] },
    { as: "part_of", fn: "div", of: ["n", { value: 3 }] },
    { as: "rounded", fn: "round", of: ["ratio"], digits: 1 },
    { as: "month", fn: "trunc", unit: "month", of: ["day"] },
    { as: "hour", fn: "trunc", unit: "hour", of: ["moment"] },
    { as: "year", fn: "part", unit: "year", of: ["moment"] },
    { as: "big", fn: "upper", of: ["words"] },
    { as: "either", fn: "coalesce", of: ["is", { value: false }] },
    { as: "inside", fn: "json", of: ["doc"], path: ["a"] },
  ];
  const names = [...Object.keys(types), ...compute.map(({ as }) => as)];
  const inner = { from: "a", columns: names, compute };
  const rows = await rowsOf(ask, { ...inner, ...byN });
  t.match(rows, '"inside":[1,"b"]}');
  const from = { select: inner, as: "t" };
  t.equal(await rowsOf(ask, { from, columns: ["*"], ...byN }), rows);
  t.equal(
    await rowsOf(ask, {
      from: { select: { from, columns: ["*"] }, as: "u" },
      columns: ["*"],
      ...byN,
    }),
    rows,
  );
  const [first = "{}"] = rows.split(/(?<=\]\}),(?=\{"n":2)|,(?=\{"n":2,)/);
  const values = new Map<string, unknown>(Object.entries(JSON.parse(first)));
  const texts = { whole: "9007199254740993", added: "9007199254740994" };
  for (const name of names) {
    const value = JSON.stringify(values.get(name));
    const literal = new Map(Object.entries(texts)).get(name) ?? value;
    const where = `{"column":"${name}","cmp":"=","value":${literal}}`;
    const body = `{"Select":{"database":"main","from":${JSON.stringify(from)},"columns":["n"],"where":${where}}}`;
    t.match((await ask(body)).text, /"data":\[\{"n":1\}/, `${name} = ${literal}`);
  }
  const extremes = ["whole", "id", "words", "exact", "day", "moment", "ratio"].map((column) => {
    return { fn: "max", column, as: `max_${column}` };
  });
  const summary = {
    from: "a",
    aggregate: [
      ...extremes,
      { fn: "sum", column: "exact", as: "sum_exact" },
      { fn: "sum", column: "n", as: "sum_n" },
      { fn: "avg", column: "n", as: "avg_n" },
    ],
  };
  const found = await rowsOf(ask, summary);
  t.match(found, '"sum_n":3,"avg_n":1.5}');
  const summed = { select: summary, as: "s" };
  t.equal(await rowsOf(ask, { from: summed, columns: ["*"] }), found);
  for (const [name, value] of Object.entries(JSON.parse(found))) {
    const where = `{"column":"${name}","cmp":"=","value":${name === "max_whole" ? texts.whole : JSON.stringify(value)}}`;
    const body = `{"Select":{"database":"main","from":${JSON.stringify(summed)},"columns":["sum_n"],"where":${where}}}`;
    t.match((await ask(body)).text, /"data":\[\{"sum_n":3\}/, name);
  }
});

/** Ten outer rows, each with one row of 7 MiB by `id` and with ten by `all`. */
async function fillLong(ask: Ask): Promise<{ own: object; all: object }> {
  await ask(createTable("a", { id: "int", all: "int" }));
  await ask(createTable("b", { id: "int", all: "int", text: "text" }));
  const values = Array.from({ length: 10 }, (_, id) => ({ id, all: 1 }));
  await ask(insert("a", values));
  const text = "x".repeat(1024 * 1024);
  for (const row of values) await ask(insert("b", [{ ...row, text }]));
  const names = Array.from({ length: 6 }, (_, at) => `t${at}`);
  const compute = names.map((name) => ({ as: name, fn: "trim", of: ["text"] }));
  const include = { table: "b", columns: ["text", ...names], compute, ...byId };
  const own = { as: "own", on: "b.id = a.id", ...include };
  return { own, all: { as: "all_rows", on: "b.all = a.all", ...include } };
}

const selectA = (...include: object[]) => {
  return { Select: { database: "main", from: "a", columns: ["id"], include } };
};

t.test("too long included rows are refused once they are known (MySQL)", nightly, async (t) => {
  const { ask, sql } = await freshMysql(t);
  const { own, all } = await fillLong(ask);
  const selectsFor = async (query: object, expected: object) => {
    const count = async () => Number((await sql("show global status like 'Com_select'"))[0]?.Value);
    const before = await count();
    t.match(await ask(query), expected);
    return (await count()) - before;
  };
  const few = await selectsFor(selectA({ ...all, limit: 1 }), { status: 200 });
  const tooLong = refusal(400, "query_too_complex", /64 MiB; lower limit/);
  t.equal(await selectsFor(selectA(all), tooLong), few, "nothing is read again");
  t.equal((await ask(selectA(own))).body.data?.length, 10, "rows are read by fewer keys");
});

t.test("the statements of an include are prepared once (MariaDB)", async (t) => {
  const { ask, sql } = await freshMysql(t);
  for (const table of ["a", "b"]) {
    await ask(createTable(table, { id: "int" }));
    await ask(insert(table, [{ id: 1 }]));
  }
  const include = { as: "own", table: "b", on: "b.id = a.id", columns: ["id"] };
  const prepares = async () =>
    Number((await sql("show global status like 'Com_stmt_prepare'"))[0]?.Value);
  const expected = { data: [{ id: 1, own: [{ id: 1 }] }] };
  const read = async () => t.match((await ask(selectA(include))).body, expected);
  await read();
  const before = await prepares();
  for (let count = 0; count < 3; count++) await read();
  t.equal(await prepares(), before);
});

overSqlite("included rows have a limit each (SQLite)", async (t, { ask }) => {
  const { own, all } = await fillLong(ask);
  const t5 = "x".repeat(1024 * 1024);
  const expected = Array.from({ length: 10 }, (_, id) => ({ id, own: [{ t5 }] }));
  t.match((await ask(selectA(own))).body.data, expected);
  t.match(await ask(selectA(all)), refusal(400, "query_too_complex", /64 MiB; lower limit/));
});

t.test(
  "included rows have one limit in JSON and a Batch, none in lines (SQLite)",
  nightly,
  async (t) => {
    const { ask, engine } = await freshSqlite();
    const { own, all } = await fillLong(ask);
    const batch = { Batch: [1, 2, 3, 4].map(() => selectA(own)) };
    t.match(await ask(batch), refusal(400, "query_too_complex", /Batch\[3\].*256 MiB/));
    const many = selectA({ ...all, limit: 4 });
    t.match(await ask(many), refusal(400, "query_too_complex", /256 MiB; .*x-ndjson/));
    const lines = await openRows(engine.address, many, "application/x-ndjson");
    t.same(await endOf(lines), { isCut: false, lines: 10 });
  },
);

t.test("long included rows leave turns to other queries (PostgreSQL)", async (t) => {
  const { ask } = await freshPostgres(t);
  const { all } = await fillLong(ask);
  const writes: number[] = [];
  const { writeSync } = fs;
  const write = mock.method(fs, "writeSync", (file: number, bytes: Uint8Array) => {
    writes[0] = (writes[0] ?? 0) + bytes.length;
    return writeSync(file, bytes);
  });
  const turns = setInterval(() => writes.unshift(0), 1);
  syncBuiltinESMExports();
  t.teardown(() => {
    clearInterval(turns);
    write.mock.restore();
    syncBuiltinESMExports();
  });
  await ask(selectA({ ...all, limit: 2 }));
  const longest = Math.max(...writes);
  t.ok(longest > 0 && longest < 64 * 1024 * 1024, `${longest} bytes are written in one turn`);
});

/** Selects with `include`, and Selects that read other Selects. */

/** Words of the engine's own statements, or close to them, in place of names. */
const words: Readonly<Record<string, string>> = {
  $a: "fenced",
  $b: "grouped",
  $c: "ranked",
  region: "c1",
  label: "c2",
  qty: "n",
  ratio: "key",
  day: "place",
};
const named = (text: string) =>
  text.replaceAll(/\$[abc]|region|label|qty|ratio|day/g, (name) => words[name] ?? name);

overEach("generated nested Selects return the rows of relational algebra", async (t, { ask }) => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const choose = new Chooser(choicesOf(seed));
  const seen = { rows: 0, members: 0, more: 0, from: 0, groups: 0 };
  const worlds = caseCount(5, 10);
  for (let world = 0; world < worlds; world++) {
    const tables: ModelTables = Object.fromEntries(
      tableNames.map((name) => [name, rowsFor(choose)]),
    );
    for (const [name, rows] of Object.entries(tables)) {
      t.match(await ask(named(exactJson(createTable(name, tableTypes)))), { status: 200 });
      t.match(await ask(named(exactJson(insert(name, rows)))), { status: 200 });
    }
    for (let number = 0; number < 40; number++) {
      const query = nestedSelect(choose);
      const isBatch = number % 8 === 0;
      const Select = { database: "main", ...query };
      const asked = named(exactJson(isBatch ? { Batch: [{ Select }] } : { Select }));
      const { text } = await ask(asked);
      const answers = named(answersOf(query, tables).map(rowText).join(","));
      const data = isBatch ? `[[${answers}]]` : `[${answers}]`;
      const expected = `{"status":"success","data":${data}}`;
      if (answers !== "") seen.rows++;
      if (/"m0":[{[][^\]]/.test(answers)) seen.members++;
      if (answers.includes('_more":true')) seen.more++;
      if (asked.includes('"from":{"select"')) seen.from++;
      if (/"having":\{[^{}]*"select"/.test(asked)) seen.groups++;
      if (text === expected) continue;
      t.equal(text, expected, `seed ${seed}: ${asked}`);
      t.comment(exactJson(tables));
      return;
    }
    for (const name of tableNames) t.match(await ask(dropTable(named(name))), { status: 200 });
  }
  t.comment(JSON.stringify(seen));
  t.ok(Math.min(seen.rows / 10, seen.members / 2, seen.from / 10) > worlds);
  t.ok(seen.more > 0);
  t.ok(seen.groups > 0 || worlds < 10);
});

overSqlite("a row includes 100 rows unless the limit says otherwise", async (t, { ask }) => {
  await ask(createTable("orders", { id: "int" }));
  await ask(createTable("lines", { id: "int", order_id: "int" }));
  await ask(insert("orders", [{ id: 1 }, { id: 2 }]));
  const ids = Array.from({ length: 201 }, (_, id) => id);
  const lines = ids.map((id) => ({ id, order_id: id > 100 ? 2 : 1 }));
  await ask(insert("lines", lines));
  const order_by = { column: "id" };
  const on = "lines.order_id = orders.id";
  const include = [{ as: "lines", table: "lines", on, columns: ["id"], order_by }];
  const query = { database: "main", from: "orders", columns: ["id"], order_by, include };
  const { body } = await ask({ Select: query });
  t.match(body.data, [
    { id: 1, lines: { length: 100, 99: { id: 99 } }, lines_more: true },
    { id: 2, lines: { length: 100, 99: { id: 200 } }, lines_more: undefined },
  ]);
});
