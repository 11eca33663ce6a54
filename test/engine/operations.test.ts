import t from "tap";
import { createTable, freshEngine, insert, selectAll } from "./kit.ts";
import { overEach, overEachTransactional } from "./over-each.ts";

const users = createTable("users", { id: "int", name: "text", age: "int" });
const people = [
  { id: 1, name: "Alice", age: 30 },
  { id: 2, name: "bob", age: 20 },
  { id: 3, name: "Carol" },
];

overEach(
  "a table is created, filled, read, changed, emptied and dropped",
  async (t, freshEngine) => {
    const { ask } = await freshEngine(t);
    t.match(await ask(users), { status: 200, body: { message: "Table users created" } });
    t.match(await ask(insert("users", people.slice(0, 1))), {
      body: { message: "Inserted 1 row" },
    });
    t.match(await ask(insert("users", people.slice(1))), { body: { message: "Inserted 2 rows" } });
    t.same((await ask(selectAll("users"))).body, {
      status: "success",
      data: [people[0], people[1], { id: 3, name: "Carol", age: null }],
    });
    const where = { column: "id", cmp: "=", value: 1 };
    const update = { Update: { database: "main", table: "users", set: { age: 31 }, where } };
    t.match(await ask(update), { body: { message: "Updated 1 row" } });
    t.match((await ask(selectAll("users", { where }))).body.data, [{ age: 31 }]);
    const none = { column: "id", cmp: "=", value: 9 };
    t.match(await ask({ Delete: { database: "main", table: "users", where: none } }), {
      body: { message: "Deleted 0 rows" },
    });
    t.match(await ask({ Delete: { database: "main", table: "users", where: null } }), {
      body: { message: "Deleted 3 rows" },
    });
    t.match(await ask({ DropTable: { database: "main", table: "users" } }), {
      body: { message: "Table users dropped" },
    });
    t.match(await ask(selectAll("users")), { status: 404, body: { code: "table_not_found" } });
  },
);

overEach("a database is created and dropped with everything in it", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  const create = { CreateDatabase: { database: "analytics" } };
  const drop = { DropDatabase: { database: "analytics" } };
  t.match(await ask(drop), { status: 404, body: { code: "database_not_found" } });
  t.match(await ask(create), { status: 200, body: { message: "Database analytics created" } });
  t.match(await ask(create), { status: 409, body: { code: "database_exists" } });
  t.equal((await ask(createTable("hits", { id: "int" }, "analytics"))).status, 200);
  t.match(await ask(drop), { status: 200, body: { message: "Database analytics dropped" } });
  t.match(await ask(selectAll("hits", {}, "analytics")), {
    status: 404,
    body: { code: "database_not_found" },
  });
  t.equal((await ask(create)).status, 200);
  t.match(await ask(selectAll("hits", {}, "analytics")), {
    status: 404,
    body: { code: "table_not_found" },
  });
});

overEach("a database whose name differs only by case is refused", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  t.match(await ask({ CreateDatabase: { database: "MAIN" } }), {
    status: 409,
    body: { code: "database_exists" },
  });
  t.match(await ask(selectAll("users", {}, "Main")), { body: { code: "database_not_found" } });
});

t.test("the database main cannot be dropped", async (t) => {
  const { ask } = await freshEngine(t);
  t.match(await ask({ DropDatabase: { database: "main" } }), {
    status: 409,
    body: { code: "database_protected" },
  });
});

overEach("conditions choose rows", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(users);
  await ask(insert("users", people));
  const ids = async (where: object): Promise<unknown> => {
    const answer = await ask(selectAll("users", { where, columns: ["id"] }));
    return answer.body.data?.flatMap((row) => Object.values(row ?? {})) ?? answer.body;
  };
  const cases: [object, number[]][] = [
    [{ column: "age", cmp: ">", value: 20 }, [1]],
    [{ column: "age", cmp: ">=", value: 20 }, [1, 2]],
    [{ column: "age", cmp: "<", value: 20.5 }, [2]],
    [{ column: "age", cmp: "<=", value: 30 }, [1, 2]],
    [{ column: "age", cmp: "!=", value: 30 }, [2]],
    [{ column: "age", cmp: "=", value: null }, [3]],
    [{ column: "age", cmp: "!=", value: null }, [1, 2]],
    [{ column: "name", cmp: "LIKE", value: "%o%" }, [2, 3]],
    [{ column: "name", cmp: "LIKE", value: "B%" }, []],
    [{ column: "id", cmp: "IN", value: [1, 3, 5] }, [1, 3]],
    [{ column: "id", cmp: "IN", value: [] }, []],
    [{ column: "age", cmp: "IN", value: [20, null] }, [2, 3]],
    [{ column: "users.id", cmp: "BETWEEN", value: [2, 3] }, [2, 3]],
    [
      {
        and: [{ column: "id", cmp: ">", value: 1 }, { not: { column: "id", cmp: "=", value: 2 } }],
      },
      [3],
    ],
    [
      {
        or: [
          { column: "id", cmp: "=", value: 1 },
          { column: "name", cmp: "=", value: "bob" },
        ],
      },
      [1, 2],
    ],
  ];
  for (const [where, expected] of cases) t.same(await ids(where), expected, JSON.stringify(where));
});

