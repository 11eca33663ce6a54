/** What a server refuses, and what nobody is told of it. */
import t, { type Test } from "tap";
import { type Answer, createTable, insert, query, selectAll } from "./kit.ts";
import { freshMysql, sharedServer as sharedMysql } from "./mysql/kit.ts";
import { freshPostgres, sharedServer as sharedPostgres, startOn } from "./postgres/kit.ts";
import { startService } from "./postgres/service.ts";

async function onPostgres(t: Test, ...statements: string[]) {
  const fresh = await freshPostgres(t);
  const server = await sharedPostgres();
  const sql = (...texts: string[]) => server.sql(texts.join(";"), fresh.database);
  await sql(...statements);
  const url = (user: string) => server.url(fresh.database).replace("gatehouse@", `${user}@`);
  return { ...fresh, sql, url };
}

async function onMysql(t: Test, ...statements: string[]) {
  const fresh = await freshMysql(t);
  const server = await sharedMysql();
  const sql = (...texts: string[]) => server.sql(...texts);
  await sql(...statements, "select 1");
  return { ...fresh, sql, url: (user: string) => server.url.replace("root@", `${user}@`) };
}

const scenes = { PostgreSQL: onPostgres, MySQL: onMysql };

function overServers<T>(
  name: string,
  cases: Record<keyof typeof scenes, T>,
  body: (t: Test, scene: typeof onPostgres | typeof onMysql, own: T) => Promise<void>,
): void {
  t.test(`${name} (PostgreSQL)`, (t) => body(t, onPostgres, cases.PostgreSQL));
  t.test(`${name} (MySQL)`, (t) => body(t, onMysql, cases.MySQL));
}

function refused(t: Test, answer: Answer, status: number, code: string): void {
  t.match(answer, { status, body: { status: "error", code } });
  t.notMatch(answer.text, /hunter2|insert into|select |\$1|\?/i, "no row and no SQL is told");
}

const name = "hunter2";
const dropDatabase = (database: string) => ({ DropDatabase: { database } });
const dropTable = (table: string) => ({ DropTable: { database: "main", table } });
const remove = (table: string) => ({ Delete: { database: "main", table, where: null } });

overServers<{ make: string[]; broken: [object, RegExp][] }>(
  "constraints of every kind are a 409 that names them and no value",
  {
    PostgreSQL: {
      make: [
        "create table main.owners (name text primary key, age int check (age > 0))",
        `create table main.cats (name text primary key references main.owners, toy text not null);
        create function main.refuse() returns trigger language plpgsql as
          $$ begin raise exception 'no % here', new.name; end $$`,
        "create table main.dogs (name text)",
        "create trigger refuse before insert on main.dogs for each row execute function main.refuse()",
      ],
      broken: [
        [insert("owners", [{ name }]), /owners_pkey/],
        [insert("owners", [{ name: "x", age: -1 }]), /owners_age_check/],
        [insert("cats", [{ name: "other", toy: "y" }]), /cats_name_fkey/],
        [remove("owners"), /cats_name_fkey/],
        [dropTable("owners"), /depend on/],
        [dropDatabase("main"), /depend on/],
      ],
    },
    MySQL: {
      make: [
        `create table main.owners (name varchar(40) primary key, age int,
          constraint adult check (age > 0))`,
        `create table main.cats (name varchar(40) primary key, toy text not null, tag int unique,
          constraint owned foreign key (name) references main.owners (name))`,
        "create table main.dogs (name varchar(40))",
        `create trigger main.refuse before insert on main.dogs for each row
          signal sqlstate '45000' set message_text = 'no hunter2 here'`,
      ],
      broken: [
        [insert("owners", [{ name }]), /PRIMARY/],
        [insert("owners", [{ name: "' for key 'x" }, { name: "' for key 'x" }]), /PRIMARY/],
        [insert("owners", [{ name: "x", age: -1 }]), /adult/],
        [
          insert("cats", [{ name: "hunter2x", toy: "y" }]),
          /^Table owners has no row for name of cats \(foreign key owned\)$/,
        ],
        [insert("cats", [{ name }]), /column "toy"/],
        [remove("owners"), /^Rows of cats still refer to name \(foreign key owned\)$/],
        [dropTable("owners"), /foreign key|depend on/],
      ],
    },
  },
  async (t, scene, { make, broken }) => {
    const rows = [
      "insert into main.owners values ('hunter2', 1)",
      "insert into main.cats (name, toy) values ('hunter2', 'ball')",
    ];
    const { ask } = await scene(t, ...make, ...rows);
    for (const [body, message] of [
      ...broken,
      [insert("cats", [{ name, toy: null }]), /column "toy"/],
      [insert("dogs", [{ name }]), /trigger/],
    ] as const) {
      const answer = await ask(body);
      refused(t, answer, 409, "constraint_violation");
      t.match(answer.body.message, message);
    }
  },
);

