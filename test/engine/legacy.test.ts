/** Schemas and values of other programs. */
import {
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { pino } from "pino";
import t, { type Test } from "tap";
import { openEngineStore, reportUnavailable } from "../../src/engine/open.ts";
import {
  type Answer,
  createTable,
  equal,
  insert,
  query,
  refusal,
  remove,
  rowsAs,
  selectAll,
  send,
  update,
} from "./kit.ts";
import { freshMysql } from "./mysql/kit.ts";
import { bytewise, isMariaDb } from "./mysql/server.ts";
import { freshSqlite, type Scene } from "./over-each.ts";
import { isNewest } from "./postgres/binaries.ts";
import { freshPostgres, startOn } from "./postgres/kit.ts";

const fresh = { SQLite: freshSqlite, PostgreSQL: freshPostgres, MariaDB: freshMysql };

async function describe({ engine }: Pick<Scene, "engine">, table = "") {
  const path = `/schema/main${table && `/${table}`}`;
  return (await send(engine.address, { path })).body.data;
}

/** The ids of the rows that a Select finds, or the message of its error. */
async function idsOf({ ask }: Pick<Scene, "ask">, table: string, more: object) {
  const { body } = await ask(selectAll(table, { columns: ["id"], ...more }));
  return body.data?.map((row) => Object(row).id) ?? body.message;
}

for (const [server, open] of Object.entries(fresh)) {
  t.test(`generated columns are read, marked, and set by no query (${server})`, async (t) => {
    const { ask, sql, engine } = await open(t);
    await sql(
      `create table main.items (id integer primary key, net numeric(8,2),
        gross numeric(8,1) generated always as (net * 1.25) stored)`,
    );
    t.match(await ask(insert("items", [{ id: 1, net: 1.1 }])), { status: 200 });
    t.match(await ask(update("items", { net: 10.1 })), { body: { affected: 1 } });
    const data = [{ id: 1, net: 10.1, gross: server === "SQLite" ? 12.625 : 12.6 }];
    t.match((await ask(selectAll("items"))).body.data, data);
    const where = { column: "gross", cmp: ">", value: 12 };
    t.match((await ask(selectAll("items", { where }))).body.data, data);
    const columns = [{ computed: undefined }, { computed: undefined }, { computed: true }];
    t.match(await describe({ engine }, "items"), { columns });
    const refused = refusal(
      400,
      "invalid_value",
      /"gross" cannot be set, since the database computes/,
    );
    const upsert = { database: "main", table: "items", on_conflict: ["id"], update: ["gross"] };
    for (const query of [
      insert("items", [{ id: 2, gross: 1 }]),
      update("items", { gross: null }),
      { Update: { database: "main", table: "items", add: { gross: 1 }, where: null } },
      { Upsert: { ...upsert, values: [{ id: 1, gross: 2 }] } },
    ]) {
      t.match(await ask(query), refused, JSON.stringify(query));
    }
  });

  t.test(`a table whose name no query can contain is mentioned (${server})`, async (t) => {
    const scene = await open(t);
    const quote = server === "MariaDB" ? "`" : '"';
    await scene.sql(
      "create table main.plain (id integer)",
      `create table main.${quote}my table${quote} (id integer)`,
    );
    t.same(await describe(scene), { tables: ["plain"], unavailable: ["my table"] });
  });
}

for (const [server, type] of [
  ["PostgreSQL", "json"],
  ["PostgreSQL", "jsonb"],
  ["MariaDB", "json"],
] as const) {
  t.test(`the null of JSON is null wherever it stands (${type}, ${server})`, async (t) => {
    const { ask, sql, engine } = await fresh[server](t);
    await sql(
      `create table main.docs (id integer primary key, doc ${type}, must ${type} not null)`,
      `insert into main.docs values (1, null, 'null'), (2, 'null', ' null '), (3, '{"a":1}', '[2]')`,
    );
    const ids = (more: object) => idsOf({ ask }, "docs", { order_by: [{ column: "id" }], ...more });
    const is = (cmp: string, value: unknown) => ({ where: { column: "doc", cmp, value } });
    t.same(await ids(is("=", null)), [1, 2]);
    t.same(await ids(is("!=", null)), [3]);
    t.same(await ids(is("!=", [])), [3]);
    t.same(await ids(is("IN", [null, { a: 1 }])), [1, 2, 3]);
    const select = { from: "docs", columns: ["doc"], where: { column: "id", cmp: "<", value: 3 } };
    t.same(await ids({ where: { column: "doc", cmp: "NOT IN", select } }), [1, 2, 3]);
    t.same(await ids({ where: { column: "doc", cmp: "=", other: "doc" } }), [3]);
    const of = ["must", { value: "none" }];
    const compute = [{ as: "filled", fn: "coalesce", of }];
    t.match((await ask(selectAll("docs", { columns: ["filled"], compute }))).body.data, [
      { filled: "none" },
      { filled: "none" },
      { filled: [2] },
    ]);
    const order_by = { column: "id" };
    const exported = await rowsAs(engine.address, selectAll("docs", { order_by }), "text/csv");
    t.equal(exported.text, 'id,doc,must\r\n1,,\r\n2,,\r\n3,"{""a"":1}",[2]\r\n');
    const aggregate = [
      { fn: "count", as: "rows" },
      { fn: "count", column: "must", as: "values" },
    ];
    const counted = { from: "docs", group_by: ["must"], aggregate, order_by: { column: "must" } };
    t.same((await ask({ Select: { database: "main", ...counted } })).body.data, [
      { must: null, rows: 2, values: 0 },
      { must: [2], rows: 1, values: 1 },
    ]);
    const from = { select: counted, as: "counted" };
    const member = [{ as: "first", fn: "json", path: [0], of: ["must"] }];
    const nested = { from, columns: ["first"], compute: member, order_by: { column: "rows" } };
    const firsts = (await ask({ Select: { database: "main", ...nested } })).body.data;
    t.same(firsts, [{ first: 2 }, { first: null }]);
    for (const direction of ["ASC", "DESC"]) {
      const order_by = [{ column: "must", direction }, { column: "id" }];
      t.same(await ids({ order_by }), direction === "ASC" ? [1, 2, 3] : [3, 1, 2]);
      const after = { order_by, after: [null, 1] };
      const rest = direction === "ASC" ? [2, 3] : [2];
      const isText = server === "PostgreSQL" ? type === "json" : isMariaDb;
      t.match(await ids(after), isText ? /after takes no JSON/ : rest);
    }
  });
}

for (const server of ["PostgreSQL", "MariaDB"] as const) {
  t.test(`rows are included by JSON in any spelling (${server})`, async (t) => {
    const { ask, sql } = await fresh[server](t);
    const letter = server === "MariaDB" ? "\\\\u00e9" : "\\u00e9";
    await sql(
      "create table main.docs (id integer primary key, doc json)",
      `insert into main.docs values (1, '"${letter}"'), (2, '1.50'), (3, '"a"'), (4, 'null')`,
    );
    const include = [{ as: "same", table: "docs", on: "docs.doc = o.doc", columns: ["id"] }];
    const rows = { from: { table: "docs", as: "o" }, columns: ["id"], order_by: { column: "id" } };
    const { body } = await ask({ Select: { database: "main", ...rows, include } });
    const same = [[{ id: 1 }], [{ id: 2 }], [{ id: 3 }], []];
    t.same(
      body.data,
      same.map((rows, at) => ({ id: at + 1, same: rows })),
    );
  });
}

t.test("the start mentions tables whose names no query can contain", async (t) => {
  const { sql, url } = await freshPostgres(t);
  await sql('create table main."Ünits" (id int)');
  const lines: string[] = [];
  const log = pino({ level: "warn" }, { write: (line) => lines.push(line) });
  const store = await openEngineStore({ url, log, poolSize: 1 });
  t.teardown(() => store.close());
  await reportUnavailable(store, log);
  t.match(
    lines.map((line) => JSON.parse(line)),
    [{ database: "main", tables: ["Ünits"] }],
  );
});

t.test("tables that inherit from one of PostgreSQL share no key with it", async (t) => {
  const { ask, sql, engine } = await freshPostgres(t);
  await sql(
    "create table main.old (id int primary key, v int)",
    "create table main.new (more text) inherits (main.old)",
    "insert into main.old values (1, 1)",
    "insert into main.new values (1, 2), (2, 3)",
    "create table main.parts (id int primary key, v int) partition by range (id)",
    "create table main.part partition of main.parts for values from (0) to (9)",
    "insert into main.parts values (1, 1), (2, 2)",
    "create table main.loose (id int not null) partition by range (id)",
    "create table main.loose_part partition of main.loose for values from (0) to (9)",
    "alter table only main.loose add primary key (id)",
    "insert into main.loose values (1), (1)",
  );
  const page = { order_by: { column: "id" }, after: [1] };
  t.match(await ask(selectAll("old", page)), refusal(400, "order_not_unique"));
  t.match(await ask(selectAll("loose", page)), refusal(400, "order_not_unique"));
  t.match(await describe({ engine }, "old"), { columns: [{ primary_key: false }, {}], keys: [] });
  const change = update("old", { v: 9 }, equal("v", 2));
  const row = { id: 1, v: 2 };
  t.match(await ask({ Preview: change }), { body: { before: [row], after: [{ ...row, v: 9 }] } });
  t.same(Object((await ask({ Preview: change })).body).after.length, 1);
  t.same((await ask(selectAll("parts", page))).body.data, [{ id: 2, v: 2 }]);
  t.match(await describe({ engine }, "parts"), { keys: [["id"]] });
});

t.test("nulls of PostgreSQL from before a constraint are in pages", async (t) => {
  const scene = await freshPostgres(t);
  if (!isNewest) return;
  await scene.sql(
    "create table main.items (id int primary key, rank int, size int not null)",
    "insert into main.items values (1, null, 1), (2, 5, 1)",
    "alter table main.items add constraint ranked not null rank not valid",
  );
  const nullable = [false, true, false];
  t.match(await describe(scene, "items"), {
    columns: nullable.map((one) => ({ nullable: one })),
  });
  for (const direction of ["ASC", "DESC"]) {
    const order_by = [{ column: "rank", direction }, { column: "id" }];
    const ids = direction === "ASC" ? [1, 2] : [2, 1];
    t.same(await idsOf(scene, "items", { order_by }), ids);
    const after = direction === "ASC" ? [null, 1] : [5, 2];
    t.same(await idsOf(scene, "items", { order_by, after }), ids.slice(1));
  }
});

for (const [server, ignoring] of [
  ["SQLite", "nocase"],
  ["SQLite", "rtrim"],
  ["PostgreSQL", "main.ignoring"],
] as const) {
  t.test(`a key that compares unlike its column orders no pages (${ignoring})`, async (t) => {
    const { ask, sql } = await fresh[server](t);
    const bytes = server === "SQLite" ? "binary" : '"C"';
    if (server === "PostgreSQL") {
      await sql(
        "create collation main.ignoring (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
      );
    }
    const other = ignoring === "rtrim" ? "a " : "A";
    await sql(
      `create table main.words (word text collate ${ignoring} not null, n int)`,
      `create unique index by_bytes on main.words (word collate ${bytes})`,
      `insert into main.words values ('a', 1), ('${other}', 2)`,
      `create table main.keys (word text collate ${ignoring} not null primary key, n int)`,
      `insert into main.keys values ('a', 1), ('b', 2)`,
      `create table main.plain (word text not null, n int)`,
      `create unique index by_letters on main.plain (word collate ${ignoring})`,
      `insert into main.plain values ('a', 1), ('b', 2)`,
    );
    const page = { order_by: { column: "word" }, after: ["a"] };
    t.match(await ask(selectAll("words", page)), refusal(400, "order_not_unique"));
    for (const table of ["keys", "plain"]) {
      t.same((await ask(selectAll(table, page))).body.data, [{ word: "b", n: 2 }], table);
    }
    if (server !== "SQLite") return;
    await sql(
      `create table compact (word text collate ${ignoring} not null, n int,
        primary key (word collate binary)) without rowid`,
      `insert into compact values ('a', 1), ('${other}', 2)`,
      "create trigger changed after update of n on compact begin select 1; end",
    );
    t.match(await ask(selectAll("compact", page)), refusal(400, "order_not_unique"));
    const { Update } = update("compact", { n: 3 });
    const changed = await ask({ Update: { ...Update, returning: ["n"] } });
    t.same(changed.body.data, [{ n: 3 }, { n: 3 }]);
  });
}

for (const schema of ["public", "elsewhere"]) {
  t.test(`types of an extension in the schema ${schema} compare as they are sorted`, async (t) => {
    const { ask, sql } = await freshPostgres(t);
    await sql(
      `create schema if not exists ${schema}`,
      `create extension citext schema ${schema}`,
      `create extension ltree schema ${schema}`,
      `create table main.words (id int primary key, word ${schema}.citext, path ${schema}.ltree)`,
      "insert into main.words values (1, 'a', 'a.b'), (2, 'B', 'B'), (3, 'A', 'a'), (4, 'b', 'b.a')",
    );
    for (const column of ["word", "path"]) {
      const sorted = { columns: ["id", column], order_by: [{ column }, { column: "id" }] };
      const { data: rows = [] } = (await ask(selectAll("words", sorted))).body;
      t.equal(rows.length, 4);
      for (const [at, row] of rows.entries()) {
        const page = { ...sorted, after: [Object(row)[column], Object(row).id], limit: 1 };
        t.same((await ask(selectAll("words", page))).body.data, rows.slice(at + 1, at + 2), column);
      }
    }
    const found = await ask(selectAll("words", { columns: ["id"], where: equal("word", "a") }));
    t.same(found.body.data, schema === "public" ? [{ id: 1 }, { id: 3 }] : [{ id: 1 }]);
    const paths = await ask(selectAll("words", { columns: ["id"], where: equal("path", "a.b") }));
    t.same(paths.body.data, [{ id: 1 }]);
  });
}

t.test("a type of an extension without an operator <> can be compared", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  const internal = "language internal immutable strict as";
  await sql(
    "create type shape",
    `create function shape_in(cstring) returns shape ${internal} 'int8in'`,
    `create function shape_out(shape) returns cstring ${internal} 'int8out'`,
    "create type shape (input = shape_in, output = shape_out, like = bigint)",
    `create function shape_cmp(shape, shape) returns int ${internal} 'btint8cmp'`,
    `create function shape_eq(shape, shape) returns bool ${internal} 'int8eq'`,
    "create operator = (leftarg = shape, rightarg = shape, function = shape_eq)",
    `create operator class shape_ops default for type shape using btree
      as operator 3 =, function 1 shape_cmp(shape, shape)`,
    "create table main.places (id int primary key, shape shape)",
    "insert into main.places values (1, '7'), (2, '8')",
  );
  for (const where of [
    { column: "shape", cmp: "!=", value: "7" },
    { column: "shape", cmp: "NOT IN", value: ["7"] },
  ]) {
    t.same(await idsOf({ ask }, "places", { where }), [2]);
  }
});

