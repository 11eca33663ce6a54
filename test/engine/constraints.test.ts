import type { Answer } from "./kit.ts";
import { overEach } from "./over-each.ts";

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
