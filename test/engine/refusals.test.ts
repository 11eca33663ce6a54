import { DatabaseSync } from "node:sqlite";
import t from "tap";
import {
  createDatabase,
  createTable,
  databaseFiles,
  dropTable,
  equal,
  insert,
  refusal,
  remove,
  selectAll,
  update,
} from "./kit.ts";
import { freshMysql } from "./mysql/kit.ts";
import { freshSqlite, overEach, overSqlite } from "./over-each.ts";
import { freshPostgres } from "./postgres/kit.ts";

const users = createTable("users", { id: "int", name: "text" });

overSqlite("a body outside the grammar is a 400 with the grammar's code", async (t, { ask }) => {
  t.match(await ask("[]"), refusal(400, "not_an_object"));
  t.match(await ask(`{"Select":{},"Select":{}}`), { status: 400 });
});

overSqlite("an unknown column is refused in every position", async (t, { ask }) => {
  await ask(users);
  await ask(insert("users", [{ id: 1, name: "Alice" }]));
  for (const body of [
    selectAll("users", { columns: ["nope"] }),
    selectAll("users", { columns: ["rowid"] }),
    selectAll("users", { columns: ["users.nope"] }),
    selectAll("users", { where: equal("nope", "nope") }),
    selectAll("users", { where: equal("_rowid_", 1) }),
    selectAll("users", { order_by: { column: "nope" } }),
    insert("users", [{ nope: 1 }]),
    update("users", { nope: 1 }),
    remove("users", equal("nope", "nope")),
  ]) {
    t.match(await ask(body), refusal(400, "unknown_column"), JSON.stringify(body));
  }
  t.equal((await ask(selectAll("users"))).body.data?.length, 1);
});

overSqlite("an unknown table is a 404 in every operation", async (t, { ask }) => {
  await ask(users);
  const join = { table: "nope", on: "users.id = nope.id", join_type: "INNER" };
  for (const body of [
    selectAll("nope"),
    selectAll("USERS"),
    selectAll("users", { join }),
    insert("nope", [{ id: 1 }]),
    update("nope", { id: 1 }),
    remove("nope"),
    dropTable("nope"),
  ]) {
    t.match(await ask(body), refusal(404, "table_not_found"), JSON.stringify(body));
  }
});

overSqlite("queries cannot reach reserved tables", async (t, { ask }) => {
  for (const table of ["sqlite_schema", "SQLITE_master", "_gatehouse_columns", "_Gatehouse_x"]) {
    for (const body of [
      selectAll(table),
      createTable(table, { id: "int" }),
      insert(table, [{ table: "x", column: "y", type: "int" }]),
      remove(table),
      dropTable(table),
    ]) {
      t.match(await ask(body), refusal(400, "invalid_name"), JSON.stringify(body));
    }
  }
});

overEach("a table that cannot be created is refused with the reason", async (t, { ask }) => {
  await ask(users);
  for (const [table, columns, status, code, message] of [
    ["users", { id: "int" }, 409, "table_exists", /users/],
    ["Users", { id: "int" }, 409, "table_exists", /users/],
    ["shapes", { id: "geometry" }, 400, "invalid_type", /varchar/],
    ["counts", { id: "int", n: "serial" }, 400, "invalid_type", /primary key/],
    ["twins", { id: "int", ID: "int" }, 400, "duplicate_column", /ignoring case/],
  ] as const) {
    t.match(await ask(createTable(table, columns)), refusal(status, code, message));
  }
});

overEach("values that look like SQL are values", async (t, { ask }) => {
  await ask(users);
  const hostile = [`'; drop table users; --`, `" or 1=1 --`, `\\'; delete from users`, "%", "?1"];
  const rows = [...hostile, "$1"].map((name, id) => ({ id, name }));
  await ask(insert("users", rows));
  for (const row of rows) {
    t.same((await ask(selectAll("users", { where: equal("name", row.name) }))).body.data, [row]);
  }
});

