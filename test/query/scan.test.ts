import t from "tap";
import { gist, insertOf, plain, refusalOf, scanBody, select, verdict, widened } from "./kit.ts";

const dropTable = { DropTable: { database: "main", table: "users" } };

t.test("each operation is told with its permission, database and tables", async (t) => {
  const target = { database: "main", table: "users" };
  const columns = [{ name: "id", type: "int" }];
  const expected = [
    [select(), "SELECT", ["users"]],
    [{ Insert: { ...target, values: [{ id: 1 }] } }, "INSERT", ["users"]],
    [{ Update: { ...target, set: { id: 1 }, where: null } }, "UPDATE", ["users"]],
    [{ Delete: { ...target, where: null } }, "DELETE", ["users"]],
    [{ CreateTable: { ...target, columns } }, "CREATE", ["users"]],
    [{ DropTable: target }, "DROP", ["users"]],
    [{ CreateDatabase: { database: "main" } }, "CREATE DATABASE", []],
    [{ DropDatabase: { database: "main" } }, "DROP DATABASE", []],
  ] as const;
  for (const [body, permission, tables] of expected) {
    const operation = Object.keys(body)[0];
    const { batch, accesses } = scanBody(body);
    t.equal(batch, false);
    t.strictSame(accesses.map(gist), [{ operation, permission, database: "main", tables }]);
  }
});

t.test("an access says where its inner object begins and ends", async (t) => {
  const inner = '{ "database":"main", "table":"é" }'.replace("é", "users");
  const body = Buffer.from(`{"Batch": [ {"DropTable" : ${inner} }, {"DropTable":${inner}}]}`);
  const { accesses } = scanBody(body);
  for (const { start, end } of accesses) t.equal(body.toString("utf8", start, end), inner);
  t.equal(accesses.length, 2);
});

t.test("names are told unescaped", async (t) => {
  const body = '{"Drop\\u0054able":{"data\\u0062ase":"m\\u0061in","table":"\\u0075sers"}}';
  t.strictSame(scanBody(body).accesses.map(gist), [
    { operation: "DropTable", permission: "DROP", database: "main", tables: ["users"] },
  ]);
});

t.test("an empty object asks for nothing and is refused", async (t) => {
  t.equal(verdict("{}"), "no_operation");
});

t.test("an operation that is neither of the grammar nor configured is refused", async (t) => {
  for (const key of ["select", "Truncate", "op", "", "Select ", "toString", "__proto__", "Grant"]) {
    t.equal(
      verdict(`{${JSON.stringify(key)}:{"database":"main","table":"users"}}`),
      "unknown_operation",
      key,
    );
  }
});

t.test("a second operation is refused, `op` too, whichever comes first", async (t) => {
  const inner = JSON.stringify(dropTable.DropTable);
  for (const second of ['"Select":{}', '"Batch":[]', '"op":"select"', '"\\u006fp":1']) {
    t.equal(verdict(`{"DropTable":${inner},${second}}`), "several_operations", second);
  }
  t.equal(verdict(`{"op":"select","DropTable":${inner}}`), "unknown_operation");
  t.equal(verdict(`{"DropTable":${inner},"trace":1}`, widened), "unknown_field");
  t.equal(verdict(`{"DropTable":${inner},"Truncate":1}`, widened), "several_operations");
});

t.test("the same operation twice is a duplicate key, also when spelled with escapes", async (t) => {
  const inner = JSON.stringify(dropTable.DropTable);
  t.equal(verdict(`{"DropTable":${inner},"DropTable":${inner}}`), "duplicate_key");
  t.equal(verdict(`{"DropTable":${inner},"\\u0044ropTable":${inner}}`), "duplicate_key");
});

t.test("a field given twice is refused, also when spelled with escapes", async (t) => {
  const twice = (key: string) => `{"DropTable":{"database":"a","table":"t",${key}:"b"}}`;
  t.equal(verdict(twice('"database"')), "duplicate_key");
  t.equal(verdict(twice('"d\\u0061tabase"')), "duplicate_key");
});

