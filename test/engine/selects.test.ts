import { sql } from "kysely";
import t from "tap";
import type { Select } from "../../src/core/query/tree.ts";
import { ByShape } from "../../src/engine/sql/fragment.ts";
import type { Column, ColumnKind } from "../../src/engine/sql/scope.ts";
import { type SelectDialect, SelectPlanner } from "../../src/engine/sql/select.ts";
import { computing } from "../../src/engine/sqlite/compute.ts";
import { caseCount } from "../kit/nightly.ts";
import { choicesOf } from "../query/arbitrary.ts";
import { Chooser } from "../query/arbitrary-selects.ts";
import { exactJson, rowsFor, tableTypes } from "./arbitrary-selects.ts";
import { createTable, insert, refusal } from "./kit.ts";
import { type Cell, evaluate, type ModelRow, rowText } from "./model.ts";
import { overEach, overSqlite, type Scene } from "./over-each.ts";

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
const query: Select = { database: "main", from: "users", columns: ["id"] };
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
};

t.test("a Select creates no class, which would outlive it", async (t) => {
  const users = { name: "users", columns: planColumns };
  const plan = () => new SelectPlanner("main", new Map(), dialect).plan([users], query);
  const [one, other] = [plan(), plan()].map(({ statements }) => statements(() => 0));
  t.equal(Object.getPrototypeOf(one), Object.getPrototypeOf(other));
});

overSqlite(
  "an alias is refused with what took its name, and may be any other column",
  async (t, { ask }) => {
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
  },
);