t.test("SQLite's views are read, and written where a trigger does it", async (t) => {
  const { ask, sql, engine } = await freshSqlite();
  await sql(
    "create table people (id integer primary key, name text, photo blob)",
    "insert into people values (1, 'Ann', x'6869'), (2, 'Bob', null)",
    "create view named as select id, upper(name) as name, photo from people",
    `create trigger rename instead of update on named begin
      update people set name = new.name where id = new.id; end`,
    "create view fixed as select id from people",
  );
  t.same(await describe({ engine }), { tables: ["fixed", "named", "people"] });
  t.match(await describe({ engine }, "named"), {
    view: true,
    columns: [{ name: "id" }, { name: "name" }, {}],
  });
  const rows = [{ id: 1, name: "ANN", photo: "aGk=" }];
  for (const where of [equal("name", "ANN"), equal("photo", "aGk="), equal("id", 1)]) {
    t.same((await ask(selectAll("named", { where }))).body.data, rows);
  }
  t.match(await ask(update("named", { name: "Eve" }, equal("id", 2))), { status: 200 });
  t.match((await ask(selectAll("people", { where: equal("id", 2) }))).body.data, [{ name: "Eve" }]);
  t.match(await ask(insert("fixed", [{ id: 3 }])), refusal(403, "permission_denied", /view/));
  const drop = { DropTable: { database: "main", table: "fixed" } };
  t.match(await ask(drop), refusal(404, "table_not_found", /is a view/));
  await sql("drop table people");
  t.match(await ask(drop), refusal(404, "table_not_found", /is a view/));
});

t.test("changes of SQLite's views count the rows, also for max_changes", async (t) => {
  const { ask, sql, engine } = await freshSqlite();
  await sql(
    "create table people (id integer primary key, name text)",
    "insert into people values (1, 'Ann'), (2, 'Bob'), (3, 'Eve')",
    "create view named as select * from people",
    `create trigger added instead of insert on named begin
      insert into people values (new.id, new.name); end`,
    `create trigger renamed instead of update on named begin
      update people set name = new.name where id = new.id; end`,
    `create trigger removed instead of delete on named begin
      delete from people where id = old.id; end`,
  );
  const some = { column: "id", cmp: "<", value: 3 };
  const headers = {
    "content-type": "application/json",
    "x-test-limits": JSON.stringify([{ changes: 1 }]),
  };
  const limited = (body: object) =>
    send(engine.address, { method: "POST", path: "/query", headers }, JSON.stringify(body));
  const two = [{ id: 4 }, { id: 5 }];
  for (const change of [
    insert("named", two),
    update("named", { name: "x" }, some),
    remove("named", some),
  ]) {
    t.match(await limited(change), refusal(409, "too_many_changes"), JSON.stringify(change));
    t.match(await ask({ Preview: change }), { body: { affected: 2 } });
    t.match(await ask(change), { status: 200, body: { affected: 2 } });
  }
  t.match((await ask(selectAll("people"))).body.data, [{ id: 3 }, { id: 4 }, { id: 5 }]);
});