t.test("a field left out, unknown or of the wrong type is refused", async (t) => {
  t.equal(verdict({ DropTable: { database: "main" } }), "missing_field");
  t.equal(verdict({ DropTable: { table: "users" } }), "missing_field");
  t.equal(verdict({ DropTable: {} }), "missing_field");
  t.equal(verdict({ DropTable: { ...dropTable.DropTable, cascade: true } }), "unknown_field");
  t.equal(verdict({ DropTable: { ...dropTable.DropTable, Database: "x" } }), "unknown_field");
  t.equal(verdict({ CreateDatabase: { database: "main", table: "users" } }), "unknown_field");
  for (const wrong of [null, 1, true, ["main"], {}]) {
    t.equal(verdict({ DropTable: { database: wrong, table: "users" } }), "wrong_type");
    t.equal(verdict({ DropTable: { database: "main", table: wrong } }), "wrong_type");
  }
  for (const wrong of [null, 1, "users", [dropTable.DropTable]]) {
    t.equal(verdict({ DropTable: wrong }), "wrong_type");
  }
});

t.test("databases and tables have plain names", async (t) => {
  for (const name of ["a", "A-1_", "0", "x".repeat(63)]) {
    t.equal(verdict({ DropTable: { database: name, table: name } }), "accepted", name);
  }
  const bad = [
    "",
    "x".repeat(64),
    "a.b",
    "a b",
    "a/b",
    "é",
    "*",
    "a\n",
    "a\u0000",
    "..",
    'a"',
    "a`",
  ];
  for (const name of bad) {
    t.equal(verdict({ DropTable: { database: name, table: "users" } }), "invalid_name", name);
    t.equal(verdict({ DropTable: { database: "main", table: name } }), "invalid_name", name);
    t.equal(verdict({ CreateDatabase: { database: name } }), "invalid_name", name);
  }
});

t.test("a refusal names the place, what is wrong and what is allowed", async (t) => {
  const body = { Batch: [dropTable, { Insert: { database: "main", table: "users", rows: [] } }] };
  const { code, message, location } = refusalOf(body);
  t.equal(code, "unknown_field");
  t.equal(location.path, "Batch[1].Insert");
  t.match(message, /^Batch\[1\]\.Insert, byte \d+: .*"rows".*database, table, values/);
});

t.test(
  "the scanner reads a view into a larger buffer as it reads a buffer of its own",
  async (t) => {
    const text = JSON.stringify(dropTable);
    const whole = Buffer.from(`xxx${text}yyy`);
    const { accesses } = scanBody(whole.subarray(3, 3 + text.length), plain);
    t.strictSame(accesses.map(gist)[0]?.tables, ["users"]);
  },
);

const join = { table: "orders", on: "users.id = orders.user_id", join_type: "INNER" };

t.test("columns are *, columns, or columns of the operation's tables", async (t) => {
  for (const column of ["*", "id", "users.id", "users.größe", "first name"]) {
    t.equal(verdict(select({ columns: [column] })), "accepted", column);
  }
  for (const column of [
    ...["", "users.", ".id", "users.*", "users.a.b", "orders.id", "main.users.id", "a'b"],
    "Users.id",
  ]) {
    t.equal(verdict(select({ columns: ["id", column] })), "invalid_column", column);
  }
  t.equal(verdict(select({ columns: [] })), "invalid_value");
  t.equal(verdict(select({ columns: "*" })), "wrong_type");
  t.equal(verdict(select({ columns: [1] })), "wrong_type");
  t.equal(verdict(select({ columns: null })), "wrong_type");
});

t.test("a join adds its table, wherever in the body it stands", async (t) => {
  const columns = ["orders.total", "users.id"];
  t.strictSame(scanBody(select({ columns, join })).accesses[0]?.tables, ["users", "orders"]);
  const { Select } = select({ columns });
  t.strictSame(scanBody({ Select: { join, ...Select } }).accesses[0]?.tables, ["users", "orders"]);
});

