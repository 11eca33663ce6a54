/** Refusals of the servers, which reveal no row and no SQL. */
import t, { type Test } from "tap";
import {
  type Answer,
  createDatabase,
  createTable,
  dropDatabase,
  dropTable,
  insert,
  query,
  refusal,
  remove,
  selectAll,
  update,
} from "./kit.ts";
import { freshMysql, type MysqlEngine } from "./mysql/kit.ts";
import { freshPostgres, type PostgresEngine, startOn } from "./postgres/kit.ts";
import { startService } from "./postgres/service.ts";

const scenes = { PostgreSQL: freshPostgres, MySQL: freshMysql };

type ServerScene = PostgresEngine | MysqlEngine;

/** Runs a test over both servers, with their own cases. */
function overServers<T>(
  name: string,
  cases: Record<keyof typeof scenes, T>,
  body: (t: Test, scene: ServerScene, own: T) => Promise<void>,
): void {
  for (const server of ["PostgreSQL", "MySQL"] as const) {
    t.test(`${name} (${server})`, async (t) => body(t, await scenes[server](t), cases[server]));
  }
}

/** The URL of a scene for another user of the server. */
function urlFor({ url }: ServerScene, user: string): string {
  return url.replace(/\/\/\w+@/, `//${user}@`);
}

function refused(t: Test, answer: Answer, status: number, code: string): void {
  t.match(answer, refusal(status, code));
  t.notMatch(answer.text, /hunter2|insert into|select |\$1|\?/i, "no row and no SQL is shown");
}

const name = "hunter2";

overServers<{ make: string[]; broken: [object, RegExp][] }>(
  "a 409 names the violated constraint, and no value",
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
  async (t, { ask, sql }, { make, broken }) => {
    const rows = [
      "insert into main.owners values ('hunter2', 1)",
      "insert into main.cats (name, toy) values ('hunter2', 'ball')",
    ];
    await sql(...make, ...rows);
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
  "a missing privilege of the engine's database user is a 403",
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
      // MySQL hides databases without privileges.
      hidden: [404, "database_not_found"],
    },
  },
  async (t, scene, { make, unmake, hidden }) => {
    const table = "create table main.secrets (id bigint primary key)";
    await scene.sql(table, ...make, "create table hidden.rows (id bigint)");
    t.teardown(() => scene.sql(unmake));
    const { address } = await startOn(t, urlFor(scene, "reader"));
    t.match(await query(address, selectAll("secrets")), { status: 200 });
    for (const body of [
      insert("secrets", [{ id: 1 }]),
      createTable("mine", { id: "int" }),
      createDatabase("mine"),
      dropTable("secrets"),
      dropDatabase("main"),
    ]) {
      refused(t, await query(address, body), 403, "permission_denied");
    }
    refused(t, await query(address, selectAll("rows", {}, "hidden")), ...hidden);
  },
);

overServers(
  "a drop removes nothing that queries cannot create again",
  { PostgreSQL: "create schema other", MySQL: "create database other" },
  async (t, { ask, sql }, make) => {
    await sql(
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
  "the server's own databases are out of reach",
  {
    PostgreSQL: ["pg_catalog", "information_schema", "PG_catalog"],
    MySQL: ["mysql", "information_schema", "performance_schema", "SYS"],
  },
  async (t, { ask }, databases) => {
    for (const database of databases) {
      refused(t, await ask(selectAll("pg_authid", {}, database)), 404, "database_not_found");
      refused(t, await ask(dropDatabase(database)), 404, "database_not_found");
      refused(t, await ask(createDatabase(database)), 400, "invalid_name");
    }
  },
);

overServers<{ make: string[]; user: string; code: RegExp }>(
  "no failure writes a password or a row to the log",
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
    await scene.sql("create table main.rows (id bigint primary key)", ...make);
    const { service, address } = await startService(t, urlFor(scene, `${user}:hunter2`));
    refused(t, await query(address, insert("rows", [{ id: 4711 }])), 500, "internal_error");
    await service.logged(({ msg }) => msg === "a query failed");
    t.match(service.output, code);
    t.notMatch(service.output, /hunter2|4711|insert into/i);
  },
);

t.test("a wrong label of an enum is refused with the labels", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  await sql(
    "create type main.mood as enum ('sad', 'ok, or so')",
    "create table main.people (id int primary key, mood main.mood)",
  );
  const message = "does not accept this string; allowed: sad, ok, or so";
  const wrong = insert("people", [{ id: 1, mood: "glad" }]);
  t.match(await ask(wrong), refusal(400, "invalid_value", `"mood" (main.mood) ${message}`));
  const condition = { where: { column: "mood", cmp: "=", value: "glad" } };
  const labels = /"mood" .*; allowed: sad, ok, or so/;
  t.match(await ask(selectAll("people", condition)), refusal(400, "invalid_value", labels));
  await sql("alter type main.mood add value 'glad'");
  t.match(await ask(wrong), { status: 200 }, "a new label is known at once");
  t.match((await ask(selectAll("people", condition))).body.data, [{ id: 1, mood: "glad" }]);
});