t.test("what triggers of SQLite change is returned, and held to the row filter", async (t) => {
  const { ask, sql, engine } = await freshSqlite();
  await sql(
    "create table notes (id integer primary key, owner text, note text, stamp text, more text)",
    `create trigger added after insert on notes begin
      update notes set stamp = 'new ' || new.note where id = new.id; end`,
    `create trigger changed after update of note on notes begin
      update notes set stamp = 'old ' || old.note where id = new.id; end`,
    "create trigger kept before update on notes when old.more = 'kept' begin select raise(ignore); end",
    "create trigger moved after update of more on notes begin update notes set owner = new.more; end",
  );
  const place = { database: "main", table: "notes" };
  const returning = ["note", "stamp"];
  const values = [
    { id: 2, owner: "ann", note: "b" },
    { id: 1, owner: "ann", note: "a" },
  ];
  const stamps = values.map(({ note }) => ({ note, stamp: `new ${note}` }));
  const added = { Insert: { ...place, values, returning } };
  t.match(await ask({ Preview: added }), { body: { after: stamps } });
  t.match(await ask(added), { body: { affected: 2, data: stamps } });
  await sql("update notes set more = 'kept', owner = 'ann' where id = 1");
  const change = { ...place, set: { note: "c" }, where: null, returning };
  const data = [{ note: "c", stamp: "old b" }];
  t.same((await ask({ Update: change })).body.data, data);
  const upsert = {
    ...place,
    on_conflict: ["id"],
    update: ["note"],
    values: [{ id: 2, note: "d" }],
  };
  t.match(await ask({ Upsert: { ...upsert, returning } }), {
    body: { data: [{ note: "d", stamp: "old c" }] },
  });
  await sql("update notes set owner = 'ann'");
  const filter = { bytewise: ["owner"], written: [{ column: "owner", cmp: "=", value: "ann" }] };
  const headers = {
    "content-type": "application/json",
    "x-test-limits": JSON.stringify([{ database: "main", table: "notes", ...filter }]),
  };
  const filtered = (body: object) =>
    send(engine.address, { method: "POST", path: "/query", headers }, JSON.stringify(body));
  const where = equal("id", 2);
  t.match(await filtered(update("notes", { note: "e" }, where)), { body: { affected: 1 } });
  const moved = update("notes", { more: "bob" }, where);
  t.match(await filtered(moved), refusal(403, "row_denied"));
  t.match(await filtered({ Preview: moved }), refusal(403, "row_denied"));
  t.match(await filtered(insert("notes", [{ id: 3, owner: "ann" }])), { body: { affected: 1 } });
  await sql("create trigger moving after insert on notes begin delete from notes; end");
  const moving = { Insert: { ...place, values: [{ id: 4 }], returning } };
  t.match(await ask(moving), refusal(400, "not_supported", /trigger removes a row of notes/));
  await sql("drop trigger moving");
  const gone = await ask({ Delete: { ...place, where, returning } });
  t.same(gone.body.data, [{ note: "e", stamp: "old d" }]);
});

t.test("no definition of SQLite's tables replaces another row, or leaves one out", async (t) => {
  const { ask, sql } = await freshSqlite();
  await sql(
    `create table kept (id integer primary key on
      conflict replace, code text unique on conflict ignore, size int default 7
      constraint wanted not null on conflict replace)`,
    "insert into kept values (1, 'a', 1), (2, 'b', 2)",
    "create table log (id integer primary key on conflict ignore, note text)",
    "create table plain (id integer primary key)",
    "create trigger logged after insert on plain begin insert into log values (1, 'once'); end",
  );
  const before = (await ask(selectAll("kept"))).body.data;
  const refused = refusal(409, "constraint_violation");
  for (const change of [
    insert("kept", [{ id: 1, code: "c" }]),
    insert("kept", [{ id: 3, code: "b" }]),
    insert("kept", [{ id: 3, size: null }]),
    update("kept", { id: 2 }, equal("id", 1)),
    update("kept", { code: "b" }, equal("id", 1)),
    update("kept", { size: null }),
  ]) {
    t.match(await ask(change), refused, JSON.stringify(change));
    t.match(await ask({ Preview: change }), refused);
  }
  t.same((await ask(selectAll("kept"))).body.data, before);
  const values = [{ id: 2, code: "c" }];
  const upsert = {
    database: "main",
    table: "kept",
    values,
    on_conflict: ["id"],
    update: ["code"],
  };
  t.match(await ask({ Upsert: upsert }), { body: { affected: 1 } });
  t.match(await ask(insert("plain", [{ id: 1 }, { id: 2 }])), { body: { affected: 2 } });
  t.same((await ask(selectAll("log"))).body.data, [{ id: 1, note: "once" }]);
});

t.test("a primary key of SQLite that may be null says so, and orders no pages", async (t) => {
  const { ask, sql, engine } = await freshSqlite();
  await sql(
    "create table pairs (a integer, b integer, primary key (a, b))",
    "insert into pairs values (null, 1), (null, 1), (1, 1)",
    "create table falling (a integer primary key desc)",
    "insert into falling values (null), (null), (1)",
    "create table words (a text primary key)",
    "create table rows (a integer primary key)",
    "create table compact (a int, b int, primary key (b, a)) without rowid",
  );
  for (const [table, nullable] of Object.entries({
    pairs: true,
    falling: true,
    words: true,
    rows: false,
    compact: false,
  })) {
    t.match(
      await describe({ engine }, table),
      { columns: [{ primary_key: true, nullable }] },
      table,
    );
    const names = ["pairs", "compact"].includes(table) ? ["a", "b"] : ["a"];
    const order_by = names.map((column) => ({ column }));
    const page = await ask(selectAll(table, { order_by, after: names.map(() => null), limit: 1 }));
    t.match(page, nullable ? refusal(400, "order_not_unique") : { status: 200 }, table);
  }
});

t.test("foreign keys of SQLite without columns are described, broken ones named", async (t) => {
  const { ask, sql, engine } = await freshSqlite();
  await sql(
    "create table parents (id integer primary key, name text)",
    "create table children (id integer primary key, parent int references parents)",
    "create table friends (name text references parents (name))",
  );
  const columns = [{ references: undefined }, { references: "parents.id" }];
  t.match(await describe({ engine }, "children"), { columns });
  const problem = /on friends: a foreign key refers to columns that are not unique$/;
  const friend = insert("friends", [{ name: "Ann" }]);
  t.match(await ask(friend), refusal(409, "statement_failed", problem));
});

t.test("the tables in which FTS5 keeps its index are neither listed nor found", async (t) => {
  const { ask, sql, engine } = await freshSqlite();
  await sql(
    "create virtual table notes using fts5(title, body)",
    "insert into notes values ('a', 'b')",
  );
  t.same(await describe({ engine }), { tables: ["notes"] });
  t.same((await ask(selectAll("notes"))).body.data, [{ title: "a", body: "b" }]);
  for (const name of ["notes_data", "notes_content"]) {
    t.match(await ask(selectAll(name)), refusal(404, "table_not_found"), name);
  }
  const change = { database: "main", table: "notes", where: null, returning: ["title"] };
  const keyless = refusal(400, "not_supported", /no primary key/);
  t.match(await ask({ Update: { ...change, set: { body: "c" } } }), keyless);
  t.match(await ask({ Delete: change }), { body: { affected: 1, data: [{ title: "a" }] } });
});

