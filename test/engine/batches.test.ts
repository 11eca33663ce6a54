import t from "tap";
import {
  type Answer,
  createDatabase,
  createTable,
  dropDatabase,
  equal,
  freshEngine,
  insert,
  refusal,
  selectAll,
} from "./kit.ts";
import { overEach, overEachTransactional, overSqlite, type Scene } from "./over-each.ts";

type Ask = Scene["ask"];

const orders = { database: "main", table: "orders" };
const lines = { database: "main", table: "lines" };
const ofOrder = { order_id: { element: 0, column: "id" } };

async function makeTables(ask: Ask): Promise<void> {
  const types = { code: "text", total: "decimal(20,2)", mark: "bigint", at: "timestamp" };
  await ask(createTable("orders", { id: "serial", ...types, data: "json", raw: "blob" }));
  const copies = { total: "decimal(20,2)", mark: "bigint", at: "timestamp", data: "json" };
  const columns = { order_id: "bigint", sku: "text", ...copies, raw: "blob" };
  await ask(createTable("lines", { id: "serial", ...columns }));
}

async function countsIn(ask: Ask): Promise<unknown> {
  const answers = [await ask(selectAll("orders")), await ask(selectAll("lines"))];
  return answers.map(({ body }) => body.data?.length);
}

const insertOrder = (fields: object = {}) => ({
  Insert: { ...orders, values: [{ code: "a" }], ...fields },
});
const insertLines = (fields: object = {}) => ({
  Insert: { ...lines, values: [{ sku: "x" }, { sku: "y" }], bind: ofOrder, ...fields },
});

function failed(element: number, expected: number, affected: number) {
  return (answer: Answer) => {
    const { status, body } = answer;
    const { message = "", request_id: _, ...rest } = body;
    return JSON.stringify([status, rest, message.startsWith(`Batch[${element}]: `)]) ===
      JSON.stringify([
        409,
        { status: "error", code: "expectation_failed", element, expected, affected },
        true,
      ])
      ? "as expected"
      : answer.text;
  };
}

overEach("an order gets its lines in one Batch", async (t, { ask }) => {
  await makeTables(ask);
  const answer = await ask({ Batch: [insertOrder(), insertLines({ returning: ["order_id"] })] });
  t.equal(
    answer.text,
    '{"status":"success","data":["Inserted 1 row",{"affected":2,"data":[{"order_id":1},{"order_id":1}]}]}',
  );
  const returned = await ask({
    Batch: [
      insertOrder({ returning: ["code", "orders.code"], expect: 1 }),
      insertLines({ values: [{}], returning: ["*"] }),
      insertOrder({ returning: ["*"] }),
      insertLines({ bind: { order_id: { element: 2, column: "id" } } }),
    ],
  });
  const order = '"total":null,"mark":null,"at":null,"data":null,"raw":null';
  t.equal(
    returned.text,
    `{"status":"success","data":[{"affected":1,"data":[{"code":"a"}]},{"affected":1,"data":[{"id":3,"order_id":2,"sku":null,${order}}]},{"affected":1,"data":[{"id":3,"code":"a",${order}}]},"Inserted 2 rows"]}`,
  );
});

overEach("a bound value keeps every digit and byte", async (t, { ask }) => {
  await makeTables(ask);
  const cells =
    '"mark":9223372036854775807,"at":"2026-01-02T03:04:05Z","data":{"b":[1,null],"a":"ü"},"raw":"aGk="';
  const total = t.fullname.includes("SQLite") ? "0.5" : "123456789012345678.25";
  const names = ["total", "mark", "at", "data", "raw", "order_id"];
  const bind = Object.fromEntries(
    names.map((name) => [name, { element: 0, column: name === "order_id" ? "id" : name }]),
  );
  const second = { Insert: { ...lines, values: [{}], bind, returning: names } };
  const { text } = await ask(
    `{"Batch":[{"Insert":{"database":"main","table":"orders","values":[{"total":${total},${cells}}]}},${JSON.stringify(second)}]}`,
  );
  t.equal(
    text,
    `{"status":"success","data":["Inserted 1 row",{"affected":1,"data":[{"total":${total},${cells},"order_id":1}]}]}`,
  );
});

