import { overEach } from "./over-each.ts";

const columns = [
  { name: "id", type: "bigint", primary_key: true },
  { name: "code", type: "text" },
  { name: "note", type: "json" },
];
const [one, other] = ["9007199254740993", "-9223372036854775808"];

overEach("a string of an integer's digits is that integer in its column", async (t, fresh) => {
  const { ask } = await fresh(t);
  await ask({ CreateTable: { database: "main", table: "big", columns } });
  const values = [
    { id: one, code: one, note: { n: one } },
    { id: other, code: other, note: other },
    { id: 9007199254740992, code: "near" },
  ];
  t.match(await ask({ Insert: { database: "main", table: "big", values } }), { status: 200 });
  const found = async (where: object): Promise<string> => {
    const order_by = { column: "code", direction: "DESC" };
    const select = { database: "main", from: "big", columns: ["id", "code"], where, order_by };
    return (await ask({ Select: select })).text;
  };
  const [first, second] = [`{"id":${one},"code":"${one}"}`, `{"id":${other},"code":"${other}"}`];
  const dataOf = (...rows: string[]) => `{"status":"success","data":[${rows.join(",")}]}`;
  t.equal(await found({ column: "id", cmp: "=", value: one }), dataOf(first));
  t.equal(await found({ column: "id", cmp: "IN", value: [one, other] }), dataOf(first, second));
  const between = { column: "id", cmp: "BETWEEN", value: [one, "9223372036854775807"] };
  t.equal(await found(between), dataOf(first));
  t.equal(await found({ column: "code", cmp: "=", value: one }), dataOf(first), "text is text");

  const note = { database: "main", from: "big", columns: ["note"] };
  const ofOne = { ...note, where: { column: "id", cmp: "=", value: one } };
  t.equal((await ask({ Select: ofOne })).text, dataOf(`{"note":{"n":"${one}"}}`), "json is json");

  const moved = "9007199254740995";
  const update = { database: "main", table: "big", set: { id: moved }, where: ofOne.where };
  t.match(await ask({ Update: update }), { status: 200 });
  const gone = { column: "id", cmp: "=", value: moved };
  t.match(await ask({ Delete: { database: "main", table: "big", where: gone } }), { status: 200 });
  t.equal(await found({ column: "id", cmp: ">=", value: one }), dataOf(), "one row and no other");
  t.match(await found({ column: "code", cmp: "=", value: "near" }), "9007199254740992");
});

overEach("no other string is taken for an integer", async (t, fresh) => {
  const { ask } = await fresh(t);
  await ask({ CreateTable: { database: "main", table: "big", columns } });
  for (const id of ["5", "9007199254740991", `0${one}`, `${one}.0`, `${one}0000`, ` ${one}`, "x"]) {
    const refused = { status: 400, body: { code: "invalid_value" } };
    const insert = { database: "main", table: "big", values: [{ id }] };
    t.match(await ask({ Insert: insert }), refused, id);
  }
});
