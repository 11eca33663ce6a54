import t from "tap";
import { createTable, freshEngine, send } from "./kit.ts";

t.test("the engine tells its databases, tables and columns", async (t) => {
  const { engine, ask } = await freshEngine(t);
  const get = (path: string) => send(engine.address, { path });
  await ask({ CreateDatabase: { database: "Other" } });
  await ask(createTable("users", { id: "int", name: "varchar(20)", ok: "bool" }));
  const columns = [{ name: "a", type: "text", nullable: false }];
  await ask({ CreateTable: { database: "Other", table: "t", columns } });

  t.same((await get("/schema")).body, {
    status: "success",
    data: { databases: ["Other", "main"] },
  });
  t.same((await get("/schema/main")).body.data, { tables: ["users"] });
  t.same((await get("/schema/main/users")).body.data, {
    columns: [
      { name: "id", type: "int", primary_key: true, nullable: false },
      { name: "name", type: "varchar(20)", primary_key: false, nullable: true },
      { name: "ok", type: "bool", primary_key: false, nullable: true },
    ],
    keys: [["id"]],
    rows: 0,
  });
  t.same((await get("/schema/Other/t")).body.data, {
    columns: [{ name: "a", type: "text", primary_key: false, nullable: false }],
    keys: [],
    rows: 0,
  });
});

t.test("what is not there, in this very spelling, is a 404", async (t) => {
  const { engine, ask } = await freshEngine(t);
  await ask(createTable("users", { id: "int" }));
  const missing = {
    "/schema/MAIN": "database_not_found",
    "/schema/main/Users": "table_not_found",
    "/schema/main/users/id": "not_found",
    "/schema/": "not_found",
    "/schema/..": "not_found",
    "/schemas": "not_found",
  };
  for (const [path, code] of Object.entries(missing)) {
    t.match(await send(engine.address, { path }), { status: 404, body: { code } }, path);
  }
  t.match(await send(engine.address, { path: "/schema/main/_gatehouse_columns" }), {
    status: 400,
    body: { code: "invalid_name" },
  });
  t.match(await send(engine.address, { path: "/schema", method: "POST" }), {
    status: 405,
    headers: { allow: "GET" },
  });
});
