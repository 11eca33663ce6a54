import fc from "fast-check";
import type { Cell, ModelRow, ModelSelect, Where } from "./model.ts";
import { evaluate, rowText } from "./model.ts";
import { overEach } from "./over-each.ts";

const columns = [
  { name: "id", type: "int", primary_key: true },
  { name: "region", type: "text" },
  { name: "qty", type: "bigint" },
  { name: "ratio", type: "double" },
  { name: "day", type: "date" },
];
const names = columns.map(({ name }) => name);

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
    t.match(await ask({ CreateTable: { ...place, columns } }), { status: 200 });
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
  t.match(await ask({ CreateTable: { ...place, columns } }), { status: 200 });
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
