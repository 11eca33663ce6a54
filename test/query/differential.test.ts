import t from "tap";
import { choicesOf } from "./arbitrary.ts";
import { judgeBody } from "./differential.ts";
import { BodyMaker } from "./fuzz-bodies.ts";
import { insertOf } from "./kit.ts";
import { parsePlainly } from "./plain-json.ts";
import { type Habit, habits, seenBy } from "./readings.ts";

t.test("no parser sees another operation, database or table than the scanner", async (t) => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const maker = new BodyMaker(choicesOf(seed));
  let accepted = 0;
  for (let number = 0; number < 12_000; number++) {
    const body = maker.next();
    const { fault, isAccepted } = judgeBody(body, 1 + (number % 7));
    if (isAccepted) accepted++;
    if (fault !== undefined) t.fail(`seed ${seed}: ${fault}: ${body.toString("base64")}`);
  }
  t.ok(accepted > 1000, `${accepted} bodies were accepted`);
});

t.test("bodies that parsers are known to read differently are judged alike by all", async (t) => {
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

t.test("the parsers that the scanner is compared with differ among themselves", async (t) => {
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
