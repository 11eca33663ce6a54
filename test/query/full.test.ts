import t from "tap";
import { createGrammar } from "../../src/core/query/grammar.ts";
import { describeShape, type OperationNode } from "../../src/core/query/node.ts";
import { parseQuery } from "../../src/core/query/parse.ts";
import {
  busy,
  chainOfIncludes,
  chainOfSources,
  count,
  fullBodies,
  included,
  order,
  severalIncludes,
  sum,
  summary,
  target,
} from "./full-bodies.ts";
import { refusalOf, scanBody, select, term, verdict } from "./kit.ts";

const core = createGrammar({ extraFields: [], operations: {}, level: "core" });

t.test("the full grammar is accepted", async (t) => {
  for (const body of fullBodies) t.equal(verdict(body), "accepted", JSON.stringify(body));
});

t.test("the core grammar refuses it", async (t) => {
  const both = new Set([
    JSON.stringify(
      select({ join: { table: "orders", on: "users.id = orders.user_id", join_type: "LEFT" } }),
    ),
  ]);
  for (const body of fullBodies) {
    const expected = both.has(JSON.stringify(body)) ? /accepted/ : /^(?!accepted)/;
    t.match(verdict(body, core), expected, JSON.stringify(body));
  }
  t.match(
    refusalOf(select({ distinct: true }), core).message,
    /"distinct" is unknown; allowed: database, from/,
  );
  t.notMatch(refusalOf(select({ x: 1 }), core).message, /group_by/);
  const text = select({ order_by: "id" });
  t.match(refusalOf(text).message, "an object or an array is expected, a string was found");
  t.match(refusalOf(text, core).message, "an object is expected, a string was found");
});

const previewOf = (fields: object) => ({ Preview: fields });
const deleted = { Delete: { ...target, where: null } };
const elsewhere = { returning: ["orders.id"] };
const inserted = { Insert: { ...target, values: [{ id: 1 }] } };
const bound = (source: object) => ({ ...target, values: [{}], bind: { a: source } });

const abs = { fn: "abs", of: ["a"] };
const badComputes: readonly [string, object][] = [
  ["missing_field", { fn: "abs" }],
  ["missing_field", { fn: "trunc", of: ["a"] }],
  ["missing_field", { fn: "json", of: ["a"] }],
  ["missing_field", { fn: "if", when: term("a", "=", 1), else: "a" }],
  ["invalid_value", { fn: "sqrt", of: ["a"] }],
  ["invalid_value", { fn: "add", of: ["a"] }],
  ["invalid_value", { fn: "add", of: Array(9).fill("a") }],
  ["invalid_value", { fn: "sub", of: ["a", "b", "c"] }],
  ["invalid_value", { fn: "abs", of: [] }],
  ["invalid_value", { ...abs, unit: "day" }],
  ["invalid_value", { ...abs, digits: 1 }],
  ["invalid_value", { fn: "round", of: ["a"], digits: 13 }],
  ["invalid_value", { fn: "round", of: ["a"], digits: 1.5 }],
  ["invalid_value", { fn: "trunc", of: ["a"], unit: "weekday" }],
  ["invalid_value", { fn: "trunc", of: ["a"], unit: "second" }],
  ["invalid_value", { fn: "diff", of: ["a", "b"], unit: "month" }],
  ["invalid_value", { fn: "json", of: ["a"], path: [] }],
  ["wrong_type", { fn: "json", of: ["a"], path: [null] }],
  ["invalid_column", { ...abs, of: ["*"] }],
  ["invalid_column", { ...abs, of: ["elsewhere.a"] }],
  ["wrong_type", { ...abs, of: [null] }],
  ["wrong_type", { ...abs, of: [{ value: [1] }] }],
  ["missing_field", { ...abs, of: [{}] }],
  ["wrong_type", { ...abs, of: "a" }],
  ["invalid_column", { ...abs, as: "a.b" }],
];

