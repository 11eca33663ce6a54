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
    ...["a b", "grüße-$1", "x as y", "select", "id) values (1); --", "a, b", "名前", "[x]"],
    ...["__proto__", "?"],
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

const main = { database: "main" };

overEach("a row that breaks a rule is told in the same words", async (t, fresh) => {
  const { ask } = await fresh(t);
  const people = [
    { name: "id", type: "int", primary_key: true },
    { name: "name", type: "text", nullable: false },
  ];
  const pets = [
    { name: "id", type: "int", primary_key: true },
    { name: "owner", type: "int", nullable: true, references: "people.id" },
  ];
  await ask({ CreateTable: { ...main, table: "people", columns: people } });
  await ask({ CreateTable: { ...main, table: "pets", columns: pets } });
  t.match(await ask(insert("people", [{ id: 1, name: "Alice" }])), { status: 200 });
  const broken: [table: string, row: object, message: RegExp][] = [
    [
      "people",
      { id: 1, name: "Bob" },
      /^(A table|Table people) already has a row with this value, which must be unique \(.+\)$/,
    ],
    ["people", { id: 2, name: null }, /^(A table|Table people) requires a value in column "name"$/],
    ["pets", { id: 1, owner: 9 }, /^Table people has no row for owner (9 )?of pets/],
  ];
  for (const [table, row, message] of broken) {
    const { status, body } = await ask(insert(table, [row]));
    t.match({ status, body }, { status: 409, body: { code: "constraint_violation", message } });
  }
});