t.test("a join has its three fields and no others", async (t) => {
  t.equal(verdict(select({ join: null })), "wrong_type");
  t.equal(verdict(select({ join: [join] })), "accepted");
  t.equal(verdict(select({ join: "orders" })), "wrong_type");
  t.equal(verdict(select({ join: { ...join, alias: "o" } })), "unknown_field");
  t.equal(verdict(select({ join: { table: "orders", on: join.on } })), "missing_field");
  t.equal(verdict(select({ join: { ...join, table: "other.orders" } })), "invalid_name");
  for (const type of ["INNER", "LEFT", "RIGHT"]) {
    t.equal(verdict(select({ join: { ...join, join_type: type } })), "accepted", type);
  }
  for (const type of ["inner", "CROSS", "INNER "]) {
    t.equal(verdict(select({ join: { ...join, join_type: type } })), "invalid_value", type);
  }
});

t.test("on is exactly table.column = table.column, both of this Select", async (t) => {
  const refused = [
    ...["", "users.id", "users.id=orders.id", "users.id  = orders.id", "users.id =  orders.id"],
    ...[" users.id = orders.id", "users.id = orders.id ", "users.id\t=\torders.id"],
    ...["users.id = id", "id = orders.id", "users.id = orders.id = users.id"],
    ...["users.a=b = orders.id", "users.a b = orders.id", "users.* = orders.id"],
    ...["users.id = orders.id OR 1=1", "users.id = other.id", "other.id = orders.id"],
    "users.id > orders.id",
  ];
  for (const on of refused)
    t.equal(verdict(select({ join: { ...join, on } })), "invalid_column", on);
  t.equal(verdict(select({ join: { ...join, on: "orders.user_id = users.id" } })), "accepted");
});

t.test("order_by is one column and a direction", async (t) => {
  t.equal(verdict(select({ order_by: { column: "name" } })), "accepted");
  t.equal(verdict(select({ order_by: { column: "users.name", direction: "DESC" } })), "accepted");
  t.equal(verdict(select({ order_by: { column: "*" } })), "invalid_column");
  t.equal(verdict(select({ order_by: { column: "orders.id" } })), "invalid_column");
  t.equal(verdict(select({ order_by: { column: "name", direction: "desc" } })), "invalid_value");
  t.equal(verdict(select({ order_by: { column: "name", direction: null } })), "wrong_type");
  t.equal(verdict(select({ order_by: { direction: "ASC" } })), "missing_field");
  t.equal(verdict(select({ order_by: { column: "name", nulls: "LAST" } })), "unknown_field");
  t.equal(verdict(select({ order_by: null })), "wrong_type");
  t.equal(verdict(select({ order_by: "name" })), "wrong_type");
});

t.test("limit and offset are non-negative integers written in digits", async (t) => {
  const body = (field: string, value: string) =>
    JSON.stringify(select({ [field]: 0 })).replace(/0\}\}$/, `${value}}}`);
  for (const field of ["limit", "offset"]) {
    for (const value of ["0", "10", "9007199254740991"]) {
      t.equal(verdict(body(field, value)), "accepted", value);
    }
    for (const value of ["-1", "-0", "1.0", "1e2", "9007199254740992", "1".repeat(400)]) {
      t.equal(verdict(body(field, value)), "invalid_value", value);
    }
    for (const value of ["null", '"10"', "[10]", "true"]) {
      t.equal(verdict(body(field, value)), "wrong_type", value);
    }
  }
});

t.test("a foreign table is named with the place where the body names it", async (t) => {
  const where = {
    and: [
      { column: "id", cmp: "=", value: 1 },
      { column: "x.id", cmp: "=", value: 1 },
    ],
  };
  const { location, message } = refusalOf(select({ where, join }));
  t.equal(location.path, "Select.where.and[1].column");
  t.match(message, /"x".*"users" and "orders"/);
});

