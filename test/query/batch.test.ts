import t from "tap";
import { gist, refusalOf, scanBody, select, verdict, widened } from "./kit.ts";

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
