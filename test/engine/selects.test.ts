import fc from "fast-check";
import { sql } from "kysely";
import t from "tap";
import { ByShape } from "../../src/engine/sql/fragment.ts";
import type { Column, ColumnKind } from "../../src/engine/sql/scope.ts";
import { planSelect, type SelectDialect } from "../../src/engine/sql/select.ts";
import type { Select } from "../../src/query/operation-types.ts";
import {
  type Cell,
  evaluate,
  type ModelRow,
  type ModelSelect,
  rowText,
  type Where,
} from "./model.ts";
import { overEach } from "./over-each.ts";

const orders = { database: "main", table: "orders" };
const columns = [
  { name: "id", type: "int", primary_key: true },
  { name: "region", type: "text" },
  { name: "qty", type: "bigint" },
  { name: "price", type: "decimal(12,2)" },
  { name: "ratio", type: "double" },
  { name: "paid", type: "boolean" },
  { name: "code", type: "text", unique: true, nullable: false },
  { name: "tag", type: "text", unique: true },
];
const largest = "9223372036854775807";
const rows = [
  `{"id": 1, "region": "eu", "qty": ${largest}, "price": 0.10, "ratio": 0.5, "paid": true, "code": "a"}`,
  `{"id": 2, "region": "eu", "qty": 1, "price": 0.20, "ratio": 1.5, "paid": false, "code": "b"}`,
  `{"id": 3, "region": "eu", "qty": -2, "price": 0.30, "code": "c"}`,
  `{"id": 4, "region": "us", "qty": ${largest}, "code": "d"}`,
  `{"id": 5, "region": "us", "qty": 1, "code": "e"}`,
  `{"id": 6, "code": "f"}`,
];

type Ask = (body: object | string) => Promise<{ status: number; text: string; body: object }>;

async function fill(ask: Ask): Promise<void> {
  await ask({ CreateTable: { ...orders, columns } });
  await ask(`{"Insert": {"database": "main", "table": "orders", "values": [${rows.join(",")}]}}`);
}

function select(fields: object) {
  return { Select: { database: "main", from: "orders", ...fields } };
}

overEach("sums of 64-bit integers are exact, and one past 64 bits is refused", async (t, fresh) => {
  const { ask } = await fresh(t);
  await fill(ask);
  const sum = { fn: "sum", column: "qty", as: "total" };
  const of = (where: object, more: object = {}) => select({ aggregate: [sum], where, ...more });
  const region = (value: string) => ({ column: "region", cmp: "=", value });
  // The largest number and one more, before two less, pass 64 bits on the way alone.
  t.match((await ask(of(region("eu")))).text, '"data":[{"total":9223372036854775806}]');
  t.match(await ask(of(region("us"))), { status: 400, body: { code: "number_out_of_range" } });
  t.match((await ask(of(region("nowhere")))).text, '"data":[{"total":null}]');
  const above = { having: { column: "total", cmp: "<", value: 0 } };
  t.match((await ask(of(region("us"), above))).text, '"data":[]');
  const grouped = select({
    group_by: ["region"],
    aggregate: [{ fn: "avg", column: "qty", as: "mean" }],
    order_by: [{ column: "mean", direction: "DESC" }],
    limit: 1,
  });
  t.match((await ask(grouped)).text, '"region":"us","mean":4611686018427388000');
});

overEach("sums of decimals are those of the column", async (t, fresh) => {
  const { ask } = await fresh(t);
  await fill(ask);
  const { text } = await ask(
    select({ aggregate: [{ fn: "sum", column: "price", as: "total" }], where: null }),
  );
  // SQLite has decimals as doubles.
  t.match(text, /"data":\[\{"total":0.60*1?\}\]/);
});

overEach("sums and averages past a double are refused", async (t, fresh) => {
  const { ask } = await fresh(t);
  await fill(ask);
  await ask({ Update: { ...orders, set: { ratio: 1e308 }, where: null } });
  for (const fn of ["sum", "avg"]) {
    const answer = await ask(select({ aggregate: [{ fn, column: "ratio", as: "x" }] }));
    t.match(answer, { status: 400, body: { code: "number_out_of_range" } }, fn);
  }
});