t.test("a foreign table among many good and bad ones is found", async (t) => {
  const columns = ["a.id", "users.id", "b.id", "orders.id", "c.id"];
  t.equal(verdict(select({ columns, join })), "invalid_column");
  t.equal(verdict(select({ columns: columns.slice(0, 2) })), "invalid_column");
});

const equal = { column: "age", cmp: "=", value: 1 };
const whereText = (where: string) =>
  `{"Delete":{"database":"main","table":"users","where":${where}}}`;
const where = (condition: unknown) => verdict(whereText(JSON.stringify(condition)));

t.test("null is no condition, and only a Select may leave it out", async (t) => {
  const target = { database: "main", table: "users" };
  t.equal(where(null), "accepted");
  t.equal(verdict(select()), "accepted");
  t.equal(verdict(select({ where: null })), "accepted");
  t.equal(verdict({ Delete: target }), "missing_field");
  t.equal(verdict({ Update: { ...target, set: { a: 1 } } }), "missing_field");
});

t.test("every comparison of the grammar is accepted and no other", async (t) => {
  for (const cmp of ["=", "!=", ">", "<", ">=", "<="]) {
    t.equal(where({ column: "age", cmp, value: null }), "accepted", cmp);
  }
  for (const cmp of ["", "==", "<>", "like", "IS", "NOT IN", "= ", "=;"]) {
    t.equal(where({ column: "age", cmp, value: 1 }), "invalid_value", cmp);
  }
  t.equal(where({ column: "age", cmp: null, value: 1 }), "wrong_type");
});

t.test("LIKE, IN and BETWEEN are given values that fit, in any order of keys", async (t) => {
  const fitting = { LIKE: ["a%"], IN: [[], [1], [1, "a"]], BETWEEN: [[1, 2]] };
  const unfitting = {
    LIKE: [1, null, ["a"], {}],
    IN: [1, "a", null, { "0": 1 }],
    BETWEEN: [1, "ab", [], [1], [1, 2, 3], { a: 1, b: 2 }],
  };
  for (const [cmp, values] of Object.entries(fitting)) {
    for (const value of values) t.equal(where({ value, cmp, column: "a" }), "accepted", cmp);
  }
  for (const [cmp, values] of Object.entries(unfitting)) {
    for (const value of values) {
      t.equal(where({ column: "a", cmp, value }), "invalid_value", cmp);
      t.equal(where({ value, cmp, column: "a" }), "invalid_value", cmp);
    }
  }
});

t.test("a comparison has its three fields and no others", async (t) => {
  t.equal(where({ column: "a", cmp: "=" }), "missing_field");
  t.equal(where({ column: "a", value: 1 }), "missing_field");
  t.equal(where({ cmp: "=", value: 1 }), "missing_field");
  t.equal(where({}), "missing_field");
  t.equal(where({ ...equal, escape: "!" }), "unknown_field");
  t.equal(where({ ...equal, and: [equal] }), "unknown_field");
  t.equal(verdict(whereText('{"column":"a","cmp":"=","value":1,"value":2}')), "duplicate_key");
  t.equal(verdict(whereText('{"column":"a","cmp":"=","value":{"a":1,"a":2}}')), "accepted");
});

t.test("conditions are combined by exactly one of and, or, not", async (t) => {
  t.equal(where({ and: [equal, { or: [equal, { not: { and: [equal] } }] }] }), "accepted");
  t.equal(verdict(whereText(`{"\\u0061nd":[${JSON.stringify(equal)}]}`)), "accepted");
  t.equal(where({ and: [equal], or: [equal] }), "unknown_field");
  t.equal(where({ not: equal, column: "a" }), "unknown_field");
  t.equal(where({ xor: [equal] }), "unknown_field");
  t.equal(verdict(whereText('{"not":{"and":[{"not":{}}]}}')), "missing_field");
  const text = JSON.stringify(equal);
  t.equal(verdict(whereText(`{"not":${text},"not":${text}}`)), "duplicate_key");
});

