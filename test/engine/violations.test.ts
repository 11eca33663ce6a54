import { DatabaseSync } from "node:sqlite";
import t from "tap";
import { freshEngine, insert } from "./kit.ts";
import { overEach } from "./over-each.ts";

const main = { database: "main" };

overEach("a row that breaks a rule is told in the same words", async (t, fresh) => {
  const { ask } = await fresh(t);
  const people = [
    { name: "id", type: "int", primary_key: true },
    { name: "name", type: "text", nullable: false },
  ];
  const pets = [
    { name: "id", type: "int", primary_key: true },
    { name: "owner", type: "int", nullable: true, references: "people.id" },
  ];
  await ask({ CreateTable: { ...main, table: "people", columns: people } });
  await ask({ CreateTable: { ...main, table: "pets", columns: pets } });
  t.match(await ask(insert("people", [{ id: 1, name: "Alice" }])), { status: 200 });
  const broken: [table: string, row: object, message: RegExp][] = [
    [
      "people",
      { id: 1, name: "Bob" },
      /^(A table|Table people) has such a value already where it may stand once \(.+\)$/,
    ],
    ["people", { id: 2, name: null }, /^(A table|Table people) takes no null in column "name"$/],
    [
      "pets",
      { id: 1, owner: 9 },
      /^(A table|Table pets) and another one would no longer fit together/,
    ],
  ];
  for (const [table, row, message] of broken) {
    const { status, body } = await ask(insert(table, [row]));
    t.match({ status, body }, { status: 409, body: { code: "constraint_violation", message } });
  }
});

t.test("over SQLite the columns are named whose values stand there already", async (t) => {
  const { ask, directory } = await freshEngine(t);
  const file = new DatabaseSync(`${directory}/data/main.sqlite`);
  file.exec(`create table t (id integer primary key, a text, b text not null,
    c int constraint positive check (c > 0), unique (a, b)) strict;
    create unique index folded on t (abs(c));
    insert into t values (1, 'x', 'y', 1)`);
  file.close();
  const once = "has such a value already where it may stand once";
  const broken: [row: object, message: string][] = [
    [{ id: 1, a: "q", b: "z" }, `Table t ${once} (id)`],
    [{ a: "x", b: "y" }, `Table t ${once} (a, b)`],
    [{ a: "w", b: "z", c: 1 }, `A table ${once} (index 'folded')`],
    [{ a: "z" }, 'Table t takes no null in column "b"'],
    [{ a: "z", b: "z", c: 0 }, 'A table does not allow such a row (constraint "positive")'],
  ];
  for (const [row, message] of broken) {
    t.match((await ask(insert("t", [row]))).body, { code: "constraint_violation", message });
  }
});
