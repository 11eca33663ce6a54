/** Refusals of the servers, which reveal no row and no SQL. */
import t, { type Test } from "tap";
import { readTraits } from "../../src/engine/mysql/session.ts";
import {
  type Answer,
  createDatabase,
  createTable,
  dropDatabase,
  dropTable,
  equal,
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
    refused(t, await query(address, insert("rows", [{ id: 4711 }])), 409, "statement_failed");
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

t.test("a wrong label in an array of an enum is refused with the labels", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  await sql(
    "create type main.mood as enum ('sad', 'ok, or so')",
    "create domain main.moods as main.mood[]",
    "create table main.people (id int primary key, past main.mood[], seen main.moods)",
  );
  const known = { id: 1, past: ["sad", null, "ok, or so"], seen: [["sad"], ["sad"]] };
  t.match(await ask(insert("people", [known])), { status: 200 });
  t.same((await ask(selectAll("people"))).body.data, [known]);
  const labels = "; allowed: sad, ok, or so";
  for (const [column, value] of Object.entries({ past: ["sad", "glad"], seen: [["glad"]] })) {
    const message = `Column "${column}" (main.mood`;
    for (const [body, place] of [
      [insert("people", [{ id: 2, [column]: value }]), "values[0]: "],
      [update("people", { [column]: value }), ""],
      [selectAll("people", { where: equal(column, value) }), ""],
    ] as const) {
      const answer = await ask(body);
      t.match(answer, refusal(400, "invalid_value", place + message));
      t.match(answer.body.message, labels);
      t.notMatch(answer.text, "glad");
    }
  }
  await sql("alter type main.mood add value 'glad'");
  t.match(await ask(update("people", { past: ["glad"] })), { status: 200 });
});

overServers(
  "a value beyond a column's length or range names the column and what is allowed",
  {
    PostgreSQL: { float: "real", array: ", few varchar(3)[], ranks smallint[]" },
    MySQL: { float: "float", array: ", tiny tinyint(2)" },
  },
  async (t, { ask, sql }, { float, array }) => {
    await sql(`create table main.t (id bigint primary key, code varchar(5), small smallint, n int,
      amount numeric(5, 2), part numeric(2, 2), f ${float}, d double precision ${array})`);
    await ask(insert("t", [{ id: 1 }]));
    const range = "number_out_of_range";
    const cases: [column: string, value: string, code: string, allowed: string][] = [
      ["code", `"abcdef"`, "invalid_value", "text of at most 5 characters"],
      ["code", `"abcde "`, "invalid_value", "text of at most 5 characters"],
      ["small", "32768", range, "a whole number from -32768 to 32767"],
      ["n", "-2147483649", range, "a whole number from -2147483648 to 2147483647"],
      ["id", "9223372036854775808", range, "a whole number of 64 bits"],
      ["amount", "1000", range, "a number of at most 3 digits before and 2 after the point"],
      ["amount", "1e3", range, "a number of at most 3 digits before and 2 after the point"],
      ["amount", "1.001", "invalid_value", "a number of at most 3 digits before and 2 after"],
      ["part", "-1.0", range, "a number of at most 0 digits before and 2 after the point"],
      ["f", "1e39", range, "a number that a float of 32 bits can hold"],
      ["f", "1e-60", range, "a number that a float of 32 bits can hold"],
      ["d", "1e309", range, "a number that a float of 64 bits can hold"],
    ];
    if (array.includes("few")) {
      cases.push([
        "few",
        `["abc","abcd"]`,
        "invalid_value",
        "an array with values such as text of",
      ]);
      cases.push(["ranks", "[[1],[40000]]", range, "an array with values such as a whole number"]);
    } else cases.push(["tiny", "128", range, "a whole number from -128 to 127"]);
    for (const [column, value, code, allowed] of cases) {
      const start = `{"database":"main","table":"t"`;
      for (const body of [
        `{"Update":${start},"set":{"${column}":${value}},"where":null}}`,
        `{"Insert":${start},"values":[{"id":2,"d":1},{"${column}":${value}}]}}`,
        `{"Preview":{"Update":${start},"set":{"${column}":${value}},"where":null}}}`,
      ]) {
        const answer = await ask(body);
        refused(t, answer, 400, code);
        t.match(answer.body.message, `Column "${column}" (`);
        t.match(answer.body.message, `; allowed: ${allowed}`);
      }
    }
    const fit = { code: "äöü😀😀", small: -32768, amount: 999.99, part: 0.99, f: 1e38, d: 1e308 };
    t.match(await ask(update("t", fit)), { status: 200 });
    t.match((await ask(selectAll("t"))).body.data, [{ id: 1, ...fit }]);
    const add = { small: 40_000, amount: -1999.98 };
    t.match(await ask({ Update: { database: "main", table: "t", add, where: null } }), {
      status: 200,
    });
    t.match((await ask(selectAll("t"))).body.data, [{ small: 7232, amount: -999.99 }]);
    await sql("alter table main.t add wider varchar(9)", "alter table main.t drop column code");
    await sql("alter table main.t add code varchar(6)");
    t.match(await ask(update("t", { code: "abcdef" })), { status: 200 }, "known at once");
  },
);