const beside = { column: "a", cmp: "=", other: "b" };
const badComparisons: readonly [string, object][] = [
  ["missing_field", { column: "a", cmp: "=" }],
  ["missing_field", { column: "a", cmp: "LIKE", escape: "!" }],
  ["missing_field", { cmp: "=", other: "a" }],
  ["invalid_value", { ...beside, value: null }],
  ...["LIKE", "ILIKE", "IN", "NOT IN", "BETWEEN"].map((cmp): [string, object] => [
    "invalid_value",
    { ...beside, cmp },
  ]),
  ["wrong_type", { ...beside, other: null }],
  ["invalid_column", { ...beside, other: "*" }],
  ["invalid_column", { ...beside, other: "elsewhere.a" }],
  ["invalid_value", { ...beside, escape: "!" }],
  ["invalid_value", { ...term("a", "=", "x"), escape: "!" }],
  ["invalid_value", { ...term("a", "LIKE", "x"), escape: "" }],
  ["invalid_value", { ...term("a", "LIKE", "x"), escape: "!!" }],
  ["wrong_type", { ...term("a", "LIKE", "x"), escape: null }],
  ["invalid_value", { ...term("a", "LIKE", "x"), fold: "unicode" }],
  ["invalid_value", { ...term("a", "ILIKE", "x"), fold: "ascii" }],
  ["invalid_value", { ...term("a", "=", "x"), fold: "unicode" }],
];

const orders = { from: "orders", columns: ["user_id"] };
const member = { column: "id", cmp: "IN", select: orders };
const exists = { table: "orders", on: "orders.user_id = users.id" };
/** Each table in a chain of conditions, innermost last. */
function chain(length: number, at = 0): object {
  const on = `t${at}.a = ${at === 0 ? "users" : `t${at - 1}`}.id`;
  const where = at === length - 1 ? {} : { where: chain(length, at + 1) };
  return { exists: { table: `t${at}`, on, ...where } };
}
const badNested: readonly [string, object][] = [
  ["missing_field", { exists: { table: "orders" } }],
  ["missing_field", { exists: { on: exists.on } }],
  ["unknown_field", { exists: { ...exists, limit: 1 } }],
  ["unknown_field", { exists, column: "a" }],
  ["unknown_field", { and: [beside], exists }],
  ["invalid_value", { exists: { table: "orders", on: "orders.a = orders.b" } }],
  ["invalid_value", { exists: { table: "orders", on: "users.a = users.b" } }],
  ["invalid_value", { exists: { table: "orders", on: "orders.a = lines.b" } }],
  ["invalid_value", { exists: { table: "users", on: "users.a = users.b" } }],
  ["invalid_column", { exists: { ...exists, where: term("users.id", "=", 1) } }],
  [
    "invalid_value",
    { exists: { ...exists, where: { exists: { table: "lines", on: "lines.a = users.id" } } } },
  ],
  [
    "invalid_value",
    { exists: { ...exists, where: { exists: { table: "users", on: "users.a = orders.id" } } } },
  ],
  ["invalid_value", { ...member, cmp: "=" }],
  ["invalid_value", { ...member, value: [1] }],
  ["invalid_value", { ...member, other: "a" }],
  ["invalid_value", { ...member, escape: "!" }],
  ["invalid_value", { ...member, select: { ...orders, columns: ["a", "b"] } }],
  ["invalid_column", { ...member, select: { ...orders, columns: ["*"] } }],
  ["missing_field", { ...member, select: { from: "orders" } }],
  ["missing_field", { ...member, select: { columns: ["a"] } }],
  ["invalid_value", { ...member, select: { from: "orders", aggregate: [count, sum] } }],
  [
    "invalid_value",
    { ...member, select: { from: "orders", group_by: ["a", "b"], aggregate: [count] } },
  ],
  ["unknown_field", { ...member, select: { ...orders, database: "main" } }],
  ["unknown_field", { ...member, select: { ...orders, order_by: order, after: [1] } }],
  ["invalid_column", { ...member, select: { ...orders, where: term("users.id", "=", 1) } }],
  ["wrong_type", { ...member, select: [1] }],
  ["invalid_value", chain(6)],
  ["invalid_value", { or: Array(17).fill(member) }],
];

