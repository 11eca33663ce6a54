/** The databases, tables and columns that `/schema` describes. */
import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { createDatabase, createTable, freshEngine, insert, refusal, send } from "./kit.ts";
import { freshMysql } from "./mysql/kit.ts";
import { overEach, type Scene } from "./over-each.ts";
import { freshPostgres } from "./postgres/kit.ts";

const schemaOf = ({ engine }: Pick<Scene, "engine">) => {
  return (path: string) => send(engine.address, { path: `/schema${path}` });
};

/** A column without anything but its name, its type and whether it is the primary key. */
const column = (name: string, type: unknown, primary_key = false, nullable = !primary_key) => {
  return { name, type, primary_key, nullable };
};

t.test("SQLite's tables are described with the types of CreateTable", async (t) => {
  const scene = await freshEngine(t);
  const [{ ask }, get] = [scene, schemaOf(scene)];
  await ask(createDatabase("Other"));
  await ask(createTable("users", { id: "int", name: "varchar(20)", ok: "bool" }));
  await ask(createTable("t", [{ name: "a", type: "text", nullable: false }], "Other"));
  const databases = { databases: ["Other", "main"] };
  t.same((await get("")).body, { status: "success", data: databases });
  t.same((await get("/main")).body.data, { tables: ["users"] });
  t.same((await get("/main/users")).body.data, {
    columns: [column("id", "int", true), column("name", "varchar(20)"), column("ok", "bool")],
    keys: [["id"]],
    rows: 0,
  });
  const columns = [column("a", "text", false, false)];
  t.same((await get("/Other/t")).body.data, { columns, keys: [], rows: 0 });
  t.match(await get("/main/_gatehouse_columns"), refusal(400, "invalid_name"));
});

const servers = {
  PostgreSQL: {
    fresh: freshPostgres,
    databases: ["main", "public"],
    types: ["bigint", "character varying(20)", "numeric(10,2)"],
  },
  MySQL: {
    fresh: freshMysql,
    databases: ["main"],
    types: [/^bigint/, "varchar(20)", "decimal(10,2)"],
  },
};

for (const [name, { fresh, databases, types }] of Object.entries(servers)) {
  t.test(`tables and views are described with ${name}'s own types`, async (t) => {
    const scene = await fresh(t);
    const get = schemaOf(scene);
    const others = { name: "varchar(20)", price: "numeric(10,2)" };
    await scene.ask(createTable("users", { id: "int", ...others }));
    await scene.sql("create view main.names as select name from main.users");
    t.same((await get("")).body.data, { databases });
    t.same((await get("/main")).body.data, { tables: ["names", "users"] });
    t.match((await get("/main/users")).body.data, {
      columns: ["id", "name", "price"].map((name, at) => column(name, types[at], at === 0)),
      keys: [["id"]],
    });
  });
}

overEach("a name that does not exist in this spelling is a 404", async (t, scene) => {
  await scene.ask(createTable("users", { id: "int" }));
  const missing = {
    "/schema/MAIN": "database_not_found",
    "/schema/pg_catalog": "database_not_found",
    "/schema/mysql": "database_not_found",
    "/schema/main/Users": "table_not_found",
    "/schema/..": "schema_not_found",
    "/schema/main/..": "schema_not_found",
  };
  for (const [path, code] of Object.entries(missing)) {
    t.match(await send(scene.engine.address, { path }), refusal(404, code), path);
  }
});

function rowsOf(description: object | undefined): number {
  const isKnown = description !== undefined && "rows" in description;
  return isKnown ? Number(description.rows) : Number.NaN;
}

overEach("a table is described with its keys, defaults and references", async (t, scene) => {
  const { ask } = scene;
  const describe = async (table: string) => (await schemaOf(scene)(`/main/${table}`)).body.data;
  const orders = {
    id: "serial",
    customer: { type: "int", references: "customers.id" },
    number: { type: "varchar(20)", unique: true },
    status: { type: "varchar(10)", nullable: false, default: "open" },
  };
  const order = { type: "bigint", primary_key: true, references: "orders.id" };
  for (const query of [
    createTable("customers", { id: "int", name: "text" }),
    createTable("orders", orders),
    createTable("lines", { place: "int", in_order: order }),
  ]) {
    t.match(await ask(query), { status: 200 });
  }
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
  const rows = [1, 2, 3].map((id) => ({ id, name: "n" }));
  await ask(insert("customers", rows));
  await eventually("the rows are estimated", async () => {
    return rowsOf(await describe("customers")) === 3;
  });
});

