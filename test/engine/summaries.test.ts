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

overEach(
  "whole numbers of more than 64 bits are refused where they would be stored",
  async (t, fresh) => {
    const { ask } = await fresh(t);
    await fill(ask);
    for (const number of ["9223372036854775808", "-9223372036854775809", "1".repeat(30)]) {
      const row = `{"id": 9, "code": "z", "qty": ${number}}`;
      const answer = await ask(
        `{"Insert": {"database": "main", "table": "orders", "values": [${row}]}}`,
      );
      t.match(answer, { status: 400, body: { code: "number_out_of_range" } }, number);
    }
  },
);

overEach("what cannot be summed up or named so is refused with what can", async (t, fresh) => {
  const { ask } = await fresh(t);
  await fill(ask);
  const refusals: [code: string, message: RegExp, fields: object][] = [
    [
      "invalid_value",
      /"region".*sum takes numbers/,
      { aggregate: [{ fn: "sum", column: "region", as: "x" }] },
    ],
    [
      "invalid_value",
      /"paid".*avg takes numbers/,
      { aggregate: [{ fn: "avg", column: "paid", as: "x" }] },
    ],
    [
      "invalid_value",
      /"paid".*min takes numbers, text/,
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
      /order_by names columns that are selected/,
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
