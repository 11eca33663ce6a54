import t from "tap";
import { createTable, freshEngine, insert, selectAll } from "./kit.ts";
import { overEach, overEachTransactional } from "./over-each.ts";

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
