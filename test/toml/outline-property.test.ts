import assert from "node:assert/strict";
import fc from "fast-check";
import { parse } from "smol-toml";
import t from "tap";
import { outline } from "../../src/toml/toml.ts";
import { basic, documents } from "./documents.ts";

function written(path: readonly string[]): string {
  return path.map(basic).join(".");
}

/** The document made anew from its outline alone: paths, and the slices of the values. */
function rebuilt(text: string): string {
  let depth = 0;
  const lines = outline(text).map((statement) => {
    if (statement.kind === "key") {
      const value = text.slice(statement.valueStart, statement.end);
      return `${written(statement.path.slice(depth))} = ${value}`;
    }
    depth = statement.path.length;
    const header = written(statement.path);
    return statement.kind === "table" ? `[${header}]` : `[[${header}]]`;
  });
  return lines.join("\n");
}

t.test("any document made anew from its outline has the same values", (t) => {
  fc.assert(
    fc.property(documents, (text) => {
      assert.deepEqual(parse(rebuilt(text)), parse(text));
    }),
    { numRuns: 500 },
  );
  t.pass();
  t.end();
});

t.test("between the statements of any document stand blanks and comments alone", (t) => {
  fc.assert(
    fc.property(documents, (text) => {
      let end = 0;
      for (const statement of outline(text)) {
        assert.match(text.slice(end, statement.start), /^(?:\s|#[^\n]*\n)*$/);
        assert.equal(statement.line, text.slice(0, statement.start).split("\n").length);
        end = statement.end;
      }
      assert.match(text.slice(end), /^(?:\s|#[^\n]*(?:\n|$))*$/);
    }),
    { numRuns: 200 },
  );
  t.pass();
  t.end();
});