overServers<{ make: string[]; unmake: string; hidden: [number, string] }>(
  "what the engine's own user may not do is a 403 of the engine",
  {
    PostgreSQL: {
      make: [
        "create schema hidden; create role reader login; grant usage on schema main to reader",
        "grant select on main.secrets to reader",
      ],
      unmake: "drop owned by reader; drop role reader",
      hidden: [403, "permission_denied"],
    },
    MySQL: {
      make: [
        "create database hidden",
        "create user reader@'127.0.0.1'",
        "grant select on main.* to reader@'127.0.0.1'",
      ],
      unmake: "drop user reader@'127.0.0.1'",
      // What the user may not see is not there.
      hidden: [404, "database_not_found"],
    },
  },
  async (t, scene, { make, unmake, hidden }) => {
    const table = "create table main.secrets (id bigint primary key)";
    const { sql, url } = await scene(t, table, ...make, "create table hidden.rows (id bigint)");
    t.teardown(() => sql(unmake));
    const { address } = await startOn(t, url("reader"));
    t.match(await query(address, selectAll("secrets")), { status: 200 });
    for (const body of [
      insert("secrets", [{ id: 1 }]),
      createTable("mine", { id: "int" }),
      { CreateDatabase: { database: "mine" } },
      dropTable("secrets"),
      dropDatabase("main"),
    ]) {
      refused(t, await query(address, body), 403, "permission_denied");
    }
    refused(t, await query(address, selectAll("rows", {}, "hidden")), ...hidden);
  },
);

overServers(
  "a drop takes nothing along that queries could not make again",
  { PostgreSQL: "create schema other", MySQL: "create database other" },
  async (t, scene, make) => {
    const { ask, sql } = await scene(
      t,
      make,
      "create table other.base (id bigint primary key)",
      "create table main.child (id bigint, foreign key (id) references other.base (id))",
      "create view main.seen as select * from other.base",
    );
    for (const database of ["other", "main"]) {
      refused(t, await ask(dropDatabase(database)), 409, "constraint_violation");
    }
    t.match(await ask(selectAll("base", {}, "other")), { status: 200 });
    refused(t, await ask(dropTable("seen")), 404, "table_not_found");
    await sql("drop view main.seen");
    t.match(await ask(dropDatabase("main")), { status: 200 });
    t.match(await ask(dropDatabase("other")), { status: 200 });
  },
);

overServers(
  "what is the server's own is no database",
  {
    PostgreSQL: ["pg_catalog", "information_schema", "PG_catalog"],
    MySQL: ["mysql", "information_schema", "performance_schema", "SYS"],
  },
  async (t, scene, databases) => {
    const { ask } = await scene(t);
    for (const database of databases) {
      refused(t, await ask(selectAll("pg_authid", {}, database)), 404, "database_not_found");
      refused(t, await ask(dropDatabase(database)), 404, "database_not_found");
      refused(t, await ask({ CreateDatabase: { database } }), 400, "invalid_name");
    }
  },
);

overServers<{ make: string[]; user: string; code: RegExp }>(
  "neither a password nor a row gets into the log, whatever goes wrong",
  {
    PostgreSQL: {
      make: [
        `create function main.fail() returns trigger language plpgsql as
          $$ begin raise exception 'hunter2 %', new.id using errcode = 'XX000', detail = 'hunter2'; end $$`,
        "create trigger fail before insert on main.rows for each row execute function main.fail()",
      ],
      user: "gatehouse",
      code: /XX000/,
    },
    MySQL: {
      make: [
        `create trigger main.fail before insert on main.rows for each row
          signal sqlstate '58000' set mysql_errno = 1105, message_text = 'hunter2'`,
        "create user ann@'127.0.0.1' identified by 'hunter2'",
        "grant all on main.* to ann@'127.0.0.1'",
      ],
      user: "ann",
      code: /1105/,
    },
  },
  async (t, scene, { make, user, code }) => {
    const { url } = await scene(t, "create table main.rows (id bigint primary key)", ...make);
    const { service, address } = await startService(t, url(`${user}:hunter2`));
    refused(t, await query(address, insert("rows", [{ id: 4711 }])), 500, "internal_error");
    await service.logged(({ msg }) => msg === "a query failed");
    t.match(service.output, code);
    t.notMatch(service.output, /hunter2|4711|insert into/i);
  },
);