overEach(
  "a foreign key that is broken is named, and no value that the query does not hold",
  async (t, fresh) => {
    const { ask } = await fresh(t);
    const table = (name: string, columns: object[]) =>
      ask({ CreateTable: { ...main, table: name, columns } });
    const id = { name: "customer_id", type: "int", primary_key: true };
    await table("customer", [id, { name: "name", type: "text" }]);
    const references = "customer.customer_id";
    const payer = { name: "customer_id", type: "int", nullable: false, references };
    await table("payment", [{ name: "id", type: "int", primary_key: true }, payer]);
    await ask(
      insert("customer", [
        { customer_id: 1, name: "Ann" },
        { customer_id: 217, name: "Bob" },
      ]),
    );
    await ask(
      insert("payment", [
        { id: 5, customer_id: 1 },
        { id: 6, customer_id: 217 },
      ]),
    );
    const remove = (column: string, value: unknown) => ({
      Delete: { ...main, table: "customer", where: { column, cmp: "=", value } },
    });
    // Only PostgreSQL tells the value, and only one that the query holds.
    const isExact = t.fullname.includes("PostgreSQL");
    const [nine, one] = isExact ? ["9 ", " 1"] : ["(9 )?", "( 1)?"];
    const broken: [body: object, message: RegExp][] = [
      [
        insert("payment", [{ id: 7, customer_id: 9 }]),
        new RegExp(`^Table customer has no row for customer_id ${nine}of payment`),
      ],
      [
        { Update: { ...main, table: "payment", set: { customer_id: 9 }, where: null } },
        /^Table customer has no row for customer_id (9 )?of payment/,
      ],
      [
        remove("customer_id", 1),
        new RegExp(`^Rows of payment still refer to customer_id${one}( \\(|$)`),
      ],
      [
        { Batch: [remove("customer_id", 1)] },
        /^Batch\[0\]: Rows of payment still refer to customer_id/,
      ],
      [remove("name", "Bob"), /^Rows of payment still refer to customer_id( \(|$)/],
    ];
    for (const [body, message] of broken) {
      const answer = await ask(body);
      t.match(answer, { status: 409, body: { code: "constraint_violation", message } });
      t.notMatch(answer.text, "217");
    }
  },
);

t.test("over SQLite the columns are named whose values stand there already", async (t) => {
  const { ask, directory } = await freshEngine(t);
  const file = new DatabaseSync(`${directory}/data/main.sqlite`);
  file.exec(`create table t (id integer primary key, a text, b text not null,
    c int constraint positive check (c > 0), unique (a, b)) strict;
    create unique index folded on t (abs(c));
    insert into t values (1, 'x', 'y', 1)`);
  file.close();
  const once = "already has a row with this value, which must be unique";
  const broken: [row: object, message: string][] = [
    [{ id: 1, a: "q", b: "z" }, `Table t ${once} (id)`],
    [{ a: "x", b: "y" }, `Table t ${once} (a, b)`],
    [{ a: "w", b: "z", c: 1 }, `A table ${once} (index 'folded')`],
    [{ a: "z" }, 'Table t requires a value in column "b"'],
    [{ a: "z", b: "z", c: 0 }, 'A table does not allow this row (constraint "positive")'],
  ];
  for (const [row, message] of broken) {
    t.match((await ask(insert("t", [row]))).body, { code: "constraint_violation", message });
  }
});

const columns = [
  { name: "id", type: "int", primary_key: true },
  { name: "name", type: "text", nullable: true },
  { name: "age", type: "bigint", nullable: true },
  { name: "score", type: "double", nullable: true },
  { name: "active", type: "boolean", nullable: true },
  { name: "data", type: "blob", nullable: true },
];
const people = { database: "main", table: "users" };
const all = { database: "main", from: "users", columns: ["*"] };

overEach("a refusal names element, row, column and the form that is allowed", async (t, fresh) => {
  const { ask } = await fresh(t);
  t.match(await ask({ CreateTable: { ...people, columns } }), { status: 200 });
  const messageOf = async (body: object, code = "invalid_value") => {
    const answer = await ask(body);
    t.match(answer, { body: { status: "error", code } });
    return String(answer.body.message);
  };
  const rows = (bad: object) => ({ Insert: { ...people, values: [{ id: 1 }, { id: 2, ...bad }] } });

  const forms: [bad: object, message: RegExp][] = [
    [
      { age: "old" },
      /^values\[1\]: Column "age" \(.+\) .* this string; allowed: a whole number of 64 bits$/,
    ],
    [{ score: "x" }, /^values\[1\]: Column "score" \(.+\) .*; allowed: a number$/],
    [{ active: "x" }, /^values\[1\]: Column "active" \(.+\) .*; allowed: true or false$/],
    [{ data: "?" }, /^values\[1\]: Column "data" \(.+\) .*; allowed: bytes as base64 text$/],
    [{ name: 1 }, /^values\[1\]: Column "name" \(.+\) .*; allowed: text$/],
  ];
  for (const [bad, message] of forms) t.match(await messageOf(rows(bad)), message);
  t.match(
    await messageOf({ Batch: [rows({ age: true })] }),
    /^Batch\[0\]: values\[1\]: Column "age" /,
  );
  const set = { Update: { ...people, set: { age: "old" }, where: null } };
  t.match(await messageOf(set), /^Column "age" .*; allowed: a whole number of 64 bits$/);
  const where = (cmp: string, value: unknown) => ({
    Select: { ...all, where: { column: "age", cmp, value } },
  });
  t.match(await messageOf(where("=", "old")), /^Column "age" .*; allowed: a number$/);

  const near = { Select: { ...all, columns: ["nmae"] } };
  t.match(await messageOf(near, "unknown_column"), /"nmae" in users \(did you mean name\?\)$/);
  const wrong = { Select: { ...all, columns: ["users.nmae"] } };
  t.match(await messageOf(wrong, "unknown_column"), /in users \(did you mean users\.name\?\)$/);
  const join = { table: "pets", on: "users.id = pets.id", join_type: "INNER" };
  t.match(await ask({ CreateTable: { ...people, table: "pets", columns: columns.slice(0, 1) } }), {
    status: 200,
  });
  const other = { Select: { ...all, columns: ["pets.name"], join } };
  t.match(await messageOf(other, "unknown_column"), /and pets \(did you mean users\.name\?\)$/);
  const count = { Select: { ...all, columns: ["count(*)"] } };
  t.match(await messageOf(count, "unknown_column"), /in users; use aggregate for counts and sums/);
  const far = { Select: { ...all, columns: ["nothing"] } };
  t.match(await messageOf(far, "unknown_column"), /"nothing" in users$/);
  const unknown = rows({ agee: 1 });
  t.match(await messageOf(unknown, "unknown_column"), /^values\[1\]: .* \(did you mean age\?\)$/);
  const noTable = "table_not_found";
  const select = (from: string) => ({ Select: { ...all, from } });
  t.match(await messageOf(select("usres"), noTable), /usres in main \(did you mean users\?\)$/);
  t.match(await messageOf(select("elsewhere"), noTable), /elsewhere in main$/);
  const drop = { DropTable: { database: "main", table: "user" } };
  t.match(await messageOf(drop, noTable), /user in main \(did you mean users\?\)$/);
  t.match(await messageOf(select("gatehouse_columns"), noTable), /_columns in main$/);
});
