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
    ["pets", { id: 1, owner: 9 }, /^Table people has no row for owner (9 )?of pets/],
  ];
  for (const [table, row, message] of broken) {
    const { status, body } = await ask(insert(table, [row]));
    t.match({ status, body }, { status: 409, body: { code: "constraint_violation", message } });
  }
});

overEach(
  "a foreign key that is broken is named, and no value that the query does not hold",
  async (t, fresh) => {
    const { ask } = await fresh(t);
    const table = (name: string, columns: object[]) =>
      ask({ CreateTable: { ...main, table: name, columns } });
    const id = { name: "customer_id", type: "int", primary_key: true };
    await table("customer", [id, { name: "name", type: "text" }]);
    const references = "customer.customer_id";
    const payer = { name: "customer_id", type: "int", nullable: false, references };
    await table("payment", [{ name: "id", type: "int", primary_key: true }, payer]);
    await ask(
      insert("customer", [
        { customer_id: 1, name: "Ann" },
        { customer_id: 217, name: "Bob" },
      ]),
    );
    await ask(
      insert("payment", [
        { id: 5, customer_id: 1 },
        { id: 6, customer_id: 217 },
      ]),
    );
    const remove = (column: string, value: unknown) => ({
      Delete: { ...main, table: "customer", where: { column, cmp: "=", value } },
    });
    const broken: [body: object, message: RegExp][] = [
      [
        insert("payment", [{ id: 7, customer_id: 9 }]),
        /^Table customer has no row for customer_id (9 )?of payment/,
      ],
      [
        { Update: { ...main, table: "payment", set: { customer_id: 9 }, where: null } },
        /^Table customer has no row for customer_id (9 )?of payment/,
      ],
      [remove("customer_id", 1), /^Rows of payment still refer to customer_id( 1)?( \(|$)/],
      [
        { Batch: [remove("customer_id", 1)] },
        /^Batch\[0\]: Rows of payment still refer to customer_id/,
      ],
      [remove("name", "Bob"), /^Rows of payment still refer to customer_id( \(|$)/],
    ];
    for (const [body, message] of broken) {
      const answer = await ask(body);
      t.match(answer, { status: 409, body: { code: "constraint_violation", message } });
      t.notMatch(answer.text, "217");
    }
  },
);

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
