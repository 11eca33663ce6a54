import t from "tap";
import { startGateway } from "../kit/gateway.ts";

t.test("a caller from whom columns are hidden learns only the kind of a constraint", async (t) => {
  const gateway = await startGateway(t);
  const token = await gateway.login();
  const place = { database: "main", table: "people" };
  const columns = [
    { name: "id", type: "int", primary_key: true },
    { name: "secret_code", type: "int", unique: true },
  ];
  await gateway.query({ CreateTable: { ...place, columns } }, token);
  const rita = await gateway.addUser("rita", "ReadWrite");
  const insert = (id: number, bearer: string) =>
    gateway.query({ Insert: { ...place, values: [{ id, secret_code: id }] } }, bearer);
  t.equal((await insert(1, token)).status, 200);
  t.match((await insert(1, rita)).body, {
    code: "constraint_violation",
    constraint: { kind: "unique", table: "people", columns: ["id"] },
  });
  const entry = { role: "ReadWrite", columns: ["id"] };
  await gateway.send("PUT", "/api/access/rita/main/people", entry, token);
  const own = await gateway.query({ Insert: { ...place, values: [{ id: 1 }] } }, rita);
  t.strictSame(own.body.constraint, { kind: "unique" });
  t.notMatch(own.text, /secret_code|people/);
});