t.test("a number or text that a trigger makes too large is not blamed on the query", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  await sql(
    "create table main.t (id bigint primary key, n int, word varchar(3), flags bit varying(2))",
    `create function main.grow() returns trigger language plpgsql as $$ begin
      if new.n = 1 then new.word := 'hunter2'; else new.n := new.n * 2000000000; end if;
      return new; end $$`,
    "create trigger grow before insert on main.t for each row execute function main.grow()",
  );
  const inside = "^A trigger or function of the database makes a";
  const number = await ask(insert("t", [{ id: 1, n: 2 }]));
  refused(t, number, 400, "number_out_of_range");
  t.match(number.body.message, new RegExp(`${inside} number`));
  const text = await ask(insert("t", [{ id: 1, n: 1 }]));
  refused(t, text, 400, "invalid_value");
  t.match(text.body.message, new RegExp(`${inside} text`));
  const bits = insert("t", [{ id: 1, n: 0, flags: "010" }]);
  const suspects = /^A text is longer than its column allows: "flags" \(bit varying\(2\)\)$/;
  t.match(await ask(bits), refusal(400, "invalid_value", suspects));
});

t.test("an unsigned bigint of MySQL is exact up to its limits and never wraps", async (t) => {
  const { ask, sql } = await freshMysql(t);
  await sql("create table main.t (id bigint primary key, u bigint unsigned, k int unsigned)");
  const top = "18446744073709551615";
  const middle = "9223372036854775807";
  const above = "9223372036854775808";
  const start = `{"database":"main","table":"t"`;
  const rows = `{"id":1,"u":${top}},{"id":2,"u":"${top}"},{"id":3,"u":${above}},{"id":4,"u":3,"k":3}`;
  t.match(await ask(`{"Insert":${start},"values":[${rows}]}}`), { status: 200 });
  const select = (rest: string) => ask(`{"Select":{"database":"main","from":"t",${rest}}}`);
  t.match(
    (await select(`"columns":["u"],"order_by":{"column":"id"}`)).text,
    `[{"u":${top}},{"u":${top}},{"u":${above}},{"u":3}]`,
  );
  const where = (cmp: string, value: string) =>
    select(`"columns":["id"],"where":{"column":"u","cmp":"${cmp}","value":${value}},
      "order_by":{"column":"id"}`);
  t.same((await where("=", top)).body.data, [{ id: 1 }, { id: 2 }]);
  t.same((await where(">", middle)).body.data, [{ id: 1 }, { id: 2 }, { id: 3 }]);
  const paged = `"columns":["id"],"order_by":[{"column":"u"},{"column":"id"}],"limit":9`;
  t.same((await select(`${paged},"after":[${above},3]`)).body.data, [{ id: 1 }, { id: 2 }]);
  const aggregate = (fn: string) => select(`"aggregate":[{"fn":"${fn}","column":"u","as":"a"}]`);
  t.match((await aggregate("max")).text, `"a":${top}`);
  t.match(await aggregate("sum"), refusal(400, "number_out_of_range"));

  const of = (id: number) => `"where":{"column":"id","cmp":"=","value":${id}}`;
  const add = (id: number, column: string, amount: string) =>
    ask(`{"Update":${start},"add":{"${column}":${amount}},${of(id)},"returning":["${column}"]}}`);
  const outOfU = refusal(400, "number_out_of_range", /: "u" \(bigint(\(20\))? unsigned\)$/);
  t.match(await add(1, "u", "1"), outOfU);
  t.match(await add(4, "u", top), outOfU);
  t.match(await add(4, "u", "-4"), outOfU);
  t.match(await add(4, "k", "-4"), refusal(400, "number_out_of_range", /: "k"/));
  t.match((await add(4, "k", "-3")).text, `{"k":0}`);
  t.match((await add(4, "u", "-3")).text, `{"u":0}`);
  t.match((await add(4, "u", top)).text, `{"u":${top}}`);
  t.match((await add(3, "u", "-1")).text, `{"u":${middle}}`);
  const unsigned = refusal(400, "number_out_of_range", new RegExp(`; allowed: .* 0 to ${top}$`));
  for (const value of ["18446744073709551616", "-1"]) {
    t.match(await ask(`{"Update":${start},"set":{"u":${value}},${of(1)}}}`), unsigned);
  }

  const compute = (id: number, fn: string, more = "") =>
    select(`"columns":["c"],"compute":[{"as":"c","fn":"${fn}","of":["u"${more}]}],${of(id)}`);
  for (const [fn, more, result] of [
    ["add", `,{"value":0}`, middle],
    ["sub", `,{"value":${middle}}`, "0"],
    ["mul", `,{"value":-1}`, `-${middle}`],
    ["div", `,{"value":2}`, "4611686018427387903.5"],
    ["abs", "", middle],
  ] as const) {
    t.match((await compute(3, fn, more)).text, `[{"c":${result}}]`, fn);
    t.match(await compute(1, fn, more), refusal(400, "number_out_of_range"), `no ${fn} wraps`);
  }
  t.match(await compute(3, "add", `,{"value":1}`), refusal(400, "number_out_of_range"));
});

