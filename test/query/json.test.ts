import t from "tap";
import { quoteName } from "../../src/json/fault.ts";
import { insertOf, refusalOf, scanBody, verdict } from "./kit.ts";

const cells = [
  "0",
  "-0",
  "-0.0e-0",
  "12345678901234567890123",
  "1e999",
  "1E+2",
  "0.1",
  '""',
  '"\\u0000\\"\\\\\\/\\b\\f\\n\\r\\t"',
  '"\\ud83d\\ude00"',
  '"\u2028 \u007f é 漢 😀"',
  "true",
  "false",
  "null",
  "[]",
  "{}",
  "[ [ ] , { } ]",
  '{"a":1,"a":2}',
  '{"":{"\\u0061":[1,{"b":null}]}}',
];

const brokenCells = [
  "",
  "01",
  "-",
  "-a",
  "+1",
  ".5",
  "1.",
  "1.e1",
  "1e",
  "1e+",
  "0x1",
  "1 2",
  "NaN",
  "Infinity",
  "nul",
  "nulll",
  "True",
  "tru",
  "[1,]",
  "[,1]",
  "[1 2]",
  "[",
  "]",
  '{"a":1,}',
  '{"a"}',
  '{"a":}',
  '{"a" 1}',
  "{a:1}",
  "{'a':1}",
  "{1:1}",
  '{"a":1 "b":2}',
  '"',
  '"\n"',
  '"\t"',
  '"\u0000"',
  '"\\x41"',
  '"\\u12"',
  '"\\u12g4"',
  '"\\"',
  "'a'",
  "/* no */ 1",
  "1 // no",
  "\u00a01",
  "\u000b1",
  "\ufeff1",
];

t.test("every form of JSON value is accepted as a cell", async (t) => {
  for (const cell of cells) t.equal(verdict(insertOf(cell)), "accepted", quoteName(cell));
});

t.test("what is not JSON is refused, also deep within a cell", async (t) => {
  for (const cell of brokenCells) {
    t.equal(verdict(insertOf(cell)), "invalid_json", quoteName(cell));
    t.equal(verdict(insertOf(`[{"a":[${cell || ","}]}]`)), "invalid_json", quoteName(cell));
  }
});

t.test("every beginning of a body that is cut off is refused", async (t) => {
  const body = insertOf('[-1.5e+3, "\\u00e9\\ud83d\\ude00 é", {"a": [true, false, null]}]');
  const bytes = Buffer.from(body);
  for (let length = 0; length < bytes.length; length++) {
    t.not(verdict(bytes.subarray(0, length)), "accepted", `${length} bytes`);
  }
  t.equal(verdict(bytes), "accepted");
});

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

t.test("bytes that are not UTF-8 are refused", async (t) => {
  const sequences = [[0xff], [0xc3], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80]];
  for (const sequence of sequences) {
    const [before, after] = insertOf('"|"').split("|");
    const body = Buffer.concat([
      Buffer.from(before ?? ""),
      Buffer.from(sequence),
      Buffer.from(after ?? ""),
    ]);
    t.equal(verdict(body), "invalid_utf8", sequence.join(" "));
  }
  t.equal(verdict(Buffer.from(insertOf("1"), "utf16le")), "invalid_json");
});

t.test("a byte-order mark is refused", async (t) => {
  t.equal(verdict(`\ufeff${insertOf("1")}`), "byte_order_mark");
});

t.test("what follows the object is refused, white space apart", async (t) => {
  t.equal(verdict(`${insertOf("1")} \t\r\n`), "accepted");
  for (const rest of ["x", "{}", "}", ",", "\u0000", "\u00a0", insertOf("1")]) {
    t.equal(verdict(insertOf("1") + rest), "trailing_data", quoteName(rest));
  }
});

t.test("nesting is allowed to a depth of 64, the body's object counted", async (t) => {
  // The cell's own value is at depth 5: body, Insert, values, row, cell.
  const nested = (levels: number) => insertOf("[".repeat(levels) + "]".repeat(levels));
  t.equal(verdict(nested(60)), "accepted");
  t.equal(verdict(nested(61)), "nesting_too_deep");
  t.equal(verdict(insertOf('{"a":'.repeat(61) + 1 + "}".repeat(61))), "nesting_too_deep");
  t.equal(verdict(insertOf("[".repeat(100_000))), "nesting_too_deep");
  const negations = '{"not":'.repeat(70);
  t.equal(
    verdict(`{"Delete":{"database":"main","table":"users","where":${negations}`),
    "nesting_too_deep",
  );
});

t.test("brothers do not add to the depth", async (t) => {
  t.equal(verdict(insertOf(`[${"[],{},".repeat(1000)}[]]`)), "accepted");
});

t.test("a body that is JSON but no object is refused", async (t) => {
  for (const body of ["[]", `[${insertOf("1")}]`, '"Select"', "1", "-1", "true", "null"]) {
    t.equal(verdict(body), "not_an_object", body);
  }
  for (const body of ["", " ", "Select", "not JSON", "\u0000"])
    t.equal(verdict(body), "invalid_json", body);
});

t.test("white space may stand wherever JSON allows it", async (t) => {
  const body = ' {\n"DropTable"\t:\r{ "database" : "main" , "table" : "users" } } ';
  t.equal(scanBody(body).accesses[0]?.database, "main");
});

t.test("a syntax error is told with its byte offset", async (t) => {
  const { message, location } = refusalOf(insertOf('"é",!'));
  t.equal(
    location.offset,
    Buffer.byteLength('{"Insert":{"database":"main","table":"users","values":[{"cell":"é",'),
  );
  t.match(message, /^Insert\.values\[0\], byte \d+: /);
});