overSqlite("values come from every kind of change, into set too", async (t, { ask }) => {
  await makeTables(ask);
  await ask(insert("orders", [{ code: "a", mark: 7 }, { code: "b" }]));
  await ask(insert("lines", [{ sku: "x" }, { sku: "y" }]));
  const { text } = await ask({
    Batch: [
      { Update: { ...orders, add: { mark: 1 }, where: equal("code", "a") } },
      { Delete: { ...orders, where: equal("code", "b"), expect: 1 } },
      {
        Upsert: {
          ...orders,
          values: [{ id: 9, code: "c" }],
          on_conflict: ["id"],
          update: ["code"],
        },
      },
      {
        Update: {
          ...lines,
          bind: { mark: { element: 0, column: "mark" }, order_id: { element: 1, column: "id" } },
          where: equal("sku", "x"),
        },
      },
      {
        Update: {
          ...lines,
          set: { sku: "z" },
          add: { id: 10 },
          bind: { order_id: { element: 2, column: "id" }, mark: { element: 3, column: "mark" } },
          where: equal("sku", "y"),
          returning: ["id", "order_id", "mark"],
        },
      },
    ],
  });
  t.equal(
    text,
    '{"status":"success","data":["Updated 1 row","Deleted 1 row","Upserted 1 row","Updated 1 row",{"affected":1,"data":[{"id":12,"order_id":9,"mark":8}]}]}',
  );
  const rows = await ask(
    selectAll("lines", { columns: ["order_id", "mark"], order_by: { column: "id" } }),
  );
  t.strictSame(rows.body.data, [
    { order_id: 2, mark: 8 },
    { order_id: 9, mark: 8 },
  ]);
});

overEach("another number of rows undoes the Batch", async (t, { ask }) => {
  await makeTables(ask);
  await ask(insert("orders", [{ code: "a" }, { code: "a" }]));
  const all = { ...orders, where: null };
  const update = { Update: { ...all, set: { code: "b" } } };
  const skipped = { Upsert: { ...orders, values: [{ id: 1 }], on_conflict: ["id"], update: [] } };
  for (const [Batch, element, expected, affected] of [
    [[insertOrder({ expect: 2 })], 0, 2, 1],
    [[insertOrder(), { Update: { ...update.Update, expect: 2 } }], 1, 2, 3],
    [[insertOrder(), { Delete: { ...orders, where: equal("code", "c"), expect: 1 } }], 1, 1, 0],
    [[{ Upsert: { ...skipped.Upsert, expect: 1 } }, insertOrder()], 0, 1, 0],
    [[{ Delete: { ...all, expect: 0, returning: ["id"] } }, insertOrder()], 0, 0, 2],
    [[update, insertLines()], 0, 1, 2],
    [[skipped, insertLines()], 0, 1, 0],
    [[{ Delete: { ...orders, where: equal("code", "c") } }, insertLines()], 0, 1, 0],
    [[insertOrder({ values: [{}, {}], returning: ["id"] }), insertLines()], 0, 1, 2],
  ] as const) {
    const answer = await ask({ Batch });
    t.equal(failed(element, expected, affected)(answer), "as expected");
  }
  t.strictSame(await countsIn(ask), [2, 0]);
  t.match(
    await ask({ Batch: [insertOrder(), insertLines({ values: [{ order_id: 1 }] })] }),
    refusal(
      400,
      "duplicate_column",
      /Batch\[1\]: Column "order_id" is in both bind and values\[0\]/,
    ),
  );
  const added = { ...lines, add: { order_id: 1 }, bind: ofOrder, where: null };
  t.match(
    await ask({ Batch: [insertOrder(), { Update: added }] }),
    refusal(400, "duplicate_column", /in both bind and add/),
  );
  const unknown = { order_id: { element: 0, column: "nope" } };
  t.match(
    await ask({ Batch: [insertOrder(), insertLines({ bind: unknown })] }),
    refusal(400, "unknown_column", /"nope" in orders/),
  );
  t.match(
    await ask({ Batch: [insertOrder(), insertLines({ bind: { nope: ofOrder.order_id } })] }),
    refusal(400, "unknown_column", /Batch\[1\]: .*"nope" in lines/),
  );
  t.match(
    await ask({
      Batch: [insertOrder(), insertLines({ values: [{}], bind: { sku: ofOrder.order_id } })],
    }),
    refusal(400, "invalid_value", /Batch\[1\]: .*"sku"/),
  );
  t.strictSame(await countsIn(ask), [2, 0], "nothing was kept");
});

const stock = { database: "main", table: "stock" };

async function fillStock(ask: Ask): Promise<string> {
  await ask(createTable("stock", { id: "serial", name: "text", left: "bigint" }));
  await ask(
    insert("stock", [
      { name: "a", left: 1 },
      { name: "b", left: 2 },
      { name: "c", left: 3 },
    ]),
  );
  return (await ask(selectAll("stock", { order_by: { column: "id" } }))).text;
}

