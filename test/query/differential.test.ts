import t from "tap";
import { caseCount } from "../kit/nightly.ts";
import { choicesOf } from "./arbitrary.ts";
import { judgeBody } from "./differential.ts";
import { BodyMaker } from "./fuzz-bodies.ts";
import { insertOf, refusalOf } from "./kit.ts";
import { type Habit, habits, parsePlainly, seenBy } from "./plain-json.ts";

t.test("no parser sees another operation, database or table than the parser", async (t) => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const maker = new BodyMaker(choicesOf(seed));
  const count = caseCount(800, 12_000);
  let accepted = 0;
  for (let number = 0; number < count; number++) {
    const body = maker.next();
    const { fault, isAccepted } = judgeBody(body, 1 + (number % 7));
    if (isAccepted) accepted++;
    if (fault !== undefined) t.fail(`seed ${seed}: ${fault}: ${body.toString("base64")}`);
  }
  t.ok(accepted > count / 12, `${accepted} bodies were accepted`);
});

t.test("bodies that parsers read differently are refused or unambiguous", async (t) => {
  const target = '"database":"main","table":"users"';
  const bodies = [
    `{"DropTable":{${target}},"op":"select"}`,
    `{"DropTable":{${target},"Database":"other"}}`,
    `{"DropTable":{${target},"database":"other"}}`,
    `{"DropTable":{${target},"database\\u0000":"other"}}`,
    `{"DropTable":{${target},"\\u0064atabase":"other"}}`,
    `{"DropTable":{${target}},"droptable":{${target}}}`,
    `["drop_table","main","users"]`,
    `{"Batch":{"0":{"DropTable":{${target}}}}}`,
    `{"DropTable":{"database":"main\\u0000","table":"users"}}`,
    `{"DropTable":{"database":"main","table":"us\u212ars"}}`,
    `\ufeff{"DropTable":{${target}}}`,
    `{"DropTable":{${target}}}{"DropTable":{${target}}}`,
    insertOf('{"a":1,"a":{"database":"other"}}'),
    insertOf("1e999"),
    ...["-0", "1.0", "1e2", "-1E-400", "9007199254740993"].map(
      (limit) => `{"Select":{"database":"main","from":"t","columns":["*"],"limit":${limit}}}`,
    ),
  ];
  for (const body of bodies) t.equal(judgeBody(Buffer.from(body)).fault, undefined, body);
});

t.test("the reference parsers differ from each other", async (t) => {
  const body = parsePlainly(
    '{"DropTable":{"database":"a","Database":"b","database":"c","table":"t"}}',
  );
  const databaseBy = (name: string) => {
    const habit: Habit | undefined = habits.find((candidate) => candidate.name === name);
    return habit && body && seenBy(habit, body)?.[0]?.database;
  };
  t.equal(databaseBy("exact, first key wins"), "a");
  t.equal(databaseBy("exact, last key wins"), "c");
  t.equal(databaseBy("case-insensitive, last key wins"), "c");
  t.equal(databaseBy("loose, first key wins"), "a");
  const tagged = parsePlainly('{"DropTable":{"database":"a","table":"t"},"OP":1}');
  t.same(
    tagged && habits.map((habit) => seenBy(habit, tagged) === undefined).filter(Boolean).length,
    4,
  );
});

const row =
  '{"id":12,"name":"Ada L","email":"a\u00e9@b.c","active":true,"gone":false,"x":null,"n":-0.5}';
const bytes = [...'\u0000\u001f !"\\/+-.0159:;EeNTfnrstu[]{},x\u007f'].map((one) =>
  one.charCodeAt(0),
);

/** Rows of which all behind the first repeat it, and perhaps another one. */
function rows(count: number, ...others: string[]): Buffer {
  const values = [...Array(count).fill(row), ...others].join();
  return Buffer.from(`{"Insert":{"database":"main","table":"users","values":[${values}]}}`);
}

t.test("repeated rows with one damaged byte are judged like any others", async (t) => {
  const body = rows(5);
  const start = body.indexOf(row) + 2 * (Buffer.byteLength(row) + 1);
  for (let offset = start; offset < start + Buffer.byteLength(row) + 3; offset++) {
    for (const byte of [...bytes, 0xc3, 0xff]) {
      const damaged = Buffer.from(body);
      damaged[offset] = byte;
      const { fault } = judgeBody(damaged, 1 + (offset % 7));
      if (fault !== undefined) t.fail(`${fault}: ${damaged.toString("base64")}`);
    }
  }
});

t.test("a truncated body of repeated rows is refused", async (t) => {
  const body = rows(3);
  for (let length = body.indexOf(row); length < body.length; length++) {
    const { fault, isAccepted } = judgeBody(body.subarray(0, length), 5);
    if (isAccepted || fault !== undefined) t.fail(`${fault} at ${length}`);
  }
});

t.test("an error after repeated rows has its row number", async (t) => {
  const found = (last: string) => {
    const body = rows(7)
      .toString()
      .replace(/\]\}\}$/, `,${last}]}}`);
    const { code, location } = refusalOf(body);
    return `${code} ${location.path}`;
  };
  t.equal(found('{"id":1,"id":2}'), "duplicate_key Insert.values[7]");
  t.equal(found('{"id":12,"name":"Ada L","id":13}'), "duplicate_key Insert.values[7]");
  t.equal(found('{"id":tru}'), "invalid_json Insert.values[7]");
  t.equal(found('{"id":12,"name":[}'), "invalid_json Insert.values[7]");
  t.equal(found("7"), "wrong_type Insert.values[7]");
});