t.test("a combination holds at least one condition, each an object", async (t) => {
  for (const key of ["and", "or"]) {
    t.equal(where({ [key]: [] }), "invalid_value");
    t.equal(where({ [key]: equal }), "wrong_type");
    t.equal(where({ [key]: null }), "wrong_type");
    t.equal(where({ [key]: [equal, null] }), "wrong_type");
    t.equal(where({ [key]: ["1=1"] }), "wrong_type");
  }
  t.equal(where({ not: null }), "wrong_type");
  t.equal(where({ not: [equal] }), "wrong_type");
  t.equal(where("1=1"), "wrong_type");
  t.equal(where([equal]), "wrong_type");
  t.equal(where(false), "wrong_type");
});

t.test("conditions side by side do not add to the depth", async (t) => {
  t.equal(where({ or: Array.from({ length: 200 }, () => ({ not: equal })) }), "accepted");
});

t.test("a condition's column is a column or a column of the operation's table", async (t) => {
  t.equal(where({ ...equal, column: "users.age" }), "accepted");
  for (const column of ["*", "", "other.age", "users.*", "a.b.c", "a`"]) {
    t.equal(where({ ...equal, column }), "invalid_column", column);
  }
  t.equal(where({ ...equal, column: 1 }), "wrong_type");
});

t.test("a refused value is not echoed", async (t) => {
  const body = select({ where: { column: "a", cmp: "BETWEEN", value: ["hunter2"] } });
  const { message, location } = refusalOf(body);
  t.equal(location.path, "Select.where");
  t.notMatch(message, "hunter2");
});

const insert = (...rows: string[]) =>
  `{"Insert":{"database":"main","table":"users","values":[${rows.join(",")}]}}`;
const update = (set: string) =>
  `{"Update":{"database":"main","table":"users","where":null,"set":${set}}}`;

t.test("values are at least one row, and every row is an object", async (t) => {
  t.equal(verdict(insert()), "invalid_value");
  t.equal(verdict(insert("{}")), "accepted");
  for (const row of ["null", "[]", "1", '"a"', "true"]) {
    t.equal(verdict(insert('{"a":1}', row)), "wrong_type", row);
  }
  t.equal(verdict(insert("{}").replace("[{}]", "{}")), "wrong_type");
});

t.test("set is an object of at least one column", async (t) => {
  t.equal(verdict(update("{}")), "invalid_value");
  t.equal(verdict(update('{"a":1}')), "accepted");
  for (const set of ["null", '[{"a":1}]', '"a"']) t.equal(verdict(update(set)), "wrong_type", set);
});

t.test(
  "a column given twice in one row or set is refused, also when spelled with escapes",
  async (t) => {
    for (const row of [
      '{"a":1,"b":2,"a":3}',
      '{"a":1,"\\u0061":2}',
      '{"\\u0061":1,"\\u0061":1,"a":2}',
    ]) {
      t.equal(verdict(insert(row)), "duplicate_key", row);
      t.equal(verdict(update(row)), "duplicate_key", row);
      t.equal(verdict(insert('{"a":1,"b":2}', row)), "duplicate_key", row);
      t.equal(verdict(insert('{"b":1,"a":2}', '{"x":1}', row)), "duplicate_key", row);
    }
    t.equal(verdict(insert('{"é":1,"\\u00e9":2}')), "duplicate_key");
    t.equal(verdict(insert('{"😀":1,"\\ud83d\\ude00":2}')), "duplicate_key");
  },
);

t.test(
  "rows may have the same columns, other ones, fewer, more, and in another order",
  async (t) => {
    const rows = [
      ...['{"a":1,"b":2}', '{"a":1,"b":2}', '{"b":1,"a":2}', '{"a":1}', "{}"],
      '{"c":1,"b":2,"a":3}',
    ];
    t.equal(verdict(insert(...rows, ...rows, ...rows)), "accepted");
  },
);

t.test("a key that begins like one of the row before is another key", async (t) => {
  t.equal(verdict(insert('{"a":1}', '{"ab":1,"a":2}', '{"a\\"":1}')), "invalid_column");
  t.equal(verdict(insert('{"ab":1,"a":2}', '{"a":1,"ab":2}')), "accepted");
});

