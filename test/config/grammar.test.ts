import t from "tap";
import { createGrammar } from "../../src/query/grammar.ts";
import { load, problemsOf } from "./support.ts";

const names = [
  ...["hint", "timeout_ms", "Batch", "op", "OP", "Select", "select", "truncate", "Truncate"],
  ...["database", "Data_Base", "order_by", "OrderBy", "where", "constructor", "a", "x1"],
];

t.test("whatever names the configuration accepts, the query grammar accepts", (t) => {
  const accepted = { extra_fields: 0, operations: 0 };
  for (const name of names) {
    const field = `[query]\nextra_fields = ["${name}"]\n`;
    if (problemsOf(t, field).length === 0) {
      const extraFields = load(t, field).configuration.query.extra_fields;
      t.ok(createGrammar({ extraFields, operations: {} }), name);
      accepted.extra_fields += 1;
    }
    const operation = `[query.operations]\n${name} = "DELETE"\n`;
    if (problemsOf(t, operation).length === 0) {
      const { operations } = load(t, operation).configuration.query;
      t.ok(createGrammar({ extraFields: [], operations }), name);
      accepted.operations += 1;
    }
  }
  t.strictSame(accepted, { extra_fields: 6, operations: 8 });
  t.end();
});