t.test("MySQL's wrong label of an enum is refused with the labels too", async (t) => {
  const { ask, sql } = await freshMysql(t);
  await sql(
    "create table main.people (id int primary key, mood enum('sad', 'ok, or so') not null)",
  );
  const wrong = insert("people", [{ id: 1, mood: "glad" }]);
  const labels = /"mood" \(enum\(.+\)\) does not accept this string; allowed: sad, ok, or so$/;
  t.match(await ask(wrong), refusal(400, "invalid_value", labels));
  t.match(await ask(update("people", { mood: "glad" })), refusal(400, "invalid_value", labels));
  const required = 'Table people requires a value in column "mood"';
  const empty = insert("people", [{ id: 1, mood: null }]);
  t.match(await ask(empty), refusal(409, "constraint_violation", required));
});

t.test("names that PostgreSQL would truncate are refused", async (t) => {
  const { ask } = await freshPostgres(t);
  const columns = { id: "int", [`${"ä".repeat(31)}b`]: "int", [`${"ä".repeat(31)}bc`]: "int" };
  refused(t, await ask(createTable("long", columns)), 400, "invalid_name");
});

t.test("names, types and rows that MySQL cannot store are refused", async (t) => {
  const { ask } = await freshMysql(t);
  for (const name of ["x".repeat(65), "end ", "\u{1f600}"]) {
    refused(t, await ask(createTable("odd", { id: "int", [name]: "int" })), 400, "invalid_name");
  }
  const wide = { id: "int", a: "varchar(15000)", b: "varchar(15000)" };
  refused(t, await ask(createTable("wide", wide)), 400, "query_too_complex");
  for (const id of ["numeric(70,2)", "varchar(1000)", "json"]) {
    refused(t, await ask(createTable("keyed", { id })), 400, "invalid_type");
  }
  await ask(createTable("items", { id: "int", text: "text" }));
  const long = insert("items", [{ id: 1, text: "y".repeat(17 * 2 ** 20) }]);
  t.match(await ask(long), refusal(400, "query_too_complex", /max_allowed_packet/));
});

t.test("with MySQL, a Batch that creates or drops a table is refused at once", async (t) => {
  const { ask } = await freshMysql(t);
  await ask(createTable("rows", { id: "int" }));
  await ask(insert("rows", [{ id: 1 }]));
  const more = createTable("more", { id: "int" });
  for (const Batch of [
    [insert("rows", [{ id: 2 }]), more],
    [dropTable("rows"), selectAll("rows")],
    [more, createTable("two", { id: "int" })],
  ]) {
    refused(t, await ask({ Batch }), 400, "batch_not_atomic");
  }
  t.same((await ask(selectAll("rows"))).body.data, [{ id: 1 }]);
  for (const table of ["more", "two"]) {
    t.match(await ask(selectAll(table)), { status: 404 }, table);
  }
  t.same((await ask({ Batch: [dropTable("rows")] })).body.data, ["Table rows dropped"]);
});

t.test("a MySQL table without transactions is read-only", async (t) => {
  const { ask, sql } = await freshMysql(t);
  await sql(
    "create table main.old (id bigint primary key) engine = MyISAM",
    "insert into main.old values (1)",
  );
  refused(t, await ask(insert("old", [{ id: 2 }, { id: 1 }])), 403, "permission_denied");
  refused(t, await ask(remove("old")), 403, "permission_denied");
  t.same((await ask(selectAll("old"))).body.data, [{ id: 1 }]);
});
