import t from "tap";
import { callTool, textOf } from "../journeys/mcp.ts";
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

t.test(
  "a caller whom an entry of a group narrows learns only the kind, in a Batch and over MCP too",
  async (t) => {
    const gateway = await startGateway(t);
    const token = await gateway.login();
    const place = { database: "main", table: "people" };
    const columns = [
      { name: "id", type: "int", primary_key: true },
      { name: "secret_code", type: "int", nullable: true, unique: true },
    ];
    await gateway.query({ CreateTable: { ...place, columns } }, token);
    const gina = await gateway.addUser("gina", "ReadOnly", "elsewhere");
    await gateway.send("PUT", "/api/groups/team", { members: ["gina"] }, token);
    const insert = { Insert: { ...place, values: [{ id: 1 }] } };
    t.equal((await gateway.query(insert, token)).status, 200);
    const batch = { Batch: [{ Insert: { ...place, values: [{ id: 2 }] } }, insert] };
    const row_filter = [{ column: "id", cmp: "<", value: 9 }];
    for (const limits of [{}, { columns: ["id"] }, { row_filter }]) {
      const entry = { role: "ReadWrite", ...limits };
      const path = "/api/groups/team/access/main";
      t.equal((await gateway.send("PUT", path, entry, token)).status, 200);
      const isWhole = Object.keys(limits).length === 0;
      const whole = { kind: "unique", table: "people", columns: ["id"] };
      for (const query of [insert, batch]) {
        const { body, text } = await gateway.query(query, gina);
        t.strictSame(body.constraint, isWhole ? whole : { kind: "unique" }, text);
      }
      const tool = textOf(await callTool(gateway, "batch", { operations: batch.Batch }, gina));
      t.match(tool, /constraint_violation\)$/);
      t.equal(/people|unique/.test(tool), isWhole, tool);
    }
  },
);
