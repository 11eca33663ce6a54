import t from "tap";
import { gist, plain, refusalOf, scanBody, select, verdict, widened } from "./kit.ts";

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