overEach("what cannot be summed up or named so is refused with what can", async (t, fresh) => {
  const { ask } = await fresh(t);
  await fill(ask);
  const refusals: [code: string, message: RegExp, fields: object][] = [
    [
      "invalid_value",
      /"region".*sum requires numbers/,
      { aggregate: [{ fn: "sum", column: "region", as: "x" }] },
    ],
    [
      "invalid_value",
      /"paid".*avg requires numbers/,
      { aggregate: [{ fn: "avg", column: "paid", as: "x" }] },
    ],
    [
      "invalid_value",
      /"paid".*min requires numbers, text/,
      { aggregate: [{ fn: "min", column: "paid", as: "x" }] },
    ],
    [
      "duplicate_column",
      /"REGION" is taken.*"region"/,
      { aggregate: [{ fn: "count", as: "REGION" }] },
    ],
    ["unknown_column", /"regon"/, { aggregate: [{ fn: "count", column: "regon", as: "x" }] }],
    [
      "invalid_value",
      /order_by allows only selected columns/,
      { columns: ["region"], distinct: true, order_by: { column: "id" } },
    ],
  ];
  for (const [code, message, fields] of refusals) {
    t.match(await ask(select(fields)), { status: 400, body: { code, message } });
  }
});

overEach("a page needs an order in which no two rows are equal", async (t, fresh) => {
  const { ask } = await fresh(t);
  await fill(ask);
  const page = (columns: string[], after: unknown[]) =>
    select({ columns: ["id"], order_by: columns.map((column) => ({ column })), after });
  t.match(
    (await ask(page(["region", "id"], ["eu", 2]))).text,
    '"data":[{"id":3},{"id":4},{"id":5}]',
  );
  t.match((await ask(page(["code"], ["d"]))).text, '"data":[{"id":5},{"id":6}]');
  t.match((await ask(page(["region", "code"], ["us", "d"]))).text, '"data":[{"id":5}]');
  const refused = {
    status: 400,
    body: { code: "order_not_unique", message: /add id to order_by/ },
  };
  t.match(await ask(page(["region"], ["eu"])), refused);
  // Two rows without a tag are equal.
  t.match(await ask(page(["tag"], ["x"])), refused);
});

overEach("several joins link each table to one before it", async (t, fresh) => {
  const { ask } = await fresh(t);
  const make = (table: string, names: string[], values: object[]) =>
    Promise.all([
      ask({
        CreateTable: {
          database: "main",
          table,
          columns: names.map((name) => ({ name, type: "int", primary_key: name === "id" })),
        },
      }).then(() => ask({ Insert: { database: "main", table, values } })),
    ]);
  await make("users", ["id"], [{ id: 1 }, { id: 2 }]);
  await make(
    "orders",
    ["id", "user_id"],
    [
      { id: 10, user_id: 1 },
      { id: 11, user_id: 1 },
    ],
  );
  await make("lines", ["id", "order_id"], [{ id: 100, order_id: 10 }]);
  const query = {
    Select: {
      database: "main",
      from: "users",
      columns: ["users.id", "orders.id", "lines.id"],
      join: [
        { table: "orders", on: "users.id = orders.user_id", join_type: "LEFT" },
        { table: "lines", on: "lines.order_id = orders.id", join_type: "LEFT" },
      ],
      order_by: [{ column: "users.id" }, { column: "orders.id" }, { column: "lines.id" }],
    },
  };
  const found = [
    '{"users.id":1,"orders.id":10,"lines.id":100}',
    '{"users.id":1,"orders.id":11,"lines.id":null}',
    '{"users.id":2,"orders.id":null,"lines.id":null}',
  ];
  t.equal((await ask(query)).text, `{"status":"success","data":[${found.join(",")}]}`);
  const next = { ...query.Select, after: [1, 10, 100] };
  t.equal(
    (await ask({ Select: next })).text,
    `{"status":"success","data":[${found.slice(1).join(",")}]}`,
  );
  const short = { ...next, order_by: [{ column: "users.id" }], after: [1] };
  t.match(await ask({ Select: short }), { status: 400, body: { code: "order_not_unique" } });
});

const modelColumns = [
  { name: "id", type: "int", primary_key: true },
  { name: "region", type: "text" },
  { name: "qty", type: "bigint" },
  { name: "ratio", type: "double" },
  { name: "day", type: "date" },
];
const names = modelColumns.map(({ name }) => name);

const regions = ["eu", "EU", "us", "é", "a%b", "", "straße", "Z"];
const large = [0n, 1n, -1n, 7n, 2n ** 62n, -(2n ** 62n), 2n ** 53n + 1n];

const cells = {
  region: fc.option(fc.constantFrom(...regions), { freq: 4 }),
  qty: fc.option(fc.constantFrom(...large), { freq: 4 }),
  // Halves and quarters, whose sums are exact in any order.
  ratio: fc.option(
    fc.integer({ min: -40, max: 40 }).map((n) => n / 4),
    { freq: 4 },
  ),
  day: fc.option(fc.constantFrom("2026-01-31", "2026-02-01", "1999-12-31"), { freq: 4 }),
};
type Name = keyof typeof cells;
const nullable: readonly Name[] = ["region", "qty", "ratio", "day"];