overSqlite("a Preview shows each change of a Batch after those before it", async (t, { ask }) => {
  const before = await fillStock(ask);
  const names = ["name", "left"];
  const Batch = [
    { Update: { ...stock, add: { left: 10 }, where: equal("name", "a"), returning: names } },
    { Delete: { ...stock, where: equal("left", 2), expect: 1, returning: ["name"] } },
    {
      Upsert: {
        ...stock,
        values: [
          { id: 1, name: "z" },
          { id: 99, name: "n" },
        ],
        on_conflict: ["id"],
        update: ["name"],
        returning: ["id", "name", "left"],
      },
    },
    {
      Update: {
        ...stock,
        bind: { left: { element: 0, column: "left" }, name: { element: 1, column: "name" } },
        where: equal("id", 3),
      },
    },
    { Insert: { ...stock, values: [{ name: "y" }, { name: "x" }], returning: names } },
  ];
  const { text } = await ask({ Preview: { Batch } });
  t.equal(
    text,
    `{"status":"success","data":[${[
      '{"affected":1,"before":[{"name":"a","left":1}],"after":[{"name":"a","left":11}]}',
      '{"affected":1,"before":[{"name":"b"}],"after":[]}',
      '{"affected":2,"before":[{"id":1,"name":"a","left":11}],"after":[{"id":1,"name":"z","left":11},{"id":99,"name":"n","left":null}]}',
      '{"affected":1,"before":[{"id":3,"name":"c","left":3}],"after":[{"id":3,"name":"b","left":11}]}',
      '{"affected":2,"before":[],"after":[{"name":"y","left":null},{"name":"x","left":null}]}',
    ].join()}]}`,
  );
  const none = await ask({ Preview: { Batch: Batch.slice(0, 4), limit: 0 } });
  t.match(none.body.data, [
    { affected: 1, before: [], after: [] },
    {},
    {},
    { affected: 1, before: [] },
  ]);
  const all = { Delete: { ...stock, where: null, returning: ["id"] } };
  const limited = await ask({ Preview: { ...all, limit: 2 } });
  t.equal(
    limited.text,
    '{"status":"success","affected":3,"before":[{"id":1},{"id":2}],"after":[]}',
  );
  const raised = { Update: { ...stock, add: { left: 1 }, where: null, returning: ["left"] } };
  t.equal(
    (await ask({ Preview: { limit: 1, ...raised } })).text,
    '{"status":"success","affected":3,"before":[{"left":1}],"after":[{"left":2}]}',
  );
  const refused = { Preview: { Batch: [all, { Delete: { ...all.Delete, expect: 1 } }] } };
  t.equal(failed(1, 1, 0)(await ask(refused)), "as expected");
  const bound = { ...stock, values: [{}], bind: { left: { element: 0, column: "left" } } };
  const unbound = { Preview: { Batch: [all, { Insert: bound }] } };
  t.equal(failed(0, 1, 3)(await ask(unbound)), "as expected");
  t.match(
    await ask({ Preview: { Batch: [all, { Insert: { ...stock, values: [{ nope: 1 }] } }] } }),
    refusal(400, "unknown_column", /^Batch\[1\]: /),
  );
  const after = await ask(selectAll("stock", { order_by: { column: "id" } }));
  t.equal(after.text, before, "nothing was kept");
});

const users = createTable("users", { id: "int", name: "text", age: "int" });
const people = [
  { id: 1, name: "Alice", age: 30 },
  { id: 2, name: "bob", age: 20 },
  { id: 3, name: "Carol" },
];

overEach("a dropped database takes its tables with it", async (t, { ask }) => {
  const [create, drop] = [createDatabase("analytics"), dropDatabase("analytics")];
  const select = selectAll("hits", {}, "analytics");
  t.match(await ask(drop), refusal(404, "database_not_found"));
  t.match(await ask(create), { status: 200, body: { message: "Database analytics created" } });
  t.match(await ask(create), refusal(409, "database_exists"));
  t.equal((await ask(createTable("hits", { id: "int" }, "analytics"))).status, 200);
  t.match(await ask(drop), { status: 200, body: { message: "Database analytics dropped" } });
  t.match(await ask(select), refusal(404, "database_not_found"));
  t.equal((await ask(create)).status, 200);
  t.match(await ask(select), refusal(404, "table_not_found"));
});

overEach("a database name that differs only by case is refused", async (t, { ask }) => {
  t.match(await ask(createDatabase("MAIN")), refusal(409, "database_exists"));
  t.match(await ask(selectAll("users", {}, "Main")), refusal(404, "database_not_found"));
});

