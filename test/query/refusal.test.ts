import t from "tap";
import { isPlainName } from "../../src/query/names.ts";
import { queryRefusals, quoteName } from "../../src/query/refusal.ts";
import { refusalOf } from "./kit.ts";

t.test("every code is a snake_case word with a sentence", async (t) => {
  for (const [code, sentence] of Object.entries(queryRefusals)) {
    t.match(code, /^[a-z]+[a-z0-9]*(_[a-z0-9]+)*$/);
    t.match(sentence, /^[A-Z].*\.$/);
  }
});

t.test("a name from the body is shown escaped and cut", async (t) => {
  t.equal(quoteName('a"\n'), '"a\\"\\n"');
  t.equal(quoteName("\u202e\u0085\u2028é"), '"\\u202e\\u0085\\u2028é"');
  t.equal(quoteName("x".repeat(64)), `"${"x".repeat(64)}"`);
  t.equal(quoteName("😀".repeat(65)), `"${"😀".repeat(64)}"...`);
  const { message } = refusalOf({ [`evil\u001b[31m${"x".repeat(1_000_000)}`]: 1 });
  t.match(message, "evil\\u001b[31mxxx");
  t.ok(message.length < 500);
});

t.test("a plain name is 1 to 63 ASCII letters, digits, _ and -", async (t) => {
  for (const name of ["a", "main", "A_b-9", "x".repeat(63)]) t.ok(isPlainName(name), name);
  for (const name of ["", "a.b", "a b", "é", "a\n", "*", "x".repeat(64)])
    t.notOk(isPlainName(name), name);
});
