import t from "tap";
import { parseToml, TomlSyntaxError } from "../../src/toml/toml.ts";

function failureOf(text: string): TomlSyntaxError {
  try {
    parseToml(text, "secret.toml");
  } catch (error) {
    if (error instanceof TomlSyntaxError) return error;
    throw error;
  }
  throw new Error("no error was thrown");
}

t.test("a document is read as values", (t) => {
  const values = parseToml("a = 1\n[b]\nc = 9007199254740991\n", "x.toml");
  t.same(values, { a: 1, b: { c: 9007199254740991 } });
  t.end();
});

t.test("a syntax error names file, line and reason", (t) => {
  const error = failureOf('a = 1\nb = "two\n');
  t.equal(error.line, 2);
  t.equal(error.message, `secret.toml:2: ${error.reason}`);
  t.match(error.reason, /control characters are not allowed in strings/);
  t.end();
});

t.test("a syntax error says what has mostly happened", (t) => {
  const hints = {
    'role = "Owner': "is its closing quote missing?",
    "role = Owner": "text stands in quotes",
    "host = 0.0.0.0": "text stands in quotes",
  };
  for (const [text, hint] of Object.entries(hints)) {
    t.match(failureOf(`${text}\n`).reason, hint, text);
  }
  t.end();
});

t.test("an integer that a double cannot hold keeps its digits", (t) => {
  const values = parseToml("a = 9007199254740993\nb = 1", "a.toml");
  t.strictSame({ ...values }, { a: 9007199254740993n, b: 1 });
  t.end();
});

t.test("no error holds text of the file", (t) => {
  const broken = [
    "hunter2",
    "hunter2 =",
    "hunter2 = hunter2",
    'a = "hunter2',
    'a = "\\hunter2"',
    'a = "\\uhunter2"',
    "a = 0hunter2",
    "a = 1hunter2",
    "a = 1979-99-99hunter2",
    "a = 1979-99-99",
    "a = 25:61:61",
    "hunter2 = 1\nhunter2 = 2",
    "[hunter2]\n[hunter2]",
    "[[hunter2]\n",
    "[hunter2",
    "a = [hunter2",
    "a = { hunter2 = 1, hunter2 = 1 }",
    "a = 1 hunter2",
    "# hunter2 \0",
    "hunter2 hunter2 = 1",
    '"""hunter2""" = 1',
    "a = +hunter2",
    "a = inhunter2",
    "a = 1_hunter2",
    `a = ${"[".repeat(2000)}hunter2`,
  ];
  for (const text of broken) {
    const error = failureOf(text);
    const everything = `${error.stack} ${JSON.stringify(error)} ${String(error.cause)}`;
    t.notMatch(everything, /hunter2|99-99|25:61/, error.reason);
    t.not(error.reason, "invalid TOML", "the reason says more than that");
  }
  t.end();
});