overEach("thousands of alternatives are one condition", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(users);
  await ask(insert("users", people));
  const or = Array.from({ length: 5000 }, (_, id) => ({ column: "id", cmp: "=", value: id + 3 }));
  t.match((await ask(selectAll("users", { where: { or } }))).body.data, [{ id: 3 }]);
});

overEach("rows are ordered and cut, an offset also without a limit", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(users);
  await ask(insert("users", people));
  const names = async (more: object): Promise<unknown> =>
    (await ask(selectAll("users", { columns: ["name"], ...more }))).body.data;
  const order_by = { column: "id", direction: "DESC" };
  t.same(await names({ order_by, limit: 1 }), [{ name: "Carol" }]);
  t.same(await names({ order_by, limit: 1, offset: 1 }), [{ name: "bob" }]);
  t.same(await names({ order_by, offset: 2 }), [{ name: "Alice" }]);
  t.same(await names({ order_by: { column: "age" } }), [
    { name: "Carol" },
    { name: "bob" },
    { name: "Alice" },
  ]);
});

overEach("joins keep both columns that share a name", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(users);
  await ask(createTable("orders", { id: "int", user_id: "int", total: "decimal(10,2)" }));
  await ask(insert("users", people));
  await ask(
    insert("orders", [
      { id: 10, user_id: 1, total: 9.99 },
      { id: 11, user_id: 7, total: 5 },
    ]),
  );
  const joined = async (join_type: string, columns: string[]): Promise<unknown> => {
    const join = { table: "orders", on: "users.id = orders.user_id", join_type };
    return (await ask(selectAll("users", { join, columns }))).body.data;
  };
  t.same(await joined("INNER", ["*"]), [
    { "users.id": 1, name: "Alice", age: 30, "orders.id": 10, user_id: 1, total: 9.99 },
  ]);
  t.same(await joined("LEFT", ["users.id", "total"]), [
    { id: 1, total: 9.99 },
    { id: 2, total: null },
    { id: 3, total: null },
  ]);
  t.same(await joined("RIGHT", ["name", "orders.id"]), [
    { name: "Alice", id: 10 },
    { name: null, id: 11 },
  ]);
  const join = { table: "orders", on: "users.id = orders.user_id", join_type: "INNER" };
  t.match(await ask(selectAll("users", { join, columns: ["id"] })), {
    status: 400,
    body: {
      code: "ambiguous_column",
      message: 'Both tables have a column "id"; write table.column: users.id or orders.id',
    },
  });
});

overEach(
  "a column of several joined tables is refused with those tables",
  async (t, freshEngine) => {
    const { ask } = await freshEngine(t);
    await ask(users);
    await ask(createTable("orders", { id: "int", user_id: "int", name: "text" }));
    await ask(createTable("items", { id: "int", order_id: "int" }));
    const join = [
      { table: "orders", on: "users.id = orders.user_id", join_type: "INNER" },
      { table: "items", on: "orders.id = items.order_id", join_type: "INNER" },
    ];
    const refused = async (column: string) =>
      (await ask(selectAll("users", { join, columns: [column] }))).body;
    t.match(await refused("id"), {
      code: "ambiguous_column",
      message:
        'The tables users, orders, items have a column "id"; write table.column: users.id or orders.id or items.id',
    });
    t.match(await refused("name"), {
      code: "ambiguous_column",
      message:
        'The tables users, orders have a column "name"; write table.column: users.name or orders.name',
    });
  },
);

