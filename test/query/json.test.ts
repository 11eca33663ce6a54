import { deepStrictEqual } from "node:assert";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import fc from "fast-check";
import t from "tap";
import { runAtOnce } from "../../src/core/base/cooperative-scheduling.ts";
import {
  ExactNumber,
  exactNumber,
  parseAccepted,
  parseExact,
  parseExactInSteps,
  parseUnrounded,
} from "../../src/core/json/exact.ts";
import { JsonFault, quoteName } from "../../src/core/json/fault.ts";
import { DEEPEST_NESTING } from "../../src/core/json/lexical.ts";
import {
  LineReader,
  requireOneReading,
  requireOneReadingInSteps,
} from "../../src/core/json/one-reading.ts";
import { corpus } from "../kit/corpora.ts";
import { insertOf, refusalOf, verdict } from "./kit.ts";

/** A JSON text, named as in the public test suite: `y_` valid, `n_` invalid, `i_` either. */
interface Vector {
  readonly name: string;
  readonly bytes: Buffer;
}

const scalars = [
  ...'0 -0 -0.0e-0 12345678901234567890123 1E+2 -1.5e-3 "" true false null [] {}'.split(" "),
  '"\\u00e9\\n"',
  '"é漢😀\u007f\u2028"',
  '"\\u0000\\"\\\\\\/\\b\\f\\n\\r\\t"',
  '"\\ud83d\\ude00"',
  '{"":{"\\u0061":[1,{"b":null}]}}',
];
const wrappings: readonly ((document: string) => string)[] = [
  (document) => document,
  (document) => ` \t\r\n${document} \t\r\n`,
  (document) => `[${document}]`,
  (document) => `[ ${document} , ${document} ]`,
  (document) => `{"a":${document}}`,
  (document) => `{ "" : ${document} , "\\u0000" : [ ] }`,
  (document) => `{"a":${document},"a":{}}`,
];

/** Wrappings that do not make valid JSON of `1,2` or nothing. */
const strictWrappings = wrappings.filter((wrap) => !wrap("").startsWith("["));

const brokenScalars = [
  ..."- -a +1 01 -01 .5 -.5 1. 1.e1 1e 1e+ 1ea 0x1 1_0 1,5 ١ NaN Infinity -Infinity nul nulll nulL tru True undefined 'a'".split(
    " ",
  ),
  ...'a" " "\\" "\\x41" "\\u12" "\\u12g4" "\\U0041" "\\a"'.split(" "),
  ...["\n", "\t", "\0", "\u001f"].map((control) => `"a${control}"`),
  ...'[1,] [,1] [1,,2] [1 [ ] } {"a"} {"a":} {"a":1,} {,} {a:1} {1:1} {\'a\':1} [1}'.split(" "),
  "[1 2]",
  '{"a" 1}',
  '{"a":1 "b":2}',
  "1 1",
  "/**/1",
  "1//",
  "\u00a01",
  "\v1",
  "\f1",
  "\ufeff1",
  "",
  "[".repeat(100_000),
  '{"a":'.repeat(100_000),
];

const halves = ["\\ud800", "\\udc00\\ud800", "\\ud800\\ud800", "\\udfff", "\\ud83dx"];
const brokenUtf8 = "ff 80 c3 c080 c0af e080af eda080 edbfbf f08080af f4908080 f888808080".split(
  " ",
);

function vector(letter: "y" | "n" | "i", document: string): Vector {
  return { name: `${letter}_ ${quoteName(document)}`, bytes: Buffer.from(document) };
}

function brokenString(hex: string): Vector {
  return { name: `n_ bytes ${hex}`, bytes: Buffer.from(`22${hex}22`, "hex") };
}

const jsonVectors: readonly Vector[] = [
  ...scalars.flatMap((scalar) => wrappings.map((wrap) => vector("y", wrap(scalar)))),
  ...brokenScalars.flatMap((broken) => strictWrappings.map((wrap) => vector("n", wrap(broken)))),
  ...brokenUtf8.map(brokenString),
  ...halves.map((half) => vector("i", `"${half}"`)),
  ...["1e999", "-1e-999", "9".repeat(500)].map((number) => vector("i", number)),
];