overEach("names that look like SQL are names", async (t, { ask }) => {
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
  // `fromEntries` also defines `__proto__`, which an assignment would not.
  const row = Object.fromEntries(odd.map((name) => [name, `in ${name}`]));
  const columns = Object.fromEntries(odd.map((name) => [name, "text"]));
  t.equal((await ask(createTable("odd-table", columns))).status, 200);
  t.match(await ask(insert("odd-table", [row])), { status: 200 });
  for (const name of odd) {
    const [value, order_by] = [`in ${name}`, { column: name }];
    const select = selectAll("odd-table", { columns: [name], where: equal(name, value), order_by });
    const expected = JSON.stringify([Object.fromEntries([[name, value]])]);
    t.equal(JSON.stringify((await ask(select)).body.data), expected);
  }
});

for (const [server, fresh] of Object.entries({ PostgreSQL: freshPostgres, MySQL: freshMysql })) {
  t.test(`a date or time that does not exist is refused by its column (${server})`, async (t) => {
    const { ask } = await fresh(t);
    const types = { id: "int", day: "date", at: "timestamp", clock: "time" };
    await ask(createTable("days", types));
    for (const [column, value] of [
      ["day", "2026-02-30"],
      ["day", "2026-13-01"],
      ["at", "2026-02-29T10:00:00Z"],
      ["at", "2026-02-28T25:00:00Z"],
      ["clock", "10:60:00"],
    ] as const) {
      const named = refusal(400, "invalid_value", new RegExp(`Column "${column}" \\(.*\\)`));
      t.match(await ask(insert("days", [{ id: 1, [column]: value }])), named, value);
      t.match(await ask(selectAll("days", { where: equal(column, value) })), named, value);
    }
    const last = { id: 1, day: "2024-02-29", at: "2026-12-31T23:59:59Z", clock: "23:59:59" };
    t.match(await ask(insert("days", [last])), { status: 200 });
  });
}

overEach("a computed number out of range names what computes it", async (t, { ask }) => {
  await ask(createTable("numbers", { id: "int", n: "bigint" }));
  await ask(
    '{"Insert":{"database":"main","table":"numbers","values":[{"id":1,"n":9223372036854775807}]}}',
  );
  const compute = [{ as: "over", fn: "add", of: ["n", { value: 1 }] }];
  const over = { from: "numbers", columns: ["over"], compute };
  const found = refusal(400, "number_out_of_range", /^A number is out of range: "over"$/);
  t.match(await ask({ Select: { database: "main", ...over } }), found);
  const where = { column: "n", cmp: "IN", select: over };
  t.match(await ask(selectAll("numbers", { where })), found);
});

t.test("a name cannot reach a file outside the directory", async (t) => {
  const { ask, directory } = await freshSqlite();
  for (const database of ["../escape", "a/b", "main.sqlite", ".", "file:main?mode=memory"]) {
    t.equal((await ask(createDatabase(database))).status, 400);
  }
  t.same(databaseFiles(directory), ["main.sqlite"]);
});

overEach("a query that exceeds the database's limits is a 400", async (t, { ask }) => {
  await ask(users);
  const value = Array.from({ length: 70_000 }, (_, id) => id);
  const where = { column: "id", cmp: "IN", value };
  t.match(await ask(selectAll("users", { where })), refusal(400, "query_too_complex"));
});

t.test("a database that another process has locked is a 503", async (t) => {
  const { ask, directory } = await freshSqlite();
  await ask(users);
  const other = new DatabaseSync(`${directory}/data/main.sqlite`);
  t.teardown(() => other.close());
  other.exec("begin immediate");
  const answer = await ask(insert("users", [{ id: 1 }]));
  t.match(answer, refusal(503, "busy"));
  t.equal(answer.headers["retry-after"], "1");
  other.exec("rollback");
  t.equal((await ask(insert("users", [{ id: 1 }]))).status, 200);
});