/** Each an include in place of `included`, or fields beside it. Random Selects have all rules of it. */
const badIncludes: readonly [string, object, object?][] = [
  ["missing_field", { ...included, on: undefined }],
  ["unknown_field", { ...included, offset: 1 }],
  ["invalid_column", { ...included, as: "a.b" }],
  ["invalid_name", { ...included, table: "main.orders" }],
  ["invalid_column", { ...included, where: term("users.id", "=", 1) }],
  ["invalid_value", { ...included, on: "orders.a = lines.b" }],
  ["invalid_value", { ...included, table: "Users", on: "Users.a = users.b" }],
  ["invalid_value", { ...included, limit: 1, one: true }],
  ["wrong_type", { ...included, one: 1 }],
  ["duplicate_column", { ...included, as: "x" }, { columns: ["X_MORE"] }],
  ["invalid_value", included, { distinct: true }],
  ["invalid_value", chainOfIncludes(4)],
  ["invalid_value", { ...included, limit: 1001 }, { limit: 1000 }],
];

const badSources: readonly [string, object, object?][] = [
  ["missing_field", { select: busy }],
  ["missing_field", { as: "t" }],
  ["invalid_value", { select: busy, as: "t", table: "orders" }],
  ["unknown_field", { select: { ...busy, database: "main" }, as: "t" }],
  [
    "unknown_field",
    { select: { from: "a", columns: ["*"], order_by: order, after: [1] }, as: "t" },
  ],
  ["unknown_field", { select: { from: "users", columns: ["id"], include: [included] }, as: "t" }],
  ["wrong_type", { select: "users", as: "t" }],
  ["invalid_name", { select: busy, as: "t.u" }],
  ["missing_field", { select: { from: "orders" }, as: "t" }],
  ["missing_field", { select: { columns: ["*"] }, as: "t" }],
  ["invalid_column", { select: { from: "orders", columns: ["users.a"] }, as: "t" }],
  ["invalid_column", { select: busy, as: "t" }, { columns: ["orders.user_id"] }],
  ["invalid_column", { select: busy, as: "t" }, { columns: ["t.*"] }],
  [
    "invalid_value",
    { select: busy, as: "t" },
    { join: { table: "T", on: "t.n = T.a", join_type: "INNER" } },
  ],
  ["invalid_value", chainOfSources(4)],
];

