import { DatabaseSync } from "node:sqlite";
import t, { type Test } from "tap";
import { type Answer, freshEngine } from "./kit.ts";
import { freshMysql } from "./mysql/kit.ts";
import { overEach, type Scene } from "./over-each.ts";
import { freshPostgres } from "./postgres/kit.ts";

const database = "main";
const place = (table: string) => ({ database, table });

overEach("an error of a constraint says which one, without values", async (t, { ask }) => {
  const column = (name: string, type: string, more = {}) => ({ name, type, ...more });
  const made = [
    { ...place("owners"), columns: [column("id", "int", { primary_key: true })] },
    {
      ...place("cats"),
      columns: [
        column("id", "int", { primary_key: true }),
        column("code", "int", { unique: true, nullable: false }),
        column("owner", "int", { nullable: true, references: "owners.id" }),
      ],
    },
  ];
  for (const CreateTable of made) t.equal((await ask({ CreateTable })).status, 200);
  const insert = (table: string, values: object[]) => ask({ Insert: { ...place(table), values } });
  t.equal((await insert("owners", [{ id: 7001 }])).status, 200);
  t.equal((await insert("cats", [{ id: 8001, code: 9001, owner: 7001 }])).status, 200);
  const constraintOf = ({ status, body }: Answer) => {
    t.match({ status, code: body.code }, { status: 409, code: "constraint_violation" });
    t.notMatch(JSON.stringify(body.constraint), /[789]00\d/, "no value");
    return body.constraint;
  };
  t.match(constraintOf(await insert("cats", [{ id: 8002, code: 9001 }])), {
    kind: "unique",
    table: "cats",
    columns: ["code"],
  });
  t.match(constraintOf(await insert("cats", [{ id: 8001, code: 9002 }])), {
    kind: "unique",
    columns: ["id"],
  });
  t.match(constraintOf(await insert("cats", [{ id: 8002, code: 9002, owner: 7009 }])), {
    kind: "foreign_key",
    table: "cats",
    columns: ["owner"],
  });
  t.match(constraintOf(await ask({ Delete: { ...place("owners"), where: null } })), {
    kind: "foreign_key",
    table: "cats",
    columns: undefined,
  });
  t.match(constraintOf(await insert("cats", [{ id: 8002 }])), {
    kind: "not_null",
    table: "cats",
    columns: ["code"],
  });
  const batch = [
    { Insert: { ...place("owners"), values: [{ id: 7002 }] } },
    { Insert: { ...place("owners"), values: [{ id: 7001 }] } },
  ];
  t.match(constraintOf(await ask({ Batch: batch })), { kind: "unique", table: "owners" });
});

/** Of a table that the database's owner has made: CreateTable has no check constraints. */
const checked = `(id int primary key, amount int, fee int check (fee < 100),
  constraint positive check (amount > 0), constraint ordered check (fee < amount))`;

async function testChecks(t: Test, { ask }: Scene): Promise<void> {
  const at = place("bills");
  const where = { column: "id", cmp: "=", value: 1 };
  const insert = (row: object) => ({ Insert: { ...at, values: [row] } });
  t.match(await ask(insert({ id: 1, amount: 7001 })), { status: 200 });
  t.match(await ask(insert({ id: 2, amount: null })), { status: 200 }, "null breaks no check");
  const upsert = { values: [{ id: 1, amount: -7002 }], on_conflict: ["id"], update: ["amount"] };
  const broken: Record<string, readonly object[]> = {
    positive: [
      insert({ id: 3, amount: -7003 }),
      { Update: { ...at, set: { amount: -7003 }, where } },
      { Update: { ...at, add: { amount: -7003 }, where } },
      { Upsert: { ...at, ...upsert } },
      { Preview: insert({ id: 3, amount: -7003 }) },
      { Batch: [insert({ id: 3, amount: 1 }), insert({ id: 4, amount: -7003 })] },
    ],
    ordered: [insert({ id: 3, amount: 8, fee: 9 })],
  };
  for (const [name, queries] of Object.entries(broken)) {
    for (const query of queries) {
      const { status, body, text } = await ask(query);
      t.match({ status, code: body.code }, { status: 409, code: "constraint_violation" }, text);
      t.match(body.constraint, { kind: "check", name, table: "bills" }, text);
      t.match(body.message, name);
      t.notMatch(text, /700\d/, "no value");
    }
  }
  const { body } = await ask(insert({ id: 3, amount: 8000, fee: 7999 }));
  t.match(body.constraint, { kind: "check", table: "bills" }, "one without a name");
  t.notMatch(JSON.stringify(body), /7999/);
  const left = await ask({ Select: { ...{ database, from: "bills", columns: ["id"] } } });
  t.match(left.body.data, { length: 2 }, "nothing of a Batch stays");
}

t.test("an error of a check names the constraint (SQLite)", async (t) => {
  const scene = await freshEngine(t);
  const file = new DatabaseSync(`${scene.directory}/data/main.sqlite`);
  file.exec(`create table bills ${checked}`);
  file.close();
  await testChecks(t, scene);
});

t.test("an error of a check names the constraint (PostgreSQL)", async (t) => {
  const scene = await freshPostgres(t);
  await scene.sql(`create table main.bills ${checked}`);
  await testChecks(t, scene);
});

t.test("an error of a check names the constraint (MySQL)", async (t) => {
  const scene = await freshMysql(t);
  await scene.sql(`create table main.bills ${checked}`);
  await testChecks(t, scene);
});