t.test("a duplicate is found in wide rows and after thousands of different columns", async (t) => {
  const wide = (prefix: string, extra: string) =>
    `{${Array.from({ length: 5000 }, (_, index) => `"${prefix}${index}":0`).join(",")}${extra}}`;
  t.equal(verdict(insert(wide("a", ""), wide("b", ""), wide("a", ""))), "accepted");
  t.equal(verdict(insert(wide("a", ',"a0":1'))), "duplicate_key");
  t.equal(verdict(insert(wide("a", ""), wide("b", ""), wide("a", ',"a4999":1'))), "duplicate_key");
  t.equal(verdict(insert(wide("a", ""), wide("b", ""), '{"a0":1,"a1":2,"a0":3}')), "duplicate_key");
});

t.test("duplicates within a cell's value are the cell's own affair", async (t) => {
  t.equal(verdict(insertOf('{"a":1,"a":{"b":1,"b":2}}')), "accepted");
  t.equal(verdict(update('{"cell":[{"a":1,"a":2}]}')), "accepted");
});

t.test("a row's keys are bare column names", async (t) => {
  const good = [
    ...["id", "first name", "größe", "$x", "a*b", "x".repeat(128), "漢".repeat(128)],
    "😀".repeat(128),
  ];
  for (const key of good) {
    t.equal(verdict(insert(JSON.stringify({ [key]: 1 }))), "accepted", key);
  }
  const controls = ["\u0000", "\n", "\u001f", "\u007f", "\u0080", "\u009f"];
  const bad = [
    "",
    "*",
    "a.b",
    "users.id",
    "a'",
    'a"',
    "a\\",
    "a`",
    "x".repeat(129),
    "😀".repeat(129),
  ];
  for (const key of [...bad, ...controls.map((control) => `a${control}b`)]) {
    t.equal(verdict(insert(JSON.stringify({ [key]: 1 }))), "invalid_column", JSON.stringify(key));
    t.equal(verdict(update(JSON.stringify({ [key]: 1 }))), "invalid_column", JSON.stringify(key));
  }
  t.equal(verdict(insert(JSON.stringify({ "a\u00a0b": 1 }))), "accepted");
});

t.test("a column name that must be escaped cannot hide behind its escape", async (t) => {
  for (const key of ["a\\u002eb", "\\u002a", "a\\u0027", "a\\u0085"]) {
    t.equal(verdict(insert(`{"${key}":1}`)), "invalid_column", key);
  }
});

t.test("a refusal names the row, and never a cell's value", async (t) => {
  const secret = "hunter2";
  const bodies = [
    insert('{"a":1}', `{"a":"${secret}","a":1}`),
    insert('{"a":1}', `{"a":"${secret}","b":nope}`),
    insert('{"a":1}', `{"b":{"${secret}":"\\ud800"}}`),
  ];
  for (const body of bodies) {
    const { message, location } = refusalOf(body);
    t.equal(location.path, "Insert.values[1]");
    t.notMatch(message, secret);
  }
});

t.test("an Insert of many rows is one access", async (t) => {
  const rows = Array.from({ length: 10_000 }, (_, id) => JSON.stringify({ id, name: `n${id}` }));
  t.equal(scanBody(insert(...rows)).accesses.length, 1);
});

const create = (...columns: unknown[]) => ({
  CreateTable: { database: "main", table: "users", columns },
});
const id = { name: "id", type: "int" };

t.test("a table has at least one column", async (t) => {
  t.equal(verdict(create(id)), "accepted");
  t.equal(verdict(create()), "invalid_value");
  t.equal(
    verdict({ CreateTable: { database: "main", table: "users", columns: {} } }),
    "wrong_type",
  );
  t.equal(verdict({ CreateTable: { database: "main", table: "users" } }), "missing_field");
});