t.test("contradictory fields are refused", async (t) => {
  const joined = (joins: object[]) => select({ join: joins });
  const orders = { table: "orders", on: "users.id = orders.user_id", join_type: "INNER" };
  const bad: readonly [string, object][] = [
    ["missing_field", summary({})],
    ["missing_field", select({ group_by: ["a"] })],
    ["missing_field", select({ having: term("n", ">", 3) })],
    ["invalid_value", summary({ aggregate: [] })],
    ["missing_field", summary({ aggregate: [{ fn: "sum", as: "x" }] })],
    ["missing_field", summary({ aggregate: [{ fn: "count" }] })],
    ["invalid_column", summary({ aggregate: [{ ...count, column: "*" }] })],
    ["invalid_value", summary({ aggregate: [{ ...count, distinct: true }] })],
    ["invalid_value", summary({ aggregate: [{ ...sum, distinct: true }] })],
    ["invalid_value", summary({ aggregate: [{ ...sum, fn: "median" }] })],
    ["invalid_column", summary({ aggregate: [{ ...count, as: "a.b" }] })],
    ["duplicate_column", summary({ aggregate: [count, { ...sum, as: "N" }] })],
    ["duplicate_column", summary({ group_by: ["n"], aggregate: [count] })],
    ["duplicate_column", summary({ group_by: ["orders.N"], aggregate: [count] })],
    ["invalid_value", summary({ columns: ["a"], aggregate: [count] })],
    ["invalid_value", summary({ columns: ["a", "b"], group_by: ["b", "a"], aggregate: [count] })],
    ["invalid_value", summary({ columns: ["a"], group_by: ["b", "a"], aggregate: [count] })],
    ["invalid_value", summary({ columns: ["*"], group_by: ["a"], aggregate: [count] })],
    ["invalid_column", summary({ aggregate: [count], having: term("m", ">", 3) })],
    ["invalid_column", summary({ aggregate: [count], order_by: { column: "region" } })],
    ["invalid_column", summary({ aggregate: [count], group_by: ["elsewhere.a"] })],
    ["invalid_value", select({ after: [1] })],
    ["invalid_value", select({ order_by: [order, order], after: [1] })],
    ["invalid_value", select({ order_by: order, after: [] })],
    ["wrong_type", select({ order_by: order, after: [[1]] })],
    ["invalid_value", select({ order_by: order, after: [1], offset: 0 })],
    ["invalid_value", select({ order_by: order, after: [1], distinct: true })],
    ["invalid_value", summary({ aggregate: [count], order_by: { column: "n" }, after: [1] })],
    ["invalid_value", select({ order_by: Array(9).fill(order) })],
    ["invalid_value", select({ order_by: [] })],
    ["invalid_value", joined([])],
    ["invalid_value", joined([orders, { ...orders, table: "lines" }])],
    ["invalid_value", joined([{ ...orders, on: "users.id = users.boss" }])],
    ["invalid_value", select({ join: { ...orders, on: "orders.id = orders.user_id" } })],
    ["invalid_value", joined([{ ...orders, as: "o", on: "o.id = o.user_id" }])],
    [
      "invalid_value",
      joined([
        { ...orders, on: "lines.id = users.id" },
        { ...orders, table: "lines", on: "lines.a = users.b" },
      ]),
    ],
    ["invalid_column", joined([{ ...orders, on: "users.id = nowhere.id" }])],
    ["invalid_value", joined(Array(5).fill(orders))],
    ["invalid_value", select({ where: term("id", "NOT IN", [1, null]) })],
    ["invalid_value", select({ where: term("id", "NOT IN", 1) })],
    ["invalid_value", select({ where: term("id", "ILIKE", 1) })],
    ["missing_field", select({ from: { table: "users" } })],
    ["invalid_name", select({ from: { table: "users", as: "a.b" } })],
    ["unknown_field", select({ from: { table: "users", as: "u", on: "x" } })],
    ["invalid_column", select({ from: { table: "users", as: "u" }, columns: ["users.a"] })],
    ["invalid_column", joined([{ ...orders, as: "o" }])],
    ["invalid_value", joined([{ ...orders, as: "USERS", on: "users.id = USERS.user_id" }])],
    [
      "invalid_value",
      joined([
        { ...orders, as: "o", on: "users.id = o.user_id" },
        { ...orders, as: "O", on: "users.id = O.user_id" },
      ]),
    ],
    [
      "invalid_value",
      select({
        from: { table: "users", as: "Orders" },
        where: { exists: { table: "orders", on: "orders.a = Orders.b" } },
      }),
    ],
    ...[...badComparisons, ...badNested].map(([code, where]): [string, object] => [
      code,
      select({ where }),
    ]),
    ["invalid_value", summary({ aggregate: [count], having: { exists } })],
    ...badIncludes.map(([code, one, fields]): [string, object] => [
      code,
      select({ include: [one], ...fields }),
    ]),
    ...badSources.map(([code, from, fields]): [string, object] => [
      code,
      select({ from, ...fields }),
    ]),
    ["invalid_value", select({ include: [] })],
    ["wrong_type", select({ include: included })],
    ["invalid_value", select({ include: severalIncludes(9) })],
    ["duplicate_column", select({ include: [included, { ...included, as: "ORDERS" }] })],
    ["duplicate_column", select({ include: [included, { ...included, as: "orders_more" }] })],
    ["unknown_field", select({ where: { ...member, select: { ...orders, include: [included] } } })],
    ["unknown_field", { Delete: { ...target, where: null, include: [included] } }],
    ["invalid_value", select({ from: chainOfSources(2), where: { or: Array(16).fill(member) } })],
    ...badNested.map(([code, where]): [string, object] => [
      code,
      previewOf({ Batch: [{ Delete: { ...target, where } }] }),
    ]),
    ...badComputes.map(([code, one]): [string, object] => [
      code,
      select({ compute: [{ as: "x", ...one }] }),
    ]),
    [
      "duplicate_column",
      select({
        compute: [
          { ...abs, as: "x" },
          { ...abs, as: "X" },
        ],
      }),
    ],
    ["duplicate_column", summary({ compute: [{ ...abs, as: "N" }], aggregate: [count] })],
    ["invalid_value", select({ compute: [] })],
    [
      "invalid_value",
      select({ compute: Array.from({ length: 33 }, (_, at) => ({ ...abs, as: `n${at}` })) }),
    ],
    [
      "invalid_value",
      select({ compute: [{ ...abs, as: "x" }], order_by: { column: "x" }, after: [1] }),
    ],
    [
      "invalid_column",
      summary({ compute: [{ ...abs, as: "x" }], aggregate: [count], order_by: { column: "x" } }),
    ],
    ["unknown_field", { Delete: { ...target, where: null, compute: [{ ...abs, as: "x" }] } }],
    [
      "invalid_column",
      summary({ aggregate: [count], having: { column: "n", cmp: ">", other: "total" } }),
    ],
    ["missing_field", { Update: { ...target, where: null } }],
    ["invalid_value", { Update: { ...target, add: {}, where: null } }],
    ["wrong_type", { Update: { ...target, add: { a: true }, where: null } }],
    ["invalid_value", { Update: { ...target, add: { a: "1e3" }, where: null } }],
    ["missing_field", { Upsert: { ...target, values: [{ id: 1 }], on_conflict: ["id"] } }],
    ["invalid_value", { Upsert: { ...target, values: [{ id: 1 }], on_conflict: [], update: [] } }],
    [
      "invalid_column",
      { Upsert: { ...target, values: [{ id: 1 }], on_conflict: ["users.id"], update: [] } },
    ],
    ["no_operation", { Preview: {} }],
    ["unknown_field", { Preview: { Select: select().Select } }],
    [
      "several_operations",
      {
        Preview: {
          Delete: { ...target, where: null },
          Update: { ...target, set: { a: 1 }, where: null },
        },
      },
    ],
    ["missing_field", { Preview: { Update: { ...target, where: null } } }],
    ["not_in_batch", { Batch: [{ Preview: { Delete: { ...target, where: null } } }] }],
    [
      "invalid_column",
      { CreateTable: { ...target, columns: [{ name: "a", type: "int", references: "id" }] } },
    ],
    [
      "wrong_type",
      { CreateTable: { ...target, columns: [{ name: "a", type: "int", default: {} }] } },
    ],
    ["invalid_column", { Insert: { ...target, values: [{ id: 1 }], returning: ["orders.id"] } }],
    ["unknown_field", { Insert: { ...target, values: [{ id: 1 }], expect: 1 } }],
    ["unknown_field", { Preview: { Delete: { ...target, where: null, expect: 1 } } }],
    ["invalid_value", previewOf({ ...deleted, limit: 101 })],
    ["invalid_value", previewOf({ ...deleted, limit: -1 })],
    ["wrong_type", previewOf({ ...deleted, limit: null })],
    ["no_operation", previewOf({ limit: 1 })],
    ["several_operations", previewOf({ ...deleted, Batch: [deleted] })],
    ["several_operations", previewOf({ Batch: [{ ...inserted, ...deleted }] })],
    ["batch_size", previewOf({ Batch: [] })],
    ["batch_size", previewOf({ Batch: Array(21).fill(deleted) })],
    ["wrong_type", previewOf({ Batch: deleted })],
    ["no_operation", previewOf({ Batch: [{}] })],
    ["unknown_field", previewOf({ Batch: [select()] })],
    ["unknown_field", previewOf({ Batch: [{ ...deleted, limit: 1 }] })],
    ["unknown_field", previewOf({ Batch: [{ Batch: [deleted] }] })],
    ["missing_field", previewOf({ Batch: [{ Update: { ...target, where: null } }] })],
    ["invalid_column", previewOf({ Batch: [{ Insert: { ...inserted.Insert, ...elsewhere } }] })],
    ["invalid_value", previewOf({ Batch: [{ Insert: bound({ element: 0, column: "id" }) }] })],
    ["not_in_batch", { Batch: [previewOf({ Batch: [deleted] })] }],
    ["unknown_field", { Insert: { ...bound({ element: 0, column: "id" }) } }],
    ["unknown_field", { Batch: [inserted, { Delete: { ...target, where: null, bind: {} } }] }],
    ["wrong_type", { Batch: [{ Delete: { ...target, where: null, expect: "1" } }] }],
    ["invalid_value", { Batch: [{ Delete: { ...target, where: null, expect: -1 } }] }],
    ["invalid_value", { Batch: [inserted, { Insert: { ...bound({}), bind: {} } }] }],
    ["missing_field", { Batch: [inserted, { Insert: bound({ element: 0 }) }] }],
    ["invalid_column", { Batch: [inserted, { Insert: bound({ element: 0, column: "*" }) }] }],
    ["invalid_column", { Batch: [inserted, { Insert: bound({ element: 0, column: "a.b" }) }] }],
    ["invalid_value", { Batch: [inserted, { Insert: bound({ element: 1, column: "id" }) }] }],
    ["invalid_value", { Batch: [inserted, { Insert: bound({ element: 0.5, column: "id" }) }] }],
    ["invalid_value", { Batch: [select(), { Insert: bound({ element: 0, column: "id" }) }] }],
    ["missing_field", { Batch: [inserted, { Update: { ...target, where: null } }] }],
  ];
  for (const [code, body] of bad) t.equal(verdict(body), code, JSON.stringify(body));
  const twice =
    '{"Update":{"database":"main","table":"users","add":{"a":1,"\\u0061":2},"where":null}}';
  t.equal(verdict(twice), "duplicate_key");
});

