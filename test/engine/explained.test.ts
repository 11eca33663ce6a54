import { overEach } from "./over-each.ts";

const columns = [
  { name: "id", type: "int", primary_key: true },
  { name: "name", type: "text", nullable: true },
  { name: "age", type: "bigint", nullable: true },
  { name: "score", type: "double", nullable: true },
  { name: "active", type: "boolean", nullable: true },
  { name: "data", type: "blob", nullable: true },
];
const users = { database: "main", table: "users" };
const all = { database: "main", from: "users", columns: ["*"] };

overEach("a refusal names element, row, column and the form that is allowed", async (t, fresh) => {
  const { ask } = await fresh(t);
  t.match(await ask({ CreateTable: { ...users, columns } }), { status: 200 });
  const messageOf = async (body: object, code = "invalid_value") => {
    const answer = await ask(body);
    t.match(answer, { body: { status: "error", code } });
    return String(answer.body.message);
  };
  const rows = (bad: object) => ({ Insert: { ...users, values: [{ id: 1 }, { id: 2, ...bad }] } });

  const forms: [bad: object, message: RegExp][] = [
    [
      { age: "old" },
      /^values\[1\]: Column "age" \(.+\) .* this string; allowed: a whole number of 64 bits$/,
    ],
    [{ score: "x" }, /^values\[1\]: Column "score" \(.+\) .*; allowed: a number$/],
    [{ active: "x" }, /^values\[1\]: Column "active" \(.+\) .*; allowed: true or false$/],
    [{ data: "?" }, /^values\[1\]: Column "data" \(.+\) .*; allowed: bytes as base64 text$/],
    [{ name: 1 }, /^values\[1\]: Column "name" \(.+\) .*; allowed: text$/],
  ];
  for (const [bad, message] of forms) t.match(await messageOf(rows(bad)), message);
  t.match(
    await messageOf({ Batch: [rows({ age: true })] }),
    /^Batch\[0\]: values\[1\]: Column "age" /,
  );
  const set = { Update: { ...users, set: { age: "old" }, where: null } };
  t.match(await messageOf(set), /^Column "age" .*; allowed: a whole number of 64 bits$/);
  const where = (cmp: string, value: unknown) => ({
    Select: { ...all, where: { column: "age", cmp, value } },
  });
  t.match(await messageOf(where("=", "old")), /^Column "age" .*; allowed: a number$/);

  const near = { Select: { ...all, columns: ["nmae"] } };
  t.match(await messageOf(near, "unknown_column"), /"nmae" in users \(did you mean name\?\)$/);
  const wrong = { Select: { ...all, columns: ["users.nmae"] } };
  t.match(await messageOf(wrong, "unknown_column"), /in users \(did you mean users\.name\?\)$/);
  const join = { table: "pets", on: "users.id = pets.id", join_type: "INNER" };
  t.match(await ask({ CreateTable: { ...users, table: "pets", columns: columns.slice(0, 1) } }), {
    status: 200,
  });
  const other = { Select: { ...all, columns: ["pets.name"], join } };
  t.match(await messageOf(other, "unknown_column"), /and pets \(did you mean users\.name\?\)$/);
  const count = { Select: { ...all, columns: ["count(*)"] } };
  t.match(await messageOf(count, "unknown_column"), /in users; counts and sums stand under agg/);
  const far = { Select: { ...all, columns: ["nothing"] } };
  t.match(await messageOf(far, "unknown_column"), /"nothing" in users$/);
  const unknown = rows({ agee: 1 });
  t.match(await messageOf(unknown, "unknown_column"), /^values\[1\]: .* \(did you mean age\?\)$/);
  const noTable = "table_not_found";
  const select = (from: string) => ({ Select: { ...all, from } });
  t.match(await messageOf(select("usres"), noTable), /usres in main \(did you mean users\?\)$/);
  t.match(await messageOf(select("elsewhere"), noTable), /elsewhere in main$/);
  const drop = { DropTable: { database: "main", table: "user" } };
  t.match(await messageOf(drop, noTable), /user in main \(did you mean users\?\)$/);
  t.match(await messageOf(select("gatehouse_columns"), noTable), /_columns in main$/);
});
