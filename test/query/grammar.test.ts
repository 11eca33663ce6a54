import t from "tap";
import { createGrammar } from "../../src/query/grammar.ts";
import { gist, refusalOf, scanBody, select, verdict, widened } from "./kit.ts";

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
      '{"a":1,"a":2}',
      '{"a":1,"b":2,"\\u0061":3}',
      '{"a":{"b":{"c":1,"c":1}}}',
      '[0,[{"a":1},{"b":[{"c":1,"c":1}]}]]',
      '{"__proto__":1,"__proto__":2}',
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

t.test("a configured name may not be one of the grammar's, however it is written", async (t) => {
  for (const name of ["database", "Database", "order-by", "ORDERBY", "op", "Select", "batch"]) {
    t.throws(() => createGrammar({ extraFields: [name], operations: {} }), /collides/, name);
  }
  for (const name of ["Select", "select", "create_table", "Batch", "op", "OP"]) {
    const operations = { [name]: "SELECT" } as const;
    t.throws(() => createGrammar({ extraFields: [], operations }), /collides/, name);
  }
});

t.test("a configured name is a plain name and stands once", async (t) => {
  t.throws(() => createGrammar({ extraFields: [""], operations: {} }), /no plain name/);
  t.throws(() => createGrammar({ extraFields: ["größe"], operations: {} }), /no plain name/);
  t.throws(() => createGrammar({ extraFields: ["a", "A"], operations: {} }), /collides/);
  const operations = { Count: "SELECT", count: "DELETE" } as const;
  t.throws(() => createGrammar({ extraFields: [], operations }), /collides/);
});