t.test("conditions contain others up to a depth and a number", async (t) => {
  t.equal(verdict(select({ where: chain(5) })), "accepted");
  t.equal(verdict(select({ where: { or: Array(16).fill(member) } })), "accepted");
  t.match(refusalOf(select({ where: chain(6) })).message, /6 levels deep.*use a Select with join/);
  t.match(refusalOf(select({ where: { or: Array(17).fill(member) } })).message, /at most 16/);
});

t.test("a query with too many rows or levels is refused with the remedy", async (t) => {
  const refused = (fields: object) => refusalOf(select(fields)).message;
  const rows = refused({ limit: 20, include: [chainOfIncludes(2, { limit: 500 })] });
  t.match(rows, /5000000|5,000,000/);
  t.match(rows, /1000000|1,000,000/);
  t.match(rows, /lower limit/);
  t.match(refused({ include: [chainOfIncludes(4)] }), /3/);
  t.match(refused({ include: severalIncludes(9) }), /8/);
  t.match(refused({ from: chainOfSources(4) }), /3/);
  t.match(
    refused({ include: [{ ...included, limit: 1, one: true }] }),
    /limit is not allowed with one/,
  );
  const same = { ...included, table: "users", on: "users.a = users.b" };
  t.match(refused({ include: [same] }), /"as"|another name|split/);
});

