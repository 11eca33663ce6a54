/** Bodies of the full grammar that the core has not. */

import { select, term } from "./kit.ts";

export const sum = { fn: "sum", column: "total", as: "revenue" };
export const count = { fn: "count", as: "n" };
export const order = { column: "name" };
export const target = { database: "main", table: "users" };

export function summary(fields: object) {
  return { Select: { database: "main", from: "orders", ...fields } };
}

const when = { and: [{ column: "a", cmp: ">", other: "users.b" }] };

const computed: readonly object[] = [
  ...["add", "mul", "concat", "coalesce"].flatMap((fn) => [
    { fn, of: ["a", "users.b"] },
    { fn, of: Array(8).fill({ value: 1.5 }) },
  ]),
  ...["sub", "div", "nullif"].map((fn) => ({ fn, of: ["a", { value: "b" }] })),
  ...["abs", "lower", "upper", "trim", "length", "round"].map((fn) => ({ fn, of: ["a"] })),
  { fn: "round", of: ["a"], digits: 12 },
  { fn: "trunc", of: ["a"], unit: "week" },
  { fn: "part", of: ["a"], unit: "weekday" },
  { fn: "diff", of: ["a", "b"], unit: "second" },
  { fn: "json", of: ["a"], path: ["b", 0, "c d"] },
  { fn: "json", of: ["a"], path: ["", "*", "a.b", "it's", '"', "\\", "\n", "é"] },
  // biome-ignore lint/suspicious/noThenProperty: a field of the grammar
  { fn: "if", when, then: { value: true }, else: "a" },
];

/** Orders of a user, with the lines of each. */
export const included = {
  as: "orders",
  table: "orders",
  on: "orders.user_id = users.id",
  columns: ["id", "total"],
};
const lines = { as: "lines", table: "lines", on: "orders.id = lines.order_id", columns: ["*"] };

/** Includes within each other, the outermost first. */
export function chainOfIncludes(length: number, fields: object = {}, at = 1): object {
  const around = at === 1 ? "users" : `t${at - 1}`;
  const inner = at === length ? {} : { include: [chainOfIncludes(length, fields, at + 1)] };
  const own = { as: `m${at}`, table: `t${at}`, on: `t${at}.a = ${around}.id`, columns: ["id"] };
  return { ...own, ...fields, ...inner };
}

export function severalIncludes(length: number): object[] {
  return Array.from({ length }, (_, at) => ({ ...included, as: `m${at}` }));
}

export const busy = {
  from: "orders",
  group_by: ["user_id"],
  aggregate: [{ fn: "count", as: "n" }],
};
/** Selects as `from` within each other, the outermost counted. */
export function chainOfSources(length: number): object {
  const from = length === 2 ? "users" : chainOfSources(length - 1);
  return { select: { from, columns: ["id"] }, as: "t" };
}

