import t from "tap";
import {
  createDatabase,
  createTable,
  dropDatabase,
  freshEngine,
  insert,
  refusal,
  selectAll,
} from "./kit.ts";
import { overEach, overEachTransactional, overSqlite } from "./over-each.ts";

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