t.test("one half of a surrogate pair is refused, in cells and in keys", async (t) => {
  const halves = [
    "\\ud800",
    "\\uDFFF",
    "\\ud800\\ud800",
    "\\udc00\\ud800",
    "\\udc00\\udc00",
    "\\ud800x",
    "\\ud800\\n",
    "\\ud83d\\u0041",
    "\\ud83d\\ude00\\ude00",
  ];
  for (const half of halves) {
    t.equal(verdict(insertOf(`"${half}"`)), "lone_surrogate", half);
    t.equal(verdict(insertOf(`{"${half}":1}`)), "lone_surrogate", half);
    t.equal(verdict(`{"${half}":1}`), "lone_surrogate", half);
  }
});

t.test("bytes that are not UTF-8 and a byte-order mark are refused", async (t) => {
  for (const sequence of ["ff", "c3", "c080", "eda080", "f4908080"]) {
    const body = Buffer.from(
      insertOf(`"${Buffer.from(sequence, "hex").toString("latin1")}"`),
      "latin1",
    );
    t.equal(verdict(body), "invalid_utf8", sequence);
  }
  t.equal(verdict(Buffer.from(insertOf("1"), "utf16le")), "invalid_json");
  t.equal(verdict(`\ufeff${insertOf("1")}`), "byte_order_mark");
});

t.test("anything but white space after the object is refused", async (t) => {
  t.equal(verdict(`${insertOf("1")} \t\r\n`), "accepted");
  for (const rest of ["x", "{}", "}", ",", "\u0000", "\u00a0", insertOf("1")]) {
    t.equal(verdict(insertOf("1") + rest), "trailing_data", quoteName(rest));
  }
});

t.test("nesting is allowed to a depth of 64", async (t) => {
  // The cell's own value is at depth 5: body, Insert, values, row, cell.
  const nested = (levels: number) => insertOf("[".repeat(levels) + "]".repeat(levels));
  t.equal(verdict(nested(60)), "accepted");
  t.equal(verdict(insertOf(`[${"[],{},".repeat(1000)}[]]`)), "accepted", "siblings");
  t.equal(verdict(nested(61)), "nesting_too_deep");
  t.equal(verdict(insertOf('{"a":'.repeat(61) + 1 + "}".repeat(61))), "nesting_too_deep");
  t.equal(verdict(insertOf("[".repeat(100_000))), "nesting_too_deep");
  const negations = `{"Delete":{"database":"main","table":"users","where":${'{"not":'.repeat(70)}`;
  t.equal(verdict(negations), "nesting_too_deep");
});

/** A random value as text, and whether an object in it has a key twice. */
function arbitraryJson(depth: number, random: () => number): { text: string; isTwice: boolean } {
  const kind = random();
  if (depth === 0 || kind < 0.2) return { text: "1", isTwice: false };
  const values = Array.from({ length: Math.floor(random() * (kind < 0.3 ? 24 : 4)) }, () =>
    arbitraryJson(depth - 1, random),
  );
  let isTwice = values.some((value) => value.isTwice);
  if (kind > 0.8) return { text: `[${values.map(({ text }) => text).join()}]`, isTwice };
  const seen = new Set<number>();
  const members = values.map(({ text }) => {
    const key = Math.floor(random() * 60);
    isTwice ||= seen.has(key);
    seen.add(key);
    return random() < 0.5 ? `"k${key}":${text}` : `"\\u006b${key}":${text}`;
  });
  return { text: `{${members.join()}}`, isTwice };
}

/** The code and offset of a refusal, or `accepted`. */
function outcomeOf(read: () => void): string {
  try {
    read();
    return "accepted";
  } catch (error) {
    if (error instanceof JsonFault) return `${error.code} at ${error.offset}`;
    throw error;
  }
}

function readingOf(text: string): string {
  return outcomeOf(() => requireOneReading(Buffer.from(text))).replace(/ at .*/, "");
}

t.test("a key given twice in one object is found, whatever was read before", async (t) => {
  let seed = 7;
  const random = () => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return seed / 2147483648;
  };
  let twice = 0;
  for (let count = 0; count < 5000; count++) {
    const { text, isTwice } = arbitraryJson(5, random);
    // Some bodies end within an object, or are too long to share memory with others.
    if (count % 3 === 0) readingOf(text.slice(0, Math.floor(text.length * random())));
    const found = readingOf(count % 50 === 0 ? text + " ".repeat(70_000) : text);
    if (found !== (isTwice ? "duplicate_key" : "accepted")) t.equal(found, isTwice, text);
    if (isTwice) twice++;
  }
  t.ok(twice > 500 && twice < 4500, `${twice} of 5,000`);
});