const including: readonly object[] = [
  select({ include: [included] }),
  select({ include: [{ ...included, on: "users.id = orders.user_id", columns: ["*"] }] }),
  select({
    include: [
      {
        ...included,
        where: { and: [term("orders.paid", "=", true), term("large", ">", 3)] },
        compute: [{ as: "large", fn: "mul", of: ["orders.total", { value: 2 }] }],
        columns: ["id", "large"],
        order_by: [{ column: "large", direction: "DESC" }, { column: "id" }],
        limit: 3,
        one: false,
        include: [{ ...lines, one: true, where: null, order_by: { column: "lines.id" } }],
      },
      { ...included, as: "Lines", table: "lines", on: "lines.user_id = users.id", limit: 0 },
    ],
    order_by: order,
    after: ["x"],
    limit: 10,
  }),
  select({
    from: { table: "users", as: "u" },
    columns: ["u.id", "boss.id"],
    join: { table: "users", as: "boss", on: "u.boss = boss.id", join_type: "LEFT" },
    include: [
      { ...included, as: "users", table: "users", on: "users.boss = boss.id" },
      { ...included, as: "mine", on: "orders.user_id = u.id" },
    ],
  }),
  select({
    include: [
      {
        ...included,
        where: { exists: { table: "lines", on: "lines.order_id = orders.id" } },
        include: [
          {
            ...lines,
            where: { column: "id", cmp: "IN", select: { from: "users", columns: ["a"] } },
          },
          { ...included, as: "owner", table: "users", on: "users.id = orders.user_id", one: true },
        ],
      },
    ],
  }),
  select({ distinct: false, include: severalIncludes(8) }),
  select({ include: [chainOfIncludes(3)] }),
  select({ limit: 10, include: [chainOfIncludes(2, { limit: 316 })] }),
  select({ limit: 1_000_000, include: [chainOfIncludes(3, { one: true })] }),
  select({ limit: 0, include: [chainOfIncludes(3, { limit: 10_000 })] }),
  { Batch: [select({ include: [included] }), select({ include: severalIncludes(8) })] },
  select({ from: { select: busy, as: "t" } }),
  select({
    from: {
      as: "t",
      select: { ...busy, having: term("n", ">", 1), order_by: { column: "n" }, limit: 5 },
    },
    columns: ["t.n", "x"],
    where: term("t.user_id", ">", 1),
    order_by: { column: "n" },
    compute: [{ as: "x", fn: "mul", of: ["t.n", { value: 2 }] }],
    join: { table: "users", on: "users.id = t.user_id", join_type: "INNER" },
    include: [{ ...included, on: "orders.user_id = t.user_id" }],
  }),
  summary({
    from: { select: busy, as: "t" },
    group_by: ["t.n"],
    aggregate: [sum],
    where: { exists: { table: "users", on: "users.id = t.user_id" } },
  }),
  summary({
    from: { select: { from: "orders", columns: ["region"], offset: 1 }, as: "t" },
    aggregate: [count],
  }),
  select({
    from: {
      select: { from: "users", columns: ["*"], distinct: true, order_by: order },
      as: "users",
    },
    where: { exists: { table: "orders", on: "orders.user_id = users.id" } },
  }),
  select({ from: chainOfSources(3), columns: ["t.id"] }),
  select({
    where: { column: "id", cmp: "IN", select: { from: chainOfSources(2), columns: ["id"] } },
  }),
  {
    Delete: {
      ...target,
      where: {
        column: "id",
        cmp: "IN",
        select: { from: { select: busy, as: "t" }, columns: ["user_id"] },
      },
    },
  },
];