t.test("the database main cannot be dropped", async (t) => {
  const { ask } = await freshEngine(t);
  t.match(await ask(dropDatabase("main")), refusal(409, "database_protected"));
});

overEach("a condition may have thousands of alternatives", async (t, { ask }) => {
  await ask(users);
  await ask(insert("users", people));
  const or = Array.from({ length: 5000 }, (_, id) => ({ column: "id", cmp: "=", value: id + 3 }));
  t.match((await ask(selectAll("users", { where: { or } }))).body.data, [{ id: 3 }]);
});

overSqlite("a column of several joined tables is refused with those tables", async (t, { ask }) => {
  await ask(users);
  await ask(createTable("orders", { id: "int", user_id: "int", name: "text" }));
  await ask(createTable("items", { id: "int", order_id: "int" }));
  const orders = { table: "orders", on: "users.id = orders.user_id", join_type: "INNER" };
  const items = { table: "items", on: "orders.id = items.order_id", join_type: "INNER" };
  const cases: [join: object, column: string, message: string][] = [
    [orders, "id", 'Both tables have a column "id"; write table.column: users.id or orders.id'],
    [
      [orders, items],
      "id",
      'The tables users, orders, items have a column "id"; write table.column: users.id or orders.id or items.id',
    ],
    [
      [orders, items],
      "name",
      'The tables users, orders have a column "name"; write table.column: users.name or orders.name',
    ],
  ];
  for (const [join, column, message] of cases) {
    const answer = await ask(selectAll("users", { join, columns: [column] }));
    t.match(answer, refusal(400, "ambiguous_column", message));
  }
});

overEach("several primary key columns make one key", async (t, { ask }) => {
  await ask(createTable("pairs", { a: "int", b: { type: "int", primary_key: true } }));
  const rows = [1, 2].map((b) => ({ a: 1, b }));
  t.equal((await ask(insert("pairs", rows))).status, 200);
  t.match(await ask(insert("pairs", rows)), refusal(409, "constraint_violation"));
});

overEachTransactional("a Batch that fails leaves nothing", async (t, { ask }) => {
  await ask(createTable("users", { id: "int" }));
  const row = insert("users", [{ id: 1 }]);
  const Batch = [row, createTable("orders", { id: "int" }), row];
  t.match(await ask({ Batch }), refusal(409, "constraint_violation", /^Batch\[2\]: /));
  t.same((await ask(selectAll("users"))).body.data, []);
  t.match(await ask(selectAll("orders")), { status: 404 });
});

overEach("a Batch over two databases is one transaction", async (t, { ask }) => {
  await ask(createTable("users", { id: "int" }));
  await ask(createDatabase("analytics"));
  await ask(createTable("hits", { id: "int", seen: "bool" }, "analytics"));
  const hits = selectAll("hits", {}, "analytics");
  const row = { id: 1, seen: true };
  const both = [insert("users", [{ id: 1 }]), insert("hits", [row], "analytics"), hits];
  t.same((await ask({ Batch: both })).body.data?.[2], [row]);
  const half = [insert("users", [{ id: 2 }]), insert("hits", [{ id: 1 }], "analytics")];
  t.match(await ask({ Batch: half }), refusal(409, "constraint_violation", /^Batch\[1\]: /));
  t.same((await ask(selectAll("users"))).body.data, [{ id: 1 }]);
  t.same((await ask(hits)).body.data, [row]);
  const elsewhere = [hits, selectAll("hits")];
  t.match(await ask({ Batch: elsewhere }), refusal(404, "table_not_found"));
});

overSqlite("a missing database is reported with the element of the Batch", async (t, { ask }) => {
  await ask(createTable("users", { id: "int" }));
  const Batch = [insert("users", [{ id: 1 }]), selectAll("hits", {}, "analytics")];
  t.match(await ask({ Batch }), refusal(404, "database_not_found", /^Batch\[1\]: /));
  t.same((await ask(selectAll("users"))).body.data, []);
});

t.test("a Batch over more databases than can commit together is refused", async (t) => {
  const { ask } = await freshEngine(t);
  const names = Array.from({ length: 12 }, (_, index) => `shard${index}`);
  for (const database of names) {
    await ask(createDatabase(database));
    await ask(createTable("rows", { id: "int" }, database));
  }
  const Batch = names.map((database) => insert("rows", [{ id: 1 }], database));
  t.match(await ask({ Batch }), refusal(400, "too_many_databases"));
  t.match(await ask({ Batch: Batch.slice(1) }), { status: 200 });
});
