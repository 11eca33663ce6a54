import { DatabaseSync } from "node:sqlite";
import t from "tap";
import { createTable, databaseFiles, freshEngine, insert, selectAll } from "./kit.ts";
import { overEach } from "./over-each.ts";

const users = createTable("users", { id: "int", name: "text" });

overEach("a body outside the grammar is a 400 with the grammar's code", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  t.match(await ask("[]"), { status: 400, body: { status: "error", code: "not_an_object" } });
  t.match(await ask(`{"Select":{},"Select":{}}`), { status: 400 });
});

overEach("an unknown column is refused wherever it stands", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(users);
  await ask(insert("users", [{ id: 1, name: "Alice" }]));
  const where = { column: "nope", cmp: "=", value: "nope" };
  const bodies = [
    selectAll("users", { columns: ["nope"] }),
    selectAll("users", { columns: ["rowid"] }),
    selectAll("users", { columns: ["users.nope"] }),
    selectAll("users", { where }),
    selectAll("users", { where: { column: "_rowid_", cmp: "=", value: 1 } }),
    selectAll("users", { order_by: { column: "nope" } }),
    insert("users", [{ nope: 1 }]),
    { Update: { database: "main", table: "users", set: { nope: 1 }, where: null } },
    { Delete: { database: "main", table: "users", where } },
  ];
  for (const body of bodies) {
    t.match(
      await ask(body),
      { status: 400, body: { code: "unknown_column" } },
      JSON.stringify(body),
    );
  }
  t.equal((await ask(selectAll("users"))).body.data?.length, 1);
});

overEach("an unknown table is a 404 in every operation", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(users);
  const join = { table: "nope", on: "users.id = nope.id", join_type: "INNER" };
  const bodies = [
    selectAll("nope"),
    selectAll("USERS"),
    selectAll("users", { join }),
    insert("nope", [{ id: 1 }]),
    { Update: { database: "main", table: "nope", set: { id: 1 }, where: null } },
    { Delete: { database: "main", table: "nope", where: null } },
    { DropTable: { database: "main", table: "nope" } },
  ];
  for (const body of bodies) {
    t.match(await ask(body), { status: 404, body: { code: "table_not_found" } });
  }
});

overEach("a table that exists, in any case, is not created again", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(users);
  for (const table of ["users", "Users"]) {
    t.match(await ask(createTable(table, { id: "int" })), {
      status: 409,
      body: { code: "table_exists" },
    });
  }
});

t.test("reserved tables are out of reach", async (t) => {
  const { ask } = await freshEngine(t);
  for (const table of ["sqlite_schema", "SQLITE_master", "_gatehouse_columns", "_Gatehouse_x"]) {
    const bodies = [
      selectAll(table),
      createTable(table, { id: "int" }),
      insert(table, [{ table: "x", column: "y", type: "int" }]),
      { Delete: { database: "main", table, where: null } },
      { DropTable: { database: "main", table } },
    ];
    for (const body of bodies) {
      t.match(await ask(body), { status: 400, body: { code: "invalid_name" } });
    }
  }
});

overEach("an unknown type is refused with the known ones", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  const answer = await ask(createTable("shapes", { id: "geometry" }));
  t.match(answer, { status: 400, body: { code: "invalid_type", message: /varchar/ } });
  const columns = [
    { name: "id", type: "int", primary_key: true },
    { name: "n", type: "serial" },
  ];
  t.match(await ask({ CreateTable: { database: "main", table: "counts", columns } }), {
    status: 400,
    body: { code: "invalid_type" },
  });
});

overEach("columns that differ only by case are refused", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  t.match(await ask(createTable("twins", { id: "int", ID: "int" })), {
    status: 400,
    body: { code: "duplicate_column" },
  });
});

overEach("constraints hold", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  const columns = [
    { name: "id", type: "int", primary_key: true },
    { name: "email", type: "text", unique: true },
    { name: "name", type: "text", nullable: false },
  ];
  await ask({ CreateTable: { database: "main", table: "people", columns } });
  t.equal((await ask(insert("people", [{ id: 1, email: "a", name: "A" }]))).status, 200);
  const broken = [
    { id: 1, email: "b", name: "B" },
    { id: 2, email: "a", name: "B" },
    { id: 2, email: "b" },
    { id: 2, email: "b", name: null },
    { email: "b", name: "B" },
  ];
  for (const row of broken) {
    t.match(await ask(insert("people", [{ id: 9, name: "fine" }, row])), {
      status: 409,
      body: { code: "constraint_violation" },
    });
  }
  t.equal(
    (await ask(selectAll("people"))).body.data?.length,
    1,
    "nothing of a refused Insert stays",
  );
});

overEach("values that look like SQL are values", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(users);
  const hostile = [
    `'; drop table users; --`,
    `" or 1=1 --`,
    `\\'; delete from users`,
    "%",
    "?1",
    "$1",
  ];
  await ask(
    insert(
      "users",
      hostile.map((name, id) => ({ id, name })),
    ),
  );
  for (const [id, value] of hostile.entries()) {
    const where = { column: "name", cmp: "=", value };
    t.same((await ask(selectAll("users", { where }))).body.data, [{ id, name: value }]);
  }
});

overEach("names that look like SQL are names", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  const odd = [
    "a b",
    "grüße-$1",
    "x as y",
    "select",
    "id) values (1); --",
    "a, b",
    "名前",
    "[x]",
    "__proto__",
    "?",
  ];
  const types = Object.fromEntries(odd.map((name) => [name, "text"]));
  // A computed key defines the property that a plain assignment would not.
  const row = Object.fromEntries(odd.map((name) => [name, `in ${name}`]));
  t.equal((await ask(createTable("odd-table", types))).status, 200);
  t.match(await ask(insert("odd-table", [row])), { status: 200 });
  for (const name of odd) {
    const where = { column: name, cmp: "=", value: `in ${name}` };
    const { body } = await ask(
      selectAll("odd-table", { columns: [name], where, order_by: { column: name } }),
    );
    t.equal(
      JSON.stringify(body.data),
      JSON.stringify([Object.fromEntries([[name, `in ${name}`]])]),
    );
  }
});

t.test("a name cannot reach a file outside the directory", async (t) => {
  const { ask, directory } = await freshEngine(t);
  for (const database of ["../escape", "a/b", "main.sqlite", ".", "file:main?mode=memory"]) {
    t.equal((await ask({ CreateDatabase: { database } })).status, 400);
  }
  t.same(databaseFiles(directory), ["main.sqlite"]);
});

overEach("what passes the database's limits is a 400", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(users);
  const value = Array.from({ length: 70_000 }, (_, id) => id);
  t.match(await ask(selectAll("users", { where: { column: "id", cmp: "IN", value } })), {
    status: 400,
    body: { code: "query_too_complex" },
  });
});

t.test("a database that another process has is a 503", async (t) => {
  const { ask, directory } = await freshEngine(t);
  await ask(users);
  const other = new DatabaseSync(`${directory}/data/main.sqlite`);
  t.teardown(() => other.close());
  other.exec("begin immediate");
  t.match(await ask(insert("users", [{ id: 1 }])), { status: 503, body: { code: "busy" } });
  other.exec("rollback");
  t.equal((await ask(insert("users", [{ id: 1 }]))).status, 200);
});