t.test("a text of SQLite that is not UTF-8 is refused, not changed", async (t) => {
  const { ask, sql, engine } = await freshSqlite();
  await sql(
    "create table words (id integer primary key, word text, note text)",
    "insert into words values (1, char(65533), 'good'), (2, cast(x'ff41' as text), char(65533))",
    "create table links (word_id integer)",
    "insert into links values (2)",
  );
  const good = { where: equal("id", 1) };
  t.same((await ask(selectAll("words", good))).body.data, [
    { id: 1, word: "\ufffd", note: "good" },
  ]);
  t.same((await ask(selectAll("words", { columns: ["note"] }))).body.data?.length, 2);
  const refused = refusal(400, "invalid_value", /Column "word" of table words .* not valid UTF-8/);
  const where = equal("id", 2);
  const include = { as: "w", table: "words", on: "words.id = links.word_id", columns: ["word"] };
  const compute = [{ as: "w", fn: "concat", of: ["word", { value: "" }] }];
  const from = { as: "inner", select: { from: "words", columns: ["word"] } };
  const change = { database: "main", table: "words", where, returning: ["word"] };
  for (const query of [
    selectAll("words"),
    { Select: { database: "main", from, columns: ["word"] } },
    selectAll("links", { include: [include] }),
    { Update: { ...change, set: { note: "n" } } },
    { Delete: change },
    { Preview: { Delete: { database: "main", table: "words", where } } },
  ]) {
    t.match(await ask(query), refused, JSON.stringify(query));
  }
  const computed = { Select: { database: "main", from: "words", compute, columns: ["w"], where } };
  t.match(await ask(computed), refusal(400, "invalid_value", /computed name .* not valid UTF-8/));
  t.match(await rowsAs(engine.address, selectAll("words", { where }), "text/csv"), { status: 400 });
  t.match(await ask(update("words", { word: "ÿA" }, where)), { body: { affected: 1 } });
  t.same((await ask(selectAll("words"))).status, 200);
});

t.test("an infinite double of SQLite is a word, in JSON, CSV and lines", async (t) => {
  const { ask, sql, engine } = await freshSqlite();
  await sql(
    "create table n (id integer primary key, v double)",
    "insert into n values (1, -9e999)",
  );
  t.same((await ask(selectAll("n"))).body.data, [{ id: 1, v: "-Infinity" }]);
  t.equal(
    (await rowsAs(engine.address, selectAll("n"), "text/csv")).text,
    "id,v\r\n1,-Infinity\r\n",
  );
  const round = [{ as: "r", fn: "round", of: ["v"] }];
  const query = { Select: { database: "main", from: "n", compute: round, columns: ["r"] } };
  t.match(await ask(query), refusal(400, "number_out_of_range"));
});

t.test("a column of SQLite without a type refuses a string as an amount", async (t) => {
  const { ask, sql } = await freshSqlite();
  await sql("create table main.counts (id integer primary key, n)");
  await sql("insert into main.counts values (1, 1), (2, 'one')");
  const add = (id: number, n: unknown) =>
    ask({
      Update: {
        database: "main",
        table: "counts",
        add: { n },
        where: { column: "id", cmp: "=", value: id },
      },
    });
  const message = 'Column "n" does not accept a string in add; allowed: a number';
  t.match((await add(1, "5")).body, { code: "invalid_value", message });
  t.match((await add(2, "5")).body, { code: "invalid_value", message });
  t.equal((await add(1, 5)).status, 200);
  t.match((await add(2, 5)).body, { code: "invalid_value", message: /^A stored value/ });
});

const roundedDefaults = `, day date default current_timestamp,
  at datetime default current_timestamp(6)`;

t.test("MariaDB's defaults and generated columns may round, but no value of a query", async (t) => {
  const { ask, sql } = await freshMysql(t);
  await sql(
    `create table main.orders (id int primary key, price decimal(6,2),
      taxed decimal(6,1) as (price * 1.19) stored${isMariaDb ? roundedDefaults : ""})`,
  );
  t.match(await ask(insert("orders", [{ id: 1, price: 1.11 }])), { status: 200 });
  t.match(await ask(update("orders", { price: 2.22 })), { status: 200 });
  t.match(await ask(update("orders", { price: 2.225 })), refusal(400, "invalid_value"));
  const values = [{ id: 2, price: 3.33 }];
  const returning = { Insert: { database: "main", table: "orders", values, returning: ["taxed"] } };
  t.match(await ask(returning), { body: { data: [{ taxed: 4 }] } });
});

t.test("what other programs alter in MariaDB is seen at once, and read once", async (t) => {
  const { ask, sql, url } = await freshMysql(t);
  const make = "(id int auto_increment primary key, cell text)";
  await sql("use main", `create table items ${make}`, "create view seen as select * from items");
  const add = (cell: unknown) => ask(insert("items", [{ cell }]));
  const cellsOf = async (table: string) =>
    Object((await ask(selectAll(table, { order_by: { column: "id" } }))).body.data).map(
      ({ cell }: { cell: unknown }) => cell,
    );
  t.match(await add("[1]"), { status: 200 });
  t.same(await cellsOf("items"), ["[1]"]);
  await sql("set global log_output = 'TABLE'", "set global general_log = 1");
  t.teardown(() => sql("set global general_log = 0"));
  for (const cell of ["[2]", "[3]"]) t.match(await add(cell), { status: 200 });
  t.same(await cellsOf("items"), ["[1]", "[2]", "[3]"]);
  const isSlow = "argument like '%information_schema%' or argument like 'start transaction%'";
  const slow = `select argument from mysql.general_log where (${isSlow}) and argument not like '%general_log%'`;
  t.same(await sql(slow), [], "the next number of a table is no change");

  await sql("alter table main.items modify cell text comment 'gatehouse:json'");
  t.same(await cellsOf("items"), [[1], [2], [3]]);
  t.same(await cellsOf("seen"), [[1], [2], [3]], "also in a view");
  await sql("alter table main.items modify cell json comment 'AUTO_INCREMENT=5'");
  t.same(await cellsOf("items"), [[1], [2], [3]]);
  t.match(await add([4]), { status: 200 });
  await sql("alter table main.items modify cell varchar(9) not null");
  t.match(await add([5]), refusal(400, "invalid_value"));
  t.same(await cellsOf("seen"), ["[1]", "[2]", "[3]", "[4]"]);
  await sql("alter table main.items engine = MyISAM");
  t.match(await add("[6]"), refusal(403, "permission_denied", /without transactions/));
  await sql("alter table main.items engine = InnoDB, change cell other text");
  t.match(await add("[7]"), refusal(400, "unknown_column"));
  await sql("rename table main.items to main.others", `create table main.items ${make}`);
  t.same(await cellsOf("items"), []);

  await sql(
    "create user narrow@'127.0.0.1'",
    "grant select (id), insert on main.others to narrow@'127.0.0.1'",
    "grant select (id) on main.items to narrow@'127.0.0.1'",
  );
  t.teardown(() => sql("drop user narrow@'127.0.0.1'"));
  const { address } = await startOn(t, url.replace("root@", "narrow@"));
  t.same((await query(address, selectAll("items"))).body.data, []);
  const ids = { columns: ["id"], limit: 1 };
  t.same((await query(address, selectAll("others", ids))).body.data, [{ id: 1 }]);
  t.match(await query(address, selectAll("others")), refusal(403, "permission_denied"));
});

t.test("MySQL and MariaDB keep the values of an altered column", async (t) => {
  const { ask, sql } = await freshMysql(t);
  for (const [old, before, type, value] of [
    ["time", "13:45:00", "year", 2024],
    ["int", 5, "varchar(9) character set latin1", "é"],
    ["date", "2026-01-31", "text", "😀"],
  ]) {
    await sql("drop table if exists main.items", `create table main.items (cell ${old})`);
    t.match(await ask(insert("items", [{ cell: before }])), { status: 200 });
    await sql("delete from main.items", `alter table main.items modify cell ${type}`);
    t.match(await ask(insert("items", [{ cell: value }])), { status: 200 }, `${type}`);
    t.same((await ask(selectAll("items"))).body.data, [{ cell: value }]);
  }
});

t.test("a primary key of MariaDB with an invisible column names no rows", async (t) => {
  const { ask, sql, engine } = await freshMysql(t);
  await sql(
    "create table main.items (id int, part int default 1 invisible, n int, primary key (id, part))",
    "insert into main.items (id, part, n) values (1, 1, 10), (1, 2, 20)",
  );
  t.same(Object(await describe({ engine }, "items")).keys, []);
  const change = update("items", { n: 30 }, equal("n", 20));
  t.match(await ask({ Preview: change }), refusal(400, "not_supported", /no primary key/));
  const paged = selectAll("items", { order_by: { column: "id" }, after: [0] });
  t.match(await ask(paged), refusal(400, "order_not_unique"));
});

t.test("no year of MariaDB is found by its last two digits", async (t) => {
  const { ask, sql } = await freshMysql(t);
  await sql(
    "create table main.wines (made year)",
    "insert into main.wines values (0), (1970), (2007)",
    "create table main.numbers (n int)",
    "insert into main.numbers values (7)",
  );
  const found = async (cmp: string, value: unknown) => {
    const where = { column: "made", cmp, value };
    const answer = await ask(selectAll("wines", { where, order_by: { column: "made" } }));
    return answer.body.data?.map((row) => Object(row).made) ?? answer.text;
  };
  for (const value of [7, 70, 7.5, 99.6]) {
    t.same(await found("=", value), [], `${value}`);
    t.same(await found("IN", [value, 1970]), [1970], `${value}`);
    t.same(await found("!=", value), [0, 1970, 2007], `${value}`);
    t.same(await found("<=", value), [0], `${value}`);
    t.same(await found(">", value), [1970, 2007], `${value}`);
  }
  for (const [low, high] of [
    [-1, 3000],
    [-0.5, 1e19],
  ]) {
    t.same(await found(">", low), [0, 1970, 2007], `${low}`);
    t.same(await found("<", high), [0, 1970, 2007], `${high}`);
    t.same(await found("IN", [low, high]), []);
    t.same(await found("BETWEEN", [low, high]), [0, 1970, 2007]);
  }
  t.same(await found("BETWEEN", [1, 99]), []);
  t.same(await found("=", 2007), [2007]);
  const include = [{ as: "wines", table: "wines", on: "wines.made = numbers.n", columns: ["*"] }];
  t.same((await ask(selectAll("numbers", { include }))).body.data, [{ n: 7, wines: [] }]);
});