export const fullBodies: readonly object[] = [
  ...including,
  summary({ aggregate: [count] }),
  summary({ columns: ["region"], group_by: ["region"], aggregate: [sum, count] }),
  summary({
    group_by: ["orders.region", "day"],
    aggregate: [{ ...count, column: "id", distinct: true }],
  }),
  summary({ aggregate: [sum], having: term("revenue", ">", 3) }),
  summary({ group_by: ["region"], aggregate: [sum], having: term("region", "=", "eu") }),
  summary({
    group_by: ["region"],
    aggregate: [sum],
    order_by: [{ column: "revenue", direction: "DESC" }, { column: "region" }],
  }),
  select({ distinct: true }),
  select({ distinct: false, offset: 1 }),
  select({
    order_by: [order, { column: "id", direction: "DESC" }],
    after: ["x", 9007199254740993n.toString()],
  }),
  select({ order_by: order, after: [null] }),
  select({ join: { table: "orders", on: "users.id = orders.user_id", join_type: "LEFT" } }),
  select({
    join: [
      { table: "orders", on: "users.id = orders.user_id", join_type: "LEFT" },
      { table: "lines", on: "lines.order_id = orders.id", join_type: "INNER" },
    ],
  }),
  select({ where: term("name", "ILIKE", "a%") }),
  select({ where: term("id", "NOT IN", [1, [null]]) }),
  ...computed.map((one) => select({ columns: ["x"], compute: [{ as: "x", ...one }] })),
  summary({
    compute: [
      { fn: "trunc", unit: "month", of: ["created_at"], as: "month" },
      { as: "next", fn: "concat", of: ["month", { value: null }] },
    ],
    group_by: ["month"],
    aggregate: [count],
    having: term("month", "=", "x"),
    order_by: [{ column: "month" }],
  }),
  select({ where: { column: "a", cmp: ">", other: "users.b" } }),
  select({ from: { table: "users", as: "u" }, columns: ["u.a"], where: term("u.b", "=", 1) }),
  select({
    from: { table: "users", as: "u" },
    columns: ["x"],
    join: { table: "users", as: "boss", on: "u.boss = boss.id", join_type: "LEFT" },
    compute: [{ as: "x", fn: "sub", of: ["u.pay", "boss.pay"] }],
  }),
  select({ join: { as: "boss", table: "users", on: "users.boss = boss.id", join_type: "LEFT" } }),
  select({
    from: { as: "a", table: "users" },
    join: [
      { table: "users", as: "b", on: "a.boss = b.id", join_type: "INNER" },
      { table: "users", as: "c", on: "b.boss = c.id", join_type: "INNER" },
    ],
    where: { exists: { table: "users", on: "users.id = c.id" } },
  }),
  ...[
    { exists: { table: "orders", on: "orders.user_id = users.id" } },
    { not: { exists: { on: "users.id = orders.user_id", where: null, table: "orders" } } },
    {
      exists: {
        table: "orders",
        on: "orders.user_id = users.id",
        where: { exists: { table: "lines", on: "lines.order_id = orders.id" } },
      },
    },
    { column: "id", cmp: "IN", select: { from: "orders", columns: ["orders.user_id"] } },
    { select: { columns: ["boss"], from: "users", limit: 3 }, cmp: "NOT IN", column: "users.id" },
    { column: "id", cmp: "IN", select: { from: "orders", aggregate: [sum] } },
    {
      column: "id",
      cmp: "IN",
      select: {
        from: "orders",
        group_by: ["user_id"],
        aggregate: [count],
        having: term("n", ">", 2),
      },
    },
  ].flatMap((where) => [select({ where }), { Delete: { ...target, where } }]),
  summary({
    aggregate: [sum],
    having: { column: "revenue", cmp: "IN", select: { from: "goals", columns: ["amount"] } },
  }),
  summary({ aggregate: [sum, count], having: { other: "n", cmp: "!=", column: "revenue" } }),
  { Delete: { ...target, where: { not: { column: "a", cmp: "=", other: "a" } } } },
  select({ where: { ...term("name", "LIKE", "50!%"), escape: "!" } }),
  select({ where: { fold: "unicode", ...term("name", "ILIKE", "é%"), escape: "\u{1f600}" } }),
  { Insert: { ...target, values: [{ id: 1 }], returning: ["id"] } },
  { Update: { ...target, set: { a: 1 }, where: null, returning: ["*"] } },
  { Update: { ...target, add: { stock: -1.5 }, where: null } },
  { Update: { ...target, add: { stock: -1 }, set: { a: 1 }, where: null } },
  { Update: { ...target, add: { price: "-0.10" }, where: null } },
  { Delete: { ...target, where: null, returning: ["users.id"] } },
  { Upsert: { ...target, values: [{ id: 1 }], on_conflict: ["id"], update: [] } },
  {
    Upsert: {
      ...target,
      values: [{ id: 1 }],
      on_conflict: ["id", "b"],
      update: ["name"],
      returning: ["id"],
    },
  },
  { Preview: { Delete: { ...target, where: null } } },
  { Preview: { limit: 0, Update: { ...target, add: { a: 1 }, where: null } } },
  {
    Preview: {
      Batch: [
        { Delete: { ...target, where: null, returning: ["users.id"], expect: 1 } },
        { Update: { ...target, where: null, bind: { a: { element: 0, column: "b" } } } },
      ],
      limit: 100,
    },
  },
  { Preview: { Upsert: { ...target, values: [{ id: 1 }], on_conflict: ["id"], update: [] } } },
  { Batch: [{ Upsert: { ...target, values: [{ id: 1 }], on_conflict: ["id"], update: [] } }] },
  {
    Batch: [
      { Upsert: { ...target, values: [{ id: 1 }], on_conflict: ["id"], update: [], expect: 1 } },
      { Insert: { ...target, values: [{}], bind: { a: { element: 0, column: "id" } }, expect: 1 } },
      { Update: { ...target, where: null, bind: { a: { column: "b", element: 1 } } } },
      { Delete: { ...target, where: null, expect: 0 } },
    ],
  },
  {
    CreateTable: {
      ...target,
      columns: [{ name: "id", type: "int", default: 7, references: "orders.id" }],
    },
  },
];
