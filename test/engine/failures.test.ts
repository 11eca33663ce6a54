/** Refusals of the servers, which reveal no row and no SQL. */

import { writeFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { DatabaseError } from "pg";
import t, { type Test } from "tap";
import { readTraits } from "../../src/engine/mysql/session.ts";
import { failures } from "../../src/engine/postgres/failures.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { sampled } from "../kit/nightly.ts";
import { words } from "../kit/words.ts";
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
  send,
  startOver,
  update,
} from "./kit.ts";
import { freshMysql, type MysqlEngine } from "./mysql/kit.ts";
import { isMariaDb } from "./mysql/server.ts";
import { freshSqlite } from "./over-each.ts";
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

t.test("a wrong label of an enum is refused with the labels, also in an array", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  await sql(
    "create type main.mood as enum ('sad', 'ok, or so')",
    "create domain main.moods as main.mood[]",
    "create table main.people (id int primary key, mood main.mood, past main.mood[], seen main.moods)",
  );
  const past = ["sad", null, "ok, or so"];
  const known = { id: 1, mood: "sad", past, seen: [["sad"], ["sad"]] };
  t.match(await ask(insert("people", [known])), { status: 200 });
  t.same((await ask(selectAll("people"))).body.data, [known]);
  const labels = "; allowed: sad, ok, or so";
  const wrong = { mood: "glad", past: ["sad", "glad"], seen: [["glad"]] };
  for (const [column, value] of Object.entries(wrong)) {
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
  t.match(await ask(update("people", { past: ["glad"] })), { status: 200 }, "known at once");
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
  const variable = isMariaDb ? "tx_read_only" : "transaction_read_only";
  await sql(`set global ${variable} = on`);
  t.teardown(() => sql(`set global ${variable} = off`));
  const { address } = await startOn(t, url);
  const batch = { Batch: [insert("rows", [{ id: 1 }])] };
  for (const body of [insert("rows", [{ id: 1 }]), batch, dropTable("rows")]) {
    t.match(await query(address, selectAll("rows")), { status: 200, body: { data: [] } });
    refused(t, await query(address, body), 507, "storage_failed");
  }
  await sql(`set global ${variable} = off`);
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

t.test("a MySQL server that loses conditions is refused", async (t) => {
  for (const version of ["8.0.28-0ubuntu4", "8.0.35", "5.7.44"]) {
    const reason = `version ${version} returns wrong rows; use MySQL 8.0.36, MariaDB 10.11 or later`;
    t.throws(() => readTraits([version, "0", "1048576", "utf8mb4_0900_bin"]), { message: reason });
  }
  for (const version of ["8.0.36-2ubuntu3", "8.0.100", "8.4.8", "9.7.4", "10.0.0"]) {
    t.ok(readTraits([version, "0", "1048576", "utf8mb4_0900_bin"]), version);
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
    "create view main.seen as select o.id from main.old as o",
    "create view main.`as ``seen``` as select * from main.seen",
    "create view main.indirect as select id from main.`as ``seen```",
    "create table main.other (id bigint primary key)",
    "insert into main.other values (1)",
    "create view main.joined as select old.id from main.other straight_join main.old",
  );
  refused(t, await ask(insert("old", [{ id: 2 }, { id: 1 }])), 403, "permission_denied");
  const tables = ["old", "seen", "indirect"];
  if (isMariaDb) {
    await sql("create sequence main.numbers");
    tables.push("numbers");
  }
  for (const table of tables) {
    refused(t, await ask(remove(table)), 403, "permission_denied");
    refused(t, await ask({ Preview: remove(table) }), 403, "permission_denied");
  }
  refused(t, await ask({ Preview: update("joined", { id: 2 }) }), 403, "permission_denied");
  t.same((await ask(selectAll("old"))).body.data, [{ id: 1 }]);
});

// What triggers, functions, views and broken objects of a database raise.

type Ask = (body: object) => Promise<Answer>;

const upsert = {
  Upsert: {
    database: "main",
    table: "t",
    values: [{ id: 1, n: 9 }],
    on_conflict: ["id"],
    update: ["n"],
  },
};

/** One query for each position in which a trigger or function of the test schemas raises. */
const positions: Record<string, object> = {
  Insert: insert("t", [{ id: 2 }]),
  Update: update("t", { n: 2 }),
  Delete: remove("t"),
  Upsert: upsert,
  Preview: { Preview: update("t", { n: 2 }) },
  "a Batch": { Batch: [insert("calm", [{ id: 2 }]), insert("t", [{ id: 2 }])] },
  "a Preview of a Batch": { Preview: { Batch: [insert("calm", [{ id: 2 }]), upsert] } },
  "a view": selectAll("seen"),
  "a joined view": selectAll("calm", {
    columns: ["calm.id"],
    join: { table: "seen", on: "calm.id = seen.x", join_type: "INNER" },
  }),
  "an included view": selectAll("calm", {
    include: [{ as: "more", table: "seen", on: "seen.x = calm.id", columns: ["x"] }],
  }),
  "a condition": update(
    "calm",
    { id: 3 },
    { column: "id", cmp: "IN", select: { from: "seen", columns: ["x"] } },
  ),
};

/** The positions whose answer is not as expected, or shows a row. */
async function wrongIn(
  ask: Ask,
  queries: Record<string, object>,
  isExpected: (answer: Answer) => boolean,
): Promise<string[]> {
  const wrong: string[] = [];
  for (const [position, body] of Object.entries(queries)) {
    const answer = await ask(body);
    const { status, message } = answer.body;
    const isError = status === "error" && isExpected(answer);
    if (!isError || /hunter2|4711/.test(answer.text)) {
      wrong.push(`${position}: ${answer.status} ${message}`);
    }
  }
  return wrong;
}

/** One or more of each class (PostgreSQL, appendix A) and of those that only users raise. */
const states = words(`
  01000 02000 03000 08000 08006 08P01 09000 0A000 0B000 0F000 0L000 0P000 0Z000 10608 20000 21000
  22000 22012 22P05 23000 23502 23503 23505 23514 23P01 24000 25000 25006 25P02 26000 27000 28000
  28P01 2B000 2D000 2F000 34000 38000 39000 3B000 3D000 3F000 42000 42501 42601 42P01 42703 42883
  44000 45000 53000 53100 53200 53300 54000 55000 55006 55P03 57000 57014 57P01 57P03 58000 58030
  58P01 72000 F0000 HV000 P0000 P0001 P0002 P0003 P0004 PT402 PT500 XX000 XX001 XX002 T0001 ZZZZZ
`);

t.test("no SQLSTATE that PostgreSQL raises in any position is a 500", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  await sql(
    "create table main.fault (state text)",
    "create table main.calm (id bigint primary key)",
    "create table main.t (id bigint primary key, n int)",
    `create function main.fail() returns int language plpgsql as $$ declare s text; begin
      select state into s from main.fault;
      if s is not null then raise exception 'row hunter2 4711' using errcode = s, detail = 'hunter2'; end if;
      return 1; end $$`,
    `create function main.fails() returns trigger language plpgsql as $$ begin
      perform main.fail(); return coalesce(new, old); end $$`,
    `create function main.always() returns int immutable language plpgsql as
      $$ begin return main.fail(); end $$`,
    "insert into main.t values (1, 1)",
    "insert into main.calm values (1)",
    `create trigger fails before insert or update or delete on main.t
      for each row execute function main.fails()`,
    "create view main.seen as select main.fail() as x",
    "create table main.made (id int primary key, m int generated always as (id * main.always()) stored)",
    "create table main.checked (id int primary key check (id > 0 and main.always() > 0))",
    "create table main.late (id int primary key)",
    `create constraint trigger late after insert on main.late deferrable initially deferred
      for each row execute function main.fails()`,
  );
  const all = {
    ...positions,
    "a generated column": insert("made", [{ id: 1 }]),
    "a check": insert("checked", [{ id: 1 }]),
    "a commit": insert("late", [{ id: 1 }]),
    "the commit of a Batch": { Batch: [insert("calm", [{ id: 5 }]), insert("late", [{ id: 1 }])] },
  };
  for (const state of sampled(states, 5)) {
    await sql("truncate main.fault", `insert into main.fault values ('${state}')`);
    const isOutage = /^(08|53|57P)/.test(state);
    const wrong = await wrongIn(ask, all, ({ status, body }) =>
      isOutage ? body.code === "database_unavailable" : [400, 403, 409].includes(status),
    );
    t.same(wrong, [], state);
  }
  await sql("truncate main.fault", "insert into main.fault values ('40001')");
  t.match(await ask(insert("t", [{ id: 2 }])), refusal(503, "busy"));
  await sql("truncate main.fault");
  for (const body of Object.values(all)) {
    await sql("truncate main.t, main.calm, main.late", "insert into main.calm values (1)");
    t.match(await ask(body), { status: 200 });
  }
});

t.test("errors of a PostgreSQL server that writes German have the same codes", async (t) => {
  const cases: readonly [error: Partial<DatabaseError>, code: string, message: RegExp][] = [
    [{ code: "42P01", where: "PL/pgSQL-Funktion act() Zeile 3" }, "statement_failed", /does not/],
    [{ code: "22003", where: "SQL-Funktion »act« Anweisung 1" }, "number_out_of_range", /function/],
    [{ code: "42P01", where: "unbenanntes Portal Parameter $1" }, "invalid_value", /value/],
    [{ code: "22003", where: "paralleler Arbeitsprozess" }, "number_out_of_range", /column/],
    [{ code: "42P01", where: "Parameter: »$1 = '(\"'«" }, "table_not_found", /longer/],
    [
      { code: "23505", table: "t", detail: 'Schlüssel »(a, "b c")=(1, 2)« existiert bereits.' },
      "constraint_violation",
      /unique \(a, b c\)/,
    ],
  ];
  for (const [error, code, message] of cases) {
    const answer = Object.assign(new DatabaseError("Fehler", 6, "error"), error);
    t.match(failures.refusalOf(answer, { schema: "main", tables: ["t"] }), { code, message });
  }
});

/** SQLSTATE, number and the expected status. */
const signals: [state: string, number: number | undefined, statuses: number[]][] = [
  ...["02000", "03000", "0A000", "21000", "22012", "23000", "27000", "40001", "42000", "44000"].map(
    (state): [string, undefined, number[]] => [state, undefined, [400, 409]],
  ),
  ...["45000", "45001", "58000", "70100", "HY000", "XX000", "ABC12", "P0001"].map(
    (state): [string, undefined, number[]] => [state, undefined, [400, 409]],
  ),
  ...[5, 28, 500, 1040, 1062, 1205, 1213, 1317, 1452, 1644, 3024, 9999, 31_001, 65_535].map(
    (number): [string, number, number[]] => ["45000", number, [409]],
  ),
  ...[500, 1030, 1194, 1412, 1526, 1712, 3999, 4166, 9999, 31_001].map(
    (number): [string, number, number[]] => ["HY000", number, number === 1412 ? [503] : [400, 409]],
  ),
];

t.test("no number and no SQLSTATE that MariaDB raises in any position is a 500", async (t) => {
  const { ask, sql } = await freshMysql(t);
  const branches = signals.map(
    ([state, number], at) => `if v = ${at} then signal sqlstate '${state}'
      set message_text = 'row hunter2 4711'${number === undefined ? "" : `, mysql_errno = ${number}`}; end if;`,
  );
  const trigger = (event: string) => `create trigger main.on_${event} before ${event} on main.t
    for each row set @ignored = main.fail()`;
  await sql(
    "create table main.fault (at int)",
    "create table main.calm (id bigint primary key)",
    "create table main.t (id bigint primary key, n int)",
    `create function main.fail() returns int reads sql data begin
      declare v int; set v = (select max(at) from main.fault); ${branches.join(" ")} return 1; end`,
    "insert into main.t values (1, 1)",
    "insert into main.calm values (1)",
    ...["insert", "update", "delete"].map(trigger),
    "create view main.seen as select main.fail() as x",
  );
  for (const [at, [state, number, statuses]] of sampled([...signals.entries()], 5)) {
    await sql("delete from main.fault", `insert into main.fault values (${at})`);
    const wrong = await wrongIn(ask, positions, ({ status }) => statuses.includes(status));
    t.same(wrong, [], `${state} ${number ?? ""}`);
  }
  await sql("delete from main.fault");
  for (const body of Object.values(positions)) {
    await sql("delete from main.t", "delete from main.calm", "insert into main.calm values (1)");
    t.match(await ask(body), { status: 200 });
  }
});

type Case = [body: object, status: number, code: string, message: RegExp];

async function isRefused(t: Test, ask: Ask, cases: readonly Case[]): Promise<void> {
  for (const [body, status, code, message] of cases) {
    t.match(await ask(body), refusal(status, code, message), JSON.stringify(body));
  }
}

const violated = "constraint_violation";
const invalid = "invalid_value";
const failed = "statement_failed";

t.test("PostgreSQL's errors are answered with their reason and object", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  await sql(
    "create schema audit; create table audit.log (id int primary key)",
    "insert into audit.log values (1)",
    "create table main.t (id bigint primary key, code text, n int, doc jsonb, ip inet)",
    "insert into main.t values (9, null, 4)",
    `create function main.act() returns trigger language plpgsql as $$ begin
      case new.code
        when 'gone' then execute 'select 1 from audit.gone';
        when 'column' then new.n := new.nothing;
        when 'divide' then new.n := 1 / (new.n - new.n);
        when 'rows' then new.n := (select 1 union all select 2);
        when 'audit' then insert into audit.log values (1);
        when 'words' then raise exception 'The order isn''t open';
        when 'value' then raise exception 'no % here', 'hunter2';
        when 'assert' then assert false, 'sums differ';
        else null;
      end case; return new; end $$`,
    `create trigger act before insert on main.t for each row execute function main.act()`,
    "create table main.plain (a int); create publication changes for table main.plain",
    "insert into main.plain values (1)",
    "create materialized view main.totals as select 1 as a with no data",
    "create view main.counts as select count(*) as n from main.t",
    "create view main.shares as select 1 / (n - n) as x from main.t where id = 9",
    `create function main.note() returns int language plpgsql as
      $$ begin insert into main.plain values (3); return 1; end $$`,
    "create view main.noted as select main.note() as x",
  );
  const code = (text: string) => insert("t", [{ id: 1, code: text, n: 1 }]);
  const late = `Column "doc" \\(jsonb\\) does not accept this value: unsupported Unicode`;
  await isRefused(t, ask, [
    [code("gone"), 409, failed, /on t: function act fails: a table that it uses does not exist$/],
    [
      code("column"),
      409,
      failed,
      /on t: function act fails: a column that it uses does not exist$/,
    ],
    [code("divide"), 400, "invalid_value", /divides by zero$/],
    [code("rows"), 409, failed, /function act fails: more than one row/],
    [code("audit"), 409, violated, /^Another table, .* already has a row with this value/],
    [code("words"), 409, violated, /refused this: The order isn't open$/],
    [code("value"), 409, violated, /refused this$/],
    [code("assert"), 409, violated, /refused this: sums differ$/],
    [update("plain", { a: 2 }), 409, failed, /on plain: .* no replica identity$/],
    [selectAll("totals"), 409, failed, /on totals: the materialized view must be refreshed first$/],
    [insert("counts", [{ n: 1 }]), 403, "permission_denied", /on a view$/],
    [selectAll("shares"), 400, "invalid_value", /divides by zero$/],
    [selectAll("noted"), 409, failed, /on noted: a Select may not change data/],
    [
      insert("t", [{ id: 2 }, { id: 3, doc: { a: "x\u0000" } }]),
      400,
      invalid,
      new RegExp(`^values\\[1\\]: ${late}`),
    ],
    [update("t", { doc: "x\u0000" }), 400, "invalid_value", new RegExp(`^${late}`)],
    [
      { Batch: [insert("t", [{ id: 2, ip: "hunter2" }])] },
      400,
      "invalid_value",
      /^Batch\[0\]: values\[0\]: Column "ip" \(inet\) does not accept this value: invalid input syntax for type inet$/,
    ],
  ]);
});

t.test("PostgreSQL's row-level security is not a lack of privileges", async (t) => {
  const { sql, url } = await freshPostgres(t);
  await sql(
    "create table main.own (id int primary key, owner text)",
    "alter table main.own enable row level security",
    "create policy mine on main.own using (true) with check (owner = 'me')",
    "create role limited login",
    "grant usage on schema main to limited",
    "grant all on main.own to limited",
  );
  t.teardown(() => sql("drop owned by limited", "drop role limited"));
  const { address } = await startOn(t, url.replace(/\/\/\w+@/, "//limited@"));
  const security = refusal(403, "permission_denied", /^A row-level security policy/);
  t.match(await query(address, insert("own", [{ id: 1, owner: "you" }])), security);
  t.match(await query(address, insert("own", [{ id: 1, owner: "me" }])), { status: 200 });
  t.match(await query(address, update("own", { owner: "you" })), security);
});

t.test("one dead foreign server does not make PostgreSQL unavailable", async (t) => {
  const { sql, url } = await freshPostgres(t);
  await sql(
    "create extension postgres_fdw",
    "create server dead foreign data wrapper postgres_fdw options (host '127.0.0.1', port '1')",
    "create user mapping for public server dead",
    "create foreign table main.remote (a int) server dead",
    "create table main.near (a int primary key)",
  );
  const { service, address } = await startService(t, url);
  for (const body of [
    selectAll("remote"),
    insert("remote", [{ a: 1 }]),
    { Batch: [insert("near", [{ a: 1 }]), insert("remote", [{ a: 1 }])] },
  ]) {
    const answer = await query(address, body);
    t.match(answer, refusal(503, "database_unavailable", /Another server that the database asks/));
  }
  t.match(await query(address, selectAll("near")), { status: 200, body: { data: [] } });
  await service.logged(({ code }) => code === "08001");
  t.notMatch(service.output, /cannot be used/);
});

t.test("a table that a foreign server of PostgreSQL lacks is not missing here", async (t) => {
  const { ask, sql, url } = await freshPostgres(t);
  const { port, pathname } = new URL(url);
  const place = `host '127.0.0.1', port '${port}', dbname '${pathname.slice(1)}'`;
  await sql(
    "create extension postgres_fdw",
    `create server self foreign data wrapper postgres_fdw options (${place})`,
    "create user mapping for gatehouse server self options (user 'gatehouse')",
    "create foreign table main.remote (a int) server self options (table_name 'gone')",
  );
  const problem = /on remote: the foreign server refuses what it is asked for this$/;
  for (const body of [selectAll("remote"), update("remote", { a: 1 })]) {
    t.match(await ask(body), refusal(409, "statement_failed", problem));
  }
});

t.test("MySQL's errors are answered with their reason and object", async (t) => {
  const { ask, sql } = await freshMysql(t);
  await sql(
    "create database audit",
    "create table audit.log (id int primary key)",
    "create table main.log (id int primary key, n int not null, check (n > 0))",
    "insert into main.log values (1, 1)",
    `create table main.t (id bigint primary key, code varchar(20), n int,
      moment timestamp null, word varchar(9) character set latin1)`,
    `create trigger main.act before insert on main.t for each row begin
      case new.code
        when 'divide' then set new.n = 1 / (new.n - new.n);
        when 'rows' then set new.n = (select 1 union all select 2);
        when 'itself' then insert into main.t (id) values (77);
        when 'gone' then insert into main.gone values (77);
        when 'away' then insert into audit.gone values (77);
        when 'function' then set new.n = main.nothing(1);
        when 'double' then insert into main.log values (1, 1);
        when 'null' then insert into main.log values (2, null);
        when 'check' then insert into main.log values (2, 0);
        when 'words' then signal sqlstate '45000' set message_text = 'The order isn''t open';
        when 'number' then signal sqlstate '45000' set message_text = 'no go', mysql_errno = 1205;
        when 'unfound' then signal sqlstate '02000';
        else begin end;
      end case; end`,
    "create table main.years (y int) partition by range (y) (partition a values less than (2000))",
    "create table main.old (a int, b int)",
    "create view main.narrow as select b as c from main.old",
    "alter table main.old rename column b to d",
    "create definer = gone@localhost sql security definer view main.orphan as select a from main.old",
    "create table main.owned (id int primary key)",
    `create definer = gone@localhost trigger main.theirs after insert on main.owned
      for each row insert into main.log values (9, 9)`,
  );
  const code = (text: string) => insert("t", [{ id: 1, code: text, n: 1 }]);
  const smile = "\u{1f600}";
  const rows = Array.from({ length: 1500 }, (_, id) => ({ id, word: id === 1234 ? smile : "x" }));
  // MySQL names neither the column here nor the table of a check.
  const notIn = isMariaDb
    ? String.raw`values\[1234\]: Column "word" \(varchar\(9\)\) does not accept this value`
    : "A value does not fit its column";
  await isRefused(t, ask, [
    [code("rows"), 409, failed, /on t: a subquery .* finds several rows$/],
    [code("itself"), 409, failed, /on t: a trigger or function changes a table that the query/],
    [code("gone"), 409, failed, /on t: table gone does not exist, but a .*trigger/],
    [code("away"), 409, failed, /on t: table does not exist, but a .*trigger/],
    [code("function"), 409, failed, /on t: function nothing does not exist/],
    [code("double"), 409, violated, /^(?:Table t, or a|A)nother .*, already has/],
    [code("null"), 409, violated, /^Another table, .* does not allow this row$/],
    [code("check"), 409, violated, /^Table (?:log|t) does not allow this row/],
    [code("words"), 409, violated, /refused this: The order isn't open$/],
    [code("number"), 409, violated, /refused this: no go$/],
    [code("unfound"), 409, violated, /refused this/],
    [insert("years", [{ y: 2031 }]), 409, violated, /^Table years has no partition for this row$/],
    [selectAll("narrow"), 409, failed, /on narrow: it uses a table, column or function that/],
    [insert("narrow", [{ c: 1 }]), 409, failed, /on narrow: it uses a table, column or function/],
    [selectAll("orphan"), 409, failed, /on orphan: the account that defines .* no longer exists$/],
    [insert("owned", [{ id: 1 }]), 409, failed, /on owned: the account that defines/],
    [code("divide"), 400, invalid, /divides by zero$/],
    [
      insert("t", [{ id: 1 }, { id: 2, moment: "2200-01-01T00:00:00Z" }]),
      400,
      invalid,
      /^values\[1\]: Column "moment" \(timestamp\) does not accept this value/,
    ],
    [insert("t", rows), 400, invalid, new RegExp(`^${notIn}`)],
    [{ Batch: [insert("t", rows)] }, 400, invalid, new RegExp(`^Batch\\[0\\]: ${notIn}`)],
  ]);
  t.match(await ask(insert("t", [{ id: 1 }])), { status: 200 });
  const kept = (values: object[]) => ({
    Upsert: { database: "main", table: "t", values, on_conflict: ["id"], update: [] },
  });
  const double = kept([{ id: 1 }, { id: 5, code: "double" }]);
  t.match(await ask(double), refusal(409, violated), "no row is skipped for another table's key");
  t.match(await ask(kept([{ id: 1 }, { id: 5 }])), { status: 200, body: { affected: 1 } });
  t.match(await ask(update("t", { word: smile })), refusal(400, invalid, /does not (accept|fit)/));
});

t.test("SQLite's errors are answered with their reason and object", async (t) => {
  const { ask, directory } = await freshSqlite();
  const file = new DatabaseSync(`${directory}/data/main.sqlite`, { defensive: false });
  file.exec(`create table numbered (id integer primary key, a text);
    create table documents (id int, doc text);
    create index parts on documents (json_extract(doc, '$.a'));
    create table made (id int, doc text, x text generated always as (json(doc)) stored);
    create virtual table found using fts5(body, content='');
    insert into found (rowid, body) values (1, 'words');
    create table base (a int primary key);
    create table log (id int primary key, n int check (n > 5), base references base);
    create unique index folded on log (abs(n));
    insert into log (id, n) values (1, 7);
    create table orders (id int primary key);
    create table gone (id int);
    create table leaning (id int primary key);
    create trigger leans after insert on leaning begin insert into gone values (1); end;
    create table sorted (id int primary key, name text);
    create unique index folding on sorted (name collate nocase)`);
  const acts = [
    "insert into log (id) values (1)",
    "insert into log values (2, 1, null)",
    "insert into log values (3, 7, null)",
    "insert into log values (4, 8, 4)",
    "insert into numbered values ('x', 'y')",
    "select abs(-9223372036854775808)",
    `select raise(abort, 'The order is "open"')`,
    "select raise(fail, 'It isn''t open')",
    "select raise(rollback, 'Not today')",
  ];
  for (const [at, act] of acts.entries()) {
    file.exec(`create trigger o${at} after insert on orders when new.id = ${at} begin ${act}; end`);
  }
  file.exec(`pragma legacy_alter_table = on;
    drop table gone;
    pragma writable_schema = on;
    update sqlite_schema set sql = 'create table sorted (id int primary key, name text collate german)'
      where name = 'sorted'`);
  file.close();
  writeFileSync(`${directory}/data/broken.sqlite`, "This file is no database at all. ".repeat(100));
  const order = (id: number) => insert("orders", [{ id }]);
  const whole = String.raw`Column "id" \(INTEGER\) does not accept this value; allowed: a whole number`;
  const needsJson = /^An index, .* needs JSON and finds another text$/;
  const noFile = /file is not a database \(database broken\)$/;
  const texts = insert("numbered", [{ id: 1 }, { id: "x" }]);
  const byName = selectAll("sorted", { order_by: { column: "name" } });
  await isRefused(t, ask, [
    [texts, 400, invalid, new RegExp(`^values\\[1\\]: ${whole}`)],
    [insert("documents", [{ id: 1, doc: "{" }]), 400, invalid, needsJson],
    [insert("made", [{ id: 1, doc: "{" }]), 400, invalid, needsJson],
    [remove("found"), 409, failed, /on found: cannot DELETE from contentless fts5 table: found$/],
    [order(0), 409, violated, /^Table log already has a row with this value, .* \(id\)$/],
    [order(1), 409, violated, /^Table log does not allow this row \(constraint "n > 5"\)$/],
    [order(2), 409, violated, /^Table log already has a row with this value, .*'folded'\)$/],
    [order(3), 409, violated, /^Another table, .* is part of a foreign key/],
    [order(4), 400, invalid, /^An integer primary key takes only whole numbers/],
    [order(5), 409, failed, /on orders: integer overflow$/],
    [order(6), 409, violated, /refused this$/],
    [order(7), 409, violated, /refused this: It isn't open$/],
    [{ Preview: order(8) }, 409, violated, /refused this: Not today$/],
    [{ Batch: [order(10), order(8)] }, 409, violated, /^Batch\[1\]: .* refused this: Not today$/],
    [insert("leaning", [{ id: 1 }]), 409, failed, /on leaning: no such table: main.gone$/],
    [byName, 409, failed, /on sorted: no such collation sequence: german$/],
    [selectAll("sorted", {}, "broken"), 409, failed, noFile],
    [{ Batch: [order(11), insert("sorted", [{ id: 1 }], "broken")] }, 409, failed, noFile],
  ]);
  t.match(await ask(insert("numbered", [{ id: 1 }])), { status: 200 });
  t.match(
    await ask(update("numbered", { id: "x" })),
    refusal(400, invalid, new RegExp(`^${whole}`)),
  );
  t.same((await ask(selectAll("orders"))).body.data, []);
  t.same((await ask(selectAll("sorted", { order_by: { column: "id" } }))).body.data, []);
});

t.test("a caller who sees only a part of the schema learns no name and no words", async (t) => {
  const sqlite = await freshSqlite();
  await sqlite.sql(`create table t (id int primary key);
    create table secret (id int primary key check (id > 5));
    create trigger a after insert on t when new.id = 1 begin select raise(abort, 'hidden words'); end;
    create trigger b after insert on t when new.id = 2 begin insert into secret values (1); end;
    create trigger c after insert on t when new.id = 3 begin select json('{'); end;
    create trigger d after insert on t when new.id = 4 begin select abs(-9223372036854775808); end`);
  const postgres = await freshPostgres(t);
  await postgres.sql(
    "create table main.t (id int primary key)",
    "create table main.secret (id int primary key check (id > 5))",
    `create function main.hidden() returns trigger language plpgsql as $$ begin
      if new.id = 1 then raise exception 'hidden words'; end if;
      if new.id = 2 then insert into main.secret values (1); end if;
      if new.id = 3 then execute 'select 1 from main.hidden'; end if;
      if new.id = 4 then raise exception 'hidden words' using errcode = 'XX000'; end if;
      return new; end $$`,
    "create trigger hidden before insert on main.t for each row execute function main.hidden()",
  );
  const mysql = await freshMysql(t);
  await mysql.sql(
    "create table main.t (id int primary key)",
    "create table main.secret (id int primary key, check (id > 5))",
    `create trigger main.hidden before insert on main.t for each row begin
      if new.id = 1 then signal sqlstate '45000' set message_text = 'hidden words'; end if;
      if new.id = 2 then insert into main.secret values (1); end if;
      if new.id = 3 then insert into main.hidden values (1); end if;
      if new.id = 4 then
        signal sqlstate 'HY000' set message_text = 'hidden words', mysql_errno = 4999; end if;
      end`,
  );
  const headers = { "content-type": "application/json", "x-test-narrowed": "true" };
  const post = { method: "POST", path: "/query", headers };
  for (const { engine, ask } of [sqlite, postgres, mysql]) {
    for (const id of [1, 2, 3, 4]) {
      const body = insert("t", [{ id }]);
      const answer = await send(engine.address, post, JSON.stringify(body));
      t.ok([400, 409].includes(answer.status), answer.text);
      t.notMatch(answer.text, /hidden|secret|main|overflow/, answer.text);
      t.equal((await ask(body)).status, answer.status);
    }
  }
});

t.test("the log has the code, the message and the file of a broken database", async (t) => {
  const home = temporaryHome(t);
  const engine = await startOver(t, home);
  await engine.close();
  writeFileSync(`${home}/data/broken.sqlite`, "This file is no database at all. ".repeat(100));
  const { service, address } = await startService(t, `sqlite:${home}/data`);
  await query(address, selectAll("t", {}, "broken"));
  t.match(await service.logged(({ code }) => code === "SQLite 26"), {
    reason: "file is not a database",
    file: `${home}/data/broken.sqlite`,
    level: "error",
  });
});