t.test("a date of zeros on MariaDB is not null", async (t) => {
  const { ask, sql } = await freshMysql(t);
  const columns = ["date", "datetime", "timestamp"].map((type) => `${type}s ${type} not null`);
  await sql(
    `create table main.days (id int primary key, ${columns}, maybe date)`,
    "set sql_mode = ''",
    "insert into main.days values (1, 0, 0, 0, 0), (2, 20200101, 20200101, 20200101, null)",
    "create table main.numbers (id int primary key)",
    "insert into main.numbers values (1), (2), (3)",
  );
  for (const column of ["dates", "datetimes", "timestamps", "maybe"]) {
    const found = (where: object) => idsOf({ ask }, "days", { where });
    const nulls = column === "maybe" ? [2] : [];
    t.same(await found(equal(column, null)), nulls, column);
    t.same(await found({ column, cmp: "IN", value: [null, "2001-01-01"] }), nulls, column);
    t.same(await found({ not: equal(column, null) }), column === "maybe" ? [1] : [1, 2], column);
    const join = { table: "days", on: "numbers.id = days.id", join_type: "LEFT" };
    const absent = { columns: ["numbers.id"], join, where: equal(`days.${column}`, null) };
    const rows = [...nulls, 3].map((id) => ({ id }));
    t.same((await ask(selectAll("numbers", absent))).body.data, rows, column);
    const order_by = [
      { column, direction: "DESC" },
      { column: "days.id" },
      { column: "numbers.id" },
    ];
    const zero = /time/.test(column) ? "0000-00-00T00:00:00" : "0000-00-00";
    const after = [column === "timestamps" ? `${zero}Z` : zero, 1, 1];
    const page = { columns: ["numbers.id"], join, order_by, after };
    t.same((await ask(selectAll("numbers", page))).body.data, rows.toReversed(), column);
  }
  t.match(await ask(remove("days", equal("dates", null))), { body: { affected: 0 } });
});

t.test("MariaDB answers for each text of a column that ignores case by itself", async (t) => {
  const { ask, sql } = await freshMysql(t);
  await sql(
    "create table main.words (id int primary key, word varchar(9) collate utf8mb4_general_ci)",
    "insert into main.words values (1, 'A'), (2, 'a'), (3, 'A'), (4, 'a'), (5, 'c')",
    `create table main.exact (word varchar(9) collate ${bytewise} not null)`,
    "insert into main.exact values ('a'), ('z')",
  );
  const found = { column: "word", cmp: "IN", select: { from: "exact", columns: ["word"] } };
  const other = { ...found, cmp: "NOT IN" };
  const exists = { exists: { table: "exact", on: "exact.word = words.word" } };
  const never = equal("id", 9);
  const order_by = { column: "id" };
  const ids = (where: object) => idsOf({ ask }, "words", { where, order_by });
  for (const where of [found, exists, { or: [found, never] }, { or: [exists, never] }]) {
    t.same(await ids(where), [2, 4], JSON.stringify(where));
    t.same(await ids({ not: where }), [1, 3, 5], JSON.stringify({ not: where }));
  }
  t.same(await ids(other), [1, 3, 5]);
  t.match(await ask(remove("words", other)), { body: { affected: 3 } });
});

t.test("no setting of a PostgreSQL database changes a value", async (t) => {
  const { database, sql, url } = await freshPostgres(t);
  await sql(
    "create table main.items (id int primary key, tags text[], span interval, note xml)",
    ...[
      "array_nulls = off",
      "standard_conforming_strings = off",
      "intervalstyle = sql_standard",
      "quote_all_identifiers = on",
      "xmloption = document",
    ].map((setting) => `alter database ${database} set ${setting}`),
  );
  const { address } = await startOn(t, url);
  const row = { id: 1, tags: ["a", null, "NULL"], span: "-1 days +02:03:04", note: "a<b/>" };
  t.match(await query(address, insert("items", [row])), { status: 200 });
  t.same((await query(address, selectAll("items"))).body.data, [row]);
  const { text } = await send(address, { path: "/schema/main/items" });
  t.match(text, /"name":"tags","type":"text\[\]"/);
  const made = { id: "int", text: { type: "text", default: "a\\b'c" } };
  t.match(await query(address, createTable("made", made)), { status: 200 });
  t.match(await query(address, insert("made", [{ id: 1 }])), { status: 200 });
  t.same((await query(address, selectAll("made"))).body.data, [{ id: 1, text: "a\\b'c" }]);
});

t.test("no setting of MariaDB chains transactions, skips checks or cuts sort keys", async (t) => {
  const { ask, sql, url } = await freshMysql(t);
  const start = "x".repeat(700);
  await ask(createTable("texts", { id: "int", text: "text" }));
  const rows = Array.from({ length: 9 }, (_, id) => ({ id, text: `${start}${9 - id}` }));
  await ask(insert("texts", rows));
  await sql("create table main.small (n int check (n < 10), doc json)");
  const settings = [
    "completion_type = 'CHAIN'",
    ...(isMariaDb ? ["check_constraint_checks = 0"] : []),
    "max_sort_length = 64",
    "sql_quote_show_create = 0",
  ];
  for (const setting of settings) await sql(`set global ${setting}`);
  t.teardown(() =>
    sql(...settings.map((setting) => `set global ${setting.replace(/=.*/, "= default")}`)),
  );
  const { address } = await startOn(t, url);
  const small = [1, 2].map((n) => ({ n, doc: { n } }));
  for (const row of small) t.match(await query(address, insert("small", [row])), { status: 200 });
  t.same((await query(address, selectAll("small"))).body.data, small);
  t.match(await query(address, insert("small", [{ n: 10 }])), refusal(409, "constraint_violation"));
  const order_by = [{ column: "text" }, { column: "id" }];
  const page = { order_by, limit: 2, after: [`${start}4`, 5] };
  t.same((await query(address, selectAll("texts", page))).body.data, [rows[4], rows[3]]);
  const long = { ...page, after: ["x".repeat(769), 1] };
  const problem = /"text" that is longer than the database sorts by/;
  t.match(await query(address, selectAll("texts", long)), refusal(400, "not_supported", problem));
});

t.test("a character that a column of MariaDB cannot hold is no match", async (t) => {
  const scene = await freshMysql(t);
  const sets = ["latin1", "ascii", "utf8mb3", "cp1251", "sjis"];
  const columns = sets.map((set) => `, ${set} varchar(9) character set ${set}`);
  await scene.sql(
    `create table main.old (id int primary key${columns.join("")})`,
    "insert into main.old values (1, 'a', 'a', 'a', 'a', 'a'), (2, null, null, null, null, null)",
  );
  const ids = (where: object) => idsOf(scene, "old", { where });
  for (const column of sets) {
    const value = "\u{1f600}";
    t.same(await ids(equal(column, value)), [], column);
    t.same(await ids({ not: equal(column, value) }), [1], column);
    t.same(await ids({ column, cmp: "!=", value }), [1], column);
    t.same(await ids({ column, cmp: "IN", value: [value, "A"] }), [1], column);
    t.same(await ids({ column, cmp: "IN", value: [value] }), [], column);
    t.same(await ids({ column, cmp: "IN", value: [value, null] }), [2], column);
    t.same(await ids({ column, cmp: "NOT IN", value: [value] }), [1], column);
    t.same(await ids({ column, cmp: "LIKE", value: `%${value}%` }), [], column);
    t.same(await ids({ column, cmp: "<", value }), [1], column);
  }
  t.same(await ids(equal("latin1", "漢")), []);
  t.same(await ids(equal("cp1251", "é")), []);
});