t.test("MySQL's wrong label of an enum or year is refused with what is allowed", async (t) => {
  const { ask, sql } = await freshMysql(t);
  await sql(
    "create table main.people (id int primary key, mood enum('sad', 'ok, or so') not null)",
    "create table main.wines (id int primary key, year year)",
  );
  const young = refusal(400, "invalid_value", /"year" \(year.*allowed: 0 or a year from 1901/);
  t.match(await ask(insert("wines", [{ id: 1, year: 26 }])), young);
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

t.test("a MySQL server that allows no changes by default is not overruled", async (t) => {
  const { ask, sql, url } = await freshMysql(t);
  await ask(createTable("rows", { id: "int" }));
  await sql("set global tx_read_only = on");
  t.teardown(() => sql("set global tx_read_only = off"));
  const { address } = await startOn(t, url);
  const batch = { Batch: [insert("rows", [{ id: 1 }])] };
  for (const body of [insert("rows", [{ id: 1 }]), batch, dropTable("rows")]) {
    t.match(await query(address, selectAll("rows")), { status: 200, body: { data: [] } });
    refused(t, await query(address, body), 507, "storage_failed");
  }
  await sql("set global tx_read_only = off");
  t.match(await query(address, selectAll("rows")), { status: 200 });
  t.match(await query(address, dropTable("rows")), { status: 200 });
});

t.test("the variable for reading only has the name that the server's version knows", async (t) => {
  for (const [version, name] of [
    ["8.0.40", "transaction_read_only"],
    ["10.11.19-MariaDB-log", "tx_read_only"],
    ["5.5.5-10.11.19-MariaDB", "tx_read_only"],
    ["11.0.2-MariaDB", "tx_read_only"],
    ["11.4.2-MariaDB", "transaction_read_only"],
    ["12.0.2-MariaDB", "transaction_read_only"],
  ] as const) {
    const row = [version, "0", "1048576", "utf8mb4_nopad_bin"];
    t.equal(readTraits(row).accessVariable, name, version);
  }
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
