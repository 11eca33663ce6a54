import t from "tap";
import { lettersTo } from "../../src/engine/letters.ts";
import { createTable, insert, refusal } from "./kit.ts";
import { freshMysql } from "./mysql/kit.ts";
import { overEach, overSqlite, type Scene } from "./over-each.ts";
import { freshPostgres } from "./postgres/kit.ts";

const types = {
  id: "int",
  name: "text",
  label: "varchar(20)",
  code: "uuid",
  data: "bytes",
  extra: "json",
  n: "bigint",
  price: "decimal(10,2)",
  ratio: "double",
  isPaid: "boolean",
  day: "date",
  at: "timestamp",
  clock: "time",
};

const code = "5f3d3a1c-7a43-4f57-9a3c-0b9c3bd18f3f";
const same = { code, data: "AAE=", extra: { a: 1 }, isPaid: true, clock: "13:45:00" };
const rows = [
  { id: 1, name: "b", label: "B", n: 2, price: 2, ratio: 2, day: "2026-01-31", ...same },
  { id: 2, name: "a", label: "a", n: 1, price: 1.5, ratio: 1.25, day: "2026-02-01", ...same },
  { id: 3, name: null, label: "a", n: null, price: 1, ratio: 2, day: null, ...same },
].map((row) => ({ ...row, at: "2026-01-31T12:00:00Z" }));

async function fill({ ask }: Scene): Promise<void> {
  await ask(createTable("items", types));
  await ask(insert("items", rows));
}

const database = "main";
function select(where: object) {
  const order_by = { column: "id" };
  return { Select: { database, from: "items", columns: ["id"], where, order_by } };
}

overSqlite("columns are compared with each other", async (t, scene) => {
  await fill(scene);
  for (const [column, cmp, other, ids] of [
    ["clock", "=", "clock", [1, 2, 3]],
    ["code", "=", "code", [1, 2, 3]],
    ["data", "<=", "data", [1, 2, 3]],
  ] as const) {
    const expected = ids.map((id) => ({ id }));
    const { body } = await scene.ask(select({ column, cmp, other }));
    t.strictSame(body.data, expected, `${column} ${cmp} ${other}`);
  }
  for (const [column, cmp, other] of [
    ["name", "=", "n"],
    ["extra", "<", "extra"],
    ["clock", "=", "at"],
    ["isPaid", "=", "n"],
  ]) {
    const answer = await scene.ask(select({ column, cmp, other }));
    const words = `Column "${column}" \\(.*\\) cannot be compared with "${other}" \\(.*\\) by ${cmp}`;
    t.match(answer, refusal(400, "invalid_value", new RegExp(words)));
  }
  t.match(
    await scene.ask(select({ column: "n", cmp: "=", other: "m" })),
    refusal(400, "unknown_column", /"m"/),
  );
});

for (const [name, fresh] of Object.entries({ PostgreSQL: freshPostgres, MySQL: freshMysql })) {
  t.test(`a number beyond the type of a column is compared with its rows (${name})`, async (t) => {
    const { ask, sql } = await fresh(t);
    await sql("create table main.items (id int not null primary key, name smallint)");
    await sql("insert into main.items values (1, 1), (2, -2), (2147483647, 32767)");
    const [beyond, all] = [3_000_000_000, [1, 2, 2_147_483_647]];
    for (const [column, cmp, value, ids] of [
      ["id", "<", beyond, all],
      ["id", ">", -beyond, all],
      ["id", "=", beyond, []],
      ["id", "!=", beyond, all],
      ["id", "IN", [1, beyond, 2 ** 70], [1]],
      ["id", "BETWEEN", [2, beyond], [2, 2_147_483_647]],
      ["name", "<=", 32_768, all],
      ["name", "IN", [-32_769, -2], [2]],
    ] as const) {
      const { body } = await ask(select({ column, cmp, value }));
      const expected = ids.map((id) => ({ id }));
      t.strictSame(body.data, expected, `${column} ${cmp} ${JSON.stringify(value)}`);
    }
    const { Select } = select({ column: "id", cmp: "!=", value: beyond });
    t.equal((await ask({ Select: { ...Select, after: [beyond] } })).body.data?.length, 0);
    t.equal((await ask({ Select: { ...Select, after: [-beyond] } })).body.data?.length, 3);
  });
}

overEach("a pattern has an escape character and folds all letters", async (t, { ask }) => {
  const [capitals, letters] = lettersTo("lower");
  const [small, large] = lettersTo("upper");
  t.match(await ask(createTable("items", { id: "int", name: "text" })), { status: 200 });
  const names = [capitals, "50% off", "50 off", "a_b\\c", "ÄB", small];
  await ask(
    insert(
      "items",
      names.map((name, index) => ({ id: index + 1, name })),
    ),
  );
  for (const [where, ids] of [
    [{ cmp: "ILIKE", value: letters, fold: "unicode" }, [1]],
    [{ cmp: "ILIKE", value: letters }, []],
    [{ cmp: "LIKE", value: "50!%%", escape: "!" }, [2]],
    [{ cmp: "LIKE", value: "50%", escape: "!" }, [2, 3]],
    [{ cmp: "ILIKE", value: "AX__\\C", escape: "X" }, [4]],
    [{ cmp: "LIKE", value: "a\\_b\\\\c", escape: "\\" }, [4]],
    [{ cmp: "LIKE", value: "50%% of_", escape: "%" }, [2]],
    [{ cmp: "ILIKE", value: "\u{1f600}ä_", escape: "\u{1f600}", fold: "unicode" }, [5]],
  ] as const) {
    const expected = ids.map((id) => ({ id }));
    const { body } = await ask(select({ column: "name", ...where }));
    t.strictSame(body.data, expected, JSON.stringify(where).slice(0, 80));
  }
  t.equal([...small].length, [...large].length);
  const ending = { column: "name", cmp: "LIKE", value: "a!", escape: "!" };
  t.match(await ask(select(ending)), refusal(400, "invalid_value", /ends with its escape/));
});