const digits = ["2026-01-02T03:04:05.1234567", "2026-01-02T03:04:05.123456789"];
for (const server of ["PostgreSQL", "MariaDB"] as const) {
  t.test(`more digits of a second than fit are refused, with the limit (${server})`, async (t) => {
    const { ask, sql } = await fresh[server](t);
    const type = server === "MariaDB" ? "datetime" : "timestamp";
    await sql(`create table main.times (id int primary key, fine ${type}(6), coarse ${type}(0))`);
    const put = (cells: object) => ask(insert("times", [{ id: 1, ...cells }]));
    for (const fine of digits) {
      t.match(await put({ fine }), refusal(400, "invalid_value", /at most 6 digits of a second/));
    }
    const where = equal("fine", digits[0]);
    t.match(
      await ask(selectAll("times", { where })),
      refusal(400, "invalid_value", /6 digits of a second/),
    );
    const coarse = "2026-01-02T03:04:05.5";
    t.match(await put({ coarse }), refusal(400, "invalid_value", /no fraction of a second/));
    t.match(await put({ fine: `${coarse}00000000`, coarse: coarse.replace("5.5", "5.000") }), {
      status: 200,
    });
    t.match((await ask(selectAll("times"))).body.data, [
      { fine: coarse, coarse: coarse.slice(0, -2) },
    ]);
  });
}

t.test("changes by other programs and rolled back Batches are seen (SQLite)", async (t) => {
  const { ask, sql } = await freshSqlite();
  await sql("create table main.items (id integer primary key)", "insert into items values (1)");
  t.same((await ask(selectAll("items"))).body.data, [{ id: 1 }]);
  await sql("alter table main.items add column name text default 'new'");
  t.same((await ask(selectAll("items"))).body.data, [{ id: 1, name: "new" }]);
  await sql("create table main.lines (id integer primary key, item int references items)");
  await sql("insert into lines values (5, 1)");
  const include = [{ as: "lines", table: "lines", on: "lines.item = items.id", columns: ["id"] }];
  const withLines = [{ id: 1, name: "new", lines: [{ id: 5 }] }];
  t.same((await ask(selectAll("items", { include }))).body.data, withLines);
  await sql("create index by_item on lines (item)", "alter table main.lines rename id to line");
  t.match(await ask(selectAll("items", { include })), refusal(400, "unknown_column", /"id"/));

  const columns = (type: string) => [{ name: "cell", type }];
  const create = (type: string) => ({
    CreateTable: { database: "main", table: "cells", columns: columns(type) },
  });
  const failing = insert("items", [{ id: 1 }]);
  const rolledBack = [create("TEXT"), insert("cells", [{ cell: "a" }]), failing];
  t.match(await ask({ Batch: rolledBack }), { status: 409 });
  t.match(await ask(selectAll("cells")), refusal(404, "table_not_found"));
  t.match(await ask(create("INTEGER")), { status: 200 });
  t.match(await ask(insert("cells", [{ cell: "a" }])), refusal(400, "invalid_value"));
  t.match(await ask(insert("cells", [{ cell: 7 }])), { status: 200 });
  t.same((await ask(selectAll("cells"))).body.data, [{ cell: 7 }]);
});

t.test("a SQLite file that another program has open keeps its write-ahead log", async (t) => {
  const { directory, ask } = await freshSqlite();
  const other = new DatabaseSync(`${directory}/data/live.sqlite`);
  t.teardown(() => other.close());
  const modeOf = () => other.prepare("pragma journal_mode").get();
  other.exec("pragma journal_mode = wal; create table notes (id integer primary key, body text)");
  other.exec("insert into notes (body) values ('kept')");
  const reader = new DatabaseSync(`${directory}/data/live.sqlite`);
  reader.exec("begin; select * from notes");
  const notes = { database: "live", from: "notes", columns: ["body"] };
  const addition = { Insert: { database: "live", table: "notes", values: [{ body: "added" }] } };
  t.match(await ask({ Select: notes }), { status: 200, body: { data: [{ body: "kept" }] } });
  t.match(await ask({ Preview: addition }), { status: 200, body: { affected: 1 } });
  t.match(await ask(addition), { status: 200, body: { affected: 1 } });
  t.match(modeOf(), { journal_mode: "wal" });
  t.match(other.prepare("select count(*) as n from notes").get(), { n: 2 });
  reader.close();

  await ask(createTable("own", { id: "int" }));
  const refused = refusal(400, "not_supported", /^A Batch cannot change database live together/);
  const ofOwn = insert("own", [{ id: 1 }]);
  t.match(await ask({ Batch: [ofOwn, addition] }), refused);
  t.match(await ask({ Batch: [addition, ofOwn] }), refused);
  const both = { Batch: [{ Select: notes }, selectAll("own")] };
  t.same((await ask(both)).body.data, [[{ body: "kept" }, { body: "added" }], []]);
  const oneIsRead = [
    [{ Select: notes }, ofOwn],
    [selectAll("own"), addition],
  ];
  for (const Batch of oneIsRead) t.match(await ask({ Batch }), { status: 200 });
  t.match(await ask({ DropDatabase: { database: "live" } }), { status: 200 });
});

t.test("a SQLite file that another program replaces or removes is not used further", async (t) => {
  const { directory, ask } = await freshSqlite();
  const place = (name: string) => `${directory}/data/${name}.sqlite`;
  const make = (name: string, body: string) => {
    const other = new DatabaseSync(place(name));
    other.exec(`create table notes (body text); insert into notes values ('${body}')`);
    other.close();
  };
  const notes = { Select: { database: "live", from: "notes", columns: ["body"] } };
  const addition = { Insert: { database: "live", table: "notes", values: [{ body: "added" }] } };
  make("live", "first");
  t.same((await ask(notes)).body.data, [{ body: "first" }]);
  make("next", "second");
  renameSync(place("next"), place("live"));
  t.same((await ask(notes)).body.data, [{ body: "second" }]);
  t.match(await ask(addition), { status: 200 });
  rmSync(place("live"));
  t.match(await ask(notes), refusal(404, "database_not_found"));
  t.match(await ask(addition), refusal(404, "database_not_found"));
  make("live", "third");
  t.match(await ask(addition), { status: 200 });
  t.same((await ask(notes)).body.data, [{ body: "third" }, { body: "added" }]);

  mkdirSync(place("folder"));
  symlinkSync(place("nowhere"), place("link"));
  for (const database of ["folder", "link"]) {
    const missing = { Select: { ...notes.Select, database } };
    t.match(await ask(missing), refusal(404, "database_not_found"), database);
  }
  t.notOk(existsSync(place("nowhere")));
  symlinkSync(place("loop"), place("loop"));
  const looping = { Select: { ...notes.Select, database: "loop" } };
  t.match(await ask(looping), refusal(507, "storage_failed", /cannot open .* \(database loop\)$/));
});

t.test("reading a SQLite file of another program neither changes it nor waits", async (t) => {
  const { directory, engine, ask } = await freshSqlite();
  const place = `${directory}/data/live.sqlite`;
  const other = new DatabaseSync(place);
  t.teardown(() => other.close());
  other.exec("create table notes (body text); insert into notes values ('kept')");
  const before = readFileSync(place);
  const notes = { Select: { database: "live", from: "notes", columns: ["body"] } };
  const tables = () => send(engine.address, { path: "/schema/live" });
  other.exec("begin immediate");
  t.same((await ask(notes)).body.data, [{ body: "kept" }]);
  t.same((await tables()).body.data, { tables: ["notes"] });
  other.exec("rollback");
  t.ok(readFileSync(place).equals(before));

  const drop = { DropTable: { database: "live", table: "notes" } };
  t.match(await ask(drop), { status: 200 });
  t.match(await ask(createTable("own", { on: "bool" }, "live")), { status: 200 });
  t.match(await ask({ Insert: { database: "live", table: "own", values: [{ on: true }] } }), {
    status: 200,
  });
  const own = { Select: { database: "live", from: "own", columns: ["on"] } };
  t.same((await ask(own)).body.data, [{ on: true }]);
});

t.test("a SQLite file that cannot be written is read, and the refusal says why", async (t) => {
  const { directory, ask } = await freshSqlite();
  for (const database of ["fixed", "shut"]) {
    const place = `${directory}/data/${database}.sqlite`;
    const other = new DatabaseSync(place);
    if (database === "shut") other.exec("pragma journal_mode = wal");
    other.exec("create table notes (body text); insert into notes values ('kept')");
    other.close();
    if (database === "shut") mkdirSync(`${place}-wal`);
    else {
      const bytes = readFileSync(place);
      // A later version of the format, which this one may only read.
      bytes[18] = 9;
      writeFileSync(place, bytes);
    }
    const addition = { Insert: { database, table: "notes", values: [{ body: "added" }] } };
    const problem = database === "shut" ? /cannot open the database file/ : /is read-only$/;
    t.match(await ask(addition), refusal(507, "storage_failed", problem), database);
    const notes = { Select: { database, from: "notes", columns: ["body"] } };
    if (database === "fixed") t.same((await ask(notes)).body.data, [{ body: "kept" }]);
  }
});

// Values that a read returned are accepted again: as filter, in lists, to page, to set, to insert, to bind.

/** Values as SQL, by the type of their column. */
type Columns = Readonly<Record<string, readonly string[]>>;