overEach("an addition beyond a column's range names the column", async (t, { ask }) => {
  await ask(createTable("t", { id: "int", n: "int", m: "int" }));
  const top = "9223372036854775807";
  await ask(`{"Insert":{"database":"main","table":"t","values":[{"id":1,"n":${top},"m":1}]}}`);
  const named = /^A number is out of its column's range: "n"( \(|$)/;
  const Update = { database: "main", table: "t", add: { n: 1 }, where: null };
  for (const [body, message] of [
    [{ Update }, named],
    [{ Update: { ...Update, set: { m: 2 } } }, named],
    [{ Update: { ...Update, returning: ["n"] } }, named],
    [{ Preview: { Update } }, named],
    [{ Update: { ...Update, add: { m: 1, n: 1 } } }, /: "m" \(\w+(\(20\))?\) or "n" \(/],
  ] as const) {
    t.match(await ask(body), refusal(400, "number_out_of_range", message));
  }
});

overSqlite("an unknown column of bind is named where the query names it", async (t, { ask }) => {
  await ask(createTable("t", { id: "int", other: "int" }));
  const source = insert("t", [{ id: 1 }]);
  const bound = (target: string, column: string) => ({
    Insert: { ...insert("t", [{ id: 2 }]).Insert, bind: { [target]: { element: 0, column } } },
  });
  const set = (target: string, column: string) => ({
    Update: {
      database: "main",
      table: "t",
      bind: bound(target, column).Insert.bind,
      where: null,
    },
  });
  for (const [last, place] of [
    [bound("other", "nope"), "bind.other"],
    [bound("nope", "id"), "bind.nope"],
    [set("other", "nope"), "bind.other"],
    [set("nope", "id"), "bind.nope"],
  ] as const) {
    const message = new RegExp(`^Batch\\[2\\]: ${place}: There is no column "nope" in t; t has .*`);
    for (const Batch of [[source, selectAll("t"), last]]) {
      t.match(await ask({ Batch }), refusal(400, "unknown_column", message));
    }
    const Batch = [source, insert("t", [{ id: 9 }]), last];
    t.match(await ask({ Preview: { Batch } }), refusal(400, "unknown_column", message));
  }
  const own = { Insert: { ...source.Insert, returning: ["nope"] } };
  const message = /^Batch\[0\]: There is no column "nope" in t; t has /;
  t.match(
    await ask({ Batch: [own, bound("other", "id")] }),
    refusal(400, "unknown_column", message),
  );
  t.same((await ask(selectAll("t"))).body.data, []);
});

overEach("a broken constraint is named, without values of other rows", async (t, { ask }) => {
  const references = "customer.customer_id";
  const name = { type: "text", nullable: false };
  await ask(createTable("customer", { customer_id: "int", name }));
  const customer = { type: "int", nullable: false, references };
  const code = { type: "int", unique: true };
  await ask(createTable("payment", { id: "int", customer_id: customer, code }));
  const keyed = { type: "int", primary_key: true };
  await ask(createTable("pairs", { "odd, name": keyed, v: keyed }));
  await ask(createTable("words", { word: "varchar(40)" }));
  const [one, other] = [1, 217].map((customer_id) => ({ customer_id, name: `n${customer_id}` }));
  const payments = [
    { id: 5, customer_id: 1, code: 17 },
    { id: 6, customer_id: 217, code: 217 },
  ];
  const word = { word: "' for key 'x" };
  const pair = { "odd, name": 4, v: 5 };
  await ask(
    insert(
      "customer",
      [one, other].map((row) => ({ ...row })),
    ),
  );
  await ask(insert("payment", payments));
  await ask(insert("pairs", [pair]));

  const unique = (table: string, ...columns: string[]) => ({
    message: `Table ${table} already has a row with this value, which must be unique \\(${columns.join(", ")}\\)$`,
    // PostgreSQL's driver does not say where a name with a comma ends.
    constraint: { kind: "unique", table, ...(table === "pairs" ? {} : { columns }) },
  });
  const required = (column: string) => ({
    message: `Table customer requires a value in column "${column}"$`,
    constraint: { kind: "not_null", table: "customer", columns: [column] },
  });
  // Only PostgreSQL reports the value, which is shown if the query contains it.
  const [nine, first] = t.fullname.includes("PostgreSQL") ? ["9 ", " 1"] : ["(9 )?", "( 1)?"];
  const missing = {
    message: `Table customer has no row for customer_id ${nine}of payment`,
    constraint: { kind: "foreign_key", table: "payment", columns: ["customer_id"] },
  };
  const referred = (value: string) => ({
    message: `Rows of payment still refer to customer_id${value}( \\(|$)`,
    constraint: { kind: "foreign_key", table: "payment", columns: undefined },
  });
  const pay = (id: number, customer_id: number, code: number) =>
    insert("payment", [{ id, customer_id, code }]);
  for (const [body, { message, constraint }] of [
    [pay(5, 1, 18), unique("payment", "id")],
    [pay(7, 1, 17), unique("payment", "code")],
    [insert("pairs", [pair]), unique("pairs", "odd, name", "v")],
    [insert("words", [word, word]), unique("words", "word")],
    [insert("customer", [{ customer_id: 2, name: null }]), required("name")],
    [insert("customer", [{ customer_id: 2 }]), required("name")],
    [insert("customer", [{ name: "x" }]), required("customer_id")],
    [pay(7, 9, 18), missing],
    [
      update("payment", { customer_id: 9 }, equal("id", 5)),
      { ...missing, message: missing.message.replace(nine, "(9 )?") },
    ],
    [remove("customer", equal("customer_id", 1)), referred(first)],
    [remove("customer", equal("name", "n217")), referred("")],
  ] as const) {
    const Batch = [pay(9, 1, 19), body];
    for (const query of [body, { Preview: body }, { Batch }, { Preview: { Batch } }]) {
      const place = JSON.stringify(query).includes('"Batch"') ? "Batch\\[1\\]: " : "";
      const answer = await ask(query);
      const expected = new RegExp(`^${place}${message}`);
      t.match(answer, refusal(409, "constraint_violation", expected), JSON.stringify(query));
      t.match(answer.body.constraint, constraint, JSON.stringify(query));
      t.notMatch(answer.text, "217");
    }
  }
  const drop = await ask(dropTable("customer"));
  t.match(drop, refusal(409, "constraint_violation", /foreign key|depend on|refers to/));
  t.same((await ask(selectAll("payment", { order_by: { column: "id" } }))).body.data, payments);
});

overSqlite(
  "a foreign key of several columns is named, of others the table",
  async (t, { ask, sql }) => {
    await sql(`create table parts (a int, b int, primary key (a, b)) strict;
    create table uses (id int, a int, b int, foreign key (a, b) references parts) strict;
    insert into parts values (1, 2), (1, 3);
    insert into uses values (1, 1, 2)`);
    const raised = { database: "main", table: "uses", add: { b: 7 }, where: null };
    const broken: [body: object, message: string][] = [
      [insert("uses", [{ id: 2, a: 1, b: 9 }]), "Table parts has no row for (a, b) of uses"],
      [remove("parts", equal("b", 2)), "Rows of uses still refer to (a, b)"],
      [
        { Update: { database: "main", table: "parts", set: { b: 5 }, where: equal("b", 2) } },
        "Rows of uses still refer to (a, b)",
      ],
      [{ Update: raised }, "Table parts has no row for (a, b) of uses"],
      [{ Update: { ...raised, table: "parts" } }, "Rows of uses still refer to (a, b)"],
    ];
    for (const [body, message] of broken) {
      t.match(await ask(body), refusal(409, "constraint_violation", message));
      t.match(await ask({ Preview: body }), refusal(409, "constraint_violation", message));
    }
    t.match(await ask(insert("uses", [{ id: 3, a: 1, b: null }])), { status: 200 });
    t.match(await ask(remove("parts", equal("b", 3))), { status: 200 });
  },
);

overEach("a refusal names element, row, column and the allowed form", async (t, { ask }) => {
  const more = { age: "bigint", score: "double", active: "boolean", data: "blob" };
  await ask(createTable("users", { id: "int", name: "text", ...more }));
  await ask(createTable("pets", { id: "int" }));
  const messageOf = async (body: object | string, code = "invalid_value") => {
    const answer = await ask(body);
    t.match(answer.body, { status: "error", code });
    return String(answer.body.message);
  };
  const rows = (bad: object) => insert("users", [{ id: 1 }, { id: 2, ...bad }]);
  const age = (cmp: string, value: unknown) =>
    selectAll("users", { where: { column: "age", cmp, value } });
  for (const [body, message] of [
    [
      rows({ age: "old" }),
      /^values\[1\]: Column "age" \(.+\) .* this string; allowed: a whole number of 64 bits$/,
    ],
    [rows({ score: "x" }), /^values\[1\]: Column "score" \(.+\) .*; allowed: a number( that .+)?$/],
    [rows({ active: "x" }), /^values\[1\]: Column "active" \(.+\) .*; allowed: true or false$/],
    [rows({ data: "?" }), /^values\[1\]: Column "data" \(.+\) .*; allowed: bytes as base64 text$/],
    [rows({ name: 1 }), /^values\[1\]: Column "name" \(.+\) .*; allowed: text$/],
    [{ Batch: [rows({ age: true })] }, /^Batch\[0\]: values\[1\]: Column "age" /],
    [update("users", { age: "old" }), /^Column "age" .*; allowed: a whole number of 64 bits$/],
    [age("=", "old"), /^Column "age" .*; allowed: a number$/],
    [
      `{"Update":{"database":"main","table":"users","add":{"score":9007199254740993},"where":null}}`,
      /^Column "score" .*; allowed: a number that it holds exactly$/,
    ],
  ] as const) {
    t.match(await messageOf(body), message);
  }
  const columns = (name: string, more: object = {}) =>
    selectAll("users", { columns: [name], ...more });
  const join = { table: "pets", on: "users.id = pets.id", join_type: "INNER" };
  for (const [body, message] of [
    [columns("nmae"), /"nmae" in users \(did you mean name\?\)$/],
    [columns("users.nmae"), /in users \(did you mean users\.name\?\)$/],
    [columns("pets.name", { join }), /and pets \(did you mean users\.name\?\)$/],
    [columns("count(*)"), /in users; use aggregate for counts and sums/],
    [columns("nothing"), /"nothing" in users; users has id, name, age, /],
    [rows({ agee: 1 }), /^values\[1\]: .* \(did you mean age\?\)$/],
  ] as const) {
    t.match(await messageOf(body, "unknown_column"), message);
  }
  for (const [body, message] of [
    [selectAll("usres"), /usres in main \(did you mean users\?\)$/],
    [selectAll("elsewhere"), /elsewhere in main$/],
    [dropTable("user"), /user in main \(did you mean users\?\)$/],
    [selectAll("gatehouse_columns"), /_columns in main$/],
  ] as const) {
    t.match(await messageOf(body, "table_not_found"), message);
  }
});

const database = "main";
const place = (table: string) => ({ database, table });

/** Of a table that the database's owner has made: CreateTable has no check constraints. */
const checked = `(id int primary key, amount int, fee int check (fee < 100),
  constraint positive check (amount > 0), constraint ordered check (fee < amount))`;

overEach("an error of a check names the constraint", async (t, { ask, sql }) => {
  await sql(`create table main.bills ${checked}`);
  const at = place("bills");
  const where = { column: "id", cmp: "=", value: 1 };
  const insert = (row: object) => ({ Insert: { ...at, values: [row] } });
  t.match(await ask(insert({ id: 1, amount: 7001 })), { status: 200 });
  t.match(await ask(insert({ id: 2, amount: null })), { status: 200 }, "null breaks no check");
  const upsert = { values: [{ id: 1, amount: -7002 }], on_conflict: ["id"], update: ["amount"] };
  const broken: Record<string, readonly object[]> = {
    positive: [
      insert({ id: 3, amount: -7003 }),
      { Update: { ...at, set: { amount: -7003 }, where } },
      { Update: { ...at, add: { amount: -7003 }, where } },
      { Upsert: { ...at, ...upsert } },
      { Preview: insert({ id: 3, amount: -7003 }) },
      { Batch: [insert({ id: 3, amount: 1 }), insert({ id: 4, amount: -7003 })] },
    ],
    ordered: [insert({ id: 3, amount: 8, fee: 9 })],
  };
  for (const [name, queries] of Object.entries(broken)) {
    for (const query of queries) {
      const { status, body, text } = await ask(query);
      t.match({ status, code: body.code }, { status: 409, code: "constraint_violation" }, text);
      t.match(body.constraint, { kind: "check", name, table: "bills" }, text);
      t.match(body.message, name);
      t.notMatch(text, /700\d/, "no value");
    }
  }
  const { body } = await ask(insert({ id: 3, amount: 8000, fee: 7999 }));
  t.match(body.constraint, { kind: "check", table: "bills" }, "one without a name");
  t.notMatch(JSON.stringify(body), /7999/);
  const left = await ask({ Select: { database, from: "bills", columns: ["id"] } });
  t.match(left.body.data, { length: 2 }, "nothing of a Batch stays");
});