t.test("a column has a name and a type, and may say more", async (t) => {
  t.equal(verdict(create({ ...id, primary_key: true, unique: false, nullable: true })), "accepted");
  t.equal(verdict(create({ name: "id" })), "missing_field");
  t.equal(verdict(create({ type: "int" })), "missing_field");
  t.equal(verdict(create({ ...id, comment: 1 })), "unknown_field");
  t.equal(verdict(create("id")), "wrong_type");
  for (const key of ["primary_key", "unique", "nullable"]) {
    for (const wrong of [null, 1, "true", []]) {
      t.equal(verdict(create({ ...id, [key]: wrong })), "wrong_type", key);
    }
  }
});

t.test("a type is a word, with a length or a precision if wanted", async (t) => {
  const good = "int VARCHAR(255) numeric(10,2) int8 a_b n(999999999)".split(" ");
  good.push(`a${"x".repeat(62)}`);
  for (const type of good) t.equal(verdict(create({ ...id, type })), "accepted", type);
  const bad = "8int _int int) int() int(1 int(a) int(-1) int(1,) int(1,2,3) n(1000000000)".split(
    " ",
  );
  bad.push("", "int unsigned", "int(1, 2)", "int (1)", `a${"x".repeat(63)}`);
  bad.push("int; DROP TABLE users", "int\n", "größe");
  for (const type of bad) t.equal(verdict(create({ ...id, type })), "invalid_type", type);
  t.equal(verdict(create({ ...id, type: 1 })), "wrong_type");
});

t.test("a column's name is bare", async (t) => {
  for (const name of ["*", "users.id", "", "a'b", "x".repeat(129)]) {
    t.equal(verdict(create({ ...id, name })), "invalid_column", name);
  }
});

t.test("two columns of one name are refused", async (t) => {
  t.equal(verdict(create(id, { name: "name", type: "text" })), "accepted");
  const { code, location } = refusalOf(create(id, { name: "name", type: "text" }, id));
  t.equal(code, "invalid_column");
  t.equal(location.path, "CreateTable.columns[2].name");
});

const drop = (table: string, database = "main") => ({ DropTable: { database, table } });

t.test("a batch is told element by element, in its order", async (t) => {
  const { batch, accesses } = scanBody({ Batch: [drop("a"), select(), drop("b", "other")] });
  t.equal(batch, true);
  t.strictSame(accesses.map(gist), [
    { operation: "DropTable", permission: "DROP", database: "main", tables: ["a"] },
    { operation: "Select", permission: "SELECT", database: "main", tables: ["users"] },
    { operation: "DropTable", permission: "DROP", database: "other", tables: ["b"] },
  ]);
});

t.test("a batch has 1 to 1000 elements", async (t) => {
  const batch = (length: number) => ({ Batch: Array.from({ length }, () => drop("a")) });
  t.equal(verdict(batch(0)), "batch_size");
  t.equal(verdict(batch(1)), "accepted");
  t.equal(scanBody(batch(1000)).accesses.length, 1000);
  t.equal(verdict(batch(1001)), "batch_size");
});

t.test("batches, database operations and configured ones do not go into a batch", async (t) => {
  const outsiders = [
    { Batch: [drop("a")] },
    { CreateDatabase: { database: "main" } },
    { DropDatabase: { database: "main" } },
    { Truncate: { database: "main", table: "users" } },
  ];
  for (const outsider of outsiders) {
    t.equal(verdict({ Batch: [drop("a"), outsider] }, widened), "not_in_batch");
  }
});