overEach("rows of one Insert may name different columns", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(createTable("notes", { id: "serial", title: "text", done: "bool" }));
  const rows = [{ title: "first" }, { done: true, id: 7 }, { title: "last", done: null }];
  t.match(await ask(insert("notes", rows)), { body: { message: "Inserted 3 rows" } });
  t.same((await ask(selectAll("notes"))).body.data, [
    { id: 1, title: "first", done: null },
    { id: 7, title: null, done: true },
    { id: 8, title: "last", done: null },
  ]);
});

overEach("several primary key columns make one key", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  const columns = [
    { name: "a", type: "int", primary_key: true },
    { name: "b", type: "int", primary_key: true },
  ];
  await ask({ CreateTable: { database: "main", table: "pairs", columns } });
  t.equal(
    (
      await ask(
        insert("pairs", [
          { a: 1, b: 1 },
          { a: 1, b: 2 },
        ]),
      )
    ).status,
    200,
  );
  t.match(await ask(insert("pairs", [{ a: 1, b: 2 }])), {
    status: 409,
    body: { code: "constraint_violation" },
  });
});

overEachTransactional("a Batch answers each element in its place", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  const Batch = [
    createTable("users", { id: "int" }),
    insert("users", [{ id: 1 }]),
    selectAll("users"),
    { DropTable: { database: "main", table: "users" } },
  ];
  t.same((await ask({ Batch })).body, {
    status: "success",
    data: ["Table users created", "Inserted 1 row", [{ id: 1 }], "Table users dropped"],
  });
});

overEachTransactional(
  "a Batch that fails leaves nothing and names the element",
  async (t, freshEngine) => {
    const { ask } = await freshEngine(t);
    await ask(createTable("users", { id: "int" }));
    const Batch = [
      insert("users", [{ id: 1 }]),
      createTable("orders", { id: "int" }),
      insert("users", [{ id: 1 }]),
    ];
    t.match(await ask({ Batch }), {
      status: 409,
      body: { code: "constraint_violation", message: /^Batch\[2\]: / },
    });
    t.same((await ask(selectAll("users"))).body.data, []);
    t.match(await ask(selectAll("orders")), { status: 404 });
  },
);

overEach("a Batch over two databases is one transaction", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask({ CreateDatabase: { database: "analytics" } });
  await ask(createTable("users", { id: "int" }));
  await ask(createTable("hits", { id: "int", seen: "bool" }, "analytics"));
  const both = [
    insert("users", [{ id: 1 }]),
    insert("hits", [{ id: 1, seen: true }], "analytics"),
    selectAll("hits", {}, "analytics"),
  ];
  t.same((await ask({ Batch: both })).body.data?.[2], [{ id: 1, seen: true }]);
  const half = [insert("users", [{ id: 2 }]), insert("hits", [{ id: 1 }], "analytics")];
  t.match(await ask({ Batch: half }), { status: 409, body: { message: /^Batch\[1\]: / } });
  t.same((await ask(selectAll("users"))).body.data, [{ id: 1 }]);
  t.same((await ask(selectAll("hits", {}, "analytics"))).body.data, [{ id: 1, seen: true }]);
});

overEach("a table of one database is not found in another", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask({ CreateDatabase: { database: "analytics" } });
  await ask(createTable("hits", { id: "int" }, "analytics"));
  const Batch = [selectAll("hits", {}, "analytics"), selectAll("hits")];
  t.match(await ask({ Batch }), { status: 404, body: { code: "table_not_found" } });
});

overEach(
  "a Batch that reaches for a database that is not there names the element",
  async (t, freshEngine) => {
    const { ask } = await freshEngine(t);
    await ask(createTable("users", { id: "int" }));
    const Batch = [insert("users", [{ id: 1 }]), selectAll("hits", {}, "analytics")];
    t.match(await ask({ Batch }), {
      status: 404,
      body: { code: "database_not_found", message: /^Batch\[1\]: / },
    });
    t.same((await ask(selectAll("users"))).body.data, []);
  },
);

t.test("a Batch over more databases than can commit together is refused", async (t) => {
  const { ask } = await freshEngine(t);
  const names = Array.from({ length: 12 }, (_, index) => `shard${index}`);
  for (const database of names) {
    await ask({ CreateDatabase: { database } });
    await ask(createTable("rows", { id: "int" }, database));
  }
  const Batch = names.map((database) => insert("rows", [{ id: 1 }], database));
  t.match(await ask({ Batch }), { status: 400, body: { code: "too_many_databases" } });
  t.match(await ask({ Batch: Batch.slice(1) }), { status: 200 });
});