const table: fc.Arbitrary<ModelRow[]> = fc
  .array(fc.record(cells), { minLength: 1, maxLength: 25 })
  .map((rows) => rows.map((row, index) => ({ id: BigInt(index + 1), ...row })));

const comparison: fc.Arbitrary<Where> = fc.constantFrom(...nullable).chain((column) => {
  const cell: fc.Arbitrary<Cell> = cells[column];
  const present = cell.filter((one) => one !== null);
  const orders = fc.constantFrom("=", "!=", ">", "<", ">=", "<=");
  const plain = fc.record({ column: fc.constant(column), cmp: orders, value: present });
  const nulls = fc.record({
    column: fc.constant(column),
    cmp: fc.constantFrom("=", "!="),
    value: fc.constant(null),
  });
  const lists = fc.oneof(
    fc.record({
      column: fc.constant(column),
      cmp: fc.constant("IN"),
      value: fc.array(cell, { maxLength: 3 }),
    }),
    fc.record({
      column: fc.constant(column),
      cmp: fc.constant("NOT IN"),
      value: fc.array(present, { maxLength: 3 }),
    }),
    fc.record({
      column: fc.constant(column),
      cmp: fc.constant("BETWEEN"),
      value: fc.tuple(present, present).map(([one, other]) => [one, other]),
    }),
  );
  const patterns = fc.record({
    column: fc.constant("region"),
    cmp: fc.constantFrom("LIKE", "ILIKE"),
    value: fc.constantFrom("e%", "E_", "%ß%", "É", "é", "a\\%b", "%"),
  });
  return fc.oneof(plain, nulls, lists, patterns);
});

const { where } = fc.letrec<{ where: Where }>((tie) => ({
  where: fc.oneof(
    { maxDepth: 2 },
    comparison,
    fc.record({ and: fc.array(tie("where"), { minLength: 1, maxLength: 3 }) }),
    fc.record({ or: fc.array(tie("where"), { minLength: 1, maxLength: 3 }) }),
    fc.record({ not: tie("where") }),
  ),
}));

const direction = fc.constantFrom("ASC" as const, "DESC" as const);
const cut = {
  limit: fc.option(fc.nat(10), { nil: undefined }),
  offset: fc.option(fc.nat(5), { nil: undefined }),
};

/** Rows in an order in which no two are equal. */
const listing: fc.Arbitrary<ModelSelect> = fc
  .record({
    where: fc.option(where, { nil: undefined }),
    columns: fc.uniqueArray(fc.constantFrom(...names), { minLength: 1 }),
    by: fc.uniqueArray(fc.constantFrom(...nullable), { maxLength: 3 }),
    directions: fc.array(direction, { minLength: 4, maxLength: 4 }),
    ...cut,
  })
  .map(({ by, directions, ...rest }) => ({
    ...rest,
    order_by: [...by, "id"].map((column, at) => ({ column, direction: directions[at] ?? "ASC" })),
  }));

const different: fc.Arbitrary<ModelSelect> = fc
  .record({
    where: fc.option(where, { nil: undefined }),
    columns: fc.uniqueArray(fc.constantFrom(...nullable), { minLength: 1 }),
    ...cut,
  })
  .map((rest) => ({
    ...rest,
    distinct: true,
    order_by: rest.columns.map((column) => ({ column, direction: "ASC" as const })),
  }));

const summing = [
  { fn: "count", as: "n" },
  { fn: "count", column: "region", as: "named" },
  { fn: "count", column: "qty", distinct: true, as: "kinds" },
  { fn: "sum", column: "ratio", as: "total" },
  { fn: "avg", column: "ratio", as: "mean" },
  { fn: "min", column: "region", as: "first" },
  { fn: "max", column: "day", as: "latest" },
  { fn: "max", column: "qty", as: "most" },
];

const summary: fc.Arbitrary<ModelSelect> = fc
  .record({
    where: fc.option(where, { nil: undefined }),
    group_by: fc.uniqueArray(fc.constantFrom("region", "day"), { maxLength: 2 }),
    aggregate: fc.uniqueArray(fc.constantFrom(...summing), { minLength: 1 }),
    bound: fc.option(fc.nat(4), { nil: undefined }),
    direction,
    ...cut,
  })
  .map(({ group_by, aggregate, bound, direction, ...rest }) => {
    const [first] = aggregate;
    const having = { column: "n", cmp: ">", value: bound };
    const isCounted = bound !== undefined && aggregate.some(({ as }) => as === "n");
    const order = [...(first === undefined ? [] : [first.as]), ...group_by];
    return {
      ...rest,
      ...(group_by.length === 0 ? {} : { group_by }),
      aggregate,
      ...(isCounted ? { having } : {}),
      order_by: order.map((column, at) => ({
        column,
        direction: at === 0 ? direction : ("ASC" as const),
      })),
    };
  });