t.test("every element is an object with exactly one operation", async (t) => {
  t.equal(verdict({ Batch: drop("a") }), "wrong_type");
  t.equal(verdict({ Batch: null }), "wrong_type");
  t.equal(verdict({ Batch: [drop("a"), null] }), "wrong_type");
  t.equal(verdict({ Batch: [[drop("a")]] }), "wrong_type");
  t.equal(verdict({ Batch: ["DropTable"] }), "wrong_type");
  t.equal(verdict({ Batch: [{}] }), "no_operation");
  t.equal(verdict({ Batch: [{ Grant: {} }] }), "unknown_operation");
  t.equal(verdict({ Batch: [{ ...drop("a"), ...select() }] }), "several_operations");
  t.equal(verdict({ Batch: [{ ...drop("a"), op: "drop" }] }), "several_operations");
  t.equal(verdict({ Batch: [{ ...drop("a"), comment: "" }] }), "unknown_field");
  t.equal(verdict({ Batch: [drop("a")], ...drop("b") }), "several_operations");
  t.equal(verdict('{"Batch":[],"Batch":[]}'), "batch_size");
});

t.test("every element is checked, and the one at fault is named", async (t) => {
  const { location } = refusalOf({ Batch: [drop("a"), drop("b"), drop("not plain")] });
  t.equal(location.path, "Batch[2].DropTable.table");
});

t.test("one element's tables are not another's", async (t) => {
  const where = { column: "orders.id", cmp: "=", value: 1 };
  t.equal(verdict({ Batch: [drop("orders"), select({ where })] }), "invalid_column");
});

const truncate = (fields: object) => ({
  Truncate: { database: "main", table: "users", ...fields },
});

t.test(
  "a configured operation has a database, a table and the right it is mapped to",
  async (t) => {
    t.strictSame(scanBody(truncate({}), widened).accesses.map(gist), [
      { operation: "Truncate", permission: "DELETE", database: "main", tables: ["users"] },
    ]);
    t.equal(verdict(truncate({ where: null }), widened), "unknown_field");
    t.equal(verdict({ Truncate: { database: "main" } }, widened), "missing_field");
    t.equal(verdict(truncate({ table: "not plain" }), widened), "invalid_name");
    t.equal(verdict(truncate({})), "unknown_operation");
  },
);

t.test("a configured field may stand in every operation, once, with any value", async (t) => {
  for (const trace of [null, 1, "x", [{}], { a: { b: [] } }]) {
    t.equal(verdict(select({ trace }), widened), "accepted");
    t.equal(verdict(truncate({ trace }), widened), "accepted");
    t.equal(verdict({ CreateDatabase: { database: "main", trace } }, widened), "accepted");
    t.equal(verdict({ Batch: [select({ trace })] }, widened), "accepted");
  }
  t.equal(verdict(select({ trace: 1 })), "unknown_field");
  const twice = '{"DropDatabase":{"database":"main","trace":1,"tr\\u0061ce":2}}';
  t.equal(verdict(twice, widened), "duplicate_key");
});

t.test(
  "a configured field's value has each key once at any depth, also when spelled with escapes",
  async (t) => {
    const body = (trace: string) => `{"DropDatabase":{"database":"main","trace":${trace}}}`;
    for (const trace of [
      ...['{"a":1,"a":2}', '{"a":1,"b":2,"\\u0061":3}', '{"a":{"b":{"c":1,"c":1}}}'],
      ...['[0,[{"a":1},{"b":[{"c":1,"c":1}]}]]', '{"__proto__":1,"__proto__":2}'],
    ]) {
      t.equal(verdict(body(trace), widened), "duplicate_key", trace);
    }
    for (const trace of ['{"a":1,"A":{"a":1}}', '[{"a":1},{"a":1}]', '"{\\"a\\":1}"']) {
      t.equal(verdict(body(trace), widened), "accepted", trace);
    }
    t.equal(verdict(body('{"a":1,}'), widened), "invalid_json");
    t.equal(verdict(body("[".repeat(63) + "]".repeat(63)), widened), "nesting_too_deep");
    const { location, message } = refusalOf(body('{"a":1,"a":2}'), widened);
    t.equal(location.path, "DropDatabase.trace");
    t.match(message, /the key "a" is given twice/);
  },
);

t.test("a configured field is not allowed within the objects of an operation", async (t) => {
  t.equal(verdict(select({ order_by: { column: "a", trace: 1 } }), widened), "unknown_field");
  t.equal(verdict({ ...select(), trace: 1 }, widened), "unknown_field");
});
