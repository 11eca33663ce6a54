import t from "tap";
import { createGrammar } from "../../src/core/query/grammar.ts";
import { operationNames } from "../../src/core/query/operations.ts";
import { parseQuery } from "../../src/core/query/parse.ts";
import {
  conditionInWords,
  prettyJson,
  queryInWords,
} from "../../src/features/approvals/query-words.ts";

const orders = { database: "shop", table: "orders" };
const old = { column: "state", cmp: "=", value: "old" };
const grammar = createGrammar({ extraFields: ["hint"], operations: { Vacuum: "DROP" } });

/** The words of a query that the gateway accepts. */
function wordsOf(query: object | string): string[] {
  const body = typeof query === "string" ? query : JSON.stringify(query);
  parseQuery(Buffer.from(body), grammar);
  return queryInWords(body);
}

const cases: [query: object, words: string | RegExp][] = [
  [{ Delete: { ...orders, where: old } }, 'delete the rows of shop.orders where state is "old"'],
  [{ Delete: { ...orders, where: null } }, "delete every row of shop.orders"],
  [
    {
      Delete: {
        ...orders,
        where: { and: [old, { or: [old, { not: { column: "id", cmp: ">", value: 3 } }] }] },
        returning: ["id"],
      },
    },
    'delete the rows of shop.orders where state is "old" and (state is "old" or not (id > 3)), returning id',
  ],
  [
    {
      Delete: {
        ...orders,
        where: {
          and: [
            { column: "id", cmp: "IN", value: [1, 2] },
            { column: "id", cmp: "BETWEEN", value: [1, 2] },
            { column: "a", cmp: "!=", other: "b" },
            { column: "name", cmp: "LIKE", value: "x!%", escape: "!" },
            {
              column: "id",
              cmp: "IN",
              select: { from: "t", columns: ["id"], where: old, limit: 3 },
            },
            { exists: { table: "lines", on: "lines.order = orders.id", where: old } },
          ],
        },
      },
    },
    'delete the rows of shop.orders where id is one of 1, 2 and id is between 1 and 2 and a is not the column b and name is like "x!%", escape "!" and id is one of the result of (read id of t where state is "old", at most 3 rows) and a row of lines exists with "lines.order = orders.id" and state is "old"',
  ],
  [
    {
      Update: {
        ...orders,
        set: { state: "gone", total: null },
        add: { count: 5 },
        where: { column: "id", cmp: ">", value: 12 },
      },
    },
    'set state to "gone", total to null, add 5 to count in the rows of shop.orders where id > 12',
  ],
  [
    { Insert: { ...orders, values: [{ id: 1, state: "x" }, { id: 2 }] } },
    'add 2 rows to shop.orders: (id 1, state "x"), (id 2)',
  ],
  [
    { Upsert: { ...orders, values: [{ id: 1, a: 2 }], on_conflict: ["id"], update: ["a"] } },
    "add 1 row to shop.orders, or update a of those with the same id: (id 1, a 2)",
  ],
  [
    { Upsert: { ...orders, values: [{ id: 1 }], on_conflict: ["id"], update: [] } },
    "add 1 row to shop.orders, or leave those with the same id: (id 1)",
  ],
  [
    {
      Select: {
        database: "shop",
        from: { table: "orders", as: "o" },
        columns: ["o.id"],
        where: old,
        join: { table: "lines", on: "lines.order = o.id", join_type: "LEFT" },
        order_by: { column: "o.id" },
        limit: 5,
      },
    },
    'read o.id of orders as o, joined (LEFT) with lines on "lines.order = o.id" where state is "old", order_by {"column":"o.id"}, at most 5 rows in the database shop',
  ],
  [
    {
      Select: {
        database: "shop",
        from: "orders",
        aggregate: [{ fn: "count", as: "n" }],
        group_by: ["state"],
      },
    },
    'read rows of shop.orders, one row for each state, aggregate [{"fn":"count","as":"n"}]',
  ],
  [
    { Preview: { Delete: { ...orders, where: null }, limit: 2 } },
    "see, without changing anything, the effect of this: delete every row of shop.orders, at most 2 rows",
  ],
  [
    {
      CreateTable: {
        ...orders,
        columns: [
          { name: "id", type: "int", primary_key: true },
          { name: "customer", type: "int", references: "customers.id" },
        ],
      },
    },
    'create the table shop.orders with 2 columns: id (int, primary_key true), customer (int, references "customers.id")',
  ],
  [{ DropTable: orders }, "drop the table shop.orders with all its rows"],
  [{ CreateDatabase: { database: "shop" } }, "create the database shop"],
  [{ DropDatabase: { database: "shop" } }, "drop the database shop with all its tables and rows"],
  [
    { DropDatabase: { database: "shop", hint: { now: [1] } } },
    'drop the database shop with all its tables and rows, hint {"now":[1]}',
  ],
  [
    { Vacuum: { ...orders, hint: "all" } },
    'run Vacuum, database "shop", table "orders", hint "all"',
  ],
];

