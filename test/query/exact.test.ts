import { deepStrictEqual } from "node:assert";
import fc from "fast-check";
import t from "tap";
import { runAtOnce } from "../../src/core/base/cooperative-scheduling.ts";
import {
  ExactNumber,
  exactNumber,
  parseExact,
  parseExactInSteps,
} from "../../src/core/json/exact.ts";

/** A reviver that reads numbers from their source (ECMAScript, JSON.parse source text access). */
function revive(_key: string, value: unknown, context?: { readonly source?: string }): unknown {
  return typeof value === "number" ? exactNumber(context?.source ?? "") : value;
}

const space = fc.constantFrom("", " ", "\n", "\t\r ");
const number = fc.oneof(
  fc.integer().map(String),
  fc.bigInt({ min: -(10n ** 25n), max: 10n ** 25n }).map(String),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((value) => JSON.stringify(value)),
  fc.constantFrom("-0", "0", "1.0", "-1.50", "1e5", "1E-7", "0.1e+3", "1e400", "123456789012345"),
);
const text = fc
  .oneof(fc.string(), fc.constantFrom("__proto__", "\\", '\\"', "a\\\\", "constructor", "é😀"))
  .map((one) => JSON.stringify(one));
const { value: json } = fc.letrec<{ value: string }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 5 },
    number,
    text,
    fc.constantFrom("true", "false", "null"),
    fc
      .array(fc.tuple(space, tie("value"), space), { maxLength: 5 })
      .map((items) => `[${items.map((parts) => parts.join("")).join(",")}]`),
    fc
      .array(fc.tuple(space, text, space, fc.constant(":"), space, tie("value")), { maxLength: 5 })
      .map((members) => `{${members.map((parts) => parts.join("")).join(",")} }`),
  ),
}));

t.test("JSON is parsed as by a reviver, at once and in steps", async (t) => {
  const property = fc.property(space, json, (around, one) => {
    const whole = `${around}${one}${around}`;
    const expected: unknown = JSON.parse(whole, revive);
    deepStrictEqual(parseExact(whole), expected, whole);
    // Long enough to be parsed in steps.
    const long = `[${" ".repeat(70_000)}${whole}]`;
    deepStrictEqual(runAtOnce(parseExactInSteps(long)), [expected], whole);
  });
  t.doesNotThrow(() => fc.assert(property, { numRuns: 300 }));
});

t.test("numbers keep every digit", async (t) => {
  t.strictSame(parseExact("[9007199254740993, -9223372036854775808, 1.50, 2.5, 1e2]"), [
    9007199254740993n,
    -9223372036854775808n,
    new ExactNumber("1.50"),
    2.5,
    new ExactNumber("1e2"),
  ]);
  t.ok(Object.is(parseExact("-0"), -0));
});

t.test("__proto__ is a member like any other", async (t) => {
  const parsed: object = parseExact('{"__proto__": {"x": 1.50}}');
  t.strictSame(Object.keys(parsed), ["__proto__"]);
  t.equal(Object.getPrototypeOf(parsed), Object.prototype);
});

t.test("a long text is parsed in steps", async (t) => {
  const rows = Array.from({ length: 50_000 }, (_, id) => `{"id":${id},"price":${id}.50}`);
  let steps = 0;
  const work = parseExactInSteps(`[${rows.join(",")}]`);
  while (work.next().done !== true) steps++;
  t.ok(steps > 50, `${steps}`);
});

t.test("spaces within a cell take time in proportion to their number", async (t) => {
  const text = `[{"values":[{"values":${" ".repeat(2_000_000)}1}]}]`;
  const began = process.threadCpuUsage();
  t.strictSame(runAtOnce(parseExactInSteps(text)), [{ values: [{ values: 1 }] }]);
  const { user, system } = process.threadCpuUsage(began);
  t.ok(user + system < 1_000_000, `${user + system} µs`);
});