/** Computed decimals have no zeros at the end. */
function renamed(type: string, cell: string): string {
  const isDecimal = /^(numeric|decimal)/.test(type) && cell.includes(".");
  return isDecimal ? cell.replace(/\.?0+$/, "") : cell;
}

class RoundTrip {
  readonly #t: Test;
  readonly #scene: Scene;
  readonly #table: string;
  readonly #type: string;

  constructor(test: Test, scene: Scene, table: string, type: string) {
    this.#t = test;
    this.#scene = scene;
    this.#table = table;
    this.#type = type;
  }

  async #ask(body: string): Promise<Answer> {
    const answer = await this.#scene.ask(body);
    if (answer.status !== 200) this.#t.fail(`${body} ${answer.body.message}`);
    return answer;
  }

  #select(rest: string): string {
    return `{"Select":{"database":"main","from":"${this.#table}",${rest}}}`;
  }

  async #data(rest: string): Promise<string> {
    return /"data":\[(.*)\]\}$/s.exec((await this.#ask(this.#select(rest))).text)?.[1] ?? "none";
  }

  /** For each condition the ids of its rows, in one Batch of Selects. */
  async #ids(...wheres: readonly string[]): Promise<string[]> {
    const selects = wheres.map((where) =>
      this.#select(`"columns":["id"],"where":${where},"order_by":{"column":"id"}`),
    );
    const { text } = await this.#ask(`{"Batch":[${selects}]}`);
    const data = text.slice(text.indexOf("["));
    return data.split("],[").map((rows) => rows.replace(/[^\d,]/g, ""));
  }

  async check(values: readonly string[]): Promise<void> {
    const { sql, engine } = this.#scene;
    const test = this.#t;
    const table = this.#table;
    await sql(
      `create table main.${table} (id integer primary key, parent integer, cell ${this.#type})`,
      ...values.map((value, at) => `insert into main.${table} values (${at + 1}, 1, ${value})`),
      `create table main.${table}_b (id integer primary key, cell ${this.#type})`,
      `insert into main.${table}_b select id, cell from main.${table}`,
    );
    const all = this.#select(`"columns":["id","cell"],"order_by":{"column":"id"}`);
    const lines = await rowsAs(engine.address, JSON.parse(all), "application/x-ndjson");
    const rows = lines.text.split("\n").slice(0, -1);
    test.equal(rows.length, values.length);
    test.equal(
      (await this.#ask(all)).text,
      `{"status":"success","data":[${rows}]}`,
      `${this.#type} as lines`,
    );
    const cells = rows.map((row) => row.slice(row.indexOf(`"cell":`) + `"cell":`.length, -1));
    const name = (at: number, what: string) =>
      `${this.#type} ${values[at]} as ${cells[at]}: ${what}`;
    const empty = values.map((_, at) => `(${1001 + at}, 2, null)`);
    await sql(`insert into main.${table} values ${empty}`);
    for (const [at, cell] of cells.entries()) {
      const id = at + 1;
      const compare = (cmp: string, value: string) =>
        `{"column":"cell","cmp":"${cmp}","value":${value}}`;
      const list = `[${cell}]`;
      const conditions = [
        compare("=", cell),
        compare("!=", cell),
        compare("IN", list),
        compare("NOT IN", list),
        // In a column of no type, a word in order is a text.
        ...(this.#type === "" ? [] : [compare("BETWEEN", `[${cell},${cell}]`)]),
      ];
      const found = await this.#ids(...conditions);
      const [equal = [], different = [], among = [], outside = [], between = equal] = found.map(
        (ids) => ids.split(","),
      );
      test.ok(equal.includes(String(id)), name(at, `= finds ${equal}`));
      test.same(among, equal, name(at, "IN"));
      test.ok(between.includes(String(id)), name(at, `BETWEEN finds ${between}`));
      test.notOk(different.includes(String(id)), name(at, "!="));
      test.notOk(outside.includes(String(id)), name(at, "NOT IN"));
      test.equal(found.length, conditions.length);

      const at1000 = `"where":{"column":"id","cmp":"=","value":${1000 + id}}`;
      const change = `"database":"main","table":"${table}"`;
      const found1000 = this.#select(`"columns":["id"],"where":${compare("=", cell)}`);
      const changed = await this.#ask(
        `{"Batch":[{"Update":{${change},"set":{"cell":${cell}},${at1000}}},${found1000}]}`,
      );
      test.match(changed.text, `{"id":${1000 + id}}`, name(at, "set is equal"));
      const returned = `"affected":1,"data":[{"cell":${cell}}]}`;
      const bound = await this.#ask(
        `{"Batch":[{"Delete":{${change},${at1000},"returning":["cell"]}},
          {"Insert":{${change},"values":[{"id":${1000 + id}}],"bind":{"cell":{"element":0,"column":"cell"}},"returning":["cell"]}}]}`,
      );
      const both = `{"status":"success","data":[{${returned},{${returned}]}`;
      test.equal(bound.text, both, name(at, "set, and bind"));
      const removal = `{"Delete":{${change},${at1000}}}`;
      const inserted = await this.#ask(
        `{"Batch":[${removal},{"Insert":{${change},"values":[{"id":${1000 + id},"cell":${cell}}],"returning":["cell"]}},${removal}]}`,
      );
      test.match(inserted.text, returned, name(at, "insert"));

      const answer = await this.#scene.ask(
        this.#select(
          `"columns":["c"],"compute":[{"as":"c","fn":"coalesce","of":["cell",{"value":null}]}],
          "where":{"column":"id","cmp":"=","value":${id}}`,
        ),
      );
      if (answer.status === 200) {
        test.equal(
          answer.text,
          `{"status":"success","data":[{"c":${renamed(this.#type, cell)}}]}`,
          name(at, "renamed"),
        );
      } else test.match(answer.body.message, /does not take/);
    }
    const included = await this.#data(
      `"columns":["id","cell"],"order_by":{"column":"id"},"include":[{"as":"b","table":"${table}_b",
        "on":"${table}.id = ${table}_b.id","columns":["cell"],"one":true}]`,
    );
    const expected = rows.map((row, at) => `${row.slice(0, -1)},"b":{"cell":${cells[at]}}}`);
    test.equal(included, expected.join(","), `${this.#type} in an include`);
    await this.#page(cells.length);
    await this.#link(cells.length);
    const distinct = await this.#data(
      `"columns":["cell"],"distinct":true,"order_by":{"column":"cell"}`,
    );
    const grouped = await this.#data(
      `"group_by":["cell"],"aggregate":[{"fn":"count","as":"n"}],"order_by":{"column":"cell"}`,
    );
    test.equal(grouped.replace(/,"n":\d+/g, ""), distinct, `${this.#type} in groups`);
    for (const [at, cell] of cells.entries()) test.match(distinct, cell, name(at, "distinct"));
  }

  /** Each way to compare a column with another one finds each value in the copy of its table. */
  async #link(count: number): Promise<void> {
    const [one, other] = [this.#table, `${this.#table}_b`];
    const on = `"table":"${other}","on":"${one}.cell = ${other}.cell"`;
    const all = Array.from({ length: count }, (_, at) => at + 1).join(",");
    const conditions = {
      other: `{"column":"cell","cmp":"=","other":"cell"}`,
      present: `{"column":"cell","cmp":"!=","value":null}`,
      in: `{"column":"cell","cmp":"IN","select":{"from":"${other}","columns":["cell"]}}`,
      exists: `{"exists":{${on}}}`,
    };
    const found = await this.#ids(...Object.values(conditions));
    for (const [at, name] of Object.keys(conditions).entries()) {
      this.#t.equal(found[at], all, `${this.#type} ${name}`);
    }
    const joined = await this.#data(
      `"columns":["${one}.id"],"distinct":true,"join":{${on},"join_type":"INNER"},"order_by":{"column":"${one}.id"}`,
    );
    this.#t.equal(joined.replace(/[^\d,]/g, ""), all, `${this.#type} joined`);
    const included = await this.#data(
      `"columns":["id"],"order_by":{"column":"id"},"include":[{"as":"b",${on},"columns":["id"]}]`,
    );
    this.#t.equal(included.split(`"b":[{`).length - 1, count, `${this.#type} included`);
  }

  /** Walks through all rows, one a page. */
  async #page(count: number): Promise<void> {
    const order = `"columns":["id","cell"],"order_by":[{"column":"cell"},{"column":"id"}]`;
    const all = await this.#data(order);
    const pages: string[] = [];
    for (let after = ""; pages.length <= count; ) {
      const page = await this.#data(`${order},"limit":1${after}`);
      const [, id, cell] = /^\{"id":(\d+),"cell":(.*)\}$/s.exec(page) ?? [];
      if (id === undefined) break;
      // `after` takes no arrays and objects, and no JSON that is stored as text.
      if (this.#type === "json" || /^"?[[{]/.test(cell ?? "")) return;
      pages.push(page);
      after = `,"after":[${cell},${id}]`;
    }
    this.#t.equal(pages.join(","), all, `${this.#type} in pages`);
  }
}