t.test("an operation lists every right that it needs", async (t) => {
  const permissions = (body: object) => scanBody(body).accesses.map((access) => access.permissions);
  const upsert = { Upsert: { ...target, values: [{ id: 1 }], on_conflict: ["id"], update: [] } };
  t.strictSame(permissions(upsert), [["INSERT", "UPDATE"]]);
  t.strictSame(permissions({ Preview: upsert }), [["INSERT", "UPDATE", "SELECT"]]);
  t.strictSame(permissions({ Preview: { Delete: { ...target, where: null } } }), [
    ["DELETE", "SELECT"],
  ]);
  const previewed = previewOf({ Batch: [upsert, deleted] });
  t.strictSame(permissions(previewed), [
    ["INSERT", "UPDATE", "SELECT"],
    ["DELETE", "SELECT"],
  ]);
  const where = { or: [member, { exists }] };
  t.strictSame(permissions(select({ where })), [["SELECT"]]);
  t.strictSame(permissions({ Delete: { ...target, where } }), [["DELETE", "SELECT"]]);
  t.strictSame(permissions({ Preview: { Delete: { ...target, where } } }), [["DELETE", "SELECT"]]);
  t.strictSame(scanBody({ Delete: { ...target, where } }).accesses[0]?.tables, [
    "users",
    "orders",
    "orders",
  ]);
  const nested = select({ from: { select: busy, as: "t" }, include: [chainOfIncludes(2)] });
  const chained = JSON.parse(JSON.stringify(nested).replace("users.id", "t.n"));
  t.strictSame(permissions(chained), [["SELECT"]]);
  t.strictSame(scanBody(chained).accesses[0]?.tables.toSorted(), ["orders", "t1", "t2"]);
  const columns = [{ name: "a", type: "int", references: "orders.id" }];
  t.strictSame(permissions({ CreateTable: { ...target, columns } }), [["CREATE", "SELECT"]]);
});

