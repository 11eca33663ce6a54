/** What `/schema` tells of databases, tables and columns. */
import t, { type Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { createTable, freshEngine, insert, send } from "./kit.ts";
import { freshMysql, sharedServer as sharedMysql } from "./mysql/kit.ts";
import { overEach } from "./over-each.ts";
import { freshPostgres, sharedServer as sharedPostgres } from "./postgres/kit.ts";

t.test("SQLite's databases, tables and columns are told in the words of the query", async (t) => {
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
  t.match(await get("/schema/main/_gatehouse_columns"), {
    status: 400,
    body: { code: "invalid_name" },
  });
  t.match(await send(engine.address, { path: "/schema", method: "POST" }), {
    status: 405,
    headers: { allow: "GET" },
  });
});

const servers = {
  PostgreSQL: {
    fresh: async (t: Test) => {
      const [made, server] = [await freshPostgres(t), await sharedPostgres()];
      return { ...made, sql: (words: string) => server.sql(words, made.database) };
    },
    databases: ["main", "public"],
    types: ["bigint", "character varying(20)", "numeric(10,2)"],
  },
  MySQL: {
    fresh: async (t: Test) => {
      const [made, server] = [await freshMysql(t), await sharedMysql()];
      return { ...made, sql: (words: string) => server.sql(words) };
    },
    databases: ["main"],
    types: [/^bigint/, "varchar(20)", "decimal(10,2)"],
  },
};
for (const [name, { fresh, databases, types }] of Object.entries(servers)) {
  t.test(`databases, tables and views, and columns are told in ${name}'s words`, async (t) => {
    const { engine, ask, sql } = await fresh(t);
    const view = "create view main.names as select name from main.users";
    const get = (path: string) => send(engine.address, { path });
    await ask(createTable("users", { id: "int", name: "varchar(20)", price: "numeric(10,2)" }));
    await sql(view);
    t.same((await get("/schema")).body.data, { databases });
    t.same((await get("/schema/main")).body.data, { tables: ["names", "users"] });
    t.match((await get("/schema/main/users")).body.data, {
      columns: ["id", "name", "price"].map((name, at) => {
        return { name, type: types[at], primary_key: at === 0, nullable: at > 0 };
      }),
      keys: [["id"]],
    });
  });
}

overEach("what is not there, in this very spelling, is a 404", async (t, fresh) => {
  const { engine, ask } = await fresh(t);
  await ask(createTable("users", { id: "int" }));
  const missing = {
    "/schema/MAIN": "database_not_found",
    "/schema/pg_catalog": "database_not_found",
    "/schema/mysql": "database_not_found",
    "/schema/main/Users": "table_not_found",
    "/schema/main/users/id": "not_found",
    "/schema/": "not_found",
    "/schema/..": "not_found",
    "/schemas": "not_found",
  };
  for (const [path, code] of Object.entries(missing)) {
    t.match(await send(engine.address, { path }), { status: 404, body: { code } }, path);
  }
});

const customers = createTable("customers", { id: "int", name: "text" });
const orders = {
  CreateTable: {
    database: "main",
    table: "orders",
    columns: [
      { name: "id", type: "serial", primary_key: true },
      { name: "customer", type: "int", references: "customers.id" },
      { name: "number", type: "varchar(20)", unique: true },
      { name: "status", type: "varchar(10)", nullable: false, default: "open" },
    ],
  },
};
const lines = {
  CreateTable: {
    database: "main",
    table: "lines",
    columns: [
      { name: "place", type: "int", primary_key: true },
      { name: "in_order", type: "bigint", primary_key: true, references: "orders.id" },
    ],
  },
};

function rowsOf(described: object | undefined): number {
  const isTold = described !== undefined && "rows" in described;
  return isTold ? Number(described.rows) : Number.NaN;
}

overEach("a table is described with its keys, defaults and references", async (t, fresh) => {
  const { engine, ask } = await fresh(t);
  for (const query of [customers, orders, lines]) t.match(await ask(query), { status: 200 });
  const describe = async (table: string) =>
    (await send(engine.address, { path: `/schema/main/${table}` })).body.data;
  t.match(await describe("orders"), {
    columns: [
      { name: "id", primary_key: true, nullable: false, serial: true, default: undefined },
      { name: "customer", references: "customers.id", default: undefined, unique: undefined },
      { name: "number", nullable: true, unique: true, serial: undefined },
      { name: "status", nullable: false, default: /open/, references: undefined },
    ],
    keys: [["id"], ["number"]],
  });
  t.match(await describe("lines"), {
    columns: [
      { name: "place", primary_key: true, unique: undefined },
      { name: "in_order", primary_key: true, unique: undefined, references: "orders.id" },
    ],
    keys: [["place", "in_order"]],
  });
  await ask(
    insert(
      "customers",
      [1, 2, 3].map((id) => ({ id, name: "n" })),
    ),
  );
  await eventually("the rows are estimated", async () => {
    return rowsOf(await describe("customers")) === 3;
  });
});

t.test("SQLite's rows are counted where they are few, and else guessed", async (t) => {
  const { engine, ask } = await freshEngine(t);
  await ask(createTable("many", { id: "int", rowid: "text" }));
  await ask(createTable("sparse", { id: "int" }));
  const ids = Array.from({ length: 30_000 }, (_, id) => id);
  await ask(
    insert(
      "many",
      ids.map((id) => ({ id })),
    ),
  );
  await ask(
    insert(
      "sparse",
      ids.map((id) => ({ id: 1000 + id * 7 })),
    ),
  );
  for (const table of ["many", "sparse"]) {
    const { body } = await send(engine.address, { path: `/schema/main/${table}` });
    const rows = rowsOf(body.data);
    t.ok(Math.abs(rows - 30_000) < 30, `${table}: ${rows}`);
  }
});

t.test("PostgreSQL's comments and own defaults are told in its words", async (t) => {
  const { engine, database } = await freshPostgres(t);
  const server = await sharedPostgres();
  await server.sql(
    `create table main.notes (id int primary key, at timestamptz default now(),
      twice int generated always as (id * 2) stored);
    comment on table main.notes is 'What was said';
    comment on column main.notes.at is 'When'`,
    database,
  );
  const { body } = await send(engine.address, { path: "/schema/main/notes" });
  t.match(body.data, {
    columns: [
      { name: "id", comment: undefined },
      { name: "at", default: "now()", comment: "When" },
      { name: "twice", default: undefined },
    ],
    comment: "What was said",
  });
});

t.test("MySQL's comments are told, but for those that are the engine's own", async (t) => {
  const { engine, ask } = await freshMysql(t);
  const server = await sharedMysql();
  await server.sql(
    `create table main.notes (id int primary key comment 'Its number', word text)
      comment 'What was said'`,
  );
  await ask(createTable("marked", { id: "int", data: "json" }));
  const described = async (table: string) =>
    (await send(engine.address, { path: `/schema/main/${table}` })).body.data;
  t.match(await described("notes"), {
    columns: [
      { name: "id", comment: "Its number" },
      { name: "word", comment: undefined, default: undefined },
    ],
    comment: "What was said",
  });
  t.match(await described("marked"), {
    columns: [{ name: "id" }, { name: "data", comment: undefined }],
    comment: undefined,
  });
});
