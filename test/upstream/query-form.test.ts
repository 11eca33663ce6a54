import t from "tap";
import { createGrammar } from "../../src/query/grammar.ts";
import { scan } from "../../src/query/scan.ts";
import { toOpForm } from "../../src/upstream/query-form.ts";

const grammar = createGrammar({ extraFields: [], operations: { TruncateTable: "DELETE" } });

function rewrite(text: string): string {
  const body = Buffer.from(text);
  return toOpForm(body, scan(body, grammar)).toString();
}

t.test("the operation becomes a field and the fields keep their bytes", async (t) => {
  const fields =
    ' "database" : "m\\u0061in",\n"table":"t", "values":[{"id":12345678901234567890, "x": 1.50e+3}] ';
  t.equal(rewrite(` { "Insert" : {${fields}} } `), `{"op":"insert",${fields}}`);
});

t.test("an operation of several words is written with underscores", async (t) => {
  t.equal(
    rewrite('{"DropTable":{"database":"m","table":"t"}}'),
    '{"op":"drop_table","database":"m","table":"t"}',
  );
  t.equal(
    rewrite('{"CreateDatabase":{"database":"m"}}'),
    '{"op":"create_database","database":"m"}',
  );
  t.equal(
    rewrite('{"TruncateTable":{"database":"m","table":"t"}}'),
    '{"op":"truncate_table","database":"m","table":"t"}',
  );
});

t.test("a Batch becomes an array that begins with its name", async (t) => {
  const elements =
    '[{"Insert":{"database":"m","table":"t","values":[{"a":9007199254740993}]}}, {"DropTable":{"database":"m","table":"u"}}]';
  const rewritten = rewrite(`{"Batch":${elements}}`);
  t.equal(
    rewritten,
    '["batch",{"op":"insert","database":"m","table":"t","values":[{"a":9007199254740993}]},{"op":"drop_table","database":"m","table":"u"}]',
  );
  t.doesNotThrow(() => JSON.parse(rewritten));
});