function roundTrips(
  server: string,
  fresh: (test: Test) => Promise<Scene>,
  columns: Columns,
  types: readonly string[] = [],
): void {
  t.test(`values of another program's table are accepted as read (${server})`, async (t) => {
    const scene = await fresh(t);
    await scene.sql("create table main.started (id integer)", ...types);
    for (const [at, [type, values]] of Object.entries(columns).entries()) {
      await t.test(`values of ${type || "no type"} are accepted as they were read`, (t) =>
        new RoundTrip(t, scene, `t${at}`, type).check(values),
      );
    }
  });
}

const doubles = ["1.5", "0.1", "-0.0", "1e300", "1e19", "9007199254740993", "5e-324", "1e21"];

roundTrips("SQLite", freshSqlite, {
  real: [...doubles, "9e999", "-9e999"],
  "double precision": [...doubles, "9e999"],
  numeric: [...doubles, "9e999", "12", "'text'"],
  integer: ["9223372036854775807", "-9223372036854775808", "1.5", "'text'", "9e999"],
  text: [
    "'a'",
    "''",
    "'a' || char(0) || 'b'",
    "char(65533)",
    "'Infinity'",
    "char(128512)",
    "'aGk='",
  ],
  blob: ["x''", "x'ff00'", "x'6869'", "'some text'", "5"],
  "": ["1", "1.5", "'a'", "9e999"],
  datetime: ["'2013-03-00'", "0", "'now'"],
  boolean: ["1", "0", "2", "'yes'"],
});

const types = [
  "create type main.mood as enum ('low', 'high', 'even')",
  "create domain main.domain_of_mood as main.mood",
  "create domain main.domain_of_domain as main.domain_of_mood",
  "create domain main.amount as numeric(6,2)",
  "create type main.pair as (one int, other text)",
];

const ofPostgres: Columns = {
  real: ["0.1", "'NaN'", "'Infinity'", "'-Infinity'", "3.4028235e38", "1e-45", "16777216", "0.3"],
  "double precision": ["0.1", "'NaN'", "'-Infinity'", "1e300", "1e19", "5e-324"],
  numeric: ["1.50", "'NaN'", "'Infinity'", "1e400", "0.000"],
  "numeric(6,2)": ["1.5", "'NaN'"],
  bigint: ["9223372036854775807"],
  date: ["'2026-01-02'", "'0044-03-15 BC'", "'infinity'", "'500000-01-01'", "'5874897-12-31'"],
  timestamp: [
    "'2026-01-02 03:04:05.678901'",
    "'0044-03-15 12:00 BC'",
    "'-infinity'",
    "'294276-12-31 23:59:59.999999'",
    "'10000-01-01'",
  ],
  "timestamp(0)": ["'2026-01-02 03:04:05'"],
  timestamptz: [
    "'2026-01-02 03:04:05.678901+02'",
    "'0044-03-15 12:00:00+00 BC'",
    "'infinity'",
    "'294276-12-31 23:59:59+00'",
  ],
  time: ["'24:00:00'", "'03:04:05.5'"],
  timetz: ["'03:04:05+02'"],
  interval: ["'1 day 2 hours'", "'-1 mon'"],
  "char(5)": ["'ab'"],
  '"char"': ["'a'"],
  text: ["''", "'a''b'", "U&'\\FFFD'", "'Infinity'"],
  uuid: ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"],
  boolean: ["true", "false"],
  bytea: ["'\\x'", "'\\xff00'"],
  json: [
    `'{"a": 1, "b": [1.50, "x"]}'`,
    `'"text"'`,
    "'1.0'",
    `'{"b":1,"a":{}}'`,
    `'{"a":1,"a":2}'`,
    `'{"2":1,"1":2}'`,
  ],
  jsonb: [`'{"a": 1, "b": [1.50, "x"]}'`, `'"text"'`],
  "main.mood": ["'even'", "'low'", "'high'"],
  "main.domain_of_mood": ["'even'", "'low'", "'high'"],
  "main.domain_of_domain": ["'even'", "'low'"],
  "main.amount[]": ["'{1.50,NULL}'"],
  "main.pair": ["row(1, 'a')", "row(null, 'b')", "row(null, null)"],
  xml: ["'<a>x</a>'"],
  point: ["'(1,2)'"],
  polygon: ["'((1,2),(3,4))'"],
  box: ["'(1,1),(0,0)'"],
  inet: ["'10.0.0.1/8'"],
  money: ["'12.50'"],
  "bit(3)": ["B'101'"],
  "bit varying": ["B'1010'"],
  "text[]": [`'{a,"b,c",NULL,""}'`, "'{}'"],
  "bigint[]": ["'{{1,2},{3,9007199254740993}}'", "'[0:1]={1,2}'", "'[0:1][-1:0]={{1,2},{3,4}}'"],
  "json[]": [`array['{"a": 1}'::json]`],
  "jsonb[]": [`array['[1, [2]]'::jsonb, null]`, `array[array['"a"'::jsonb]]`],
  "box[]": ["'{(1,1),(0,0);(2,2),(1,1)}'"],
  "real[]": ["'{0.1,NaN}'"],
  int4range: ["'[1,5)'"],
  tsvector: ["'a b'"],
  int2vector: ["'1 2'"],
  oid: ["7", "4294967295"],
};

roundTrips("PostgreSQL", freshPostgres, ofPostgres, types);

roundTrips("MariaDB", freshMysql, {
  float: ["0.1", "3.4028e38", "1.4e-45", "16777216", "0.3", "8388609"],
  double: ["0.1", "1e300", "1e19", "5e-324"],
  "decimal(6,2)": ["1.5"],
  "decimal(6,2) zerofill": ["1.5"],
  "int(6) zerofill": ["5"],
  "tinyint(1)": ["0", "1", "5", "-128", "127"],
  "tinyint(1) unsigned": ["255"],
  smallint: ["-32768", "32767"],
  "smallint unsigned": ["65535"],
  mediumint: ["-8388608", "-1"],
  "int unsigned": ["4294967295"],
  bigint: [
    "9223372036854775807",
    "-9223372036854775808",
    "9007199254740993",
    "-9007199254740993",
    "4294967296",
    "-4294967297",
    "-1",
    "0",
  ],
  "bigint unsigned": ["18446744073709551615", "9007199254740993", "9007199254740991", "0"],
  "bit(9)": ["b'101'"],
  "bit(64)": ["18446744073709551615"],
  date: [
    "'2026-01-02'",
    "'0000-00-00'",
    "'2013-03-00'",
    "'2013-00-00'",
    "'0000-03-01'",
    "'0001-01-01'",
  ],
  datetime: [
    "'2026-01-02 03:04:05'",
    "'0000-00-00 00:00:00'",
    "'2013-03-00 00:00:00'",
    "'2013-03-00 01:02:03'",
  ],
  "datetime(6)": ["'2026-01-02 03:04:05.678901'", "'2013-00-00 00:00:00.5'"],
  "timestamp null": ["'2026-01-02 03:04:05'", "0"],
  "timestamp(3) null": ["'2026-01-02 03:04:05.678'"],
  time: ["'838:59:59'", "'-00:00:01'", "'00:00:00'"],
  "time(3)": ["'-838:59:58.5'"],
  year: ["0", "1901", "2155"],
  "varchar(20)": ["'a '", "''", "'Infinity'"],
  "char(5)": ["'ab'"],
  "varchar(20) character set latin1": ["'é'", "'€'", "_latin1 x'81'"],
  "varchar(20) character set latin1 collate latin1_german1_ci": ["'é'", "'z'"],
  "varchar(20) character set utf8mb3": ["'漢'"],
  text: ["'a'"],
  "enum('é','a') character set latin1": ["'é'", "'a'"],
  "enum('z','b','a')": ["'a'", "'z'", "'b'"],
  "set('z','b','a')": ["'a'", "'b,a'", "''", "'z'", "'b'"],
  "binary(4)": ["x'ff'"],
  "varbinary(9)": ["x'ff00'", "''"],
  blob: ["x'ff00'"],
  json: [`'{"a": 1, "b": [1.50, "x"]}'`, `'"text"'`, `'{"b":1,"a":2}'`, `'{"a":1,"a":2}'`],
  ...(isMariaDb && { uuid: ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"], inet6: ["'::1'"] }),
});

t.test("a foreign key of PostgreSQL is named whatever the value", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  await sql(
    "create table main.parents (name text primary key)",
    "create table main.children (parent text references main.parents)",
  );
  const { text } = await ask(insert("children", [{ parent: "a)=(b" }]));
  t.match(text, /"kind":"foreign_key".+"columns":\["parent"\]/);
});