t.test("SQLite counts the rows of small tables and estimates large ones", async (t) => {
  const scene = await freshEngine(t);
  await scene.ask(createTable("many", { id: "int", rowid: "text" }));
  await scene.ask(createTable("sparse", { id: "int" }));
  const idsOf = { many: (at: number) => at, sparse: (at: number) => 1000 + at * 7 };
  for (const [table, idOf] of Object.entries(idsOf)) {
    const rows = Array.from({ length: 30_000 }, (_, at) => ({ id: idOf(at) }));
    await scene.ask(insert(table, rows));
    const estimate = rowsOf((await schemaOf(scene)(`/main/${table}`)).body.data);
    t.ok(Math.abs(estimate - 30_000) < 30, `${table}: ${estimate}`);
  }
});

t.test("PostgreSQL's comments and defaults are shown as written", async (t) => {
  const scene = await freshPostgres(t);
  await scene.sql(
    `create table main.notes (id int primary key, at timestamptz default now(),
      twice int generated always as (id * 2) stored);
    comment on table main.notes is 'Notes of calls';
    comment on column main.notes.at is 'When'`,
  );
  t.match((await schemaOf(scene)("/main/notes")).body.data, {
    columns: [
      { name: "id", comment: undefined },
      { name: "at", default: "now()", comment: "When" },
      { name: "twice", default: undefined },
    ],
    comment: "Notes of calls",
  });
});

const enums = {
  PostgreSQL: {
    fresh: freshPostgres,
    setup: `create type main.mood as enum ('so, so', 'it''s fine');
      create domain main.price as numeric(10,2);
      create domain main.total as main.price;
      create domain main.feeling as main.mood;
      create table main.days (id int primary key, mood main.mood not null, cost main.price,
        felt main.feeling, moods main.mood[], totals main.total[]);
      create materialized view main.moods as select mood from main.days`,
    columns: [
      { type: "integer" },
      { type: "main.mood" },
      { type: "main.price", value_type: "numeric(10,2)", labels: undefined },
      { type: "main.feeling", value_type: "main.mood", labels: ["so, so", "it's fine"] },
      { type: "main.mood[]", value_type: undefined, labels: ["so, so", "it's fine"] },
      { type: "main.total[]", value_type: "numeric(10,2)[]", labels: undefined },
    ],
  },
  MySQL: {
    fresh: freshMysql,
    setup: `create table main.days (id int primary key,
        mood enum('so, so', 'it''s fine') not null, tags set('a', 'b'), ok boolean, flags bit(3));
      create view main.moods as select mood from main.days`,
    columns: [
      { type: /^int/ },
      { type: "enum('so, so','it''s fine')" },
      { type: "set('a','b')", labels: undefined, value_type: undefined },
      { type: "tinyint(1)", value_type: "boolean" },
      { type: "bit(3)", value_type: "bigint" },
    ],
  },
};

for (const [name, { fresh, setup, columns }] of Object.entries(enums)) {
  t.test(`${name}'s enums have labels, views are marked, and types say their values`, async (t) => {
    const scene = await fresh(t);
    for (const statement of setup.split(";")) await scene.sql(statement);
    await scene.ask(createTable("papers", { id: "int", data: "json" }));
    const describe = async (table: string) => (await schemaOf(scene)(`/main/${table}`)).body.data;
    const labels = ["so, so", "it's fine"];
    const [id, mood, ...others] = columns;
    t.match(await describe("days"), {
      view: undefined,
      columns: [id, { ...mood, labels, nullable: false, value_type: undefined }, ...others],
    });
    t.match(await describe("moods"), { view: true, columns: [{ name: "mood", labels }] });
    const isMarked = name === "MySQL";
    t.match(await describe("papers"), {
      columns: [{}, { name: "data", value_type: isMarked ? "json" : undefined }],
    });
  });
}

t.test("MySQL's comments are shown, except the engine's own", async (t) => {
  const scene = await freshMysql(t);
  await scene.sql(
    `create table main.notes (id int primary key comment 'Its number', word text)
      comment 'Notes of calls'`,
  );
  await scene.ask(createTable("marked", { id: "int", data: "json" }));
  const describe = async (table: string) => (await schemaOf(scene)(`/main/${table}`)).body.data;
  t.match(await describe("notes"), {
    columns: [
      { name: "id", comment: "Its number" },
      { name: "word", comment: undefined, default: undefined },
    ],
    comment: "Notes of calls",
  });
  const columns = [{ name: "id" }, { name: "data", comment: undefined }];
  t.match(await describe("marked"), { columns, comment: undefined });
});