t.test("columns are listed by position", async (t) => {
  const nodeOf = (body: object, element = 0) => {
    const grammar = createGrammar({ extraFields: [], operations: {} });
    return parseQuery(Buffer.from(JSON.stringify(body)), grammar).accesses[element]?.node;
  };
  const listed = (node: OperationNode | undefined) =>
    Object.fromEntries(
      Array.from(node?.columnUses ?? [], ([position, names]) => [position, [...names].join()]),
    );
  const usesOf = (body: object, element = 0) => listed(nodeOf(body, element));
  t.strictSame(
    usesOf(
      select({
        columns: ["*", "a"],
        where: { or: [term("b", "=", 1), { not: term("users.c", "=", null) }] },
        join: { table: "orders", on: "users.id = orders.user_id", join_type: "LEFT" },
        order_by: [{ column: "d" }],
        after: [1],
      }),
    ),
    { columns: "*,a", where: "b,users.c", on: "users.id,orders.user_id", order_by: "d" },
  );
  t.strictSame(
    usesOf(
      summary({
        group_by: ["g"],
        aggregate: [sum],
        having: term("g", "=", 1),
        order_by: [{ column: "revenue" }, { column: "g" }],
      }),
    ),
    { group_by: "g", aggregate: "total", having: "g", order_by: "g" },
  );
  t.strictSame(
    usesOf({
      Upsert: {
        ...target,
        values: [{ a: 1 }, { b: 2, a: 1 }],
        on_conflict: ["a"],
        update: ["b"],
        returning: ["c"],
      },
    }),
    { values: "a,b", on_conflict: "a", update: "b", returning: "c" },
  );
  t.strictSame(
    usesOf(
      summary({
        group_by: ["g"],
        aggregate: [sum],
        having: { column: "revenue", cmp: "<", other: "g" },
      }),
    ),
    { group_by: "g", aggregate: "total", having: "g" },
  );
  t.strictSame(
    usesOf(
      select({
        columns: ["x", "a"],
        compute: [
          { as: "x", fn: "add", of: ["y", "users.b"] },
          { as: "y", fn: "nullif", of: ["x", "c"] },
          {
            as: "z",
            fn: "if",
            when: { column: "d", cmp: "=", other: "y" },
            // biome-ignore lint/suspicious/noThenProperty: a field of the grammar
            then: "e",
            else: { value: 1 },
          },
        ],
        where: term("y", "=", 1),
        order_by: { column: "z" },
      }),
    ),
    { columns: "a", compute: "y,users.b,c,d,e" },
  );
  t.strictSame(
    usesOf({ Delete: { ...target, where: { other: "c", cmp: "<", column: "users.d" } } }),
    { where: "c,users.d" },
  );
  const where = {
    and: [{ ...member, select: { ...orders, where: term("c", "=", 1) } }, { exists }],
  };
  t.strictSame(usesOf({ Delete: { ...target, where } }), { where: "id" });
  t.strictSame(nodeOf({ Delete: { ...target, where } })?.nested.map(listed), [
    { columns: "user_id", where: "c" },
    { on: "orders.user_id,users.id" },
  ]);
  const nested = nodeOf({ Delete: { ...target, where } });
  t.equal(
    nested && describeShape(nested, 200),
    "where(id IN select) select orders[columns(user_id) where(c =)] exists orders[on(orders.user_id, users.id)]",
  );
  t.strictSame(
    usesOf({ Update: { ...target, set: { a: 1 }, add: { b: 2 }, where: term("c", "=", 1) } }),
    { set: "a", add: "b", where: "c" },
  );
  const source = { element: 0, column: "id" };
  t.strictSame(usesOf({ Batch: [inserted, { Insert: bound(source) }] }), {
    values: "id",
    returning: "id",
  });
  for (const batch of [{ Batch: [inserted, { Insert: bound(source) }] }]) {
    t.strictSame(usesOf(batch, 1), { bind: "a" });
    t.strictSame(usesOf(previewOf(batch)), { values: "id", returning: "id" });
    t.strictSame(usesOf(previewOf(batch), 1), { bind: "a" });
  }
  t.strictSame(
    usesOf({
      CreateTable: { ...target, columns: [{ name: "a", type: "int", references: "o.id" }] },
    }),
    { references: "o.id" },
  );
});