t.test("a body that is not an object is refused", async (t) => {
  for (const body of ["[]", `[${insertOf("1")}]`, '"Select"', "1", "-1", "true", "null"]) {
    t.equal(verdict(body), "not_an_object", body);
  }
  for (const body of ["", " ", "Select", "not JSON", "\u0000"])
    t.equal(verdict(body), "invalid_json", body);
  const remedy = '; send JSON, such as {"Select": {"database": "main", ...}}; see docs/query.md';
  for (const [body, problem] of [
    ["SELECT * FROM orders", "a value is expected"],
    ["truncate table orders", "a word is not true, false or null"],
    ["db.orders.find({})", "a value is expected"],
    ["", "a value is expected, but the body ends"],
    ['"SELECT 1"', "an object with one operation key is expected, a string was found"],
    ["[]", "an object with one operation key is expected, an array was found"],
  ] as const) {
    t.equal(refusalOf(body).message, `query body, byte 0: ${problem}${remedy}`);
  }
  t.match(refusalOf("{'Select': {}}").message, /byte 1: a key in double quotes is expected$/);
  t.match(refusalOf('{"Select": }').message, /byte 11: a value is expected, } was found$/);
});

t.test("a syntax error has its byte offset", async (t) => {
  const { message, location } = refusalOf(insertOf('"é",!'));
  t.equal(
    location.offset,
    Buffer.byteLength('{"Insert":{"database":"main","table":"users","values":[{"cell":"é",'),
  );
  t.match(message, /^Insert\.values\[0\], byte \d+: /);
});

/** The levels that a cell of `insertOf` may add: body, Insert, values and row are around it. */
const roomInCell = DEEPEST_NESTING - 4;

function publicVectors(directory: string): Vector[] {
  return readdirSync(directory)
    .filter((name) => /^[yni]_.*\.json$/.test(name))
    .map((name) => ({ name, bytes: readFileSync(path.join(directory, name)) }));
}

const directory = corpus("json-parsing");
const vectors = [...jsonVectors, ...(directory === undefined ? [] : publicVectors(directory))];
const named = (letter: string) => vectors.filter(({ name }) => name.startsWith(letter));

/** An Insert of one row with one cell, whose bytes are given. */
function withCell(bytes: Buffer): Buffer {
  const [before = "", after = ""] = insertOf("|").split("|");
  return Buffer.concat([Buffer.from(before), bytes, Buffer.from(after)]);
}

function nesting(bytes: Buffer): number {
  let depth = 0;
  let deepest = 0;
  for (const byte of bytes) {
    if (byte === 0x5b || byte === 0x7b) depth++;
    if (byte === 0x5d || byte === 0x7d) depth--;
    deepest = Math.max(deepest, depth);
  }
  return deepest;
}

function isParsed(bytes: Buffer): boolean {
  try {
    JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
    return true;
  } catch {
    return false;
  }
}

t.test("invalid JSON is refused as a body and as a cell", async (t) => {
  for (const { name, bytes } of named("n_")) {
    t.not(verdict(bytes), "accepted", name);
    t.not(verdict(withCell(bytes)), "accepted", name);
  }
  for (const { name, bytes } of jsonVectors.filter(({ name }) => name.startsWith("n_"))) {
    const code = /^(invalid_json|invalid_utf8|nesting_too_deep)$/;
    t.match(verdict(withCell(bytes)), code, name);
  }
});

t.test("a body is judged alike at once, in steps and as a line", async (t) => {
  for (const { name, bytes } of vectors) {
    const atOnce = outcomeOf(() => requireOneReading(bytes));
    const inSteps = outcomeOf(() => {
      for (const _ of requireOneReadingInSteps(bytes));
    });
    t.equal(inSteps, atOnce, name);
    const isRefusedHere = /duplicate|lone|nesting_too_deep/.test(atOnce);
    t.equal(atOnce === "accepted", isParsed(bytes) && !isRefusedHere, name);
    if (/invalid_utf8|byte_order/.test(atOnce)) continue;
    const line = outcomeOf(() => new LineReader(bytes).read(0));
    if (!bytes.includes("\n")) t.equal(line, atOnce, name);
    // The line that begins with this text ends at its first newline.
    else if (line === "accepted") t.ok(isParsed(bytes.subarray(0, bytes.indexOf("\n"))), name);
  }
});

