import t from "tap";
import { insertOf, refusalOf, scanBody, verdict } from "./kit.ts";

const insert = (...rows: string[]) =>
  `{"Insert":{"database":"main","table":"users","values":[${rows.join(",")}]}}`;
const update = (set: string) =>
  `{"Update":{"database":"main","table":"users","where":null,"set":${set}}}`;

t.test("values are at least one row, and every row is an object", async (t) => {
  t.equal(verdict(insert()), "invalid_value");
  t.equal(verdict(insert("{}")), "accepted");
  for (const row of ["null", "[]", "1", '"a"', "true"]) {
    t.equal(verdict(insert('{"a":1}', row)), "wrong_type", row);
  }
  t.equal(verdict(insert("{}").replace("[{}]", "{}")), "wrong_type");
});

t.test("set is an object of at least one column", async (t) => {
  t.equal(verdict(update("{}")), "invalid_value");
  t.equal(verdict(update('{"a":1}')), "accepted");
  for (const set of ["null", '[{"a":1}]', '"a"']) t.equal(verdict(update(set)), "wrong_type", set);
});

t.test(
  "a column given twice in one row or set is refused, also when spelled with escapes",
  async (t) => {
    for (const row of [
      '{"a":1,"b":2,"a":3}',
      '{"a":1,"\\u0061":2}',
      '{"\\u0061":1,"\\u0061":1,"a":2}',
    ]) {
      t.equal(verdict(insert(row)), "duplicate_key", row);
      t.equal(verdict(update(row)), "duplicate_key", row);
      t.equal(verdict(insert('{"a":1,"b":2}', row)), "duplicate_key", row);
      t.equal(verdict(insert('{"b":1,"a":2}', '{"x":1}', row)), "duplicate_key", row);
    }
    t.equal(verdict(insert('{"é":1,"\\u00e9":2}')), "duplicate_key");
    t.equal(verdict(insert('{"😀":1,"\\ud83d\\ude00":2}')), "duplicate_key");
  },
);

t.test(
  "rows may have the same columns, other ones, fewer, more, and in another order",
  async (t) => {
    const rows = [
      '{"a":1,"b":2}',
      '{"a":1,"b":2}',
      '{"b":1,"a":2}',
      '{"a":1}',
      "{}",
      '{"c":1,"b":2,"a":3}',
    ];
    t.equal(verdict(insert(...rows, ...rows, ...rows)), "accepted");
  },
);

t.test("a key that begins like one of the row before is another key", async (t) => {
  t.equal(verdict(insert('{"a":1}', '{"ab":1,"a":2}', '{"a\\"":1}')), "invalid_column");
  t.equal(verdict(insert('{"ab":1,"a":2}', '{"a":1,"ab":2}')), "accepted");
});

t.test("a duplicate is found in wide rows and after thousands of different columns", async (t) => {
  const wide = (prefix: string, extra: string) =>
    `{${Array.from({ length: 5000 }, (_, index) => `"${prefix}${index}":0`).join(",")}${extra}}`;
  t.equal(verdict(insert(wide("a", ""), wide("b", ""), wide("a", ""))), "accepted");
  t.equal(verdict(insert(wide("a", ',"a0":1'))), "duplicate_key");
  t.equal(verdict(insert(wide("a", ""), wide("b", ""), wide("a", ',"a4999":1'))), "duplicate_key");
  t.equal(verdict(insert(wide("a", ""), wide("b", ""), '{"a0":1,"a1":2,"a0":3}')), "duplicate_key");
});

t.test("duplicates within a cell's value are the cell's own affair", async (t) => {
  t.equal(verdict(insertOf('{"a":1,"a":{"b":1,"b":2}}')), "accepted");
  t.equal(verdict(update('{"cell":[{"a":1,"a":2}]}')), "accepted");
});

t.test("a row's keys are bare column names", async (t) => {
  const good = [
    "id",
    "first name",
    "größe",
    "$x",
    "a*b",
    "x".repeat(128),
    "漢".repeat(128),
    "😀".repeat(128),
  ];
  for (const key of good) {
    t.equal(verdict(insert(JSON.stringify({ [key]: 1 }))), "accepted", key);
  }
  const controls = ["\u0000", "\n", "\u001f", "\u007f", "\u0080", "\u009f"];
  const bad = [
    "",
    "*",
    "a.b",
    "users.id",
    "a'",
    'a"',
    "a\\",
    "a`",
    "x".repeat(129),
    "😀".repeat(129),
  ];
  for (const key of [...bad, ...controls.map((control) => `a${control}b`)]) {
    t.equal(verdict(insert(JSON.stringify({ [key]: 1 }))), "invalid_column", JSON.stringify(key));
    t.equal(verdict(update(JSON.stringify({ [key]: 1 }))), "invalid_column", JSON.stringify(key));
  }
  t.equal(verdict(insert(JSON.stringify({ "a\u00a0b": 1 }))), "accepted");
});

t.test("a column name that must be escaped cannot hide behind its escape", async (t) => {
  for (const key of ["a\\u002eb", "\\u002a", "a\\u0027", "a\\u0085"]) {
    t.equal(verdict(insert(`{"${key}":1}`)), "invalid_column", key);
  }
});

t.test("a refusal names the row, and never a cell's value", async (t) => {
  const secret = "hunter2";
  const bodies = [
    insert('{"a":1}', `{"a":"${secret}","a":1}`),
    insert('{"a":1}', `{"a":"${secret}","b":nope}`),
    insert('{"a":1}', `{"b":{"${secret}":"\\ud800"}}`),
  ];
  for (const body of bodies) {
    const { message, location } = refusalOf(body);
    t.equal(location.path, "Insert.values[1]");
    t.notMatch(message, secret);
  }
});

t.test("an Insert of many rows is one access", async (t) => {
  const rows = Array.from({ length: 10_000 }, (_, id) => JSON.stringify({ id, name: `n${id}` }));
  t.equal(scanBody(insert(...rows)).accesses.length, 1);
});