/** A query as JSON, its whole numbers digit for digit. */
function json(value: unknown): string {
  const marked = JSON.stringify(value, (_key, cell: unknown) =>
    typeof cell === "bigint" ? `\u0000${cell}` : cell,
  );
  return marked.replace(/"\\u0000(-?\d+)"/g, "$1");
}

function answerOf(rows: readonly ModelRow[]): string {
  return `{"status":"success","data":[${rows.map(rowText).join(",")}]}`;
}

overEach("generated Selects get the rows of relational algebra, to the byte", async (t, fresh) => {
  const { ask } = await fresh(t);
  let tables = 0;
  const fill = async (rows: readonly ModelRow[]): Promise<string> => {
    const name = `t${tables++}`;
    const place = { database: "main", table: name };
    t.match(await ask({ CreateTable: { ...place, columns: modelColumns } }), { status: 200 });
    t.match(await ask(json({ Insert: { ...place, values: rows } })), { status: 200 });
    return name;
  };
  const seed = Math.floor(Math.random() * 2 ** 31);
  for (const rows of fc.sample(table, { seed, numRuns: 10 })) {
    const from = await fill(rows);
    const queries = fc.sample(fc.oneof(listing, different, summary), {
      seed: seed + tables,
      numRuns: 40,
    });
    for (const query of queries) {
      const { text } = await ask(json({ Select: { database: "main", from, ...query } }));
      const expected = answerOf(evaluate(rows, query));
      if (text === expected) continue;
      t.equal(text, expected, `seed ${seed}: ${json(query)}`);
      t.comment(json(rows));
      return;
    }
    t.match(await ask({ DropTable: { database: "main", table: from } }), { status: 200 });
  }
});

overEach("pages read one after the other give every row once", async (t, fresh) => {
  const { ask } = await fresh(t);
  const place = { database: "main", table: "pages" };
  t.match(await ask({ CreateTable: { ...place, columns: modelColumns } }), { status: 200 });
  const rows = fc.sample(table, { numRuns: 8, seed: 7 }).flat();
  const numbered = rows.map((row, index) => ({ ...row, id: BigInt(index + 1) }));
  t.match(await ask(json({ Insert: { ...place, values: numbered } })), { status: 200 });
  const orders = fc.sample(listing, { numRuns: 12, seed: 7 }).map(({ order_by = [] }) => order_by);
  for (const order_by of orders) {
    const query = { columns: names, order_by, limit: 7 };
    const seen: ModelRow[] = [];
    let after: Cell[] | undefined;
    for (let page = 0; page <= numbered.length / 7 + 1; page++) {
      const asked = { ...query, ...(after === undefined ? {} : { after }) };
      const expected = evaluate(numbered, asked);
      const { text } = await ask(json({ Select: { database: "main", from: "pages", ...asked } }));
      t.equal(text, answerOf(expected), json(asked));
      seen.push(...expected);
      const last = expected.at(-1);
      if (last === undefined) break;
      after = order_by.map(({ column }) => last[column] ?? null);
    }
    t.equal(seen.length, numbered.length);
  }
});

t.test("a shape is worked out once for a table, and apart for another one", (t) => {
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
  t.same([find(users, long), find(users, long)], [4, 5], "a long one is not remembered");
  for (let shape = 0; shape < 100; shape += 1) find(users, String(shape));
  t.equal(find(users, "a"), 106, "no more than a hundred are");
  t.equal(find(others, "a"), 3);
  t.end();
});

t.test("a shape that is refused is refused each time", (t) => {
  const shapes = new ByShape<object>();
  const users = {};
  const refuse = () => {
    throw new Error("There is no such column");
  };
  for (const _ of [1, 2]) t.throws(() => shapes.find(users, "a", refuse), /no such column/);
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
  comparesRows: true,
  order: (column) => column,
  limit: () => sql``,
};

t.test("a Select makes no class of its own, which would outlive it", async (t) => {
  const plan = () => planSelect("main", [{ name: "users", columns: planColumns }], query, dialect);
  const [one, other] = [plan(), plan()].map(({ statements }) => statements(() => 0));
  t.equal(Object.getPrototypeOf(one), Object.getPrototypeOf(other));
});
