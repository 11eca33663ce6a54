import { spawn } from "node:child_process";
import { once } from "node:events";
import path, { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { sql } from "kysely";
import t, { type Test } from "tap";
import { cpuSecondsOf, treeSeconds } from "../../bench/rig/program.ts";
import type { Select } from "../../src/core/query/tree.ts";
import { lettersTo } from "../../src/engine/letters.ts";
import { LimitCounter } from "../../src/engine/limits.ts";
import { ByShape, flattening } from "../../src/engine/sql/fragment.ts";
import type { Column, ColumnKind } from "../../src/engine/sql/scope.ts";
import { type SelectDialect, SelectPlanner } from "../../src/engine/sql/select.ts";
import { computing } from "../../src/engine/sqlite/compute.ts";
import { compiler } from "../../src/engine/sqlite/statements.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { caseCount, nightly, sampled } from "../kit/nightly.ts";
import { nodeCommand } from "../kit/node.ts";
import { choicesOf } from "../query/arbitrary.ts";
import { Chooser } from "../query/arbitrary-selects.ts";
import { exactJson, rowsFor, tableTypes } from "./arbitrary-selects.ts";
import { createTable, equal, insert, query, refusal, remove, selectAll, send } from "./kit.ts";
import { type Cell, evaluate, type ModelRow, rowText } from "./model.ts";
import { freshMysql, sharedServer as sharedMysql } from "./mysql/kit.ts";
import { isMariaDb, series } from "./mysql/server.ts";
import { freshSqlite, overEach, overSqlite, type Scene } from "./over-each.ts";
import { fillMysql, fillPostgres, fillSqlite, orders, type Plans } from "./paged.ts";
import { freshPostgres, sharedServer as sharedPostgres, startOn } from "./postgres/kit.ts";
import { startService } from "./postgres/service.ts";

const largest = "9223372036854775807";
const rows = [
  `{"id": 1, "region": "eu", "qty": ${largest}, "price": 0.10, "ratio": 0.5, "paid": true, "code": "a"}`,
  `{"id": 2, "region": "eu", "qty": 1, "price": 0.20, "ratio": 1.5, "paid": false, "code": "b"}`,
  `{"id": 3, "region": "eu", "qty": -2, "price": 0.30, "code": "c"}`,
  `{"id": 4, "region": "us", "qty": ${largest}, "code": "d"}`,
  `{"id": 5, "region": "us", "qty": 1, "code": "e"}`,
  `{"id": 6, "code": "f"}`,
];

type Ask = Scene["ask"];

async function fill(ask: Ask): Promise<void> {
  const numbers = { qty: "bigint", price: "decimal(12,2)", ratio: "double" };
  const code = { type: "text", unique: true, nullable: false };
  const tag = { type: "text", unique: true };
  const columns = { id: "int", region: "text", ...numbers, paid: "boolean", code, tag };
  await ask(createTable("orders", columns));
  await ask(`{"Insert": {"database": "main", "table": "orders", "values": [${rows.join(",")}]}}`);
}

function select(fields: object) {
  return { Select: { database: "main", from: "orders", ...fields } };
}

/** An aggregate of a column under the name `x`. */
const x = (fn: string, column: string) => ({ aggregate: [{ fn, column, as: "x" }] });

overSqlite("an aggregate that is not allowed is refused with what is", async (t, { ask }) => {
  await fill(ask);
  const invalid = "invalid_value";
  for (const [fields, code, message] of [
    [x("sum", "region"), invalid, /"region".*sum requires numbers/],
    [x("avg", "paid"), invalid, /"paid".*avg requires numbers/],
    [x("min", "paid"), invalid, /"paid".*min requires numbers, text/],
    [
      { aggregate: [{ fn: "count", as: "REGION" }] },
      "duplicate_column",
      /"REGION" is taken by a column: table orders has a column "region"; choose/,
    ],
    [x("count", "regon"), "unknown_column", /"regon"/],
    [
      { columns: ["region"], distinct: true, order_by: { column: "id" } },
      invalid,
      /order_by allows only selected columns/,
    ],
  ] as const) {
    t.match(await ask(select(fields)), refusal(400, code, message));
  }
});

overSqlite("a page requires an order in which no two rows are equal", async (t, { ask }) => {
  await fill(ask);
  const page = (names: string[], after: unknown[]) =>
    ask(select({ columns: ["id"], order_by: names.map((column) => ({ column })), after }));
  const ids = async (names: string[], after: unknown[]) =>
    (await page(names, after)).body.data?.flatMap((row) => Object.values(Object(row)));
  t.same(await ids(["region", "id"], ["eu", 2]), [3, 4, 5]);
  t.same(await ids(["code"], ["d"]), [5, 6]);
  t.same(await ids(["region", "code"], ["us", "d"]), [5]);
  const refused = refusal(400, "order_not_unique", /add id to order_by/);
  t.match(await page(["region"], ["eu"]), refused);
  t.match(await page(["tag"], ["x"]), refused, "two rows without a tag are equal");
});

overSqlite("several joins link each table to one before it", async (t, { ask }) => {
  const make = async (table: string, columns: Record<string, string>, values: object[]) => {
    await ask(createTable(table, columns));
    await ask(insert(table, values));
  };
  await make("users", { id: "int" }, [{ id: 1 }, { id: 2 }]);
  const orders = [10, 11].map((id) => ({ id, user_id: 1 }));
  await make("orders", { id: "int", user_id: "int" }, orders);
  await make("lines", { id: "int", order_id: "int" }, [{ id: 100, order_id: 10 }]);
  const ids = ["users.id", "orders.id", "lines.id"];
  const query = {
    from: "users",
    columns: ids,
    join: [
      { table: "orders", on: "users.id = orders.user_id", join_type: "LEFT" },
      { table: "lines", on: "lines.order_id = orders.id", join_type: "LEFT" },
    ],
    order_by: ids.map((column) => ({ column })),
  };
  const found = [
    '{"users.id":1,"orders.id":10,"lines.id":100}',
    '{"users.id":1,"orders.id":11,"lines.id":null}',
    '{"users.id":2,"orders.id":null,"lines.id":null}',
  ];
  t.match((await ask(select(query))).text, `"data":[${found.join(",")}]`);
  const next = { ...query, after: [1, 10, 100] };
  t.match((await ask(select(next))).text, `"data":[${found.slice(1).join(",")}]`);
  const short = { ...next, order_by: [{ column: "users.id" }], after: [1] };
  t.match(await ask(select(short)), refusal(400, "order_not_unique"));
});

overEach("an offset also skips a distinct row that is known to be constant", async (t, { ask }) => {
  await fill(ask);
  const nothing = { from: "orders", columns: ["id", "region"], where: equal("id", -1), limit: 8 };
  const query = {
    from: { select: nothing, as: "d" },
    join: { table: "orders", on: "d.id = orders.id", join_type: "RIGHT" },
    columns: ["d.region"],
    distinct: true,
    order_by: { column: "d.region" },
    limit: 100,
  };
  const found = async (more: object) => (await ask(select({ ...query, ...more }))).body.data;
  t.same(await found({}), [{ region: null }]);
  t.same(await found({ offset: 1 }), []);
  const regions = { from: "orders", join: undefined, columns: ["region"] };
  const order_by = { column: "region", direction: "DESC" };
  const page = await found({ ...regions, order_by, offset: 1 });
  t.same(page, [{ region: "eu" }, { region: null }]);
});

overEach("pages in order return every row once", async (t, { ask }) => {
  t.match(await ask(createTable("pages", tableTypes)), { status: 200 });
  const choose = new Chooser(choicesOf(7));
  const rows = Array.from({ length: 8 }, () => rowsFor(choose)).flat();
  const numbered = rows.map((row, index) => ({ ...row, id: BigInt(index + 1) }));
  t.match(await ask(exactJson(insert("pages", numbered))), { status: 200 });
  const columns = Object.keys(tableTypes);
  for (let turn = 0; turn < caseCount(4, 12); turn++) {
    const chosen = new Set([...choose.some(3, () => choose.one(...columns)), "id"]);
    const order_by = Array.from(chosen, (column) => ({
      column,
      direction: choose.one("ASC" as const, "DESC" as const),
    }));
    const query = { columns, order_by, limit: 7 };
    const seen: ModelRow[] = [];
    let after: Cell[] | undefined;
    for (let count = 0; count <= numbered.length / 7 + 1; count++) {
      const page = { ...query, ...(after === undefined ? {} : { after }) };
      const expected = evaluate(numbered, page);
      const { text } = await ask(
        exactJson({ Select: { database: "main", from: "pages", ...page } }),
      );
      const data = expected.map(rowText).join(",");
      t.equal(text, `{"status":"success","data":[${data}]}`, exactJson(page));
      seen.push(...expected);
      const last = expected.at(-1);
      if (last === undefined) break;
      after = order_by.map(({ column }) => last[column] ?? null);
    }
    t.equal(seen.length, numbered.length);
  }
});

t.test("a result is cached by shape and table", (t) => {
  const shapes = new ByShape<{ readonly made: number }>();
  let made = 0;
  const find = (table: object, shape: string) => {
    const make = () => {
      made += 1;
      return { made };
    };
    return shapes.find(table, shape, make).made;
  };
  const [users, others] = [{}, {}];
  t.same([find(users, "a"), find(users, "b"), find(users, "a"), find(others, "a")], [1, 2, 1, 3]);

  const long = "a".repeat(5000);
  t.same([find(users, long), find(users, long)], [4, 5], "long shapes are not cached");
  for (let shape = 0; shape < 100; shape += 1) find(users, String(shape));
  t.equal(find(users, "a"), 106, "at most a hundred shapes are cached");
  t.equal(find(others, "a"), 3);
  t.end();
});

const kind: ColumnKind = { store: (value) => value, compare: (value) => value };
const planColumns = new Map<string, Column>([["id", { name: "id", type: "int", kind }]]);
const planned: Select = { database: "main", from: "users", columns: ["id"] };
const dialect: SelectDialect<ColumnKind> = {
  aggregates: {
    count: kind,
    double: kind,
    sum: (expression) => ({ expression, kind }),
    average: (sum) => sum,
    extreme: (_fn, column) => column,
  },
  computing,
  comparesRows: true,
  order: (column) => column,
  limit: () => sql``,
  templates: new ByShape(),
  ...flattening(compiler),
};

t.test("a Select creates no class, which would outlive it", async (t) => {
  const users = { name: "users", columns: planColumns };
  const plan = () => new SelectPlanner("main", new Map(), dialect).plan([users], planned);
  const [one, other] = [plan(), plan()].map(({ statements }) => statements(() => 0));
  t.equal(Object.getPrototypeOf(one), Object.getPrototypeOf(other));
});

overSqlite("an alias is refused with what took its name", async (t, { ask }) => {
  await fill(ask);
  await ask(createTable("staff", { id: "int", pay: "int" }));
  const count = (as: string) => ({ fn: "count", as });
  const grouped = (as: string, more: object = {}) =>
    ask(select({ group_by: ["region"], aggregate: [count(as)], ...more }));
  const compute = [{ as: "n", fn: "abs", of: ["id"] }];
  for (const [answer, message] of [
    [await grouped("Region"), /"Region" is taken by a column of group_by/],
    [await grouped("QTY"), /"QTY" is taken by a column: table orders has a column "qty"/],
    [await grouped("n", { aggregate: [count("n"), count("N")] }), /"N" is taken by another "as"/],
    [await grouped("n", { compute }), /"n" is taken by another "as" of compute or aggregate/],
    [
      await ask(select({ columns: ["id"], compute: [{ ...compute[0], as: "code" }] })),
      /"code" is taken by a column: table orders/,
    ],
  ] as const) {
    t.match(answer, refusal(400, "duplicate_column", message));
  }
  t.match(
    await grouped("pay", { limit: 1 }),
    { status: 200 },
    "a column of a table that is not used",
  );
  const inner = { from: "orders", columns: ["region"] };
  const outer = {
    from: { as: "t", select: inner },
    group_by: ["region"],
    aggregate: [count("qty")],
  };
  t.match(
    await ask({ Select: { database: "main", ...outer } }),
    { status: 200 },
    "a column that from does not select",
  );
  const include = { as: "qty", table: "staff", on: "staff.id = orders.id", columns: ["pay"] };
  t.match(
    await ask(select({ columns: ["id"], include: [include] })),
    { status: 200 },
    "a column that is not selected",
  );
  const twice = await ask(select({ columns: ["qty"], include: [include] }));
  t.match(twice, refusal(400, "duplicate_column", /"qty" is taken by a column or computed name/));
});

const uuid = "5f3d3a1c-7a43-4f57-9a3c-0b9c3bd18f3f";
const database = "main";

/** Of `items` by a condition. */
function itemsBy(where: object) {
  const order_by = { column: "id" };
  return { Select: { database, from: "items", columns: ["id"], where, order_by } };
}

overSqlite("columns are compared only with columns of like types", async (t, { ask }) => {
  const types = { name: "text", extra: "json", clock: "time", at: "timestamp", isPaid: "boolean" };
  await ask(createTable("items", { id: "int", n: "int", code: "uuid", data: "bytes", ...types }));
  const cells = { code: uuid, data: "AAE=", clock: "13:45:00" };
  await ask(insert("items", [{ id: 1, ...cells }]));
  for (const [column, cmp] of [
    ["clock", "="],
    ["code", "="],
    ["data", "<="],
  ] as const) {
    const { body } = await ask(itemsBy({ column, cmp, other: column }));
    t.strictSame(body.data, [{ id: 1 }], column);
  }
  for (const [column, cmp, other] of [
    ["name", "=", "n"],
    ["extra", "<", "extra"],
    ["clock", "=", "at"],
    ["isPaid", "=", "n"],
  ]) {
    const answer = await ask(itemsBy({ column, cmp, other }));
    const words = `Column "${column}" \\(.*\\) cannot be compared with "${other}" \\(.*\\) by ${cmp}`;
    t.match(answer, refusal(400, "invalid_value", new RegExp(words)));
  }
  const missing = await ask(itemsBy({ column: "n", cmp: "=", other: "m" }));
  t.match(missing, refusal(400, "unknown_column", /"m"/));
});

for (const [name, fresh] of Object.entries({ PostgreSQL: freshPostgres, MySQL: freshMysql })) {
  t.test(`a number beyond the type of a column is compared with its rows (${name})`, async (t) => {
    const { ask, sql } = await fresh(t);
    await sql("create table main.items (id int not null primary key, name smallint)");
    await sql("insert into main.items values (1, 1), (2, -2), (2147483647, 32767)");
    const [beyond, all] = [3_000_000_000, [1, 2, 2_147_483_647]];
    for (const [column, cmp, value, ids] of [
      ["id", "<", beyond, all],
      ["id", ">", -beyond, all],
      ["id", "=", beyond, []],
      ["id", "!=", beyond, all],
      ["id", "IN", [1, beyond, 2 ** 70], [1]],
      ["id", "BETWEEN", [2, beyond], [2, 2_147_483_647]],
      ["name", "<=", 32_768, all],
      ["name", "IN", [-32_769, -2], [2]],
    ] as const) {
      const { body } = await ask(itemsBy({ column, cmp, value }));
      const expected = ids.map((id) => ({ id }));
      t.strictSame(body.data, expected, `${column} ${cmp} ${JSON.stringify(value)}`);
    }
    const { Select } = itemsBy({ column: "id", cmp: "!=", value: beyond });
    t.equal((await ask({ Select: { ...Select, after: [beyond] } })).body.data?.length, 0);
    t.equal((await ask({ Select: { ...Select, after: [-beyond] } })).body.data?.length, 3);
  });
}

/** Capital letters since Unicode 10, which MySQL does not know. */
const newCapitals = /[\u1c90-\u1cbf\u2c2f\ua7b8-\ua7f5\u{10570}-\u{10595}\u{16e40}-\u{16e5f}]/u;

/** Capital letters that each database knows, and those that they become. */
function capitalsAndLetters(): [capitals: string, letters: string] {
  const [from, to] = lettersTo("lower").map((letters) => [...letters]);
  const pairs = (from ?? []).map((capital, at) => [capital, to?.[at]] as const);
  const known = pairs.filter(([capital]) => isMariaDb || !newCapitals.test(capital));
  return [known.map(([capital]) => capital).join(""), known.map(([, letter]) => letter).join("")];
}

overEach("a pattern has an escape character and folds all letters", async (t, { ask }) => {
  const [capitals, letters] = capitalsAndLetters();
  const [small, large] = lettersTo("upper");
  t.match(await ask(createTable("items", { id: "int", name: "text" })), { status: 200 });
  const names = [capitals, "50% off", "50 off", "a_b\\c", "ÄB", small];
  await ask(
    insert(
      "items",
      names.map((name, index) => ({ id: index + 1, name })),
    ),
  );
  for (const [where, ids] of [
    [{ cmp: "ILIKE", value: letters, fold: "unicode" }, [1]],
    [{ cmp: "ILIKE", value: letters }, []],
    [{ cmp: "LIKE", value: "50!%%", escape: "!" }, [2]],
    [{ cmp: "LIKE", value: "50%", escape: "!" }, [2, 3]],
    [{ cmp: "ILIKE", value: "AX__\\C", escape: "X" }, [4]],
    [{ cmp: "LIKE", value: "a\\_b\\\\c", escape: "\\" }, [4]],
    [{ cmp: "LIKE", value: "50%% of_", escape: "%" }, [2]],
    [{ cmp: "ILIKE", value: "\u{1f600}ä_", escape: "\u{1f600}", fold: "unicode" }, [5]],
  ] as const) {
    const expected = ids.map((id) => ({ id }));
    const { body } = await ask(itemsBy({ column: "name", ...where }));
    t.strictSame(body.data, expected, JSON.stringify(where).slice(0, 80));
  }
  t.equal([...small].length, [...large].length);
  await ask(insert("items", [{ id: 7, name: "\u023a\u0250 and more" }]));
  const compute = ["lower", "upper"].map((fn) => ({ as: fn, fn, of: ["name"] }));
  const changed = { columns: ["lower", "upper"], compute, where: equal("id", 7) };
  t.match((await ask(selectAll("items", changed))).body.data, [
    { lower: "\u2c65\u0250 and more", upper: "\u023a\u2c6f AND MORE" },
  ]);
  const ending = { column: "name", cmp: "LIKE", value: "a!", escape: "!" };
  t.match(await ask(itemsBy(ending)), refusal(400, "invalid_value", /ends with its escape/));
});

/** Conditions by rows of other tables, in Selects and changes. */

async function fillStaff(ask: Ask): Promise<void> {
  await ask(createTable("staff", { id: "int", name: "text", boss: "int", since: "date" }));
  await ask(createTable("rentals", { id: "int", staff_id: "int", film: "text", price: "double" }));
  await ask(
    insert("staff", [
      { id: 1, name: "Ann", boss: null, since: "2024-01-01" },
      { id: 2, name: "Bob", boss: 1, since: "2025-01-01" },
      { id: 3, name: "Cid", boss: 1, since: "2026-01-01" },
    ]),
  );
  await ask(
    insert("rentals", [
      { id: 10, staff_id: 1, film: "A", price: 1 },
      { id: 11, staff_id: 1, film: "B", price: 2 },
      { id: 12, staff_id: 2, film: "A", price: 2.5 },
      { id: 13, staff_id: null, film: "B", price: null },
    ]),
  );
}

const rented = (film: string) => ({
  exists: {
    table: "rentals",
    on: "rentals.staff_id = staff.id",
    where: equal("film", film),
  },
});
const bosses = { column: "id", cmp: "IN", select: { from: "staff", columns: ["boss"] } };
const target = { database: "main", table: "staff" };

overEach("changes take conditions on other tables and on their own", async (t, { ask }) => {
  await fillStaff(ask);
  const next = { as: "next", fn: "add", of: ["s.id", { value: 1 }] };
  const selected = { from: { table: "staff", as: "s" }, columns: ["next"], compute: [next] };
  const within = { from: { select: selected, as: "t" }, columns: ["next"] };
  const either = [
    { column: "id", cmp: "IN", select: within },
    { column: "id", cmp: "<", other: "boss" },
  ];
  const shifted = { Update: { ...target, set: { since: "2025-01-01" }, where: { or: either } } };
  t.match((await ask(shifted)).text, '"affected":2');
  const having = { column: "n", cmp: ">", value: 1 };
  const busy = { from: "rentals", group_by: ["staff_id"], aggregate: [{ fn: "count", as: "n" }] };
  const where = { and: [{ column: "id", cmp: "IN", select: { ...busy, having } }, rented("B")] };
  const renamed = { Update: { ...target, set: { name: "Zoe" }, where, returning: ["id", "name"] } };
  t.match((await ask({ Preview: renamed })).text, '"before":[{"id":1,"name":"Ann"}]');
  t.match((await ask(renamed)).text, '"affected":1,"data":[{"id":1,"name":"Zoe"}]');
  const promoted = { Update: { ...target, set: { name: "Boss" }, where: bosses } };
  t.match((await ask(promoted)).text, '"affected":1');
  t.match((await ask({ Preview: { Delete: { ...target, where: bosses } } })).text, '"affected":1');
  t.match((await ask({ Delete: { ...target, where: { not: rented("A") } } })).text, '"affected":1');
  t.match((await ask({ Delete: { ...target, where: bosses } })).text, '"affected":1');
});

overSqlite("a change cuts the rows of a Select before it removes doubles", async (t, { ask }) => {
  await fillStaff(ask);
  const rest = { from: "rentals", columns: ["staff_id"], order_by: { column: "id" }, offset: 1 };
  const where = { column: "id", cmp: "IN", select: rest };
  const { body } = await ask({
    Update: { ...target, set: { name: "Zoe" }, where, returning: ["id"] },
  });
  t.same(body.data, [{ id: 1 }, { id: 2 }]);
});

t.test("texts are found among many of another table (MySQL)", async (t) => {
  const { ask, sql, url } = await freshMysql(t);
  for (const table of ["many", "few"]) {
    await ask(createTable(table, { id: "int", name: "text" }));
    await sql(
      "use main",
      `insert into ${table} select seq, concat('name ', seq) from ${series(30_000)}`,
    );
  }
  await sql("delete from main.few where id > 29990", "insert into main.few values (0, null)");
  const { address } = await startOn(t, url, { queryTimeLimit: 10_000 });
  for (const [cmp, n] of [
    ["IN", 29_990],
    ["NOT IN", 10],
  ] as const) {
    const where = { column: "name", cmp, select: { from: "few", columns: ["name"] } };
    const aggregate = [{ fn: "count", as: "n" }];
    const asked = { Select: { database: "main", from: "many", aggregate, where } };
    t.match(await query(address, asked), { status: 200, body: { data: [{ n }] } }, cmp);
  }
});

overSqlite("a refused condition names tables, columns and types", async (t, { ask }) => {
  await fillStaff(ask);
  const select = (where: object) =>
    ask({ Select: { database: "main", from: "staff", columns: ["id"], where } });
  const member = (column: string, picked: string) =>
    select({ column, cmp: "IN", select: { from: "rentals", columns: [picked] } });
  t.match(await member("id", "film"), refusal(400, "invalid_value", /"id" \(.*"film" \(.* by IN/));
  t.match(await member("since", "staff_id"), refusal(400, "invalid_value"));
  t.match(await member("id", "films"), refusal(400, "unknown_column", /"films" in rentals/));
  const elsewhere = { table: "rent", on: "rent.id = staff.id" };
  t.match(await select({ exists: elsewhere }), refusal(404, "table_not_found", /rent in main/));
  const unknown = { table: "rentals", on: "rentals.staff = staff.id" };
  t.match(await select({ exists: unknown }), refusal(400, "unknown_column", /rentals.staff/));
});

overSqlite("a join of a table with itself needs another name for it", async (t, { ask }) => {
  await fillStaff(ask);
  const join = { table: "staff", on: "staff.boss = staff.id", join_type: "INNER" };
  const query = { database: "main", from: "staff", columns: ["id"], join };
  t.match(await ask({ Select: query }), refusal(400, "self_join", /use as/));
  const from = { table: "staff", as: "s" };
  const named = {
    ...query,
    from,
    columns: ["m.nam"],
    join: { ...join, as: "m", on: "s.boss = m.id" },
  };
  const unknown = refusal(400, "unknown_column", /"m.nam" in s and m.*m.name/);
  t.match(await ask({ Select: named }), unknown);
});

overEach("a null is outside nothing alone, whatever a Select found before", async (t, { ask }) => {
  t.match(await ask(createTable("people", { id: "int", chief: "int" })), { status: 200 });
  const rows = [{ id: 1 }, { id: 2, chief: 1 }, { id: 3, chief: 1 }];
  t.match(await ask(insert("people", rows)), { status: 200 });
  const among = (cmp: string, id: number) => ({
    column: "chief",
    cmp,
    select: { from: "people", columns: ["id"], where: equal("id", id) },
  });
  const forms = {
    "NOT IN": (id: number) => among("NOT IN", id),
    "not IN": (id: number) => ({ not: { and: [among("IN", id), equal("id", 1)] } }),
  };
  for (const [name, where] of Object.entries(forms)) {
    for (const id of [9, 2, 9, 2]) {
      const ids = id === 9 ? [1, 2, 3] : [2, 3];
      const { body } = await ask(
        selectAll("people", { where: where(id), order_by: { column: "id" } }),
      );
      t.match(body, { data: ids.map((id) => ({ id })) }, `${name} ${id}`);
      const { status } = await ask({
        Batch: [
          { Delete: { ...remove("people", where(id)).Delete, expect: ids.length } },
          selectAll("gone"),
        ],
      });
      t.equal(status, 404, `a Delete with ${name} ${id} meets the same rows`);
    }
  }
});

overEach("no value is found that an index would round it to", async (t, { ask, sql: run }) => {
  const types = { number: ["numeric(10,2)", "bigint"], text: ["varchar(20)", "varchar(3)"] };
  const cells = { number: [99.99, 100], text: ["abcd", "abc"] } as const;
  for (const name of ["number", "text"] as const) {
    const [outer = "", inner = ""] = types[name];
    const [long, short] = cells[name];
    t.match(await ask(createTable(`${name}_a`, { id: "int", v: outer })), { status: 200 });
    t.match(await ask(createTable(`${name}_b`, { id: "int", v: inner })), { status: 200 });
    await run(`create index ${name}_index on main.${name}_b (v)`);
    await ask(
      insert(`${name}_a`, [
        { id: 1, v: long },
        { id: 2, v: short },
      ]),
    );
    const many = Array.from({ length: 3000 }, (_, id) => ({ id, v: id === 9 ? short : null }));
    await ask(insert(`${name}_b`, many));
    const chosen = { from: `${name}_b`, columns: ["v"] };
    const found = async (where: object) => {
      const more = {
        columns: ["id"],
        where: { and: [{ column: "id", cmp: ">", value: 0 }, where] },
      };
      return (await ask(selectAll(`${name}_a`, more))).body.data;
    };
    t.same(await found({ column: "v", cmp: "NOT IN", select: chosen }), [{ id: 1 }], name);
    const among = { column: "v", cmp: "IN", select: chosen };
    t.same(await found({ not: { or: [among, equal("id", 9)] } }), [{ id: 1 }], name);
    t.same(await found(among), [{ id: 2 }], name);
  }
});

overEach("Selects within Selects find the same again", async (t, { ask }) => {
  t.match(await ask(createTable("people", { id: "int", chief: "int" })), { status: 200 });
  t.match(await ask(insert("people", [{ id: 1, chief: 1 }, { id: 2 }])), { status: 200 });
  t.match(await ask(createTable("teams", { id: "int" })), { status: 200 });
  t.match(await ask(insert("teams", [{ id: 1 }])), { status: 200 });
  const groups = {
    from: "people",
    group_by: ["chief", "id"],
    aggregate: [{ fn: "count", as: "n" }],
  };
  const led = {
    from: { select: groups, as: "each" },
    columns: ["chief", "n"],
    where: { exists: { table: "teams", on: "teams.id = each.chief" } },
  };
  const query = {
    from: { select: led, as: "led" },
    columns: ["n"],
    where: { exists: { table: "people", on: "people.id = led.chief", where: equal("id", 1) } },
  };
  for (let turn = 0; turn < 3; turn++) {
    t.match((await ask(select(query))).body, { data: [{ n: 1 }] }, `turn ${turn}`);
  }
});

overEach("a view with nested Selects is read again and again", async (t, { ask, sql: run }) => {
  t.match(await ask(createTable("people", { id: "int", chief: "int" })), { status: 200 });
  t.match(await ask(insert("people", [{ id: 1 }, { id: 2, chief: 1 }])), { status: 200 });
  t.match(await ask(createTable("teams", { id: "int" })), { status: 200 });
  await run(
    `create view main.led as select chief, n from
      (select chief, id, count(*) as n from main.people group by chief, id) as each_one
      where exists (select 1 from main.teams as team where team.id = each_one.chief)`,
    "create view main.free as select id from main.people where chief not in (select id from main.teams)",
  );
  const idsIn = async (from: string, column: string) => {
    const columns = { from, columns: [column], order_by: { column } };
    const { body } = await ask(select({ ...columns, where: { column, cmp: ">", value: 0 } }));
    return body.data?.map((row) => Object(row)[column]) ?? body.message;
  };
  for (let turn = 0; turn < 3; turn++) {
    t.same(await idsIn("led", "chief"), [], `turn ${turn}`);
    t.same(await idsIn("free", "id"), [1, 2], "all are outside nothing");
    await ask(insert("teams", [{ id: 1 }]));
    t.same(await idsIn("led", "chief"), [1]);
    t.same(await idsIn("free", "id"), [], "null is outside nothing else");
    await ask(remove("teams"));
  }
  await run("drop view main.led", "drop view main.free");
});

overEach("Selects of texts within Selects find what each finds", async (t, { ask }) => {
  await ask(createTable("outer", { id: "int", day: "date" }));
  await ask(createTable("inner", { id: "int", day: "date", region: "text", label: "text" }));
  const days = ["2026-01-31", "2026-02-01", null, null];
  await ask(
    insert(
      "outer",
      Array.from({ length: 12 }, (_, id) => ({ id, day: days[id % 4] })),
    ),
  );
  const rows = Array.from({ length: 11 }, (_, id) => ({
    id,
    day: days[id % 4],
    region: `region ${id % 3}`,
    label: `label ${id % 5}`,
  }));
  await ask(insert("inner", rows));
  const labels = { from: "inner", columns: ["label"], where: { column: "id", cmp: "<", value: 4 } };
  const where = { column: "region", cmp: "IN", select: labels };
  const found = { from: "inner", columns: ["day"], where };
  for (const condition of [
    { column: "day", cmp: "IN", select: found },
    { not: { column: "day", cmp: "NOT IN", select: found } },
  ]) {
    const { body } = await ask(selectAll("outer", { where: condition }));
    t.strictSame(body.data, []);
  }
});

const rowCount = 50_000;

/** Pages begin within groups of equal rows. */
const offsets = [0, 6_400, 31_400, 46_000];
const pageLength = 20;

const nullsLast = "with nulls, downward";

/** MariaDB finds the last nulls by the index, and then sorts them. */
function sortsNulls(words: string): boolean {
  return /^(ref|range) by_rank .*filesort$/.test(words);
}

/** Reads pages in every order. */
async function readPages(t: Test, address: string, plans: Plans): Promise<void> {
  for (const [name, order] of Object.entries(orders)) {
    const order_by = order.map((one) => ({ ...one }));
    const columns = ["id", "rank", "region"];
    const select = { database: "main", from: "items", columns, order_by };
    const ask = async (more: object): Promise<Record<string, never>[]> => {
      const { status, body, text } = await query(address, { Select: { ...select, ...more } });
      if (status !== 200) throw new Error(text);
      return JSON.parse(JSON.stringify(body.data));
    };
    const keyOf = (row: Record<string, never> | undefined) =>
      order_by.map(({ column }) => row?.[column] ?? null);
    for (const offset of offsets) {
      const rows = await ask({ offset, limit: 1 + 2 * pageLength });
      const page = { after: keyOf(rows[0]), limit: 2 * pageLength };
      t.same(await ask(page), rows.slice(1), `${name}, after ${offset}: the same rows`);
      const found = await plans({ ...select, ...page });
      t.ok(found.length > 0);
      for (const { words, isRange } of found) {
        const isGood =
          isRange || (name === nullsLast && offset === offsets.at(-1) && sortsNulls(words));
        t.ok(isGood, `${name}, after ${offset}: ${words}`);
      }
    }
  }
}

/** Reads rows by a column that is also compared by bytes. */
async function readFiltered(t: Test, plans: Plans): Promise<void> {
  const order_by = [...orders["two columns"]];
  const select = { database: "main", from: "items", columns: ["amount"], order_by, limit: 20 };
  const bytewise = [{ database: "main", table: "items", bytewise: ["region"] }];
  for (const [cmp, value] of [
    ["=", "region a"],
    ["IN", ["region a", "region b"]],
  ] as const) {
    const where = { column: "region", cmp, value: typeof value === "string" ? value : [...value] };
    for (const { words } of await plans({ ...select, where }, new LimitCounter(bytewise))) {
      t.match(words, /by_region/, `${cmp}: ${words}`);
      t.notMatch(words, /SCAN|Seq Scan|^ALL/, words);
    }
  }
}

/** Reads rows of the table by its key for other rows. */
async function readIncluded(t: Test, plans: Plans): Promise<void> {
  const order_by = { column: "amount" };
  const own = { as: "own", table: "items", on: "items.id = i.id", columns: ["amount"], order_by };
  const from = { table: "items", as: "i" };
  const query = { database: "main", from, columns: ["rank"], include: [own] };
  for (const { words } of await plans(query)) {
    t.match(words, /SEARCH main.items [^;]*\(id=\?\)|Scan items_pkey \(id = |ref PRIMARY/, words);
    t.notMatch(words, /SCAN main.items|Seq Scan/, words);
  }
}

t.test("a page is a range of an index, and included rows are found by one (SQLite)", async (t) => {
  const { engine, directory } = await freshSqlite();
  const plans = await fillSqlite(path.join(directory, "data"), rowCount);
  await readPages(t, engine.address, plans);
  await readFiltered(t, plans);
  await readIncluded(t, plans);
});

t.test(
  "a page is a range of an index, and included rows are found by one (PostgreSQL)",
  async (t) => {
    const { engine, database } = await freshPostgres(t);
    const plans = await fillPostgres(t, await sharedPostgres(), database, rowCount);
    await readPages(t, engine.address, plans);
    await readFiltered(t, plans);
    await readIncluded(t, plans);
  },
);

t.test("a page is a range of an index, and included rows are found by one (MySQL)", async (t) => {
  const { engine } = await freshMysql(t);
  const plans = await fillMysql(t, await sharedMysql(), rowCount);
  await readPages(t, engine.address, plans);
  await readFiltered(t, plans);
  await readIncluded(t, plans);
});

// Nested queries use the indexes that SQL would, and cost about as much as statements by hand.

/** Of each table. An item has 20 lines, until the lines end. */
const rowCounts = sampled([100_000, 1_000_000]);
const linesPerItem = 20;

const table = `create table main.lines (id bigint not null primary key, item_id bigint not null,
  amount int not null)`;
const index = "create index by_item on main.lines (item_id, id)";
const values = (n: string, whole: string) => `${n}, ${whole} + 1, ${n}`;

interface PlanScene {
  /** Of the engine. */
  readonly address: string;
  readonly plans: Plans;
  /** For `by-hand-program.ts`. */
  readonly url: string;
}

const scenes: Readonly<Record<string, (t: Test, rowCount: number) => Promise<PlanScene>>> = {
  async SQLite(t, rowCount) {
    const directory = temporaryHome(t);
    const { address } = await startService(t, `sqlite:${directory}`);
    const plans = await fillSqlite(directory, rowCount);
    const columns = ["id", "item_id", "amount"].map((name) => ({ name, type: "int" }));
    await query(address, { CreateTable: { database: "main", table: "lines", columns } });
    const path = join(directory, "main.sqlite");
    const file = new DatabaseSync(path);
    const whole = `(n - 1) / ${linesPerItem}`;
    file.exec(`
      with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < ${rowCount})
        insert into lines select ${values("n", whole)} from numbers;
      create unique index by_id on lines (id);
      ${index.replace("by_item on main.", "main.by_item on ")}; analyze`);
    file.close();
    return { address, plans, url: `sqlite:${path}` };
  },
  async PostgreSQL(t, rowCount) {
    const { database, url, sql } = await freshPostgres(t);
    // The values of a Select exceed it, as those of a larger table exceed the usual one.
    await sql(`alter database ${database} set work_mem = '1MB'`);
    const plans = await fillPostgres(t, await sharedPostgres(), database, rowCount);
    const whole = `(n - 1) / ${linesPerItem}`;
    const fill = `insert into main.lines select ${values("n", whole)} from generate_series(1, ${rowCount}) as n`;
    await sql(table, fill, index);
    await sql("vacuum analyze main.lines");
    const { address } = await startService(t, url);
    return { address, plans, url };
  },
  async MySQL(t, rowCount) {
    const { url, sql } = await freshMysql(t);
    const plans = await fillMysql(t, await sharedMysql(), rowCount);
    const whole = `(seq - 1) div ${linesPerItem}`;
    const fill = `insert into main.lines select ${values("seq", whole)} from ${series(rowCount)}`;
    await sql("use main", table, fill, index, "analyze table main.lines");
    const { address } = await startService(t, url);
    return { address, plans, url };
  },
};

/** Returns a function that has statements run by hand. */
async function startByHand(t: Test, url: string) {
  const program = join(import.meta.dirname, "by-hand-program.ts");
  const child = spawn(...nodeCommand([program, url]), {
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
  t.teardown(() => child.disconnect());
  const [{ port }] = await once(child, "message");
  return async (statements: readonly string[]): Promise<unknown[][]> => {
    const body = JSON.stringify(statements);
    const { text } = await send(`http://127.0.0.1:${port}`, { method: "POST", path: "/" }, body);
    return JSON.parse(text);
  };
}

const from = { database: "main", from: "items" };
const order_by = { column: "id" };
const onItem = "lines.item_id = items.id";

interface Case {
  /** Tables that must not be read whole. */
  readonly indexed: readonly string[];
  readonly index: RegExp;
  readonly select: object;
  readonly byHand: readonly string[];
  /** Of the time by hand. Without an index or with a query for each row it is ten times or more. */
  readonly most: number;
}

const cases: Readonly<Record<string, Case>> = {
  exists: {
    indexed: ["lines"],
    index: /by_item/,
    select: {
      ...from,
      columns: ["id"],
      order_by,
      where: {
        and: [
          { column: "id", cmp: "<=", value: 200 },
          {
            exists: {
              table: "lines",
              on: onItem,
              where: { column: "amount", cmp: "<", value: 20_000 },
            },
          },
        ],
      },
    },
    byHand: [
      `select id from main.items where id <= 200 and exists (select 1 from main.lines
        where lines.item_id = items.id and amount < 20000) order by id`,
    ],
    most: 3,
  },
  "IN with a Select": {
    indexed: ["items", "lines"],
    index: /items_pkey|PRIMARY|INTEGER PRIMARY KEY|sqlite_autoindex_items_1/,
    select: {
      ...from,
      columns: ["id", "region"],
      order_by,
      where: {
        column: "id",
        cmp: "IN",
        select: {
          from: "lines",
          columns: ["item_id"],
          where: { column: "id", cmp: "<=", value: 8000 },
        },
      },
    },
    byHand: [
      `select id, region from main.items where id in (select item_id from main.lines
        where id <= 8000) order by id`,
    ],
    most: 3,
  },
  "NOT IN with a Select that has a limit": {
    indexed: ["items"],
    // PostgreSQL could also compare each row with all values.
    index: /Hash Join|LIST SUBQUERY|range PRIMARY/,
    select: {
      ...from,
      columns: ["id"],
      order_by,
      where: {
        and: [
          { column: "id", cmp: "BETWEEN", value: [99_801, 100_000] },
          {
            column: "id",
            cmp: "NOT IN",
            select: { from: "lines", columns: ["item_id"], order_by, limit: 100_000 },
          },
        ],
      },
    },
    byHand: [
      `select id from main.items where id between 99801 and 100000 and not exists (select 1 from
        (select item_id from main.lines order by id limit 100000) as picked
        where picked.item_id = items.id) order by id`,
    ],
    most: 3,
  },
  "order_by with after": {
    indexed: ["items"],
    index: /by_region/,
    select: {
      ...from,
      columns: ["region", "id"],
      order_by: [...orders["two columns"]],
      after: ["region c", 50_000],
      limit: 1000,
    },
    byHand: [
      `select region, id from main.items where region >= 'region c'
        and (region > 'region c' or id > 50000) order by region, id limit 1000`,
    ],
    most: 3,
  },
  include: {
    indexed: ["lines"],
    index: /by_item/,
    select: {
      ...from,
      columns: ["id", "region"],
      order_by,
      limit: 100,
      include: [{ as: "lines", table: "lines", on: onItem, columns: ["id", "amount"] }],
    },
    byHand: [
      "select id, region from main.items order by id limit 100",
      `select item_id, id, amount from main.lines where item_id in
        (${Array.from({ length: 100 }, (_, at) => at + 1)})`,
    ],
    most: 1.5,
  },
};

/** SQLite works in a process of its own, and on MySQL each query reads the descriptions of its tables. */
const MOST_ELSEWHERE = 7;

/** Other load on the machine only adds time, so the lowest of each counts. */
const MOST_PAIRS = 20;

/** Seconds, far above the unit of 10 ms in which the system counts. */
const PER_SAMPLE = 0.2;

/** Seconds of processor time so far, of the engine, the program by hand and the databases. */
const used = () => treeSeconds(process.pid) - cpuSecondsOf(process.pid);

/** Unlike the time that passes, processor time hardly depends on other load. */
async function cost(work: () => Promise<unknown>): Promise<number> {
  const start = used();
  let times = 0;
  for (;;) {
    for (const end = times + 10; times < end; times += 1) await work();
    const seconds = used() - start;
    if (seconds > PER_SAMPLE) return seconds / times;
  }
}

const kinds = rowCounts.flatMap((rowCount) =>
  Object.entries(scenes).map(([database, open]) => ({ rowCount, database, open })),
);
for (const { rowCount, database, open } of kinds) {
  const name = `${rowCount} rows, ${database}`;
  const options = database === "MySQL" ? nightly : {};
  t.test(`nested queries use the indexes that SQL would (${name})`, options, async (t) => {
    const { address, plans, url } = await open(t, rowCount);
    const byHand = await startByHand(t, url);
    for (const [name, { select, indexed, index, byHand: statements }] of Object.entries(cases)) {
      const found = await plans(JSON.parse(JSON.stringify(select)));
      const words = `${name}: ${found.map((plan) => plan.words).join("; ")}`;
      const scanned = found
        .flatMap((plan) => plan.scanned)
        .filter((table) => indexed.includes(table));
      t.ok(words.match(index) !== null, words);
      t.same(scanned, [], `${name} reads no table whole`);
      const { body } = await query(address, { Select: select });
      const [expected] = await byHand(statements);
      t.equal(body.data?.length, expected?.length, `${name}: as many rows`);
    }
    await t.test("nested queries cost about as much as SQL by hand", nightly, async (t) => {
      for (const [name, one] of Object.entries(cases)) await compareCosts(t, name, one);
    });
    async function compareCosts(t: Test, name: string, one: Case): Promise<void> {
      const { select } = one;
      const most = database === "PostgreSQL" ? one.most : Math.max(one.most, MOST_ELSEWHERE);
      let [own, other] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
      for (let pair = 0; pair < MOST_PAIRS && !(own / other <= most); pair += 1) {
        own = Math.min(own, await cost(() => query(address, { Select: select })));
        other = Math.min(other, await cost(() => byHand(one.byHand)));
      }
      t.comment(`${name}: ${(own * 1e3).toFixed(2)} ms, ${(other * 1e3).toFixed(2)} by hand`);
      const ratio = own / other;
      t.ok(ratio <= most, `${name}: ${ratio.toFixed(2)} times, at most ${most}`);
    }
  });
}
