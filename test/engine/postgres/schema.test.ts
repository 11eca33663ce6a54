import t from "tap";
import { createTable, send } from "../kit.ts";
import { freshPostgres, sharedServer } from "./kit.ts";

t.test(
  "the engine tells schemas, tables and views, and columns in PostgreSQL's words",
  async (t) => {
    const { engine, ask, database } = await freshPostgres(t);
    const server = await sharedServer();
    const get = (path: string) => send(engine.address, { path });
    await ask(createTable("users", { id: "int", name: "varchar(20)", price: "numeric(10,2)" }));
    await server.sql("create view main.names as select name from main.users", database);

    t.same((await get("/schema")).body.data, { databases: ["main", "public"] });
    t.same((await get("/schema/main")).body.data, { tables: ["names", "users"] });
    t.same((await get("/schema/main/users")).body.data, {
      columns: [
        { name: "id", type: "bigint", primary_key: true, nullable: false },
        { name: "name", type: "character varying(20)", primary_key: false, nullable: true },
        { name: "price", type: "numeric(10,2)", primary_key: false, nullable: true },
      ],
      keys: [["id"]],
    });
    const missing = {
      "/schema/MAIN": "database_not_found",
      "/schema/pg_catalog": "database_not_found",
      "/schema/main/Users": "table_not_found",
    };
    for (const [path, code] of Object.entries(missing)) {
      t.match(await get(path), { status: 404, body: { code } }, path);
    }
  },
);