t.test("every operation has words, and nothing of it is left out", async (t) => {
  for (const [query, words] of cases) t.strictSame(wordsOf(query), [words]);
  const seen = new Set(cases.flatMap(([query]) => Object.keys(query)));
  for (const name of operationNames) t.ok(seen.has(name), name);
  const bound = {
    Update: { ...orders, bind: { id: { element: 0, column: "no" } }, where: old, expect: 1 },
  };
  t.strictSame(
    wordsOf({ Batch: [{ Insert: { ...orders, values: [{ id: 1 }], returning: ["no"] } }, bound] }),
    [
      "add 1 row to shop.orders: (id 1), returning no",
      'set id to no of operation 1 in the rows of shop.orders where state is "old", all undone unless this affects 1 rows',
    ],
  );
});

t.test("values cannot be mistaken for words, and cut ones say so", async (t) => {
  const where = (value: unknown) => ({
    Delete: { ...orders, where: { column: "state", cmp: "=", value } },
  });
  t.strictSame(wordsOf(where('x" or id > "0\u202e')), [
    'delete the rows of shop.orders where state is "x\\" or id > \\"0\\u202e"',
  ]);
  t.strictSame(wordsOf({ Delete: { ...orders, where: { ...old, column: "id is 1 or state" } } }), [
    'delete the rows of shop.orders where "id is 1 or state" is "old"',
  ]);
  t.strictSame(
    wordsOf(
      `{"Delete":{"database":"shop","table":"orders","where":{"column":"id","cmp":"=","value":12345678901234567890}}}`,
    ),
    ["delete the rows of shop.orders where id is 12345678901234567890"],
  );
  const [long = ""] = wordsOf(where("a".repeat(5000)));
  t.match(long, /"a{199}\.\.\. \(cut, 5002 characters\)$/);
  const numbers = Array.from({ length: 300 }, (_, at) => at);
  t.match(
    wordsOf({ Delete: { ...orders, where: { column: "id", cmp: "IN", value: numbers } } })[0],
    "18, 19 and 280 more (cut)",
  );
  const values = numbers.map((id) => ({ id }));
  t.match(
    wordsOf({ Insert: { ...orders, values } })[0],
    "add 300 rows to shop.orders: (id 0), (id 1), (id 2), (id 3), (id 4) and 295 more (cut)",
  );
  const batch = numbers.map((id) =>
    id === 299 ? { DropTable: orders } : { Insert: { ...orders, values: [{ id }] } },
  );
  t.strictSame(wordsOf({ Batch: batch }).slice(50), [
    "run 249 more: Insert shop orders (cut)",
    "run 1 more: DropTable shop orders (cut)",
  ]);
  t.equal(conditionInWords('{"column":"tenant","cmp":"=","value":"acme"}'), 'tenant is "acme"');
});

t.test("JSON is broken into lines, with every token as it was", async (t) => {
  const text = '{"a":[1.50,{"b":{},"c":[]},"x, {\\"y\\": [\\u0041]}"],"2":null , "1":-0}';
  t.equal(
    prettyJson(text),
    '{\n  "a": [\n    1.50,\n    {\n      "b": {},\n      "c": []\n    },\n    "x, {\\"y\\": [\\u0041]}"\n  ],\n  "2": null,\n  "1": -0\n}',
  );
});