t.test("a wrong label of an enum names the column and the labels", async (t) => {
  const { ask, sql } = await onPostgres(
    t,
    "create type main.mood as enum ('sad', 'ok, or so')",
    "create table main.people (id int primary key, mood main.mood)",
  );
  const message = "does not take this string; allowed: sad, ok, or so";
  const wrong = insert("people", [{ id: 1, mood: "glad" }]);
  t.match((await ask(wrong)).body, {
    code: "invalid_value",
    message: `"mood" (main.mood) ${message}`,
  });
  const condition = { where: { column: "mood", cmp: "=", value: "glad" } };
  t.match((await ask(selectAll("people", condition))).body, {
    code: "invalid_value",
    message: /"mood" .*; allowed: sad, ok, or so/,
  });
  await sql("alter type main.mood add value 'glad'");
  t.match(await ask(wrong), { status: 200 }, "a new label is known at once");
  t.match((await ask(selectAll("people", condition))).body.data, [{ id: 1, mood: "glad" }]);
});

t.test("names that PostgreSQL would cut off are refused", async (t) => {
  const { ask } = await freshPostgres(t);
  const columns = { id: "int", [`${"ä".repeat(31)}b`]: "int", [`${"ä".repeat(31)}bc`]: "int" };
  refused(t, await ask(createTable("long", columns)), 400, "invalid_name");
});

t.test("what MySQL could not keep of a name, a type or a row is refused", async (t) => {
  const { ask } = await freshMysql(t);
  for (const name of ["x".repeat(65), "end ", "\u{1f600}"]) {
    refused(t, await ask(createTable("odd", { id: "int", [name]: "int" })), 400, "invalid_name");
  }
  const wide = { id: "int", a: "varchar(15000)", b: "varchar(15000)" };
  refused(t, await ask(createTable("wide", wide)), 400, "query_too_complex");
  refused(t, await ask(createTable("fine", { id: "numeric(70,2)" })), 400, "invalid_type");
  refused(t, await ask(createTable("keyed", { id: "varchar(1000)" })), 400, "invalid_type");
  refused(t, await ask(createTable("keyed", { id: "json" })), 400, "invalid_type");
  await ask(createTable("items", { id: "int", text: "text" }));
  t.match(await ask(insert("items", [{ id: 1, text: "y".repeat(17 * 2 ** 20) }])), {
    status: 400,
    body: { code: "query_too_complex", message: /max_allowed_packet/ },
  });
});

t.test("a Batch that makes or drops a table is refused before anything is done", async (t) => {
  const { ask } = await freshMysql(t);
  await ask(createTable("rows", { id: "int" }));
  await ask(insert("rows", [{ id: 1 }]));
  const batches = [
    [insert("rows", [{ id: 2 }]), createTable("more", { id: "int" })],
    [dropTable("rows"), selectAll("rows")],
    [createTable("one", { id: "int" }), createTable("two", { id: "int" })],
  ];
  for (const Batch of batches) refused(t, await ask({ Batch }), 400, "batch_not_atomic");
  t.same((await ask(selectAll("rows"))).body.data, [{ id: 1 }]);
  for (const table of ["more", "one", "two"]) {
    t.match(await ask(selectAll(table)), { status: 404 }, table);
  }
  t.same((await ask({ Batch: [dropTable("rows")] })).body.data, ["Table rows dropped"]);
});

t.test("a table that could not take half of a query back is only read", async (t) => {
  const { ask } = await onMysql(
    t,
    "create table main.old (id bigint primary key) engine = MyISAM",
    "insert into main.old values (1)",
  );
  refused(t, await ask(insert("old", [{ id: 2 }, { id: 1 }])), 403, "permission_denied");
  refused(t, await ask(remove("old")), 403, "permission_denied");
  t.same((await ask(selectAll("old"))).body.data, [{ id: 1 }]);
});
