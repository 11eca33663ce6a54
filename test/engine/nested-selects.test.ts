/** Selects with `include`, and Selects that read other Selects. */
import { caseCount } from "../kit/nightly.ts";
import { choicesOf } from "../query/arbitrary.ts";
import { Chooser } from "../query/arbitrary-selects.ts";
import { exactJson, nestedSelect, rowsFor, tableNames, tableTypes } from "./arbitrary-selects.ts";
import { createTable, dropTable, insert } from "./kit.ts";
import { answersOf, type ModelTables, rowText } from "./model.ts";
import { overEach, overSqlite } from "./over-each.ts";

/** Words of the engine's own statements, or close to them, in place of names. */
const words: Readonly<Record<string, string>> = {
  $a: "fenced",
  $b: "grouped",
  $c: "ranked",
  region: "c1",
  label: "c2",
  qty: "n",
  ratio: "key",
  day: "place",
};
const named = (text: string) =>
  text.replaceAll(/\$[abc]|region|label|qty|ratio|day/g, (name) => words[name] ?? name);

overEach("generated nested Selects return the rows of relational algebra", async (t, { ask }) => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const choose = new Chooser(choicesOf(seed));
  const seen = { rows: 0, members: 0, more: 0, from: 0, groups: 0 };
  const worlds = caseCount(5, 10);
  for (let world = 0; world < worlds; world++) {
    const tables: ModelTables = Object.fromEntries(
      tableNames.map((name) => [name, rowsFor(choose)]),
    );
    for (const [name, rows] of Object.entries(tables)) {
      t.match(await ask(named(exactJson(createTable(name, tableTypes)))), { status: 200 });
      t.match(await ask(named(exactJson(insert(name, rows)))), { status: 200 });
    }
    for (let number = 0; number < 40; number++) {
      const query = nestedSelect(choose);
      const isBatch = number % 8 === 0;
      const Select = { database: "main", ...query };
      const asked = named(exactJson(isBatch ? { Batch: [{ Select }] } : { Select }));
      const { text } = await ask(asked);
      const answers = named(answersOf(query, tables).map(rowText).join(","));
      const data = isBatch ? `[[${answers}]]` : `[${answers}]`;
      const expected = `{"status":"success","data":${data}}`;
      if (answers !== "") seen.rows++;
      if (/"m0":[{[][^\]]/.test(answers)) seen.members++;
      if (answers.includes('_more":true')) seen.more++;
      if (asked.includes('"from":{"select"')) seen.from++;
      if (/"having":\{[^{}]*"select"/.test(asked)) seen.groups++;
      if (text === expected) continue;
      t.equal(text, expected, `seed ${seed}: ${asked}`);
      t.comment(exactJson(tables));
      return;
    }
    for (const name of tableNames) t.match(await ask(dropTable(named(name))), { status: 200 });
  }
  t.comment(JSON.stringify(seen));
  t.ok(Math.min(seen.rows / 10, seen.members / 2, seen.from / 10) > worlds);
  t.ok(seen.more > 0);
  t.ok(seen.groups > 0 || worlds < 10);
});

overSqlite("a row includes 100 rows unless the limit says otherwise", async (t, { ask }) => {
  await ask(createTable("orders", { id: "int" }));
  await ask(createTable("lines", { id: "int", order_id: "int" }));
  await ask(insert("orders", [{ id: 1 }, { id: 2 }]));
  const ids = Array.from({ length: 201 }, (_, id) => id);
  const lines = ids.map((id) => ({ id, order_id: id > 100 ? 2 : 1 }));
  await ask(insert("lines", lines));
  const order_by = { column: "id" };
  const on = "lines.order_id = orders.id";
  const include = [{ as: "lines", table: "lines", on, columns: ["id"], order_by }];
  const query = { database: "main", from: "orders", columns: ["id"], order_by, include };
  const { body } = await ask({ Select: query });
  t.match(body.data, [
    { id: 1, lines: { length: 100, 99: { id: 99 } }, lines_more: true },
    { id: 2, lines: { length: 100, 99: { id: 200 } }, lines_more: undefined },
  ]);
});
