import fc from "fast-check";
import { sql } from "kysely";
import t from "tap";
import type { Select } from "../../src/core/query/tree.ts";
import { ByShape } from "../../src/engine/sql/fragment.ts";
import type { Column, ColumnKind } from "../../src/engine/sql/scope.ts";
import { type SelectDialect, SelectPlanner } from "../../src/engine/sql/select.ts";
import { computing } from "../../src/engine/sqlite/compute.ts";
import { caseCount } from "../kit/nightly.ts";
import { createTable, dropTable, equal, insert, refusal, update } from "./kit.ts";
import {
  type Cell,
  evaluate,
  type ModelRow,
  type ModelSelect,
  type ModelTables,
  rowText,
  type Where,
} from "./model.ts";
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

overEach("sums of 64-bit integers are exact, and larger ones are refused", async (t, { ask }) => {
  await fill(ask);
  const sumOf = (region: string, more: object = {}) =>
    ask(select({ ...x("sum", "qty"), where: equal("region", region), ...more }));
  // Only an intermediate sum exceeds 64 bits.
  t.match((await sumOf("eu")).text, '"data":[{"x":9223372036854775806}]');
  t.match(await sumOf("us"), refusal(400, "number_out_of_range"));
  t.match((await sumOf("nowhere")).text, '"data":[{"x":null}]');
  const having = { column: "x", cmp: "<", value: 0 };
  t.match((await sumOf("us", { having })).text, '"data":[]');
  const order_by = [{ column: "x", direction: "DESC" }];
  const grouped = select({ group_by: ["region"], ...x("avg", "qty"), order_by, limit: 1 });
  t.match((await ask(grouped)).text, '"region":"us","x":4611686018427388000');
});

overEach("sums of decimals are decimals, and doubles do not overflow", async (t, { ask }) => {
  await fill(ask);
  // SQLite stores decimals as doubles.
  t.match((await ask(select(x("sum", "price")))).text, /"data":\[\{"x":0.60*1?\}\]/);
  await ask(update("orders", { ratio: 1e308 }));
  for (const fn of ["sum", "avg"]) {
    t.match(await ask(select(x(fn, "ratio"))), refusal(400, "number_out_of_range"), fn);
  }
});

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

const modelTypes = {
  id: "int",
  region: "text",
  qty: "bigint",
  ratio: "double",
  day: "date",
  label: "text",
};
const names = Object.keys(modelTypes);

const regions = ["eu", "EU", "us", "é", "É", "a%b", "", "straße", "Z"];
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
  label: fc.option(fc.constantFrom(...regions), { freq: 4 }),
};
type Name = keyof typeof cells;
const nullable: readonly Name[] = ["region", "qty", "ratio", "day", "label"];
const comparable = [["region", "label"], ["id", "qty", "ratio"], ["day"]];

const table: fc.Arbitrary<ModelRow[]> = fc
  .array(fc.record(cells), { minLength: 1, maxLength: 25 })
  .map((rows) => rows.map((row, index) => ({ id: BigInt(index + 1), ...row })));

const comparison: fc.Arbitrary<Where> = fc.constantFrom(...nullable).chain((column) => {
  const cell: fc.Arbitrary<Cell> = cells[column];
  const present = cell.filter((one) => one !== null);
  const condition = <Value>(name: string, cmps: string[], value: fc.Arbitrary<Value>) =>
    fc.record({ column: fc.constant(name), cmp: fc.constantFrom(...cmps), value });
  const plain = condition(column, ["=", "!=", ">", "<", ">=", "<="], present);
  const nulls = condition(column, ["=", "!="], fc.constant(null));
  const pair = fc.tuple(present, present).map(([one, other]) => [one, other]);
  const lists = fc.oneof(
    condition(column, ["IN"], fc.array(cell, { maxLength: 3 })),
    condition(column, ["NOT IN"], fc.array(present, { maxLength: 3 })),
    condition(column, ["BETWEEN"], pair),
  );
  const pattern = fc.constantFrom("e%", "E_", "%ß%", "É", "é", "a\\%b", "%");
  const patterns = condition("region", ["LIKE", "ILIKE"], pattern);
  const escapes = { escape: fc.constantFrom("!", "e", "%"), fold: fc.constant("unicode" as const) };
  const escaped = fc.record(
    {
      column: fc.constant("region"),
      cmp: fc.constant("ILIKE"),
      value: fc.constantFrom("e%u", "!É", "%%", "a!%b", "A%%B", "STRAS%_", "straß!ex"),
      ...escapes,
    },
    { requiredKeys: ["column", "cmp", "value"] },
  );
  const others = comparable.find((names) => names.includes(column)) ?? [];
  const beside = fc.record({
    column: fc.constant(column),
    cmp: fc.constantFrom("=", "!=", ">", "<", ">=", "<="),
    other: fc.constantFrom(...others),
  });
  return fc.oneof(plain, nulls, lists, patterns, escaped, beside);
});

type Nested = Extract<Where, { select: object }>["select"];

