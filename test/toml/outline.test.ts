import t from "tap";
import { lineLocator, outline } from "../../src/toml/toml.ts";

/** A statement as `kind line path = text`, which is what the tests below compare. */
function described(text: string): string[] {
  return outline(text).map((statement) => {
    const path = JSON.stringify(statement.path);
    return `${statement.kind} ${statement.line} ${path} ${text.slice(statement.start, statement.end)}`;
  });
}

function valuesOf(text: string): string[] {
  return outline(text).map(({ valueStart, end }) => text.slice(valueStart, end));
}

t.test("keys carry the path of the table that they stand under", (t) => {
  const text = 'top = 1\n[server]\nport = 8080\n  [a.b]\n  c.d = "x" # note\n[[users]]\nname="u"\n';
  t.same(described(text), [
    'key 1 ["top"] top = 1',
    'table 2 ["server"] [server]',
    'key 3 ["server","port"] port = 8080',
    'table 4 ["a","b"] [a.b]',
    'key 5 ["a","b","c","d"] c.d = "x"',
    'array-table 6 ["users"] [[users]]',
    'key 7 ["users","name"] name="u"',
  ]);
  t.end();
});

t.test("a value is found by its table's number, or else what is around it", (t) => {
  const lineOf = lineLocator("[[a]]\n[[b]]\n[[a]]\nc.d = 1\n[[ a . b ]]\n[[a.b]]\ne = 2\n");
  const paths = [
    ["a"],
    ["b", 0],
    ["a", 1],
    ["a", 1, "c"],
    ["a", 1, "b", 1, "e"],
    ["a", 1, "x"],
    ["x"],
  ];
  t.same(paths.map(lineOf), [1, 2, 3, 4, 7, 3, undefined]);
  t.end();
});

t.test("quoted and dotted keys are resolved", (t) => {
  const text = `"a.b" . 'c"d' . e = 1\n"\\u0041\\U0001F600\\x42\\t\\"\\\\\\e" = 2\n[ "x y" . 'z\\n' ]\n"" = 3`;
  t.same(
    outline(text).map((statement) => statement.path),
    [["a.b", 'c"d', "e"], ['A\u{1F600}B\t"\\\u001b'], ["x y", "z\\n"], ["x y", "z\\n", ""]],
  );
  t.end();
});

t.test("signs inside strings and comments do not end a value", (t) => {
  const values = [
    `"a # ] } \\" = [x]"`,
    `'C:\\dir\\'`,
    '""',
    "''",
    '"\\\\"',
    `"""one\n[two]\nthree = 3 \\\n  \\""" "" """""`,
    "'''\n# 'x' ''y''\n'''''",
    `[ "]", ']', # ] and "\n  [1, 2],\n  { a = "}", b = [ '#' ] },\n]`,
    `{ "a}" = 1, b.c = """}""" }`,
    "1979-05-27 07:32:00Z",
    "-1_000.5e+3",
  ];
  const text = values.map((value, index) => `key${index} = ${value} # " ' [\n`).join("");
  t.same(valuesOf(text), values);
  t.end();
});

t.test("lines are counted through values that span several", (t) => {
  const text = '# head\n\na = """\n\n"""\nb = [\n  1,\n]\n\n[c]\nd = 1\n';
  t.same(
    outline(text).map((statement) => statement.line),
    [3, 6, 10, 11],
  );
  t.end();
});

t.test("carriage returns, a byte-order mark and a missing last line end are no part of it", (t) => {
  const text = "\uFEFF[a]\r\nb = 1\r\n# c\r\n\r\n[[d]] \r\ne = true";
  t.same(described(text), [
    'table 1 ["a"] [a]',
    'key 2 ["a","b"] b = 1',
    'array-table 5 ["d"] [[d]]',
    'key 6 ["d","e"] e = true',
  ]);
  t.end();
});

t.test("an empty document and one of comments alone have no statements", (t) => {
  t.same(outline(""), []);
  t.same(outline("# nothing\n\n  # here"), []);
  t.end();
});

t.test("a text that is no TOML never keeps the outline going for ever", (t) => {
  for (const text of [
    "= 1",
    "[",
    "a = [",
    'a = "',
    "a = '''",
    'a = "\\',
    "a",
    "[[a]",
    "\0",
    "a =",
  ]) {
    try {
      outline(text);
    } catch (error) {
      t.ok(error instanceof SyntaxError, `${JSON.stringify(text)} is refused as no TOML`);
    }
  }
  t.throws(() => outline("= 1"), SyntaxError);
  t.end();
});
