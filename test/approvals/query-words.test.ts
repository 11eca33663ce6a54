import { mkdirSync, statSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { readHolder } from "../../src/core/access/grant.ts";
import { parseAccessFile } from "../../src/core/access/parse.ts";
import { seal, unseal } from "../../src/core/base/sealed-bytes.ts";
import { createGrammar } from "../../src/core/query/grammar.ts";
import { operationNames } from "../../src/core/query/operations.ts";
import { parseQuery } from "../../src/core/query/parse.ts";
import { mayApprove } from "../../src/features/approvals/approval.ts";
import { openBodyKey } from "../../src/features/approvals/approval-file.ts";
import {
  conditionInWords,
  prettyJson,
  queryInWords,
} from "../../src/features/approvals/query-words.ts";
import { grant, snapshotOf, user } from "../access/kit.ts";
import { temporaryHome } from "../kit/gateway.ts";

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
    'delete the rows of shop.orders where id is one of 1, 2 and id is between 1 and 2 and a is not the column b and name is like "x!%" (escape "!") and id is one of the result of (read id of t where state is "old", at most 3 rows) and a row of lines exists (with "lines.order = orders.id" where state is "old")',
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

t.test("different queries have different words", async (t) => {
  const deleting = (where: object) => ({ Delete: { ...orders, where } });
  const on = "lines.order = orders.id";
  const lines = { table: "lines", on };
  const like = { column: "name", cmp: "LIKE", value: "x!%" };
  const several = Array.from({ length: 30 }, (_, at) => ({ ...old, value: `${at}` }));
  const select = { from: "t", columns: ["id"], where: old };
  const inSelect = (more: object) => ({ column: "id", cmp: "IN", select: { ...select, ...more } });
  const reading = (more: object) => ({ Select: { database: "shop", from: "orders", ...more } });
  const compute = (value: number) => [{ as: "x", fn: "add", of: ["a", { value }] }];
  const group = { group_by: ["a"], aggregate: [{ fn: "count", as: "n" }] };
  const [one, other] = [1, 2].map((value) => ({ column: "a", cmp: ">", value }));
  const pairs: [object, object][] = [
    [deleting({ and: [{ exists: lines }, old] }), deleting({ exists: { ...lines, where: old } })],
    [
      deleting({ and: [{ exists: { ...lines, where: old } }, old] }),
      deleting({ exists: { ...lines, where: { and: [old, old] } } }),
    ],
    [deleting({ and: [{ not: old }, old] }), deleting({ not: { and: [old, old] } })],
    [deleting({ or: [{ and: [old, like] }, old] }), deleting({ and: [old, { or: [like, old] }] })],
    [deleting({ and: several }), deleting({ or: several })],
    [deleting({ ...old, value: [1] }), deleting({ ...old, value: 1 })],
    [deleting({ ...old, value: [] }), deleting({ ...old, value: "" })],
    [deleting({ and: [inSelect({}), like] }), deleting(inSelect({ where: { and: [old, like] } }))],
    [
      deleting({ and: [inSelect({}), inSelect({ limit: 1 })] }),
      deleting({ and: [inSelect({ limit: 1 }), inSelect({})] }),
    ],
    [
      reading({ columns: ["x"], compute: compute(1) }),
      reading({ columns: ["x"], compute: compute(2) }),
    ],
    [
      reading({ ...group, columns: ["a"], having: one, where: other }),
      reading({ ...group, columns: ["a"], having: other, where: one }),
    ],
    [deleting({ ...old, value: "b" }), deleting({ column: "state", cmp: "=", other: "b" })],
    [deleting({ ...old, column: "1" }), deleting({ ...old, column: "not" })],
  ];
  for (const [first, second] of pairs) {
    t.notSame(wordsOf(first), wordsOf(second), JSON.stringify(second).slice(0, 200));
  }
  const escaping = createGrammar({ extraFields: ["escape"], operations: {} });
  const [inside, beside] = [
    { Delete: { ...orders, where: { ...like, escape: "!" } } },
    { Delete: { ...orders, where: like, escape: "!" } },
  ].map((query) => {
    const body = JSON.stringify(query);
    parseQuery(Buffer.from(body), escaping);
    return queryInWords(body);
  });
  t.notSame(inside, beside);
  t.strictSame(wordsOf({ Preview: { Delete: { ...orders, where: null }, hint: { Insert: {} } } }), [
    'see, without changing anything, the effect of this: delete every row of shop.orders, hint {"Insert":{}}',
  ]);
});

t.test("an empty list and a name that is a word can be recognized", async (t) => {
  const deleting = (where: object) => wordsOf({ Delete: { ...orders, where } });
  t.strictSame(deleting({ column: "id", cmp: "NOT IN", value: [] }), [
    "delete the rows of shop.orders where id is not any of an empty list (which is true for every row)",
  ]);
  t.strictSame(deleting({ column: "id", cmp: "IN", value: [] }), [
    "delete the rows of shop.orders where id is one of an empty list (which is true for no row)",
  ]);
  t.strictSame(deleting({ not: { column: "Or", cmp: "=", value: 1 } }), [
    'delete the rows of shop.orders where not ("Or" is 1)',
  ]);
});

t.test("a value with equal keys is written as the client wrote it", async (t) => {
  const doc = '{ "a": 1,\n "a": [2.50, "x  y"] }';
  const told = '{"a":1,"a":[2.50,"x  y"]}';
  t.strictSame(
    wordsOf(`{"Insert":{"database":"shop","table":"orders","values":[{"doc":[${doc}],"n":-0}]}}`),
    [`add 1 row to shop.orders: (doc [${told}], n -0)`],
  );
  t.strictSame(
    wordsOf(
      `{"Update":{"database":"shop","table":"orders","set":{"doc":{"b":${doc},"2":1,"1":2}},"where":null}}`,
    ),
    [`set doc to {"b":${told},"2":1,"1":2} in every row of shop.orders`],
  );
});

t.test("a long query takes little time, and is neither told nor broken into lines", async (t) => {
  const body = (length: number) =>
    `{"Delete":{"database":"shop","table":"orders","where":{"column":"id","cmp":"IN","value":[${"1,".repeat(length)}1e0]}}}`;
  const [long, deep] = [
    body(4_000_000),
    `${"[".repeat(60)}${"1,".repeat(32_000)}1${"]".repeat(60)}`,
  ];
  const before = process.threadCpuUsage();
  t.strictSame(queryInWords(long), [
    "run a query of 8000096 bytes, which is too long to tell in words (cut)",
  ]);
  t.equal(prettyJson(long), long);
  t.match(queryInWords(body(30_000)), ["1, 1 and 29981 more (cut)"]);
  t.ok(prettyJson(deep).length < 5_000_000);
  t.equal(prettyJson(`"${"x".repeat(65_000)}"`).length, 65_002);
  const { user, system } = process.threadCpuUsage(before);
  const took = (user + system) / 1000;
  t.ok(took < 1500, `${took} ms`);
});

t.test("JSON is broken into lines, with every token as it was", async (t) => {
  const text = '{"a":[1.50,{"b":{},"c":[]},"x, {\\"y\\": [\\u0041]}"],"2":null , "1":-0}';
  t.equal(
    prettyJson(text),
    '{\n  "a": [\n    1.50,\n    {\n      "b": {},\n      "c": []\n    },\n    "x, {\\"y\\": [\\u0041]}"\n  ],\n  "2": null,\n  "1": -0\n}',
  );
});

// Unit tests of keys and approvers.

t.test("processes create one key, which decrypts a query only under its id", async (t) => {
  const directory = path.join(temporaryHome(t), "made");
  mkdirSync(directory);
  const file = path.join(directory, "approvals.key");
  const [one, other] = await Promise.all([openBodyKey(file), openBodyKey(file)]);
  t.equal(statSync(file).mode & 0o777, 0o600);
  const body = Buffer.from('{"Delete":{}}');
  const sealed = seal(one, body, "a");
  t.strictSame(unseal(other, sealed, "a"), body);
  t.not(seal(one, body, "a").toString("hex"), sealed.toString("hex"));
  t.throws(() => unseal(other, sealed, "b"), "for another id");
  for (const at of [0, 13, sealed.length - 1]) {
    const changed = Buffer.from(sealed);
    changed[at] = (changed[at] ?? 0) ^ 1;
    t.throws(() => unseal(other, changed, "a"), `byte ${at}`);
  }
  const strange = await openBodyKey(path.join(directory, "other.key"));
  t.throws(() => unseal(strange, sealed, "a"), "by another key");
});

const snapshot = snapshotOf(
  "ann * Owner",
  "dora main DbAdmin",
  "wim main ReadWrite",
  "bot main Owner",
);
const rule = { database: "main", permissions: ["DELETE" as const] };
const named = { ...rule, approvers: ["wim", "bot", "gone"].map(readHolder) };
const who: [name: string, rules: (typeof rule)[], may: boolean][] = [
  ["ann", [rule], true],
  ["dora", [rule], true],
  ["dora", [{ ...rule, database: "side" }], false],
  ["dora", [rule, { ...rule, database: "side" }], false],
  ["wim", [rule], false],
  ["wim", [named], true],
  ["wim", [named, rule], false],
  ["ann", [named], false],
  ["gone", [named], false],
  ["bot", [rule], false],
  ["bot", [named], false],
];

t.test("approvers are the named users, else those who may grant, never the requester", (t) => {
  for (const [name, rules, may] of who) {
    const author = { kind: "console", name } as const;
    t.equal(mayApprove(snapshot, author, { username: "bot", rules }), may, `${name} ${may}`);
  }
  t.ok(mayApprove(snapshot, { kind: "cli", name: "x" }, { username: "bot", rules: [named] }));
  t.end();
});

t.test("a person with several names approves no query of one under another", async (t) => {
  const people = [
    user("ann", 'same_as = "staff:ann"'),
    user("ann2", 'same_as = "staff:ann"'),
    user("staff:late", 'same_as = "ann2"'),
    user("bea", 'same_as = "staff:bea"'),
    user("dora", ""),
  ];
  const names = ["ann", "ann2", "staff:ann", "staff:late"];
  const others = ["bea", "staff:bea", "dora", "staff:x"];
  const acl = [...names, ...others].map((name) => grant(name, "*", "Owner"));
  const text = [...people, ...acl].join("");
  const may = (name: string, username: string) =>
    mayApprove(
      parseAccessFile(text, "access.toml"),
      { kind: "console", name },
      { username, rules: [{ ...rule, approvers: [readHolder(name)] }, rule] },
    );
  for (const username of names) {
    for (const name of names) t.notOk(may(name, username), `${name} for ${username}`);
    for (const name of others) t.ok(may(name, username), `${name} for ${username}`);
  }
  t.notOk(may("staff:bea", "bea"));
  t.notOk(may("bea", "staff:bea"));
  t.ok(may("staff:ann", "bea"));
});