/** Conditions on a table by rows of another, up to two levels of them. */
function nested(own: string, other: string, inner: fc.Arbitrary<Where>): fc.Arbitrary<Where> {
  const pair = fc
    .constantFrom(...comparable)
    .chain((alike) => fc.tuple(fc.constantFrom(...alike), fc.constantFrom(...alike)));
  const exists = fc
    .tuple(pair, fc.option(inner, { nil: undefined }))
    .map(([[one, two], where]): Where => {
      const condition = where === undefined ? {} : { where };
      return { exists: { table: other, on: `${other}.${one} = ${own}.${two}`, ...condition } };
    });
  const counted = [{ fn: "count", as: "n" }];
  const member = fc
    .record({ pair, inner, cmp: fc.constantFrom("IN", "NOT IN"), limit: fc.nat(3) })
    .chain(({ pair: [column, picked], inner: where, cmp, limit }) => {
      const ordered = [picked, "id"].map((name) => ({ column: name, direction: "ASC" as const }));
      const columns = [picked];
      const having = { column: "n", cmp: ">", value: 1 };
      return fc
        .constantFrom<Nested>(
          { from: other, columns, where },
          { from: other, columns, where, distinct: true },
          { from: other, columns, order_by: ordered, limit },
          { from: own, columns, where: { column: "id", cmp: "<", value: 4 } },
          { from: other, group_by: columns, aggregate: counted, having },
          { from: other, aggregate: [{ fn: "max", column: picked, as: "most" }], where },
        )
        .map((select): Where => ({ column, cmp, select }));
    });
  return fc.oneof(exists, member);
}

const further = nested("$third", "$other", comparison);
const others = nested(
  "$table",
  "$other",
  fc.oneof(
    { weight: 3, arbitrary: comparison },
    { weight: 1, arbitrary: nested("$other", "$third", comparison) },
  ),
);
const inThird = nested("$table", "$third", fc.oneof(comparison, further));

const { where } = fc.letrec<{ where: Where }>((tie) => ({
  where: fc.oneof(
    { maxDepth: 2 },
    comparison,
    others,
    inThird,
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

/** JSON with exact integers. */
function json(value: unknown): string {
  const marked = JSON.stringify(value, (_key, cell: unknown) =>
    typeof cell === "bigint" ? `\u0000${cell}` : cell,
  );
  return marked.replace(/"\\u0000(-?\d+)"/g, "$1");
}

function answerOf(rows: readonly ModelRow[]): string {
  return `{"status":"success","data":[${rows.map(rowText).join(",")}]}`;
}

overEach("generated Selects return the rows of relational algebra", async (t, { ask }) => {
  let tables = 0;
  const fill = async (rows: readonly ModelRow[]): Promise<string> => {
    const name = `t${tables++}`;
    t.match(await ask(createTable(name, modelTypes)), { status: 200 });
    t.match(await ask(json(insert(name, rows))), { status: 200 });
    return name;
  };
  const seed = Math.floor(Math.random() * 2 ** 31);
  const thirds = fc.sample(table, { seed: seed + 1, numRuns: 3 });
  const thirdRows = thirds[0] ?? [];
  const [otherRows = []] = thirds.slice(1);
  const inside: ModelTables = { $other: otherRows, $third: thirdRows };
  const names = { other: await fill(otherRows), third: await fill(thirdRows) };
  for (const rows of fc.sample(table, { seed, numRuns: caseCount(4, 10) })) {
    const from = await fill(rows);
    const named = (query: object) =>
      json(query)
        .replaceAll("$table", from)
        .replaceAll("$other", names.other)
        .replaceAll("$third", names.third);
    const options = { seed: seed + tables, numRuns: 40 };
    for (const query of fc.sample(fc.oneof(listing, different, summary), options)) {
      const { text } = await ask(named({ Select: { database: "main", from, ...query } }));
      const expected = answerOf(evaluate(rows, query, { ...inside, $table: rows }));
      if (text === expected) continue;
      t.equal(text, expected, `seed ${seed}: ${json(query)}`);
      t.comment(json(rows));
      return;
    }
    t.match(await ask(dropTable(from)), { status: 200 });
  }
});

overEach("pages in order return every row once", async (t, { ask }) => {
  t.match(await ask(createTable("pages", modelTypes)), { status: 200 });
  const rows = fc.sample(table, { numRuns: 8, seed: 7 }).flat();
  const numbered = rows.map((row, index) => ({ ...row, id: BigInt(index + 1) }));
  t.match(await ask(json(insert("pages", numbered))), { status: 200 });
  const orders = fc.sample(listing, { numRuns: 12, seed: 7 }).map(({ order_by = [] }) => order_by);
  for (const order_by of orders) {
    const query = { columns: names, order_by, limit: 7 };
    const seen: ModelRow[] = [];
    let after: Cell[] | undefined;
    for (let count = 0; count <= numbered.length / 7 + 1; count++) {
      const page = { ...query, ...(after === undefined ? {} : { after }) };
      const expected = evaluate(numbered, page);
      const { text } = await ask(json({ Select: { database: "main", from: "pages", ...page } }));
      t.equal(text, answerOf(expected), json(page));
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