t.test("a line is judged alike after any other line", async (t) => {
  const values = vectors.map(({ bytes }) => bytes.toString("latin1"));
  const lines = values.flatMap((value) => [value, `{"a":${value},"b":"x"}`, `[1, ${value}]`]);
  for (const first of ['{"a":1,"b":"y"}', "[1, 2]", '"x"', "[]"]) {
    for (const line of lines.filter((one) => !one.includes("\n"))) {
      const bytes = Buffer.from(`${first}\n${line}\n`, "latin1");
      const start = first.length + 1;
      const after = outcomeOf(() => {
        const reader = new LineReader(bytes);
        reader.read(0);
        if (reader.readSimilar(start) === -1) reader.read(start);
      });
      const alone = outcomeOf(() => new LineReader(bytes).read(start));
      if (after !== alone) t.equal(after, alone, `${first} ${line}`);
    }
  }
});

t.test("a line is one value, with white space around it at most", async (t) => {
  const endOf = (text: string) => new LineReader(Buffer.from(text)).read(1);
  for (const text of ['\n{"a": [1, {}]}\n{}', '\n \t{ "a" : 1 } \t\r\n[\n']) {
    t.equal(endOf(text), text.indexOf("\n", 1));
  }
  t.equal(endOf("\n1"), 2);
  for (const text of ["\n\n1", "\n \n1", "\n[\n1]", "\n[1\n]", '\n{\n"a":1}', '\n{"a"\n:1}']) {
    t.throws(() => endOf(text), { code: "invalid_json" }, quoteName(text));
  }
  t.throws(() => endOf('\n{"a":\n1}'), { code: "invalid_json" });
  t.throws(() => endOf('\n{"a":1,\n"b":1}'), { code: "invalid_json" });
  t.throws(() => endOf("\n1 1\n"), { code: "trailing_data" });
});

t.test("valid JSON is accepted as a cell", async (t) => {
  for (const { name, bytes } of named("y_")) {
    if (nesting(bytes) > roomInCell) continue;
    t.equal(verdict(withCell(bytes)), "accepted", name);
  }
});

t.test("doubtful JSON is accepted only if JSON.parse accepts it", async (t) => {
  for (const { name, bytes } of named("i_")) {
    const body = withCell(bytes);
    if (verdict(body) === "accepted") t.ok(isParsed(body), name);
    t.not(verdict(bytes), "accepted", name);
  }
});

t.test("a control character in a long cell is refused with its offset", async (t) => {
  const before = Buffer.byteLength(insertOf('"').split("}")[0] ?? "");
  for (const length of [31, 32, 33, 150, 500, 4000]) {
    const { code, location } = refusalOf(
      insertOf(`"${"é".repeat(length)}\u0001${"x".repeat(300)}"`),
    );
    t.equal(code, "invalid_json");
    t.equal(location.offset, before + 2 * length);
  }
});

t.test("long white space is skipped, and nothing similar", async (t) => {
  for (const space of [" ", "\t", "\n", "\r\n", " \t\r\n", "\n    "]) {
    for (const count of [3, 4, 5, 16, 17, 40, 999]) {
      t.equal(verdict(insertOf(space.repeat(count) + 1)), "accepted");
      t.equal(verdict(insertOf(`${space.repeat(count)}\f1`)), "invalid_json");
      t.equal(verdict(insertOf("1") + space.repeat(count)), "accepted");
      t.equal(verdict(`${insertOf("1")}${space.repeat(count)}\0`), "trailing_data");
    }
  }
});

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
/** `JSON.parse` would read other keys wrong once it has read one with a backslash. */
const name = text.filter((one) => !String(JSON.parse(one)).includes("\\"));
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
      .array(fc.tuple(space, name, space, fc.constant(":"), space, tie("value")), { maxLength: 5 })
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

t.test("a key with escapes is no key of an earlier object that begins as it is spelled", (t) => {
  const known = String.raw`{"before":0,"\\n":1}`;
  const text = String.raw`{"before":0,"\nx":2}`;
  const readers: Record<string, (text: string) => unknown> = {
    parseAccepted,
    parseUnrounded,
    parseExact,
    parseExactInSteps: (json) => runAtOnce(parseExactInSteps(json, Number, false)),
  };
  for (const [name, read] of Object.entries(readers)) {
    JSON.parse(known);
    t.strictSame(read(known), { before: 0, "\\n": 1 }, name);
    t.strictSame(read(text), { before: 0, "\nx": 2 }, name);
  }
  t.end();
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
